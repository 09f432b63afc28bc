"""Finding the lines of a text that a pattern matches in, without looking at each line by itself.

A line matches if the pattern is found within it, its end not included. For a literal, and for a pattern that does not
look at its surroundings, the next such line is where the pattern is next found in the whole block, so most of a text
is passed over at the speed of a memory search. Other patterns are tried line by line.

Bytes that are not UTF-8 count as U+FFFD, which a pattern may match: a block with such bytes is searched line by line
too, unless the pattern is a literal without that character.
"""

import os
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from agentd.worker.expressions import Expression, compile_expression

BLOCK_BYTES: Final = 256 * 1024
LINE_BYTES: Final = 1 << 20
"""How much of one line is looked at; the rest of a longer one is passed over."""
_MAX_CROSSINGS: Final = 64
_REPLACEMENT: Final = "�"
_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")


@frozen
class LineSearch:
    """A pattern to be found in lines."""

    expression: Expression
    _needle: bytes | None
    """The literal to look for, where upper and lower case are different."""
    _scan: Expression | None
    """What finds the next line worth looking at in a block of them."""
    _any_bytes: bool
    """Whether `_scan` is right about bytes that are not UTF-8 as well."""

    @classmethod
    def of(
        cls, pattern: str, *, regex: bool, ignore_case: bool, max_program_bytes: int | None = None
    ) -> "LineSearch":
        """The search for `pattern`. Raises `BadPattern`."""
        expression = compile_expression(
            pattern, literal=not regex, ignore_case=ignore_case, max_program_bytes=max_program_bytes
        )
        # What has nothing special in it is a literal, and found faster as one.
        regex = regex and not _SPECIAL.isdisjoint(pattern)
        any_bytes = not regex and _REPLACEMENT not in pattern
        needle = pattern.encode() if any_bytes and not ignore_case else None
        scan = None
        if expression.context_free and needle is None:
            scan = compile_expression(pattern, literal=not regex, ignore_case=ignore_case, one_line=True)
        return cls(expression, needle, scan, any_bytes)

    def find(self, line: bytes) -> int:
        """Where the pattern is found first in a line of UTF-8, -1 for nowhere."""
        if self._needle is not None:
            return line.find(self._needle)
        span = self.expression.search(line)
        return -1 if span is None else span[0]

    def is_absent(self, text: bytes) -> bool:
        """Whether no line of `text` matches, if that is quickly known."""
        return self._needle is not None and self._needle not in text

    def candidates(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Begin and end, without the LF, of the lines of `block` that may match, in order; the others do not."""
        at, size = 0, len(block)
        scan = self._scan if self._any_bytes or is_utf8(block) else None
        while at < size:
            hit = at
            if self._needle is not None:
                hit = block.find(self._needle, at)
            elif scan is not None:
                span = scan.search(block, at)
                hit = -1 if span is None else span[0]
            if hit < 0:
                return
            begin = block.rfind(b"\n", at, hit) + 1 or at
            end = block.find(b"\n", hit)
            if end < 0:
                end = size
            yield begin, end
            at = end + 1

    def whole_lines(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Begin and end, with the LF, of the lines of `text`, which is UTF-8, that may match; the others do not.

        A pattern may here match the line's end, and so in the whole text something that no single line has. Should
        that happen often, looking on would take time in the square of the text, and every line is tried instead.
        """
        at, size, crossed = 0, len(text), 0
        while at < size:
            hit, past = at, at
            if self._needle is not None:
                hit = text.find(self._needle, at)
            elif self.expression.context_free and crossed < _MAX_CROSSINGS:
                hit, past = self.expression.search(text, at) or (-1, -1)
            if hit < 0 or hit >= size:
                return
            begin = text.rfind(b"\n", at, hit) + 1 or at
            stop = text.find(b"\n", hit) + 1 or size
            crossed += past > stop
            yield begin, stop
            at = stop


def is_utf8(data: bytes) -> bool:
    """Whether `data` is UTF-8 throughout."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def repaired(line: bytes) -> bytes:
    """`line` with U+FFFD in the place of bytes that are not UTF-8."""
    return line if is_utf8(line) else line.decode("utf-8", "replace").encode()


def cut_line(line: bytes, limit: int) -> bytes:
    """At most `limit` bytes of a line of UTF-8, cut at the border of a character."""
    if len(line) <= limit:
        return line
    while limit and line[limit] & 0xC0 == 0x80:
        limit -= 1
    return line[:limit]


def read_all(fd: int, most: int, size: int) -> bytes | None:
    """What an open file of so many bytes holds; None if that has become more than `most`. Raises OSError."""
    pieces, count = [], 0
    want = min(size, most) + 1
    while data := os.read(fd, want):
        pieces.append(data)
        count += len(data)
        if count > most:
            return None
        if size and len(data) < want:
            break  # a regular file gives less than it is asked for at its end alone
        want = min(most - count + 1, BLOCK_BYTES)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def blocks(fd: int, first: bytes, whole: bool = False) -> Iterator[bytes]:
    """`first`, and what is left of an open file behind it, in blocks of whole lines; long ones cut to `LINE_BYTES`.

    `whole`: nothing is left. Holds no more than a line and a block. Raises OSError.
    """
    line, data = b"", first
    while data:
        end = data.rfind(b"\n") + 1
        if end:
            begin = data.index(b"\n") if len(line) >= LINE_BYTES else 0
            yield line[:LINE_BYTES] + data[begin:end]
            line = data[end:]
        elif len(line) < LINE_BYTES:
            line += data
        data = b"" if whole else os.read(fd, BLOCK_BYTES)
    if line:
        yield line[:LINE_BYTES]

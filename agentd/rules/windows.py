"""What of a file coder::read-file returns: lines of a window, numbered or not, within a budget (reference B4).

Lines end at LF or at the end of the file; a final LF adds no line, and an empty file has none. Update-file counts in
the same way, so a number read here can be used there. Budgets count what is returned: UTF-8 after bytes that are none
have become U+FFFD, numbers included. A budget cuts between lines only.

`gather` takes the file as chunks, however they are cut, and looks at no more of them than it has to.
"""

from collections.abc import Generator, Iterator
from typing import Final

from attrs import field, frozen

from agentd.rules.lines import START, LineWindow, closed, cut

WHOLE: Final = LineWindow()
ARROW: Final = "→"


class BadWindow(ValueError):
    """The bounds name no window; the text says which and may be shown to the caller."""


@frozen
class Gathered:
    """What was returned of a file. `total_lines` is None when the end was not reached."""

    content: str = field(repr=False)
    lines: int
    more: bool
    utf8: bool
    total_lines: int | None
    size: int
    """Bytes of `content`."""


def window_of(line_from: int | None, line_to: int | None) -> LineWindow | None:
    """The window of a request, None for the whole file. Raises `BadWindow`."""
    if line_from is None and line_to is None:
        return None
    first = 1 if line_from is None else line_from
    if first == 0:
        raise BadWindow("line_from must be 1 or more: lines are counted from 1")
    if line_to is not None and line_to < first:
        raise BadWindow(f"line_to {line_to} comes before line_from {first}")
    return LineWindow(first, line_to)


def count_lines(data: bytes) -> int:
    """How many lines a whole text has."""
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


def number(count: int) -> bytes:
    """What a numbered line begins with."""
    return f"{count}{ARROW}".encode()


def sanitised(line: bytes) -> tuple[bytes, bool]:
    """`line` as UTF-8, and whether it was that already."""
    if line.isascii():
        return line, True
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace").encode(), False
    return line, True


def gather(
    chunks: Iterator[bytes], window: LineWindow, numbered: bool, budget: int | None
) -> Generator[None, None, Gathered]:
    """The lines of `window` in what `chunks` make up; pauses after each chunk. Pure but for the chunks.

    At most `budget` bytes are returned, and not many more held.
    """
    lines: list[bytes] = []
    cursor, pending, size, utf8, short, more, ends_open = START, b"", 0, True, False, False, False

    def take(line: bytes) -> bool:
        nonlocal size, utf8
        clean, good = sanitised(line)
        if numbered:
            clean = number(window.first + len(lines)) + clean
        if budget is not None and size + len(clean) > budget:
            return False
        lines.append(clean)
        size += len(clean)
        utf8 = utf8 and good
        return True

    for chunk in chunks:
        yield
        if closed(window, cursor):
            more = True
            break
        cursor, begin, end = cut(window, cursor, chunk)
        ends_open = not chunk.endswith(b"\n") and end == len(chunk)
        pieces = (pending + chunk[begin:end]).split(b"\n")
        pending = pieces.pop()
        if not all(take(piece + b"\n") for piece in pieces) or (
            budget is not None and size + len(pending) > budget
        ):
            short = True
            break
        if end < len(chunk):
            more = closed(window, cursor)
            if more:
                break
    if pending and not short and not take(pending):
        short = True
    more = more or short
    return Gathered(
        b"".join(lines).decode(),
        len(lines),
        more,
        utf8,
        None if more else cursor.line - 1 + ends_open,
        size,
    )

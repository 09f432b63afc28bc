r"""Regular expressions in the dialect of the contract, Rust's `regex`, carried out by google-re2 (reference B0).

Both are linear-time engines without look-around and back-references, and agree in nearly everything. What differs is
made up for here, in one pass over the pattern before RE2 sees it:

* ``\d``, ``\s`` and ``\w`` know Unicode there and ASCII alone here, so they are spelled out as properties;
* ``\u0041`` is written ``\x{0041}`` here;
* nested classes and class operators (``[a-z&&[^x]]``) exist there only. RE2 would take them for something else
  without a word, so they are refused;
* ``\C`` and ``\Q`` exist here only.

The same pass tells whether a pattern has anything in it that looks at its surroundings (``^``, ``$``, ``\b``). One
that has not matches in a line exactly if it matches somewhere within it, wherever the line lies; then a whole file can
be searched at once for the next line worth looking at.

Text is bytes throughout, in UTF-8. Neither compiling nor matching can take long: RE2 gives the interpreter's lock
back while it searches, and the compiled size is limited.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from attrs import field, frozen

from agentd.worker.patterns import BadPattern

MAX_PATTERN_BYTES: Final = 64 * 1024
_INSTRUCTION_BYTES: Final = 16
"""What one instruction of a program is counted as."""
_MEMORY_BYTES: Final = 4 << 20
"""What RE2 may use for one expression: the program, and the automaton that it builds while it searches."""

_DIGIT: Final = r"\p{Nd}"
_SPACE: Final = r"\t-\r\x{85}\p{Z}"
_WORD: Final = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}"
_UNICODE: Final = {"d": _DIGIT, "s": _SPACE, "w": _WORD}

Spans = list[tuple[int, int]]
"""Where each group matched, the whole match first; (-1, -1) for one that did not."""


@frozen
class Expression:
    """A compiled pattern."""

    source: str
    context_free: bool
    """Whether a match depends on nothing but the bytes it consists of."""
    _regexp: Any = field(repr=False, eq=False)
    _anchor: Any = field(repr=False, eq=False)
    groups: int = 0
    names: dict[str, int] = field(factory=dict, eq=False)

    def search(self, text: bytes, start: int = 0) -> tuple[int, int] | None:
        """The leftmost match that begins at `start` or later."""
        span: tuple[int, int] = self._regexp.Match(self._anchor, text, start, len(text))[0]
        return None if span[0] < 0 else span

    def matches(self, text: bytes) -> Iterator[Spans]:
        """All matches, left to right, without overlap; an empty one is not found where another has just ended."""
        at, ended, size = 0, -1, len(text)
        while at <= size:
            spans: Spans = self._regexp.Match(self._anchor, text, at, size)
            begin, end = spans[0]
            if begin < 0:
                return
            if begin == end:
                at = _next_character(text, end)
                if end == ended:
                    continue
            else:
                at = end
            ended = end
            yield spans


def _next_character(text: bytes, at: int) -> int:
    at += 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


@lru_cache(maxsize=16)
def compile_expression(
    pattern: str,
    *,
    literal: bool = False,
    ignore_case: bool = False,
    dot_matches_newline: bool = False,
    one_line: bool = False,
    max_program_bytes: int | None = None,
) -> Expression:
    """The expression of a caller's `pattern`; not `literal`, in the contract's dialect. Raises `BadPattern`.

    `one_line`: no match has a line end in it, whatever the pattern says.
    """
    try:
        import re2
        from re2 import _re2
    except ImportError:
        raise BadPattern("google-re2 is not installed: install agentd[worker]") from None
    try:
        if len(pattern.encode()) > MAX_PATTERN_BYTES:
            raise BadPattern(f"the pattern is longer than {MAX_PATTERN_BYTES} bytes")
    except UnicodeEncodeError:
        raise BadPattern("the pattern is not valid Unicode") from None
    source, context_free = (pattern, True) if literal else translate(pattern)
    options = re2.Options()
    options.log_errors = False
    options.literal = literal
    options.case_sensitive = not ignore_case
    options.dot_nl = dot_matches_newline
    options.never_nl = one_line
    options.max_mem = _MEMORY_BYTES
    regexp = _re2.RE2(source.encode(), options)
    if not regexp.ok():
        said = regexp.error()
        raise BadPattern(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said))
    if max_program_bytes is not None and regexp.ProgramSize() * _INSTRUCTION_BYTES > max_program_bytes:
        raise BadPattern(f"the pattern compiles to more than {max_program_bytes} bytes")
    names = {_text(name): index for name, index in regexp.NamedCapturingGroups()}
    return Expression(
        pattern, context_free, regexp, _re2.RE2.Anchor.UNANCHORED, regexp.NumberOfCapturingGroups(), names
    )


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


# -- the dialect -------------------------------------------------------------------------------------------------


def translate(pattern: str) -> tuple[str, bool]:
    """The pattern as RE2 has to be given it, and whether it is free of context. Pure. Raises `BadPattern`."""
    out: list[str] = []
    context_free = True
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "[":
            piece, at = _class(pattern, at)
            out.append(piece)
            continue
        if character == "\\":
            context_free = context_free and pattern[at + 1 : at + 2] not in ("b", "B", "A", "z")
            piece, at = _escape(pattern, at, inside=False)
            out.append(piece)
            continue
        if character in "^$":
            context_free = False
        out.append(character)
        at += 1
    return "".join(out), context_free


def _escape(pattern: str, at: int, inside: bool) -> tuple[str, int]:
    """The escape at `at` as RE2 wants it, and where it ends."""
    letter = pattern[at + 1 : at + 2]
    end = at + 2
    if letter in ("C", "Q", "E"):
        raise BadPattern(f"\\{letter} is not supported")
    if letter.lower() in _UNICODE and letter:
        members = _UNICODE[letter.lower()]
        if letter.islower():
            return (members if inside else f"[{members}]"), end
        if not inside:
            return f"[^{members}]", end
        if letter == "D":
            return r"\P{Nd}", end
        raise BadPattern(f"\\{letter} is not supported inside a class")
    if letter == "u":
        if pattern[end : end + 1] == "{":
            return r"\x", end
        digits = pattern[end : end + 4]
        if len(digits) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
            return rf"\x{{{digits}}}", end + 4
        raise BadPattern("\\u needs four hexadecimal digits")
    if letter in ("p", "P") and pattern[end : end + 1] == "{":
        close = pattern.find("}", end)
        end = len(pattern) if close < 0 else close + 1
    return pattern[at:end], end


def _class(pattern: str, at: int) -> tuple[str, int]:
    """The class that opens at `at`, and where it ends; RE2 complains of one that does not."""
    out = ["["]
    at += 1
    if pattern[at : at + 1] == "^":
        out.append("^")
        at += 1
    first = True
    while at < len(pattern):
        character = pattern[at]
        if character == "]" and not first:
            out.append("]")
            return "".join(out), at + 1
        first = False
        if character == "\\":
            piece, at = _escape(pattern, at, inside=True)
            out.append(piece)
        elif character == "[":
            close = pattern.find(":]", at)
            if pattern[at + 1 : at + 2] != ":" or close < 0:
                raise BadPattern("a class inside a class is not supported; escape a literal [ as \\[")
            out.append(pattern[at : close + 2])
            at = close + 2
        elif pattern[at : at + 2] in ("&&", "--", "~~"):
            raise BadPattern(f"the class operator {pattern[at : at + 2]} is not supported")
        else:
            out.append(character)
            at += 1
    return "".join(out), at


# -- replacements ------------------------------------------------------------------------------------------------

_NAME: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")


@frozen
class Replacement:
    """A replacement, taken apart: literal bytes, and numbers of groups; None stands for one that does not exist."""

    pieces: tuple[bytes | int | None, ...]
    unknown: tuple[str, ...] = ()
    """References that no group of the pattern has, as they were written."""

    def expand(self, text: bytes, spans: Spans) -> bytes:
        """What takes the place of the match with these `spans` in `text`."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], bytes):
            return self.pieces[0]
        return b"".join(
            piece if isinstance(piece, bytes) else text[max(spans[piece][0], 0) : max(spans[piece][1], 0)]
            for piece in self.pieces
            if piece is not None
        )


def literal_replacement(text: str) -> Replacement:
    """A replacement in which nothing is special."""
    return Replacement((text.encode(),))


def parse_replacement(template: str, expression: Expression) -> Replacement:
    """``$1``, ``${1}``, ``$name``, ``${name}`` and ``$$`` of a template. Pure.

    Unbraced names take the longest run of letters, digits and underscores; a ``$`` that begins none of these
    stands for itself.
    """
    pieces: list[bytes | int | None] = []
    unknown: list[str] = []
    literal: list[str] = []
    at = 0

    def flush() -> None:
        if any(literal):
            pieces.append("".join(literal).encode())
        literal.clear()

    while at < len(template):
        dollar = template.find("$", at)
        if dollar < 0:
            literal.append(template[at:])
            break
        literal.append(template[at:dollar])
        name, at = _reference(template, dollar)
        if name is None:
            literal.append("$")
            continue
        flush()
        group = _group(name, expression)
        pieces.append(group)
        if group is None:
            unknown.append(template[dollar:at])
    flush()
    return Replacement(tuple(pieces) or (b"",), tuple(unknown))


def _reference(template: str, dollar: int) -> tuple[str | None, int]:
    """The name that the ``$`` at `dollar` refers to, None for a literal one, and where to go on."""
    at = dollar + 1
    if template[at : at + 1] == "$":
        return None, at + 1
    if template[at : at + 1] == "{":
        close = template.find("}", at)
        return (None, at) if close < 0 else (template[at + 1 : close], close + 1)
    end = at
    while end < len(template) and template[end] in _NAME:
        end += 1
    return (template[at:end], end) if end > at else (None, at)


def _group(name: str, expression: Expression) -> int | None:
    if name.isascii() and name.isdigit():
        digits = name.lstrip("0") or "0"
        number = int(digits) if len(digits) < 10 else expression.groups + 1
        return number if number <= expression.groups else None
    return expression.names.get(name)

r"""File name patterns: the two dialects of the worker contract (reference B0), each turned into one matcher.

Neither is a shell's. Patterns of grep and sed are *walk globs*: ``*`` and ``?`` stay within a component, there are
no classes, a pattern without ``/`` means the file name, and a leading ``**/`` means the rest on the name and on the
whole path. Patterns of the configuration and of the coder functions are *globsets*, the default syntax of Rust's
crate of that name: ``*`` and ``?`` cross ``/``, ``**`` between separators is any number of components, and there are
classes, alternatives and escapes.

Both are translated to regular expressions over bytes, because a path is bytes, and a whole list of patterns becomes
one expression. RE2 runs it in time linear in the path, however many stars a caller wrote.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from attrs import define, field, frozen

from agentd.rules.members import shown

MAX_GLOBS_BYTES: Final = 64 * 1024
"""Of all patterns of one list together: a list is compiled for every call."""
_MAX_PROGRAM_BYTES: Final = 8 << 20
_MAX_CLASS_CHARACTERS: Final = 512


class BadGlob(ValueError):
    """The pattern is not in its dialect; the text quotes it and says why."""


@frozen
class Globs:
    """A list of patterns, compiled."""

    patterns: tuple[str, ...]
    _expression: Any = field(default=None, repr=False, eq=False)
    _anchor: Any = field(default=None, repr=False, eq=False)

    def matches(self, path: bytes) -> bool:
        """Whether one of the patterns matches the whole of `path`, relative, without a leading or final slash."""
        if self._expression is None:
            return False
        found: bool = self._expression.Match(self._anchor, path, 0, len(path))[0][0] >= 0
        return found

    def __bool__(self) -> bool:
        return bool(self.patterns)


def walk_globs(patterns: Iterable[str]) -> Globs:
    """The `include_glob` or `exclude_glob` of grep and sed. Raises `BadGlob` for a list that is too long."""
    return _compiled(patterns, walk_expression)


def globset(patterns: Iterable[str]) -> Globs:
    """The globs of the configuration and of the coder functions. Raises `BadGlob`."""
    return _compiled(patterns, globset_expression)


def _compiled(patterns: Iterable[str], translate: Any) -> Globs:
    kept = tuple(patterns)
    if not kept:
        return Globs(())
    try:
        if sum(len(pattern.encode()) for pattern in kept) > MAX_GLOBS_BYTES:
            raise BadGlob(f"the glob patterns are longer than {MAX_GLOBS_BYTES} bytes together")
        source = b"|".join(b"(?:" + translate(pattern) + b")" for pattern in dict.fromkeys(kept))
    except UnicodeEncodeError:
        raise BadGlob("a glob pattern is not valid Unicode") from None
    import re2
    from re2 import _re2

    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    options.dot_nl = True
    options.never_capture = True
    options.max_mem = _MAX_PROGRAM_BYTES
    expression = _re2.RE2(source, options)
    if not expression.ok():
        raise BadGlob("the glob patterns are too large together")
    return Globs(kept, expression, _re2.RE2.Anchor.ANCHOR_BOTH)


# -- grep and sed ------------------------------------------------------------------------------------------------


def walk_expression(pattern: str) -> bytes:
    """The expression of one walk glob, over the path relative to where the walk begins. Pure."""
    if pattern == "**":
        return b".*"
    if pattern.startswith("**/"):
        rest = _simple(pattern[3:])
        # On the file name and on the whole path; a rest with a slash cannot match a name.
        return rest if "/" in pattern[3:] else b"(?:.*/)?" + rest
    return _simple(pattern) if "/" in pattern else b"(?:.*/)?" + _simple(pattern)


def _simple(pattern: str) -> bytes:
    pieces = {"*": b"[^/]*", "?": b"[^/]"}
    return b"".join(pieces.get(character) or _literal(character) for character in pattern)


def _literal(character: str) -> bytes:
    return b"".join(
        bytes((byte,)) if chr(byte).isalnum() and byte < 128 else b"\\x%02x" % byte
        for byte in character.encode()
    )


# -- globset -----------------------------------------------------------------------------------------------------

_ANY: Final = b"."
_STAR: Final = b".*"
_PREFIX: Final = b"(?:/?|.*/)"
_SUFFIX: Final = b"/.*"
_INFIX: Final = b"(?:/|/.*/)"
_SLASH: Final = b"\\x2f"


@define
class _Branch:
    """One alternative on its way: the tokens so far, each an expression."""

    tokens: list[bytes] = field(factory=list)


def globset_expression(pattern: str) -> bytes:
    """The expression of one globset pattern, over the path relative to the root. Pure. Raises `BadGlob`."""
    tokens = _Globset(pattern).parse()
    return _STAR if tokens == [_PREFIX] else b"".join(tokens)


class _Globset:
    """A parser of one pattern: it walks the text once, with a stack of alternatives that are open."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._open: list[list[_Branch]] = [[_Branch()]]

    def parse(self) -> list[bytes]:
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            self._at += 1
            match character:
                case "?":
                    self._push(_ANY)
                case "*":
                    self._star()
                case "[":
                    self._push(self._class())
                case "{":
                    self._open.append([_Branch()])
                case "}":
                    self._close()
                case "," if len(self._open) > 1:
                    self._open[-1].append(_Branch())
                case "\\":
                    if self._at == len(self._pattern):
                        raise self._bad("a backslash at the end")
                    self._push(_literal(self._pattern[self._at]))
                    self._at += 1
                case _:
                    self._push(_literal(character))
        if len(self._open) > 1:
            raise self._bad("an alternative that is not closed")
        return self._open[0][0].tokens

    def _bad(self, what: str) -> BadGlob:
        return BadGlob(f"bad glob {shown(self._pattern.encode()[:256])}: {what}")

    @property
    def _tokens(self) -> list[bytes]:
        return self._open[-1][-1].tokens

    def _push(self, token: bytes) -> None:
        self._tokens.append(token)

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _star(self) -> None:
        before = self._pattern[self._at - 2 : self._at - 1] if self._at > 1 else ""
        if self._peek() != "*":
            self._push(_STAR)
            return
        self._at += 1
        after = self._peek()
        inside = len(self._open) > 1
        if not self._tokens:
            if after in ("", "/"):
                self._at += 1
                self._push(_PREFIX)
            else:
                self._push(_STAR)
            return
        if before != "/" and not (inside and before in (",", "{")):
            self._push(_STAR)
            return
        if after not in ("", "/") and not (inside and after in (",", "}")):
            self._push(_STAR)
            return
        if after == "/":
            self._at += 1
        last = self._tokens.pop()
        if last in (_PREFIX, _SUFFIX):
            self._push(last)
        else:
            self._push(_INFIX if after == "/" else _SUFFIX)

    def _close(self) -> None:
        if len(self._open) == 1:
            raise self._bad("a closing brace without an opening one")
        # An empty alternative counts for nothing, as in the original.
        branches = [b"".join(branch.tokens) for branch in self._open.pop() if branch.tokens]
        if branches:
            self._push(b"(?:" + b"|".join(branches) + b")")

    def _class(self) -> bytes:
        negated = self._peek() in ("!", "^") and self._peek() != ""
        self._at += negated
        ranges = list(self._ranges())
        narrow = b"".join(b"\\x%02x-\\x%02x" % (low, min(high, 127)) for low, high in ranges if low < 128)
        wide = [(max(low, 128), high) for low, high in ranges if high > 127]
        if sum(high - low + 1 for low, high in wide) > _MAX_CLASS_CHARACTERS:
            raise self._bad("a class of too many characters outside ASCII")
        try:
            characters = [chr(code).encode() for low, high in wide for code in range(low, high + 1)]
        except UnicodeEncodeError:
            raise self._bad("a class over characters that are none") from None
        if negated:
            # Any one byte that no member has: what follows ASCII is matched byte by byte, as by the original.
            used = sorted({byte for character in characters for byte in character})
            return b"[^" + narrow + b"".join(b"\\x%02x" % byte for byte in used) + b"]"
        options = [b"[" + narrow + b"]"] if narrow else []
        options += [_literal(chr(code)) for low, high in wide for code in range(low, high + 1)]
        return b"(?:" + b"|".join(options) + b")"

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """The members of a class up to its closing bracket; one right after the opening is a member."""
        ranges: list[list[int]] = []
        first, open_range = True, False
        while True:
            character = self._peek()
            self._at += 1
            if not character:
                raise self._bad("a class that is not closed")
            if character == "]" and not first:
                break
            if character == "-" and not first and not open_range:
                open_range = True
            elif open_range:
                ranges[-1][1] = ord(character)
                if ranges[-1][1] < ranges[-1][0]:
                    raise self._bad("a range that runs backwards")
                open_range = False
            else:
                ranges.append([ord(character)] * 2)
            first = False
        if open_range:
            ranges.append([ord("-")] * 2)
        yield from ((low, high) for low, high in ranges)

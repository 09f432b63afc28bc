"""A command line split into words as a POSIX shell would, without expanding anything (POSIX XCU 2.2, 2.3).

Quotes and backslashes only: ``'...'`` is literal, in ``"..."`` a backslash quotes ``$ ` " \\`` and a newline, outside
of quotes anything. ``#`` at the start of a word begins a comment. There is no pipe, no variable and no glob: nothing
is ever given to a shell.
"""

from typing import Final

_BLANK: Final = " \t\n"
_QUOTED_IN_DOUBLE: Final = '$`"\\'


class Unbalanced(ValueError):
    """A quote is not closed."""


def split(line: str) -> tuple[str, ...]:
    """The words of `line`. Raises `Unbalanced`."""
    words: list[str] = []
    word: list[str] | None = None
    at = 0
    while at < len(line):
        char = line[at]
        at += 1
        if char in _BLANK:
            if word is not None:
                words.append("".join(word))
                word = None
        elif char == "#" and word is None:
            end = line.find("\n", at)
            at = len(line) if end < 0 else end
        elif char == "\\" and line[at : at + 1] == "\n":
            at += 1  # a line that goes on
        else:
            word = [] if word is None else word
            if char == "'":
                at = _single(line, at, word)
            elif char == '"':
                at = _double(line, at, word)
            elif char == "\\" and at < len(line):
                word.append(line[at])
                at += 1
            else:
                word.append(char)
    if word is not None:
        words.append("".join(word))
    return tuple(words)


def _single(line: str, at: int, word: list[str]) -> int:
    end = line.find("'", at)
    if end < 0:
        raise Unbalanced("a single quote is not closed")
    word.append(line[at:end])
    return end + 1


def _double(line: str, at: int, word: list[str]) -> int:
    while at < len(line):
        char = line[at]
        at += 1
        if char == '"':
            return at
        if char == "\\":
            following = line[at : at + 1]
            at += 1
            if following == "\n":
                continue
            if following and following in _QUOTED_IN_DOUBLE:
                char = following
            else:
                char += following
        word.append(char)
    raise Unbalanced("a double quote is not closed")

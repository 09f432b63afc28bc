"""A command line in words, as a POSIX shell would have them without its expansions."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules.words import Unbalanced, split


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", ()),
        (" \t\n ", ()),
        ("a b\tc\nd", ("a", "b", "c", "d")),
        ("'a b' \"c d\"", ("a b", "c d")),
        ("a'b'c\"d\"e", ("abcde",)),
        ("'' \"\" x", ("", "", "x")),
        (r"a\ b \'c \"d \\e", ("a b", "'c", '"d', "\\e")),
        (r"'a\b'", ("a\\b",)),
        (r'"a\b \$x \`y \"z \\"', ('a\\b $x `y "z \\',)),
        ('"a\\\nb"', ("ab",)),
        ("a\\\nb", ("ab",)),
        ("a \\\n b", ("a", "b")),
        ("\\\n", ()),
        ("a\\", ("a\\",)),
        ("$HOME * ~ `x` $(y) | & ; > <", ("$HOME", "*", "~", "`x`", "$(y)", "|", "&", ";", ">", "<")),
        ("a # b\nc", ("a", "c")),
        ("a#b '#c' \\#d", ("a#b", "#c", "#d")),
        ("# all", ()),
        ("ä 'ö ü'", ("ä", "ö ü")),
    ],
)
def test_words(line: str, words: tuple[str, ...]) -> None:
    assert split(line) == words


@pytest.mark.parametrize("line", ["'", '"', "a 'b", 'a "b', '"a\\"', "'a\\'b'"])
def test_quotes_that_are_not_closed(line: str) -> None:
    with pytest.raises(Unbalanced):
        split(line)


@given(st.lists(st.text()))
def test_what_is_quoted_comes_back(words: list[str]) -> None:
    assert split(shlex.join(words)) == tuple(words)


@given(st.text(alphabet="ab '\\\"#\n\t$`"))
def test_any_line_is_split_or_unbalanced(line: str) -> None:
    try:
        words = split(line)
    except Unbalanced:
        return
    assert all("\n" not in word or "'" in line or '"' in line for word in words)

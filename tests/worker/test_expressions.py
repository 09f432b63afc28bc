"""Regular expressions in the contract's dialect: what they match, what replaces it, and what they may cost."""

import os
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.worker import line_search
from agentd.worker.expressions import (
    MAX_PATTERN_BYTES,
    compile_expression,
    literal_replacement,
    parse_replacement,
)
from agentd.worker.line_search import LineSearch, cut_line
from agentd.worker.patterns import BadPattern


def found(pattern: str, text: str, **options: bool) -> str | None:
    data = text.encode()
    span = compile_expression(pattern, **options).search(data)  # type: ignore[arg-type]
    return None if span is None else data[span[0] : span[1]].decode()


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        # ``$`` is the very end.
        ("a$", "a", "a"),
        ("a$", "a\n", None),
        ("(?m)a$", "a\nb", "a"),
        (r"a\z", "a\n", None),
        (r"\Aa", "ba", None),
        # Names of groups in both spellings.
        ("(?<n>a)", "a", "a"),
        ("(?P<n>a)", "a", "a"),
        # Unicode.
        (r"\w+", "-été_1 ", "été_1"),
        (r"[\w-]+", " été-2 ", "été-2"),
        (r"\d+", "x٣4", "٣4"),
        (r"[^\d]+", "٣ab4", "ab"),
        (r"\D+", "٣ab4", "ab"),
        (r"[\D]+", "٣ab4", "ab"),
        (r"\s+", "a\u2003\u00a0b", "\u2003\u00a0"),
        (r"\S+", "\u2003ab\u00a0", "ab"),
        (r"\W+", "é-é", "-"),
        (r"\pL+", "1é2", "é"),
        (r"\p{Greek}+", "aαβ", "αβ"),
        (r"(?i)É", "é", "é"),
        (".", "é", "é"),
        # Escapes.
        (r"\u00e9", "é", "é"),
        (r"\u{e9}", "é", "é"),
        (r"\x{e9}", "é", "é"),
        (r"[\u00e0-\u00ff]", "é", "é"),
        (r"[[:alpha:]]+", "1ab", "ab"),
        (r"[]a]+", "]a", "]a"),
        (r"[^]]+", "]ab", "ab"),
        (r"[\[\]]", "[", "["),
        (r"a.b", "a\nb", None),
        (r"(?s)a.b", "a\nb", "a\nb"),
    ],
)
def test_dialect(pattern: str, text: str, expected: str | None) -> None:
    assert found(pattern, text) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "a)",
        "[a",
        "*",
        r"\1",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?>a)",
        r"\Z",
        r"\C",
        r"\Qa\E",
        "[a&&b]",
        "[a-z--b]",
        "[a~~b]",
        "[a[b]]",
        r"[\W]",
        r"\u12",
        "\\",
        "a{1001}",
        "((a{100}){100}){100}",
        "\ud800",
        "a" * (MAX_PATTERN_BYTES + 1),
    ],
)
def test_refused(pattern: str) -> None:
    with pytest.raises(BadPattern) as refused:
        compile_expression(pattern)
    assert str(refused.value)


def test_options() -> None:
    assert found("a.c", "abc a.c", literal=True) == "a.c"
    assert found("A.C", "a.c", literal=True, ignore_case=True) == "a.c"
    assert found("A", "a", ignore_case=True) == "a"
    assert found("a.b", "a\nb", dot_matches_newline=True) == "a\nb"
    assert found(r"a\sb", "a\nb", one_line=True) is None
    with pytest.raises(BadPattern, match="compiles to more"):
        compile_expression(r"\w{50}", max_program_bytes=256 * 1024)
    compile_expression(r"\w{5}", max_program_bytes=256 * 1024)


@pytest.mark.parametrize(
    ("pattern", "free"),
    [
        ("abc", True),
        ("[^a]", True),
        (r"\$\^", True),
        ("[$^]", True),
        (r"\w\d", True),
        ("^a", False),
        ("a$", False),
        (r"\ba", False),
        (r"\B", False),
        (r"\Aa", False),
        (r"a\z", False),
    ],
)
def test_what_looks_at_its_surroundings(pattern: str, free: bool) -> None:
    assert compile_expression(pattern).context_free is free


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a*", "baac", [(0, 0), (1, 3), (4, 4)]),
        ("", "é", [(0, 0), (2, 2)]),
        ("a|", "ab", [(0, 1), (2, 2)]),
        ("^", "ab", [(0, 0)]),
        ("b$", "ab", [(1, 2)]),
        ("x", "ab", []),
        ("", "", [(0, 0)]),
    ],
)
def test_all_matches(pattern: str, text: str, expected: list[tuple[int, int]]) -> None:
    """As Rust's find_iter: an empty match is not found where another has just ended."""
    assert [spans[0] for spans in compile_expression(pattern).matches(text.encode())] == expected


@pytest.mark.parametrize(
    ("template", "expected", "unknown"),
    [
        ("x", "x", ()),
        ("", "", ()),
        ("$0", "ab", ()),
        ("$1-$2", "a-b", ()),
        ("${1}x", "ax", ()),
        ("$1x", "", ("$1x",)),
        ("$n", "a", ()),
        ("${n}m", "am", ()),
        ("$nm", "", ("$nm",)),
        ("$9", "", ("$9",)),
        ("$99999999999999999999", "", ("$99999999999999999999",)),
        ("$01", "a", ()),
        ("$$1", "$1", ()),
        ("$$$1", "$a", ()),
        ("$", "$", ()),
        ("$-", "$-", ()),
        ("a$", "a$", ()),
        ("${", "${", ()),
        ("${n", "${n", ()),
        ("${}", "", ("${}",)),
        ("$é", "$é", ()),
        ("[$3]", "[]", ()),
    ],
)
def test_replacements(template: str, expected: str, unknown: tuple[str, ...]) -> None:
    expression = compile_expression("(?<n>a)(b)(c)?")
    replacement = parse_replacement(template, expression)
    spans = next(expression.matches(b"-ab-"))
    assert replacement.expand(b"-ab-", spans).decode() == expected
    assert replacement.unknown == unknown
    assert literal_replacement(template).expand(b"-ab-", spans).decode() == template


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)*c", "(.*)*x", "(a?){300}a{300}", "(x+x+)+y"])
def test_time_is_linear(pattern: str) -> None:
    begun = time.monotonic()
    compile_expression(pattern).search(b"a" * 200_000)
    assert time.monotonic() - begun < 5


@given(st.text())
def test_any_pattern_compiles_or_is_refused(pattern: str) -> None:
    with suppress(BadPattern):
        compile_expression(pattern).search("some text\nälso this".encode())


# -- in lines ----------------------------------------------------------------------------------------------------

pieces = st.sampled_from([b"a", b"b", b"\n", b"\r\n", "é".encode(), b"\xff", b"ab", b"$"])
texts = st.lists(pieces, max_size=30).map(b"".join)
PATTERNS = [
    "a",
    "ab",
    "[^a]",
    "a*",
    "^a",
    "b$",
    r"\bb",
    r"\s",
    "é",
    ".",
    "(?i)A",
    r"a\nb",
    r"[^b]b",
    "\ufffd",
    "x",
]


@given(st.sampled_from(PATTERNS), st.booleans(), st.booleans(), texts)
def test_candidates_leave_out_no_line(pattern: str, regex: bool, ignore_case: bool, text: bytes) -> None:
    """Every line that matches by itself is among them, in order and once."""
    search = LineSearch.of(pattern, regex=regex, ignore_case=ignore_case)
    candidates = list(search.candidates(text))
    assert candidates == sorted(set(candidates))
    begin, expected = 0, []
    for line in text.split(b"\n"):
        clean = line.decode("utf-8", "replace").encode()
        end = begin + len(line)
        if search.find(clean) >= 0 and (begin < len(text)):
            expected.append((begin, end))
        begin = end + 1
    assert set(expected) <= set(candidates)


@given(st.sampled_from(PATTERNS), st.booleans(), texts.filter(lambda text: b"\xff" not in text))
def test_whole_lines_leave_out_no_line(pattern: str, regex: bool, text: bytes) -> None:
    search = LineSearch.of(pattern, regex=regex, ignore_case=False)
    candidates = list(search.whole_lines(text))
    begin, expected = 0, []
    for line in (
        text.splitlines(keepends=True) if b"\r" not in text else text.replace(b"\n", b"\n\0").split(b"\0")
    ):
        end = begin + len(line)
        if line and next(search.expression.matches(line), None) is not None:
            expected.append((begin, end))
        begin = end
    assert set(expected) <= set(candidates)


@given(st.binary(max_size=200), st.integers(1, 20))
def test_blocks_are_the_file_in_whole_lines(data: bytes, size: int) -> None:
    end, other = os.pipe()
    with open(end, "rb", buffering=0) as file, pytest.MonkeyPatch.context() as patch:
        os.write(other, data)
        os.close(other)
        patch.setattr(line_search, "BLOCK_BYTES", size)
        found = list(line_search.blocks(file.fileno(), file.read(size) or b""))
    assert b"".join(found) == data
    assert all(block.endswith(b"\n") for block in found[:-1])


@given(st.text(max_size=20), st.integers(0, 30))
def test_lines_are_cut_at_characters(text: str, limit: int) -> None:
    cut = cut_line(text.encode(), limit)
    assert len(cut) <= limit or cut == text.encode()
    assert text.startswith(cut.decode())
    assert len(text.encode()) <= limit or len(cut) > limit - 4

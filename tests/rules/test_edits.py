"""Batched edits: line operations against doing them one by one, and regions that follow what happens to the text."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentd.rules.edits import (
    ECHO_BUDGET_BYTES,
    BadEdit,
    LineEdit,
    Region,
    Replacing,
    apply_lines,
    check,
    echoes,
    split_lines,
)

TEXT = b"one\ntwo\nthree\nfour\nfive\n"


def edited(text: bytes, *edits: LineEdit) -> bytes:
    return apply_lines(text, check(edits, len(split_lines(text))))[0]


def insert(index: int, at: int, content: bytes) -> LineEdit:
    return LineEdit(index, at, at - 1, content)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([insert(0, 1, b"zero\n")], b"zero\none\ntwo\nthree\nfour\nfive\n"),
        ([insert(0, 6, b"six")], b"one\ntwo\nthree\nfour\nfive\nsix\n"),
        ([LineEdit(0, 2, 3)], b"one\nfour\nfive\n"),
        ([LineEdit(0, 1, 5)], b""),
        ([LineEdit(0, 2, 2, b"2a\n2b\n")], b"one\n2a\n2b\nthree\nfour\nfive\n"),
        ([LineEdit(0, 2, 2, b"\n")], b"one\n\nthree\nfour\nfive\n"),
        ([LineEdit(0, 2, 2, b"a\n\n")], b"one\na\n\nthree\nfour\nfive\n"),
        ([LineEdit(1, 5, 5, b"V"), LineEdit(0, 1, 1, b"I")], b"I\ntwo\nthree\nfour\nV\n"),
        ([LineEdit(0, 1, 2), insert(1, 3, b"x")], b"x\nthree\nfour\nfive\n"),
    ],
)
def test_line_edits(edits: list[LineEdit], expected: bytes) -> None:
    assert edited(TEXT, *edits) == expected


@pytest.mark.parametrize(
    ("text", "edits", "expected"),
    [
        (b"", [insert(0, 1, b"a\nb\n")], b"a\nb"),
        (b"a", [insert(0, 2, b"b")], b"a\nb"),
        (b"a\n", [insert(0, 2, b"b")], b"a\nb\n"),
        (b"a", [LineEdit(0, 1, 1)], b""),
        (b"a\n\n", [LineEdit(0, 1, 1)], b"\n"),
    ],
)
def test_the_final_newline_stays_as_it_was(text: bytes, edits: list[LineEdit], expected: bytes) -> None:
    assert edited(text, *edits) == expected


@pytest.mark.parametrize(
    "edits",
    [
        [insert(0, 0, b"x")],
        [insert(0, 7, b"x")],
        [LineEdit(0, 0, 1)],
        [LineEdit(0, 1, 6)],
        [LineEdit(0, 6, 6)],
        [LineEdit(0, 1, 2), LineEdit(1, 2, 3)],
        [insert(0, 2, b"x"), insert(1, 2, b"y")],
        [LineEdit(0, 1, 5), insert(1, 3, b"x")],
        [LineEdit(0, 2, 3), insert(1, 2, b"x")],
    ],
)
def test_bad_line_edits(edits: list[LineEdit]) -> None:
    with pytest.raises(BadEdit, match="op"):
        edited(TEXT, *edits)


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, list[LineEdit]]:
    """A text, and edits of it that touch no line twice, in any order."""
    lines = draw(st.lists(st.sampled_from([b"a", b"bb", b""]), max_size=12))
    text = b"\n".join(lines) + draw(st.sampled_from([b"", b"\n"])) if lines else b""
    count = len(split_lines(text))
    borders = sorted(set(draw(st.lists(st.integers(1, count + 1), max_size=8))))
    edits = []
    for index, (first, after) in enumerate(pairwise([*borders, count + 2])):
        content = draw(st.sampled_from([b"", b"X", b"X\nY\n", b"\n"]))
        last = draw(st.integers(first - 1, min(after - 1, count))) if first <= count else first - 1
        edits.append(LineEdit(index, first, last, content))
    return text, draw(st.permutations(edits))


@given(batches())
def test_one_pass_is_what_one_by_one_from_below_would_be(batch: tuple[bytes, list[LineEdit]]) -> None:
    text, edits = batch
    lines = split_lines(text)
    for edit in sorted(edits, key=lambda edit: -edit.first):
        lines[edit.first - 1 : max(edit.last, edit.first - 1)] = split_lines(edit.content)
    expected = b"\n".join(lines) + (b"\n" if lines and text.endswith(b"\n") else b"")
    changed, regions = apply_lines(text, check(edits, len(split_lines(text))))
    assert changed == expected
    contents = {edit.index: edit.content for edit in edits}
    for region in regions:
        assert changed[region.begin : region.end].removesuffix(b"\n") == contents[region.index].removesuffix(
            b"\n"
        )


def test_a_hundred_thousand_edits() -> None:
    text = b"".join(b"line %d\n" % number for number in range(100_000))
    edits = [LineEdit(number, number + 1, number + 1, b"row %d" % number) for number in range(100_000)]
    assert edited(text, *reversed(edits)) == text.replace(b"line", b"row")


# -- regions -----------------------------------------------------------------------------------------------------


@st.composite
def replacements(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int, int]]]:
    text = draw(st.binary(min_size=1, max_size=20))
    offsets = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    sites = [
        (begin, end, draw(st.integers(0, 4))) for begin, end in zip(offsets[::2], offsets[1::2], strict=False)
    ]
    assume(all(before[1] < after[0] or before[1] < after[1] for before, after in pairwise(sites)))
    return text, sites


@given(replacements(), st.integers(0, 20), st.integers(0, 20))
def test_regions_follow(made: tuple[bytes, list[tuple[int, int, int]]], one: int, two: int) -> None:
    """A region of what no site touches stays what it was; one that a site touches takes in what came for it."""
    text, sites = made
    begin, end = sorted((min(one, len(text)), min(two, len(text))))
    replacing = Replacing(1, [Region(0, begin, end)])
    new, kept = b"", 0
    for first, last, length in sites:
        replacing.site(first, last, length)
        new += text[kept:first] + b"#" * length
        kept = last
    new += text[kept:]
    moved, *mine = replacing.done()
    assert 0 <= moved.begin <= moved.end <= len(new)
    assert replacing.count == len(sites)
    assert [region.sites for region in mine] == [len(sites)] * len(mine)
    assert all(new[each.begin : each.end] == b"#" * (each.end - each.begin) for each in mine)
    if begin < end and all(last < begin or first > end for first, last, _ in sites):
        assert new[moved.begin : moved.end] == text[begin:end]
    inside = [site for site in sites if begin <= site[0] and site[1] <= end and site[0] < site[1]]
    assert (moved.end - moved.begin) >= sum(length for _, _, length in inside)


# -- echoes ------------------------------------------------------------------------------------------------------


def numbered(count: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(1, count + 1))


def test_line_echoes_have_context() -> None:
    text, regions = apply_lines(numbered(10), check([LineEdit(0, 5, 6, b"X")], 10))
    (echo,), cut = echoes(text, regions)
    assert (echo.from_line, echo.lines, echo.elided, cut) == (3, (b"3", b"4", b"X", b"7", b"8"), None, False)
    text, regions = apply_lines(numbered(10), check([LineEdit(0, 5, 6)], 10))
    assert echoes(text, regions)[0][0].lines == (b"3", b"4", b"7", b"8")
    text, regions = apply_lines(numbered(1), check([LineEdit(0, 1, 1)], 1))
    (echo,), _ = echoes(text, regions)
    assert (echo.from_line, echo.lines) == (1, ())


def test_long_echoes_are_cut_in_the_middle() -> None:
    text, regions = apply_lines(numbered(4), check([insert(0, 3, numbered(100))], 4))
    (echo,), _ = echoes(text, regions)
    assert echo.from_line == 1
    assert echo.lines == (
        *(b"1", b"2", b"1", b"2", b"3", b"4", b"5", b"6"),
        *(b"95", b"96", b"97", b"98", b"99", b"100", b"3", b"4"),
    )
    assert echo.elided == 104 - 16


def test_echoes_have_a_budget_that_the_first_always_fits() -> None:
    text = b"x" * 10_000 + b"\n" + numbered(99)
    edits = [LineEdit(number, number, number, b"y" * 50) for number in range(2, 100)]
    changed, regions = apply_lines(text, check(edits, 100))
    shown, cut = echoes(changed, regions)
    assert (len(shown), cut) == (1, True)
    changed, regions = apply_lines(text, check(edits[5:], 100))
    shown, cut = echoes(changed, regions)
    assert cut
    assert (
        sum(echo.cost for echo in shown) <= ECHO_BUDGET_BYTES < sum(echo.cost for echo in shown) + 64 + 5 * 51
    )


def test_site_echoes() -> None:
    text = b"a\nb\nc\nd\n"
    replacing = Replacing(3, [])
    replacing.site(0, 1, 1)
    replacing.site(2, 7, 5)
    shown, _ = echoes(text, replacing.done())
    assert [(echo.index, echo.from_line, echo.lines, echo.elided, echo.sites) for echo in shown] == [
        (3, 1, (b"a",), None, 2),
        (3, 2, (b"b", b"d"), 1, 2),
    ]
    many = Replacing(0, [])
    for number in range(9):
        many.site(number, number + 1, 1)
    assert len(many.done()) == 5

"""Line windows and byte ranges (contract e.2; RFC 9110 section 14.1.2)."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentd.rules.lines import (
    START,
    U64_MAX,
    ByteRange,
    InvalidWindow,
    LineWindow,
    RangeNotSatisfiable,
    byte_range,
    closed,
    cut,
    line_window,
)

texts = st.lists(st.sampled_from([b"\n", b"a", b"\r", b"bc\n", b"\n\n", b"x" * 100]), max_size=60).map(
    b"".join
)


def lines_of(text: bytes, first: int, last: int | None) -> bytes:
    """The naive answer: split behind every LF, take a slice."""
    return (
        b"".join(text.splitlines(keepends=True)[first - 1 : last])
        if b"\r" not in text
        else _split(text, first, last)
    )


def _split(text: bytes, first: int, last: int | None) -> bytes:
    pieces = [piece + b"\n" for piece in text.split(b"\n")]
    pieces[-1] = pieces[-1][:-1]
    return b"".join(pieces[first - 1 : last])


def windowed(window: LineWindow, chunks: list[bytes]) -> bytes:
    cursor = START
    out = b""
    for chunk in chunks:
        cursor, begin, end = cut(window, cursor, chunk)
        out += chunk[begin:end]
    return out


@st.composite
def chunked(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    edges = [0, *cuts, len(text)]
    return text, [text[a:b] for a, b in pairwise(edges)]


@given(chunked(), st.integers(1, 12), st.none() | st.integers(0, 12))
def test_any_chunking_equals_a_naive_split(
    made: tuple[bytes, list[bytes]], first: int, more: int | None
) -> None:
    text, chunks = made
    last = None if more is None else first + more
    assert windowed(LineWindow(first, last), chunks) == lines_of(text, first, last)


@given(texts, st.integers(1, 8), st.integers(0, 8), st.integers(0, 8))
def test_adjacent_windows_concatenate(text: bytes, first: int, more: int, further: int) -> None:
    middle, last = first + more, first + more + 1 + further
    halves = windowed(LineWindow(first, middle), [text]) + windowed(LineWindow(middle + 1, last), [text])
    assert halves == windowed(LineWindow(first, last), [text])


@given(texts, st.integers(1, 10))
def test_a_closed_window_takes_nothing_more(text: bytes, last: int) -> None:
    window = LineWindow(1, last)
    cursor, _, end = cut(window, START, text)
    assert closed(window, cursor) == (text.count(b"\n") >= last)
    if closed(window, cursor):
        assert text[:end].count(b"\n") == last
        assert text[end - 1 : end] == b"\n"
        assert cut(window, cursor, b"more\n") == (cursor, 0, 0)


def test_a_window_deep_inside_one_long_chunk() -> None:
    text = b"".join(b"line %d\n" % number for number in range(1, 20_001))
    assert windowed(LineWindow(12_345, 12_346), [text]) == b"line 12345\nline 12346\n"


def test_an_unterminated_last_line_is_a_line() -> None:
    assert windowed(LineWindow(2, 2), [b"a\nb"]) == b"b"
    assert windowed(LineWindow(3, None), [b"a\nb"]) == b""
    assert windowed(LineWindow(1, 99), [b"a\nb"]) == b"a\nb"


@pytest.mark.parametrize(
    ("start", "end", "window"),
    [
        (None, None, None),
        ("1", None, LineWindow(1, None)),
        (None, "7", LineWindow(1, 7)),
        ("3", "3", LineWindow(3, 3)),
        ("007", "0000000000000000000000008", LineWindow(7, 8)),
        (str(U64_MAX), str(U64_MAX), LineWindow(U64_MAX, U64_MAX)),
    ],
)
def test_bounds(start: str | None, end: str | None, window: LineWindow | None) -> None:
    assert line_window(start, end) == window


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("0", None),
        (None, "0"),
        ("5", "4"),
        ("", None),
        (None, ""),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1.0", None),
        ("1_0", None),
        ("٣", None),
        ("x", "1"),
        (str(U64_MAX + 1), None),
        ("9" * 5000, None),
    ],
)
def test_bounds_that_are_refused(start: str | None, end: str | None) -> None:
    with pytest.raises(InvalidWindow):
        line_window(start, end)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", ByteRange(0, 1)),
        ("bytes=2-4", ByteRange(2, 5)),
        ("bytes=2-", ByteRange(2, 10)),
        ("bytes=-3", ByteRange(7, 10)),
        ("bytes=-30", ByteRange(0, 10)),
        ("bytes=9-99999999999999999999", ByteRange(9, 10)),
        ("BYTES = 1-1 ,", ByteRange(1, 2)),
        ("bytes=1-2,4-5", None),
        ("bytes=4-2", None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
        ("bytes=1-2x", None),
        ("lines=1-2", None),
        ("", None),
        ("bytes=" + "9" * 10000 + "-", None),
    ],
)
def test_ranges_of_ten_bytes(header: str, expected: ByteRange | None) -> None:
    assert byte_range(header, 10) == expected


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-11", "bytes=99-100", "bytes=-0"])
def test_ranges_behind_the_end(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable):
        byte_range(header, 10)


def test_an_empty_file_has_no_suffix() -> None:
    assert byte_range("bytes=-5", 0) is None


@given(st.integers(1, 1000), st.integers(0, 1200), st.none() | st.integers(0, 1200))
@example(1, 0, 0)
def test_a_range_lies_in_its_file(size: int, first: int, last: int | None) -> None:
    header = f"bytes={first}-{'' if last is None else last}"
    if last is not None and last < first:
        assert byte_range(header, size) is None
    elif first >= size:
        with pytest.raises(RangeNotSatisfiable):
            byte_range(header, size)
    else:
        found = byte_range(header, size)
        assert found is not None
        assert (found.first, found.stop) == (first, min(size, size if last is None else last + 1))
        assert found.length > 0

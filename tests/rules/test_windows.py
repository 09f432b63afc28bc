"""Windows of a file: the same however it is cut into chunks, and never more than the budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules.lines import LineWindow
from agentd.rules.windows import WHOLE, BadWindow, Gathered, count_lines, gather, window_of
from tests.files.support import drive


def gathered(
    data: bytes,
    window: LineWindow = WHOLE,
    numbered: bool = False,
    budget: int | None = None,
    size: int = 1000,
) -> Gathered:
    chunks = (data[at : at + size] for at in range(0, len(data), size))
    return drive(gather(chunks, window, numbered, budget))


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(None, None, None), (2, None, LineWindow(2)), (None, 3, LineWindow(1, 3)), (2, 2, LineWindow(2, 2))],
)
def test_windows(first: int | None, last: int | None, expected: LineWindow | None) -> None:
    assert window_of(first, last) == expected


@pytest.mark.parametrize(("first", "last"), [(0, None), (0, 1), (None, 0), (3, 2)])
def test_bad_windows(first: int | None, last: int | None) -> None:
    with pytest.raises(BadWindow):
        window_of(first, last)


@pytest.mark.parametrize(
    ("data", "window", "content", "lines", "more", "total"),
    [
        (b"", WHOLE, "", 0, False, 0),
        (b"a", WHOLE, "a", 1, False, 1),
        (b"a\n", WHOLE, "a\n", 1, False, 1),
        (b"a\n\n", WHOLE, "a\n\n", 2, False, 2),
        (b"a\nb\nc\n", LineWindow(2, 2), "b\n", 1, True, None),
        (b"a\nb\nc\n", LineWindow(3, 3), "c\n", 1, False, 3),
        (b"a\nb\nc", LineWindow(3, 3), "c", 1, False, 3),
        (b"a\nb\nc", LineWindow(2, 9), "b\nc", 2, False, 3),
        (b"a\nb\n", LineWindow(5, 9), "", 0, False, 2),
        (b"a\nb", LineWindow(2), "b", 1, False, 2),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_gather(
    data: bytes, window: LineWindow, content: str, lines: int, more: bool, total: int | None, size: int
) -> None:
    found = gathered(data, window, size=size)
    assert (found.content, found.lines, found.more, found.total_lines) == (content, lines, more, total)


def test_numbers_are_absolute_and_counted() -> None:
    found = gathered(b"a\nb\nc\n", LineWindow(2), numbered=True)
    assert found.content == "2→b\n3→c\n"
    assert found.size == len(found.content.encode()) == 12
    found = gathered(b"a\nb\nc\n", LineWindow(2), numbered=True, budget=11)
    assert (found.content, found.more, found.total_lines) == ("2→b\n", True, None)


def test_bad_bytes_are_counted_as_what_they_become() -> None:
    found = gathered(b"\xff\na\n", budget=4)
    assert (found.content, found.utf8, found.more) == ("�\n", False, True)
    found = gathered(b"\xff\na\n", budget=3)
    assert (found.content, found.lines, found.more) == ("", 0, True)
    assert gathered(b"\xff\na\n", LineWindow(2)).utf8
    assert gathered("é\n".encode(), size=1).utf8


def test_a_line_that_is_too_long_is_not_held() -> None:
    def chunks() -> object:
        yield b"short\n"
        for _ in range(100):
            yield b"x" * 1000
        raise AssertionError("read on without need")

    found = drive(gather(chunks(), WHOLE, False, 5000))  # type: ignore[arg-type]
    assert (found.content, found.more) == ("short\n", True)


texts = st.lists(st.sampled_from([b"a", b"\n", b"\xff", "é".encode(), b"bb"]), max_size=30).map(b"".join)


@given(texts, st.integers(1, 8), st.integers(0, 8), st.integers(1, 7), st.booleans())
def test_a_window_is_those_lines(data: bytes, first: int, more: int, size: int, numbered: bool) -> None:
    lines = data.split(b"\n")
    lines = [*(line + b"\n" for line in lines[:-1]), *([lines[-1]] if lines[-1] else [])]
    assert count_lines(data) == len(lines)
    wanted = lines[first - 1 : first + more]
    found = gathered(data, LineWindow(first, first + more), numbered, None, size)
    prefix = "{}→" if numbered else ""
    expected = [
        prefix.format(number) + line.decode("utf-8", "replace") for number, line in enumerate(wanted, first)
    ]
    assert found.content == "".join(expected)
    assert found.lines == len(wanted)
    assert found.more is (len(lines) > first + more)
    assert found.total_lines == (None if found.more else len(lines))


@given(texts, st.integers(0, 40), st.integers(1, 7))
def test_a_budget_cuts_between_lines(data: bytes, budget: int, size: int) -> None:
    whole, some = gathered(data), gathered(data, budget=budget, size=size)
    assert some.size == len(some.content.encode()) <= budget
    assert whole.content.startswith(some.content)
    assert some.more is (some.content != whole.content)
    assert not some.more or some.content.endswith("\n") or some.content == ""

"""Offsets, the replay window, gaps: what is delivered and what is lost tile the output (contract c.5, d)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules import output as rules
from agentd.rules.output import END, WAIT, Bytes, Gap, Span, Step

PIECE = 16384


@pytest.mark.parametrize(
    ("span", "count", "window", "after"),
    [
        (Span(), 0, 10, Span()),
        (Span(), 4, 10, Span(0, 4)),
        (Span(0, 4), 6, 10, Span(0, 10)),
        (Span(0, 10), 1, 10, Span(1, 11)),
        (Span(1, 11), 25, 10, Span(26, 36)),
        (Span(), 5, 0, Span(5, 5)),
        (Span(3, 5), 0, 10, Span(3, 5)),
    ],
)
def test_the_window_is_the_last_bytes_exactly(span: Span, count: int, window: int, after: Span) -> None:
    assert rules.publish(span, count, window) == after


def test_closing_keeps_the_numbers() -> None:
    assert rules.close(Span(3, 5)) == Span(3, 5, closed=True)


@pytest.mark.parametrize(
    ("cursor", "span", "step"),
    [
        (0, Span(), WAIT),
        (0, Span(0, 0, True), END),
        (0, Span(0, 5), Bytes(0, 5)),
        (3, Span(0, 5), Bytes(3, 5)),
        (5, Span(0, 5), WAIT),
        (5, Span(0, 5, True), END),
        (9, Span(0, 5), WAIT),  # attached to what is still to come: nothing yet, and no gap
        (9, Span(0, 5, True), END),  # exit.offset below the cursor
        (9, Span(0, 12), Bytes(9, 12)),  # bytes below the cursor are never delivered to it
        (2, Span(4, 9), Gap(2, 4)),
        (2, Span(4, 9, True), Gap(2, 4)),
        (2, Span(9, 9), Gap(2, 9)),  # no window at all
        (4, Span(4, 40000), Bytes(4, 4 + PIECE)),
    ],
)
def test_what_a_reader_gets_next(cursor: int, span: Span, step: Step) -> None:
    assert rules.next_step(cursor, span, PIECE) == step


@pytest.mark.parametrize(
    ("cursor", "span", "slack", "step"),
    [
        (0, Span(0, 10), 10, Bytes(0, 10)),  # owes exactly its slack
        (0, Span(0, 11), 10, Gap(0, 11)),  # one byte more: to the present, with one gap
        (2, Span(5, 20), 10, Gap(2, 20)),  # lost bytes and slack are one gap
        (0, Span(0, 11, True), 10, Bytes(0, 11)),  # nothing more will come: it has all the time it needs
        (11, Span(0, 11), 10, WAIT),
        (20, Span(0, 11), 0, WAIT),
    ],
)
def test_a_reader_that_was_held_up_is_taken_to_the_present(
    cursor: int, span: Span, slack: int, step: Step
) -> None:
    assert rules.next_step(cursor, span, PIECE, slack) == step


def test_only_bytes_and_gaps_move_a_cursor() -> None:
    assert rules.advance(3, Bytes(3, 7)) == 7
    assert rules.advance(3, Gap(3, 9)) == 9
    assert rules.advance(3, WAIT) == rules.advance(3, END) == 3


@pytest.mark.parametrize(
    ("held", "cap", "count", "kept", "cut"),
    [
        (0, 10, 10, 10, False),  # exactly the cap is not truncated
        (0, 10, 11, 10, True),
        (10, 10, 0, 0, False),  # nothing came, so nothing was cut
        (10, 10, 1, 0, True),
        (4, 10, 3, 3, False),
        (4, 10, 7, 6, True),
        (0, 0, 0, 0, False),
        (0, 0, 1, 0, True),
    ],
)
def test_the_head_takes_what_fits_and_says_what_it_cut(
    held: int, cap: int, count: int, kept: int, cut: bool
) -> None:
    assert rules.head_room(held, cap, count) == (kept, cut)


@given(st.integers(0, 50), st.lists(st.integers(0, 20), max_size=20))
def test_the_head_is_the_first_cap_bytes_however_they_come(cap: int, writes: list[int]) -> None:
    held, truncated = 0, False
    for count in writes:
        kept, cut = rules.head_room(held, cap, count)
        held, truncated = held + kept, truncated or cut
    assert held == min(cap, sum(writes))
    assert truncated == (sum(writes) > cap)


# -- the tiling law ---------------------------------------------------------------------------------------------

sizes = st.integers(0, 40)
read = st.tuples(st.just("read"), st.integers(1, 6))
events = st.lists(st.tuples(st.just("write"), sizes) | read, max_size=40)


@given(
    events=events,
    window=st.integers(0, 60),
    piece=st.integers(1, 30),
    slack=st.none() | st.integers(0, 60),
    start=st.integers(0, 200),
    attach=st.integers(0, 40),
)
def test_bytes_and_gaps_tile_from_the_cursor_on(
    events: list[tuple[str, int]], window: int, piece: int, slack: int | None, start: int, attach: int
) -> None:
    """A reader attaches at `start` after `attach` events, reads a few steps whenever the schedule says so, and to
    the end after the close. Whatever the schedule, what it got is one unbroken run from `start`."""
    span, cursor = Span(), start
    ended = False
    for number, (what, count) in enumerate(events):
        if what == "write":
            span = rules.publish(span, count, window)
        elif number >= attach:
            for _ in range(count):
                step = rules.next_step(cursor, span, piece, slack)
                cursor = _checked(cursor, span, piece, step)
    total = span.total
    span = rules.close(span)
    for _ in range(total + 2):
        step = rules.next_step(cursor, span, piece, slack)
        if step == END:
            ended = True
            break
        assert step != WAIT, "a closed output never makes a reader wait"
        cursor = _checked(cursor, span, piece, step)
    assert ended
    assert cursor == max(start, total)


def _checked(cursor: int, span: Span, piece: int, step: Step) -> int:
    if isinstance(step, Bytes):
        # Only what is there, only from the cursor on, and never more than a piece.
        assert max(cursor, span.start) == cursor == step.start < step.end <= min(span.total, cursor + piece)
    elif isinstance(step, Gap):
        assert cursor == step.start < step.end <= span.total
        assert step.end >= span.start
    else:
        assert cursor >= span.total
        assert (step == END) is span.closed
    return rules.advance(cursor, step)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.booleans())
def test_without_slack_nothing_that_is_still_there_is_skipped(
    cursor: int, total: int, kept: int, closed: bool
) -> None:
    span = Span(max(0, total - kept), total, closed)
    step = rules.next_step(cursor, span, 10)
    if isinstance(step, Gap):
        assert step == Gap(cursor, span.start)

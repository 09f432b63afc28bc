"""Slots, records, long polls and stdin of background processes, as plain functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules import processes
from agentd.rules.output import Span
from agentd.rules.processes import (
    Fault,
    Input,
    Page,
    Phase,
    Poll,
    Record,
    Slots,
    Stage,
    Verdict,
)


def test_slots_are_taken_before_a_start_and_given_back() -> None:
    """As many as there are, whether or not the starts have ended."""
    slots: Slots | None = Slots(2)
    assert slots is not None
    one = processes.reserve(slots)
    assert one is not None
    two = processes.reserve(one)
    assert two is not None
    assert processes.reserve(two) is None
    again = processes.release(two)
    assert processes.reserve(again) == two


EVENTS = st.sampled_from(["reserve", "fail", "start", "reap", "publish", "delete", "signal"])


@given(st.lists(st.tuples(EVENTS, st.integers(0, 5)), max_size=60), st.integers(1, 3))
def test_whatever_happens_in_whatever_order(events: list[tuple[str, int]], limit: int) -> None:
    """Never more than the limit, a slot is freed once, and nothing is sent to a number that was passed on."""
    slots = Slots(limit)
    starting = 0
    table: list[Record] = []
    jobs: list[tuple[bool, int]] = []  # the kernel: whether the number is still ours, and what was sent to it
    orphans: list[int] = []
    owner: list[int] = []
    for event, pick in events:
        if event == "reserve":
            taken = processes.reserve(slots)
            assert (taken is None) == (slots.taken == limit)
            if taken is not None:
                slots, starting = taken, starting + 1
        elif event == "fail" and starting:
            slots, starting = processes.release(slots), starting - 1
        elif event == "start" and starting:
            starting -= 1
            owner.append(len(jobs))
            jobs.append((True, 0))
            table.append(Record())
        elif table and event in ("reap", "publish", "delete", "signal"):
            index = pick % len(table)
            record, job = table[index], owner[index]
            ours, sent = jobs[job]
            if event == "reap":
                table[index] = processes.reaped(record)
                jobs[job] = (False, sent)
            elif event == "publish" and not ours:
                table[index] = processes.published(record)
            elif event == "signal" and processes.may_signal(record):
                assert ours
                jobs[job] = (ours, sent + 1)
            elif event == "delete":
                gone, kill = processes.delete(record)
                assert gone.deleted
                assert not processes.may_signal(gone)
                assert processes.delete(gone)[1] is False
                if kill:
                    assert ours
                    orphans.append(job)
                else:
                    assert not ours
                del table[index], owner[index]
                slots = processes.release(slots)
        assert slots.taken == starting + len(table) <= limit


def test_a_process_runs_until_its_output_is_complete() -> None:
    """Reaped is not yet exited (environments 6.2)."""
    record = Record()
    assert processes.may_signal(record)
    assert not processes.shows_exit(record)
    record = processes.reaped(record)
    assert record.stage is Stage.REAPED
    assert not processes.may_signal(record)
    assert not processes.shows_exit(record)
    record = processes.published(record)
    assert processes.shows_exit(record)
    assert processes.reaped(record) == record
    assert processes.delete(record)[1] is False


@pytest.mark.parametrize(
    ("since", "span", "limit", "expected"),
    [
        (0, Span(0, 10), 100, Page(0, 10)),
        (4, Span(0, 10), 100, Page(4, 10)),
        (4, Span(0, 10), 3, Page(4, 7)),
        (4, Span(6, 10), 3, Page(6, 9)),
        (10, Span(6, 10), 3, Page(10, 10)),
        (0, Span(10, 10), 3, Page(10, 10)),  # everything has gone
    ],
)
def test_pages(since: int, span: Span, limit: int, expected: Page) -> None:
    """What one reply covers."""
    assert processes.page(since, span, limit) == expected


@given(st.integers(0, 50), st.integers(0, 50), st.booleans(), st.integers(1, 20))
def test_the_plain_loop_ends_with_all_of_it(start: int, size: int, closed: bool, limit: int) -> None:
    """Read, append, stop when the exit shows: nothing is skipped and nothing comes twice (7.3)."""
    span = Span(start, start + size, closed)
    since, seen = 0, 0
    for _ in range(60):
        page = processes.page(since, span, limit)
        assert page.start == max(since, start)
        seen += page.end - page.start
        since = page.end
        if processes.final(page.end, span):
            break
        if page.end == span.total:
            assert not closed
            break
    assert seen == size
    assert since == span.total


@pytest.mark.parametrize(
    ("since", "span", "patient", "verdict"),
    [
        (11, Span(0, 10), True, Verdict.BEYOND_END),
        (11, Span(0, 10, True), False, Verdict.BEYOND_END),
        (9, Span(0, 10), True, Verdict.ANSWER),
        (0, Span(5, 10), True, Verdict.ANSWER),
        (10, Span(0, 10), False, Verdict.ANSWER),
        (10, Span(0, 10, True), True, Verdict.ANSWER),
        (10, Span(0, 10), True, Verdict.WAIT),
        (0, Span(), True, Verdict.WAIT),
    ],
)
def test_what_a_poll_does_first(since: int, span: Span, patient: bool, verdict: Verdict) -> None:
    """At once if there is anything to say (7.3, points 1, 2 and 4)."""
    poll, found = processes.ask(since, span, patient)
    assert found is verdict
    assert (poll.phase is Phase.WAITING) == (verdict is Verdict.WAIT)


def test_a_poll_waits_collects_and_answers_once() -> None:
    """Points 3 and 5."""
    poll = Poll(10)
    assert processes.changed(poll, Span(0, 10), 100) == (poll, Verdict.WAIT)
    collecting, verdict = processes.changed(poll, Span(0, 11), 100)
    assert (collecting.phase, verdict) == (Phase.COLLECTING, Verdict.COLLECT)
    assert processes.changed(collecting, Span(0, 12), 100) == (collecting, Verdict.WAIT)
    for span in (Span(0, 110), Span(0, 12, True)):
        over, verdict = processes.changed(collecting, span, 100)
        assert (over.phase, verdict) == (Phase.OVER, Verdict.ANSWER)
    assert processes.changed(poll, Span(0, 200), 100)[1] is Verdict.ANSWER
    assert processes.changed(poll, Span(0, 10, True), 100)[1] is Verdict.ANSWER
    over, verdict = processes.expired(collecting)
    assert verdict is Verdict.ANSWER
    for late in (
        processes.expired(over),
        processes.forgotten(over),
        processes.changed(over, Span(0, 500), 1),
    ):
        assert late == (over, Verdict.WAIT)
    for live in (poll, collecting):
        assert processes.forgotten(live)[1] is Verdict.NOT_FOUND


@pytest.mark.parametrize(
    ("state", "size", "fault"),
    [
        (Input(False, False), 0, Fault.NOT_REQUESTED),
        (Input(False, False), None, Fault.NOT_REQUESTED),
        (Input(True, True), 0, None),
        (Input(True, True), 100, None),
        (Input(True, True), 101, Fault.FULL),
        (Input(True, True, queued=60), 40, None),
        (Input(True, True, queued=60), 41, Fault.FULL),
        (Input(True, True, queued=100), None, None),
        (Input(True, True, ended=True), 1, Fault.ENDED),
        (Input(True, True, ended=True), 0, Fault.ENDED),
        (Input(True, True, ended=True), None, None),
        (Input(True, False), 1, Fault.CLOSED),
        (Input(True, False), None, None),
        (Input(True, False, ended=True), 1, Fault.ENDED),
    ],
)
def test_what_may_be_written_to_stdin(state: Input, size: int | None, fault: Fault | None) -> None:
    """Whole or not at all (8.3)."""
    assert processes.judge_input(state, size, 100) is fault


def test_the_life_of_a_stdin() -> None:
    """Queued, drained, ended, closed."""
    state = processes.queued(Input(True, True), 30)
    assert state.queued == 30
    state = processes.drained(state, 10)
    assert state.queued == 20
    assert processes.writable(state)
    assert not processes.writable(processes.ended(state))
    closed = processes.closed(state)
    assert (closed.queued, processes.writable(closed)) == (0, False)
    assert not processes.writable(Input(False, False))

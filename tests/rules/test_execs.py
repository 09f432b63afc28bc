"""One exec's record, started once and collected after its acknowledgement (contract a.2 to a.6, c.8)."""

import itertools
from collections.abc import Callable, Hashable

import pytest
from attrs import evolve

from agentd.rules import execs
from agentd.rules.execs import Ack, Phase, Record, Start

TTL = 900.0
RUNNING = Record()
EXITED = execs.exited(RUNNING)


def acked(at: float = 10.0) -> Record:
    record, _ = execs.ack(EXITED, at)
    assert record is not None
    return record


ACKED = acked()


def test_an_unknown_id_is_spawned() -> None:
    assert execs.start(None) == (Record(Phase.RUNNING, True, 1, 1, None), Start.SPAWN)


@pytest.mark.parametrize("record", [RUNNING, EXITED, ACKED])
def test_a_known_id_is_only_counted(record: Record) -> None:
    again, verdict = execs.start(record)
    assert verdict is Start.RETRIED
    assert again == evolve(record, starts=2)


def test_the_exit_changes_the_phase_alone() -> None:
    assert evolve(RUNNING, phase=Phase.EXITED) == EXITED


@pytest.mark.parametrize("record", [EXITED, ACKED])
def test_an_exit_that_comes_again_changes_nothing(record: Record) -> None:
    assert execs.exited(record) == record


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        (None, Ack.UNKNOWN),
        (RUNNING, Ack.STILL_RUNNING),
        (EXITED, Ack.RELEASED),
        (ACKED, Ack.ALREADY_ACKED),
    ],
)
def test_each_phase_has_its_answer_to_an_ack(record: Record | None, verdict: Ack) -> None:
    after, answer = execs.ack(record, 20.0)
    assert answer is verdict
    if verdict is Ack.RELEASED:
        assert after == evolve(EXITED, phase=Phase.ACKED, output_held=False, acked_at=20.0)
    else:
        assert after == record


def test_of_two_acks_one_wins() -> None:
    first, won = execs.ack(EXITED, 1.0)
    second, lost = execs.ack(first, 1.0)
    assert (won, lost) == (Ack.RELEASED, Ack.ALREADY_ACKED)
    assert second == first


@pytest.mark.parametrize(("record", "shown"), [(RUNNING, False), (EXITED, True), (ACKED, False)])
def test_a_poll_shows_the_outcome_between_exit_and_ack(record: Record, shown: bool) -> None:
    assert execs.shows_outcome(record) is shown


@pytest.mark.parametrize(("record", "shown"), [(RUNNING, False), (EXITED, True), (ACKED, False)])
def test_a_poll_changes_nothing(record: Record, shown: bool) -> None:
    assert execs.poll(record) == (record, shown)


@pytest.mark.parametrize(("record", "busy"), [(RUNNING, True), (EXITED, False), (ACKED, False)])
def test_only_what_runs_keeps_the_vm_busy(record: Record, busy: bool) -> None:
    assert execs.busy(record) is busy


@pytest.mark.parametrize("record", [RUNNING, EXITED])
@pytest.mark.parametrize("now", [0.0, TTL, 1e18])
def test_what_nobody_has_acknowledged_is_never_collected(record: Record, now: float) -> None:
    assert execs.collect(record, now, TTL) == record


@pytest.mark.parametrize(
    ("now", "gone"), [(10.0, False), (10.0 + TTL - 1e-6, False), (10.0 + TTL, True), (1e9, True)]
)
def test_an_acknowledged_record_goes_at_its_ttl(now: float, gone: bool) -> None:
    assert execs.collect(ACKED, now, TTL) == (None if gone else ACKED)


def test_a_ttl_of_nothing_collects_at_once() -> None:
    assert execs.collect(ACKED, 10.0, 0.0) is None


def test_a_collected_id_may_be_started_anew() -> None:
    assert execs.start(execs.collect(ACKED, 10.0 + TTL, TTL)) == (Record(), Start.SPAWN)


# Every order of everything that can happen to one id, to a depth at which each phase has met each event.

Step = Callable[[Record | None, float], tuple[Record | None, Hashable]]


def _start(record: Record | None, now: float) -> tuple[Record | None, Hashable]:
    return execs.start(record)


def _exit(record: Record | None, now: float) -> tuple[Record | None, Hashable]:
    return (None if record is None else execs.exited(record)), None


def _sweep(record: Record | None, now: float) -> tuple[Record | None, Hashable]:
    return (None if record is None else execs.collect(record, now, 2.0)), None


EVENTS: dict[str, Step] = {"start": _start, "exit": _exit, "ack": execs.ack, "sweep": _sweep}


def test_no_order_of_events_spawns_twice_or_loses_output() -> None:
    seen: set[tuple[Phase | None, str]] = set()
    for order in itertools.product(EVENTS, repeat=6):
        record: Record | None = None
        spawned = released = False
        for now, name in enumerate(order):
            before = record
            record, verdict = EVENTS[name](record, float(now))
            seen.add((None if before is None else before.phase, name))
            if verdict is Start.SPAWN:
                assert before is None
                spawned, released = True, False
            released = released or verdict is Ack.RELEASED
            if before is not None and record is None:
                assert name == "sweep"
                assert released
            if record is not None:
                assert spawned
                assert record.spawns == 1
                assert record.output_held is not released
                assert (record.acked_at is not None) is (record.phase is Phase.ACKED) is released
    assert seen == set(itertools.product([None, *Phase], EVENTS))

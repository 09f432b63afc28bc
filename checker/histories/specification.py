"""What one exec does, one operation at a time: the sequential specification, which is `agentd.rules.execs` itself.

Three things happen without anybody asking: a child that was told to ends, a result is published (to a caller they are
one: the phase leaves ``running``), and a record whose time is over is collected. A search may put them anywhere.
"""

from collections.abc import Iterator

from attrs import evolve, frozen

from agentd.rules import execs
from agentd.rules.execs import Ack, Phase, Record, Start
from checker.histories.history import Op, Operation


@frozen
class Answer:
    """What an operation must be answered with."""

    status: int
    error: str | None = None
    phase: str | None = None
    outcome: bool = False

    def explains(self, operation: Operation) -> bool:
        """Whether that is what the caller saw."""
        seen = (operation.status, operation.error, operation.phase, operation.outcome)
        return seen == (self.status, self.error, self.phase, self.outcome)


@frozen
class State:
    """One exec, as the specification knows it."""

    record: Record | None = None
    released: bool = False
    """Whether its child was told to end."""


UNKNOWN = Answer(404, "unknown_exec")
_ACKS = {
    Ack.RELEASED: Answer(200, phase=Phase.ACKED.value, outcome=True),
    Ack.UNKNOWN: UNKNOWN,
    Ack.STILL_RUNNING: Answer(409, "still_running"),
    Ack.ALREADY_ACKED: Answer(409, "already_acked"),
}


def apply(state: State, operation: Operation) -> tuple[State, tuple[Answer, ...]]:
    """One operation: the state after it, and what may be answered."""
    record = state.record
    if operation.op in (Op.START, Op.START_UNSPAWNED):
        started, verdict = execs.start(record)
        if verdict is Start.RETRIED:
            return evolve(state, record=started), (Answer(200, phase=started.phase.value),)
        if operation.op is Op.START_UNSPAWNED:
            return state, (Answer(500, "spawn_failed"),)
        return State(started), (Answer(200, phase=started.phase.value),)
    if operation.op is Op.POLL:
        if record is None:
            return state, (UNKNOWN,)
        record, shown = execs.poll(record)
        return evolve(state, record=record), (Answer(200, phase=record.phase.value, outcome=shown),)
    if operation.op is Op.ACK:
        record, acked = execs.ack(record, operation.invoked)
        return evolve(state, record=record), (_ACKS[acked],)
    if record is None:
        return state, (UNKNOWN,)
    if record.phase is not Phase.RUNNING:
        return state, (Answer(410, "stdin_closed"),)
    # A child that was told already may have closed its end by now, without having been waited for.
    told = (Answer(200), Answer(410, "stdin_closed")) if state.released else (Answer(200),)
    return evolve(state, released=True), told


def silently(state: State, before: float, ttl: float | None) -> Iterator[State]:
    """The states that an exec may have come to by itself at the time `before`, this one first.

    An acknowledgement counts from when it was asked for, which is no later than when it was made, so that nothing is
    held against a daemon that may be right.
    """
    yield state
    record = state.record
    if record is None:
        return
    if state.released and record.phase is Phase.RUNNING:
        yield evolve(state, record=execs.exited(record))
    if ttl is not None and execs.collect(record, before, ttl) is None:
        yield State()

"""The execs of this VM, by the ids their callers minted.

`agentd.rules.execs` decides what a start, an acknowledgement and a sweep do to a record; this table keeps the
records beside the jobs they are about. Streams and kills work in every phase, polls see output until the
acknowledgement releases it.
"""

from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, field

from agentd.process.job import Job
from agentd.rules import execs
from agentd.rules.execs import Ack, Record, Start


@define(eq=False)
class Exec:
    """One exec: its record, and the job that runs or ran it."""

    exec_id: str
    record: Record
    job: Job = field(repr=False)
    started_at: int
    """Epoch seconds of the spawn, on the daemon's wall clock."""
    reap: bool


class ExecTable:
    """Every exec that has not been collected, in the order of their starts."""

    def __init__(self, clock: Any, wall_clock: Callable[[], float], ttl: float) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._ttl = ttl
        self._execs: dict[str, Exec] = {}
        self._running = 0

    def __len__(self) -> int:
        return len(self._execs)

    def __iter__(self) -> Iterator[Exec]:
        return iter(list(self._execs.values()))

    @property
    def busy(self) -> bool:
        """Whether any exec has not published its result; a counter, so that asking never costs."""
        return self._running > 0

    def get(self, exec_id: str) -> Exec | None:
        """The exec of that id, or None."""
        return self._execs.get(exec_id)

    def start(self, exec_id: str, run: Callable[[], Job], reap: bool) -> Exec:
        """Start `exec_id` with `run`, or find it started: then `run` is not called.

        Whatever `run` raises leaves no record, so that the id can be started again.
        """
        known = self._execs.get(exec_id)
        record, verdict = execs.start(known.record if known else None)
        if known is not None and verdict is Start.RETRIED:
            known.record = record
            return known
        entry = Exec(exec_id, record, run(), int(self._wall_clock()), reap)
        self._execs[exec_id] = entry
        self._running += 1

        def published(outcome: object) -> None:
            self._running -= 1
            entry.record = execs.exited(entry.record)

        entry.job.when_published().addCallback(published)
        return entry

    def ack(self, exec_id: str) -> tuple[Exec | None, Ack]:
        """Acknowledge. On `Ack.RELEASED` the caller answers the output and then calls `release`."""
        entry = self._execs.get(exec_id)
        record, verdict = execs.ack(entry.record if entry else None, self._clock.seconds())
        if entry is not None and record is not None:
            entry.record = record
        return entry, verdict

    def sweep(self) -> int:
        """Collect what is due; returns how many execs went."""
        now = self._clock.seconds()
        due = [entry for entry in self._execs.values() if execs.collect(entry.record, now, self._ttl) is None]
        for entry in due:
            del self._execs[entry.exec_id]
            entry.job.forget()
        return len(due)

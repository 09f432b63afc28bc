"""The background processes of an environment, in the order of their starts.

`agentd.rules.processes` decides what a start, an exit, a deletion and a signal do; this table keeps the records
beside the jobs they are about, and tells those who wait. A deleted process is out of the table at once, and
goes on here as long as its kill is under way or somebody who is attached has not yet heard of its end; of those
there are at most as many as the table has slots, so that memory is bounded whatever callers do.
"""

import secrets
import signal
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, Protocol

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList

from agentd.environments import shapes
from agentd.environments.input import InputQueue
from agentd.environments.log import TextLog
from agentd.environments.shapes import SignalName
from agentd.environments.start import AgentJob, exit_of
from agentd.process.job import Outcome
from agentd.rules import processes
from agentd.rules.processes import Record, Slots

_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_NUMBERS: Final = {name: getattr(signal, f"SIG{name.value}") for name in SignalName}


class Waiter(Protocol):
    """A long poll."""

    def forgotten(self) -> None:
        """The process was deleted."""

    def stop(self) -> None:
        """The daemon stops."""


class Listener(Protocol):
    """An attached client."""

    def stop(self) -> None:
        """The daemon stops."""

    def drop(self) -> None:
        """Too many clients hold on to processes that were deleted."""


@define(eq=False)
class Process:
    """One process: its record, its job, and who is interested in it."""

    pid: str
    argv: list[str] | None
    command: str | None
    cwd: str
    timeout: int
    job: AgentJob = field(repr=False)
    log: TextLog = field(repr=False)
    input: InputQueue = field(repr=False)
    record: Record = Record()
    exited_at: datetime | None = None
    waiters: set[Waiter] = field(factory=set, repr=False)
    listeners: set[Listener] = field(factory=set, repr=False)

    def current(self) -> Record:
        """The record as it is now: a leader that was reaped has passed on its number."""
        if self.job.exited:
            self.record = processes.reaped(self.record)
        return self.record

    @property
    def exit(self) -> shapes.ProcessExit | None:
        """How it ended, once its output is complete."""
        outcome = self.job.outcome
        return exit_of(outcome) if outcome is not None and processes.shows_exit(self.record) else None

    def shown(self) -> shapes.Process:
        """The process on the wire."""
        over = processes.shows_exit(self.current())
        return shapes.Process(
            pid=self.pid,
            os_pid=self.job.child.pid,
            argv=self.argv,
            command=self.command,
            cwd=self.cwd,
            stdin=self.input.writable,
            timeout_secs=self.timeout,
            started_at=self.job.started_at,
            exited_at=self.job.exited_at if over else None,
            running=not over,
            exit=self.exit,
            output_start=self.log.span.start,
            output_end=self.log.span.total,
        )

    def signal(self, name: SignalName) -> None:
        """Send a signal to the group, unless its number may be another's by now."""
        if processes.may_signal(self.current()):
            self.job.child.group.signal(_NUMBERS[name])


class ProcessTable:
    """Every process that has not been deleted. `start` and `close` go with `reserve` and `release`."""

    def __init__(self, limit: int) -> None:
        self._slots = Slots(limit)
        self._processes: dict[str, Process] = {}
        self._deleted: dict[str, Process] = {}
        self._prefix = "".join(secrets.choice(_ALPHABET) for _ in range(8))
        self._count = 0
        self._stopped = False

    def __iter__(self) -> Iterator[Process]:
        return iter(list(self._processes.values()))

    @property
    def limit(self) -> int:
        """How many there may be."""
        return self._slots.limit

    def get(self, pid: str) -> Process | None:
        """The process of that id."""
        return self._processes.get(pid)

    def reserve(self) -> bool:
        """Take a slot for a start; False when there is none."""
        slots = processes.reserve(self._slots)
        if slots is None:
            return False
        self._slots = slots
        return True

    def release(self) -> None:
        """Give back the slot of a start that failed."""
        self._slots = processes.release(self._slots)

    def name(self) -> str:
        """The next id: a part that no other daemon has, and a number."""
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def add(self, process: Process) -> None:
        """A start with a slot has succeeded."""
        self._processes[process.pid] = process
        process.job.when_published().addCallback(self._published, process)

    def _published(self, outcome: Outcome, process: Process) -> None:
        process.record = processes.published(process.current())
        process.input.close()
        if process.record.deleted or self._stopped:
            process.job.forget()
            self._let_go(process)

    def delete(self, process: Process) -> None:
        """Take a process out, and kill it if its number is still its own."""
        process.record, kill = processes.delete(process.current())
        del self._processes[process.pid]
        self.release()
        if kill:
            process.job.kill()
        if processes.shows_exit(process.record):
            process.job.forget()
        for waiter in list(process.waiters):
            waiter.forgotten()
        self._deleted[process.pid] = process
        self._let_go(process)
        self._bound()

    def left(self, process: Process) -> None:
        """Somebody who was attached has gone."""
        self._let_go(process)

    def _let_go(self, process: Process) -> None:
        if processes.shows_exit(process.record) and not process.listeners:
            self._deleted.pop(process.pid, None)

    def _bound(self) -> None:
        over = len(self._deleted) - self._slots.limit
        for process in list(self._deleted.values())[: max(0, over)]:
            for listener in list(process.listeners):
                listener.drop()

    def stop(self) -> "Deferred[Any]":
        """The daemon stops: tell those who wait and those who are attached, and kill what runs.

        Fires when all has ended.
        """
        self._stopped = True
        everything = [*self._processes.values(), *self._deleted.values()]
        for process in everything:
            for waiter in list(process.waiters):
                waiter.stop()
            for listener in list(process.listeners):
                listener.stop()
        for process in everything:
            if processes.may_signal(process.current()):
                process.job.kill()
            elif processes.shows_exit(process.record):
                process.job.forget()
        return DeferredList([process.job.when_published() for process in everything])

"""What there is around the records of background processes, and what an edge says of it."""

from collections.abc import Hashable
from enum import Enum, unique
from typing import cast

from attrs import frozen

from agentd.rules.output import Span
from agentd.rules.processes import Input, Page, Poll, Record, Slots, Verdict
from checker.model import Edge, Values

Effect = tuple[Values, Hashable]
"""New values, and what somebody is answered."""

LIMIT = 2
"""Records there may be."""
WINDOW, REPLY, MOST = 4, 3, 5
"""Bytes that can be replayed, of one reply, and that a process writes."""
QUEUE = 2
"""Bytes that may wait for a process to read its stdin."""

NOWHERE = "not found"
"""What a request for a process is answered that is not in the table."""


@unique
class Leader(Enum):
    """What the kernel has of the leader of a process' group."""

    ALIVE = "alive"
    DOOMED = "doomed"
    """It was sent KILL."""
    ZOMBIE = "zombie"
    """It has exited, and its number is still ours."""
    REAPED = "reaped"
    """Its number may be anybody's."""


@frozen
class Process:
    """A process, or the start of one."""

    record: Record | None = None
    """None while the start is under way."""
    leader: Leader = Leader.ALIVE
    span: Span = Span()
    unread: bool = False
    """Whether the daemon has not read all that was written."""


@frozen
class Asked:
    """A long poll that came, and how often it was answered."""

    poll: Poll
    answers: int = 0


@frozen
class Attached:
    """An attached client: up to where it was served, and how often it was told of the exit."""

    cursor: int = 0
    told: int = 0


@frozen
class Reply:
    """What became of a long poll, and if it was answered with output, of what stretch."""

    verdict: Verdict
    page: Page | None = None
    final: bool = False
    """Whether the reply shows an exit."""
    exit: bool = False
    """Whether the record has one to show."""


def proc_name(number: int) -> str:
    """The component of one process."""
    return f"proc.{number}"


def in_table(process: object) -> bool:
    """Whether a request finds a process: its start has succeeded, and it was not deleted."""
    return isinstance(process, Process) and process.record is not None and not process.record.deleted


def started(process: object) -> bool:
    """Whether the start of a process has succeeded."""
    return isinstance(process, Process) and process.record is not None


def deleted(record: Record | None) -> bool:
    """Whether a record was taken out of the table."""
    return record is not None and record.deleted


def holds_slot(process: object) -> bool:
    """Whether a process, or a start, has to have a slot."""
    return isinstance(process, Process) and (process.record is None or in_table(process))


def proc_before(edge: Edge) -> Process | None:
    """The process an event is about, before it."""
    return cast("Process | None", edge.before[proc_name(cast("int", edge.event.args["id"]))])


def proc_after(edge: Edge) -> Process | None:
    """The same afterwards."""
    return cast("Process | None", edge.after[proc_name(cast("int", edge.event.args["id"]))])


def record_before(edge: Edge) -> Record | None:
    """Its record before, None when there is none (yet)."""
    process = proc_before(edge)
    return None if process is None else process.record


def record_after(edge: Edge) -> Record | None:
    """The same afterwards."""
    process = proc_after(edge)
    return None if process is None else process.record


def slots_before(edge: Edge) -> Slots:
    """The slots before."""
    return cast("Slots", edge.before["slots"])


def slots_after(edge: Edge) -> Slots:
    """The same afterwards."""
    return cast("Slots", edge.after["slots"])


def asked_before(edge: Edge) -> Asked | None:
    """The long poll before."""
    return cast("Asked | None", edge.before["poll"])


def asked_after(edge: Edge) -> Asked | None:
    """The same afterwards."""
    return cast("Asked | None", edge.after["poll"])


def span_after(edge: Edge) -> Span:
    """The output of the process afterwards."""
    process = proc_after(edge) or proc_before(edge)
    return Span() if process is None else process.span


def input_before(edge: Edge) -> Input:
    """A stdin before."""
    return cast("Input", edge.before["input"])


def input_after(edge: Edge) -> Input:
    """The same afterwards."""
    return cast("Input", edge.after["input"])


def reply(edge: Edge) -> Reply | None:
    """What became of the long poll, None when there was none."""
    responses = edge.response if isinstance(edge.response, tuple) else (edge.response,)
    return next((one for one in responses if isinstance(one, Reply)), None)


def done(edge: Edge) -> Hashable:
    """What a signal or a deletion did, whoever polled meanwhile."""
    return edge.response[0] if isinstance(edge.response, tuple) else edge.response

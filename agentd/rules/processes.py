"""The background processes of an environment: slots, records, long polls, and what may still be signalled.

Theory of operation
-------------------
A table holds at most `limit` records, running and exited together. A slot is taken *before* the start and given
back if the start fails, so that starts under way count and parallel requests cannot exceed the limit; only a
deletion frees the slot of a started process (environments 6.1).

            reserve          started            reaped              published
    (free) ────────► (taken) ───────► RUNNING ─────────► REAPED ─────────────► EXITED
       ▲  start failed  │                │ delete: kill      │ delete: nothing      │ delete: nothing
       └────────────────┘◄───────────────┴───────────────────┴──────────────────────┘

* RUNNING means that the kernel still keeps the leader's number for us, alive or zombie. From REAPED on the number
  may be somebody else's, so nothing is ever sent to it again, by a signal request or by a deletion (6.3, 6.4).
* REAPED to EXITED is the drain: the pipes are read until they end or fall silent. A process shows as running
  until then, so that whoever sees it exited has all of its output before them (6.2).
* A deletion takes the record and its slot away at once; the kill is reaped later, and those who are attached learn
  of it then. Long polls end at once as if the process had never been.

Readers hold no part of a record: a long poll is a small machine of its own over the output's `Span`, so any
number of them come and go without changing what another sees.
"""

from enum import Enum, unique
from typing import Final

from attrs import evolve, frozen

from agentd.rules.output import Span


@frozen
class Slots:
    """How many records there may be, and how many there are or are being started."""

    limit: int
    taken: int = 0


def reserve(slots: Slots) -> Slots | None:
    """Take a slot for a start, or None when all are taken (429)."""
    return evolve(slots, taken=slots.taken + 1) if slots.taken < slots.limit else None


def release(slots: Slots) -> Slots:
    """Give a slot back: its start failed, or its record was deleted."""
    return evolve(slots, taken=slots.taken - 1)


@unique
class Stage(Enum):
    """Where a process is in its life."""

    RUNNING = "running"
    """Its leader has not been reaped."""
    REAPED = "reaped"
    """Its leader's number is free; its output is still being drained."""
    EXITED = "exited"


@frozen
class Record:
    """What the rules remember of one process."""

    stage: Stage = Stage.RUNNING
    deleted: bool = False
    """Out of the table: no request finds it any more."""


def reaped(record: Record) -> Record:
    """The leader's status was taken."""
    return evolve(record, stage=Stage.REAPED) if record.stage is Stage.RUNNING else record


def published(record: Record) -> Record:
    """The output is complete and the exit can be shown."""
    return evolve(record, stage=Stage.EXITED)


def may_signal(record: Record) -> bool:
    """Whether a signal is delivered; if not, the request is answered all the same, and nothing is done."""
    return record.stage is Stage.RUNNING and not record.deleted


def delete(record: Record) -> tuple[Record, bool]:
    """Take a record out of the table, and whether its process has to be killed."""
    return evolve(record, deleted=True), record.stage is Stage.RUNNING and not record.deleted


def shows_exit(record: Record) -> bool:
    """Whether `running` is false and `exit` is there."""
    return record.stage is Stage.EXITED


# -- reading ---------------------------------------------------------------------------------------------------


@frozen
class Page:
    """The stretch of output that one reply covers: ``[start, end)``."""

    start: int
    end: int


def beyond(since: int, span: Span) -> bool:
    """Whether `since` is past the end of the output, which no client can know of (400)."""
    return since > span.total


def page(since: int, span: Span, limit: int) -> Page:
    """What a reply from `since` covers, `limit` bytes at most; below what is retained it begins there."""
    start = max(since, span.start)
    return Page(start, min(span.total, start + limit))


def final(end: int, span: Span) -> bool:
    """Whether a reply that ends at `end` reaches the end of all there will ever be: it shows the exit."""
    return span.closed and end == span.total


@unique
class Phase(Enum):
    """Where a long poll is."""

    WAITING = "waiting"
    """For the first byte."""
    COLLECTING = "collecting"
    """What follows the first byte, for a fixed time from its arrival."""
    OVER = "over"


@unique
class Verdict(Enum):
    """What a long poll does next."""

    ANSWER = "answer"
    """With what there is."""
    COLLECT = "collect"
    """Start the collecting time."""
    WAIT = "wait"
    NOT_FOUND = "not found"
    BEYOND_END = "beyond the end"


@frozen
class Poll:
    """One long poll: from which offset, and where it is."""

    since: int
    phase: Phase = Phase.WAITING


def ask(since: int, span: Span, patient: bool) -> tuple[Poll, Verdict]:
    """A long poll arrives; `patient` if it may wait at all (environments 7.3, points 1, 2 and 4)."""
    poll = Poll(since)
    if beyond(since, span):
        return _over(poll), Verdict.BEYOND_END
    if since < span.total or span.closed or not patient:
        return _over(poll), Verdict.ANSWER
    return poll, Verdict.WAIT


def changed(poll: Poll, span: Span, limit: int) -> tuple[Poll, Verdict]:
    """The output grew or ended; `limit` is what one reply holds (points 3 and 5)."""
    if poll.phase is Phase.OVER:
        return poll, Verdict.WAIT
    if span.closed or span.total - poll.since >= limit:
        return _over(poll), Verdict.ANSWER
    if poll.phase is Phase.WAITING and span.total > poll.since:
        return evolve(poll, phase=Phase.COLLECTING), Verdict.COLLECT
    return poll, Verdict.WAIT


def expired(poll: Poll) -> tuple[Poll, Verdict]:
    """The time to wait, or to collect, is over; or the daemon stops: answer with what there is."""
    return _over(poll), Verdict.WAIT if poll.phase is Phase.OVER else Verdict.ANSWER


def forgotten(poll: Poll) -> tuple[Poll, Verdict]:
    """The process was deleted."""
    return _over(poll), Verdict.WAIT if poll.phase is Phase.OVER else Verdict.NOT_FOUND


def _over(poll: Poll) -> Poll:
    return evolve(poll, phase=Phase.OVER)


# -- stdin -----------------------------------------------------------------------------------------------------


@frozen
class Input:
    """A process' stdin: asked for at the start or not, and what waits to be written to it."""

    requested: bool
    open: bool
    """The process can still read from it."""
    ended: bool = False
    """An end of file was asked for; nothing may follow it."""
    queued: int = 0
    """Bytes not yet in the pipe."""


@unique
class Fault(Enum):
    """Why nothing of a client's message is done, in words for the client."""

    NOT_REQUESTED = "the process was started without stdin"
    ENDED = "stdin was ended before"
    CLOSED = "the process does not read its stdin any more"
    FULL = "the stdin queue is full"


MAX_INPUT_BYTES: Final = 16 * 1024 * 1024
"""What a queue may hold (environments 8.3)."""


def judge_input(state: Input, size: int | None, capacity: int) -> Fault | None:
    """Why a message with `size` bytes of stdin is refused whole, or None; `size` None asks for the end of file."""
    if not state.requested:
        return Fault.NOT_REQUESTED
    if size is None:
        return None  # once more, or of a pipe that is closed: nothing is left to be done
    if state.ended:
        return Fault.ENDED
    if not state.open:
        return Fault.CLOSED
    return Fault.FULL if state.queued + size > capacity else None


def queued(state: Input, size: int) -> Input:
    """A message was taken."""
    return evolve(state, queued=state.queued + size)


def drained(state: Input, size: int) -> Input:
    """`size` bytes went into the pipe."""
    return evolve(state, queued=state.queued - size)


def ended(state: Input) -> Input:
    """An end of file was asked for; it comes behind what is queued."""
    return evolve(state, ended=True)


def closed(state: Input) -> Input:
    """Nobody reads any more; what was queued is dropped."""
    return evolve(state, open=False, queued=0)


def writable(state: Input) -> bool:
    """Whether stdin can still be written, as a process shows it."""
    return state.requested and state.open and not state.ended

"""One exec's record: started once, exited once, acknowledged once, then collected.

Theory of operation
-------------------
The caller mints the id, so that a start whose answer was lost can be sent again:

                start (spawn)          exited               ack                   age ≥ TTL
    (unknown) ────────────► RUNNING ──────────► EXITED ──────────► ACKED ──────────────────► (unknown)
                              │ ▲                 │ ▲               │ ▲
                              └─┘ start: counts,  └─┘               └─┘   spawns nothing, changes no phase

* A poll changes nothing. Only an acknowledgement releases output, and only acknowledged records are ever
  collected, so output nobody has read cannot be destroyed (contract AGENTD-2, a.6, c.8).
* A start that could not spawn leaves no record, so the same id may be tried again (contract a.2).
* Exactly one of two acknowledgements wins; the other learns that it was the second.

Each function takes the record of one id, or None when there is none, and returns the next record (or None)
with a verdict. A table of execs is a dict of these, and the dict is not this module's business.
"""

from enum import Enum, unique

from attrs import evolve, frozen


@unique
class Phase(Enum):
    """Where an exec is in its life, in the words of the wire."""

    RUNNING = "running"
    """Its child lives, or its output is still being drained: the result is not published."""
    EXITED = "exited"
    ACKED = "acked"


@frozen
class Record:
    """What the rules remember of one exec."""

    phase: Phase = Phase.RUNNING
    output_held: bool = True
    """Whether its output can still be read by a poll; released by the acknowledgement alone."""
    spawns: int = 1
    """How many children were started for this id. Always 1: what a retried start must not change."""
    starts: int = 1
    """How many start requests named this id."""
    acked_at: float | None = None
    """Monotonic seconds of the acknowledgement."""


@unique
class Start(Enum):
    """What a valid start request has to do."""

    SPAWN = "spawn"
    RETRIED = "retried"
    """The id is known: answer its actual phase, spawn nothing."""


@unique
class Ack(Enum):
    """What an acknowledgement did."""

    RELEASED = "released"
    UNKNOWN = "unknown_exec"
    STILL_RUNNING = "still_running"
    ALREADY_ACKED = "already_acked"


def start(record: Record | None) -> tuple[Record, Start]:
    """Decide a valid start. On `Start.SPAWN` the record stands only if the spawn succeeds."""
    if record is None:
        return Record(), Start.SPAWN
    return evolve(record, starts=record.starts + 1), Start.RETRIED


def exited(record: Record) -> Record:
    """The result is published. A record that has left RUNNING stays as it is."""
    if record.phase is not Phase.RUNNING:
        return record
    return evolve(record, phase=Phase.EXITED)


def ack(record: Record | None, now: float) -> tuple[Record | None, Ack]:
    """Decide an acknowledgement at monotonic time `now` in seconds."""
    if record is None:
        return None, Ack.UNKNOWN
    if record.phase is Phase.RUNNING:
        return record, Ack.STILL_RUNNING
    if record.phase is Phase.ACKED:
        return record, Ack.ALREADY_ACKED
    return evolve(record, phase=Phase.ACKED, output_held=False, acked_at=now), Ack.RELEASED


def shows_outcome(record: Record) -> bool:
    """Whether a poll carries the outcome fields: only between exit and acknowledgement (contract a.3)."""
    return record.phase is Phase.EXITED and record.output_held


def poll(record: Record) -> tuple[Record, bool]:
    """Decide a poll: the record after it, which is the record before it, and whether the outcome comes along."""
    return record, shows_outcome(record)


def busy(record: Record) -> bool:
    """Whether this exec keeps the VM busy: its result is not published yet (contract h.1)."""
    return record.phase is Phase.RUNNING


def collect(record: Record, now: float, ttl: float) -> Record | None:
    """The sweep: None when the record goes, which only an acknowledged one of age `ttl` or more does."""
    if record.phase is Phase.ACKED and record.acked_at is not None and now - record.acked_at >= ttl:
        return None
    return record

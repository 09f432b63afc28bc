"""The worker's link to its engine: when to connect, when to pause, when to ask for a sign of life, when to give up.

Theory of operation
-------------------
                start             opened
       IDLE ────────────► CONNECTING ─────────► OPEN
                            ▲    │ lost           │ lost
                 pause over │    ▼                │
                           PAUSED ◄───────────────┘
       any ── rejected, stopped ──► OVER

* Every kind of end leads to another attempt, those in good order too: an engine that restarts closes in good order
  (reference A7). Only a rejection of the worker itself, and the daemon's own end, are final.
* The pause is fixed. One engine has few workers, and one that comes back should find them soon.
* The engine does not ping and cuts nothing off, so a dead link is found here: a ping after so much time, and the end
  after a longer one in which nothing at all came.
* An engine that cannot be reached is complained of once; the attempts go on quietly.
"""

from enum import Enum, unique
from typing import Final

from attrs import evolve, frozen

PAUSE_SECS: Final = 2.0
"""Between an end and the next attempt (reference A7)."""
PING_SECS: Final = 20.0
"""Between two pings."""
SILENCE_SECS: Final = 60.0
"""Without any frame: the link is dead."""

FUNCTION_CONFLICT: Final = "FUNCTION_NAMESPACE_CONFLICT"


@unique
class Phase(Enum):
    """Where the link is."""

    IDLE = "idle"
    CONNECTING = "connecting"
    OPEN = "open"
    PAUSED = "paused"
    OVER = "over"


@unique
class Event(Enum):
    """What can happen to it."""

    START = "start"
    OPENED = "opened"
    LOST = "lost"
    """An attempt failed, or the connection ended."""
    PAUSE_OVER = "pause_over"
    REJECTED = "rejected"
    """The engine will not have this worker."""
    STOP = "stop"


@unique
class Do(Enum):
    """What is to be done, in the order given."""

    CONNECT = "connect"
    COMPLAIN = "complain"
    PAUSE = "pause"
    CLOSE = "close"
    """Close what is open and cancel what is under way."""


@frozen
class Link:
    """Everything the decisions rest on."""

    phase: Phase = Phase.IDLE
    complained: bool = False


def step(link: Link, event: Event) -> tuple[Link, tuple[Do, ...]]:
    """The next state and what to do. Events that do not fit the phase come late, and change nothing."""
    phase = link.phase
    if phase is Phase.OVER:
        return link, ()
    if event in (Event.REJECTED, Event.STOP):
        return evolve(link, phase=Phase.OVER), (Do.CLOSE,)
    if event is Event.START and phase is Phase.IDLE:
        return evolve(link, phase=Phase.CONNECTING), (Do.CONNECT,)
    if event is Event.PAUSE_OVER and phase is Phase.PAUSED:
        return evolve(link, phase=Phase.CONNECTING), (Do.CONNECT,)
    if event is Event.OPENED and phase is Phase.CONNECTING:
        return evolve(link, phase=Phase.OPEN, complained=True), ()
    if event is Event.LOST and phase is Phase.OPEN:
        return evolve(link, phase=Phase.PAUSED), (Do.PAUSE,)
    if event is Event.LOST and phase is Phase.CONNECTING:
        words = () if link.complained else (Do.COMPLAIN,)
        return evolve(link, phase=Phase.PAUSED, complained=True), (*words, Do.PAUSE)
    return link, ()


def dead(now: float, heard: float) -> bool:
    """Whether a link that was last heard at `heard` is dead; monotonic seconds."""
    return now - heard >= SILENCE_SECS


def final(code: str) -> bool:
    """Whether a rejection is one of the worker itself, and not of one function only (reference A3)."""
    return code != FUNCTION_CONFLICT

"""One child from spawn to published result: exit, deadline, kill, linger, in whatever order they come.

Theory of operation
-------------------
Five things race: the child's exit, the two pipes reaching their end, the deadline, kill requests, and the end
of an escalation (TERM, wait, KILL). The result is published exactly once, when the child has exited, no
escalation that the result must wait for is under way, and either both pipes ended or the linger ran out:

    child exits ──► [escalation of deadline/reap ends] ──► linger starts ──► pipes end ─┐
                                                               └──► linger expires ─────┴─► publish

* The linger clock starts after the exit *and* after an escalation that the exec itself asked for (its
  deadline, `reap_group_on_exit`), so that what the escalation flushes out is still read (contract c.5).
* An escalation runs at most once for a deadline and a reap together (contract c.7); a kill request joins
  one that runs instead of starting another.
* Whoever asked first names the cause: a deadline that fired is `timeout` even if the child then exits 0, unless a
  kill came before it; a kill is `killed` if the child died after it. What the kernel did for lack of memory is told
  by an argument.

`step` is total: events that come late (a deadline after the exit, an end of pipe after publishing) change
nothing. The actions it returns are done by `agentd.process.job`, which holds no decision of its own.
"""

from enum import Enum, unique

from attrs import evolve, frozen


@unique
class Event(Enum):
    """What can happen to a supervised child."""

    EXITED = "exited"
    PIPES_ENDED = "pipes_ended"
    """Every pipe of the child has reached its end."""
    DEADLINE = "deadline"
    KILL = "kill"
    """Somebody asked for the group to be killed."""
    ESCALATION_ENDED = "escalation_ended"
    LINGER_EXPIRED = "linger_expired"


@unique
class Action(Enum):
    """What the caller has to do, in the order given."""

    ESCALATE = "escalate"
    """Signal the group TERM, wait for it to empty or for the grace to end, then KILL; report the end."""
    START_LINGER = "start_linger"
    STOP_READING = "stop_reading"
    """Give up on the pipes: a process outside our reach holds them open."""
    CANCEL_TIMERS = "cancel_timers"
    PUBLISH = "publish"


@unique
class Cause(Enum):
    """Why an exec ended, in the words of the wire (outcome field ``cause``)."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    KILLED = "killed"
    OUT_OF_MEMORY = "out_of_memory"


@unique
class Escalation(Enum):
    """Whether the group is being brought down."""

    NONE = "none"
    RUNNING = "running"
    DONE = "done"


@frozen
class Supervision:
    """Everything the decisions rest on."""

    reap: bool = False
    """`reap_group_on_exit`: bring the group down as soon as the child exits."""
    exited: bool = False
    pipes_ended: bool = False
    timed_out: bool = False
    kill_requested: bool = False
    """A kill came before the child's exit was seen, and before the deadline."""
    escalation: Escalation = Escalation.NONE
    holds_linger: bool = False
    """Whether the running escalation is one the result waits for (deadline or reap, not a caller's kill)."""
    lingering: bool = False
    writers_may_be_alive: bool = False
    published: bool = False


Actions = tuple[Action, ...]


def step(state: Supervision, event: Event) -> tuple[Supervision, Actions]:
    """The next state and what to do. See the module's theory; every pair is defined."""
    if event is Event.EXITED:
        return _exited(state)
    if event is Event.PIPES_ENDED:
        if state.published or state.pipes_ended:
            return state, ()
        return _settle(evolve(state, pipes_ended=True))
    if event is Event.DEADLINE:
        return _deadline(state)
    if event is Event.KILL:
        return _kill(state)
    if event is Event.ESCALATION_ENDED:
        if state.escalation is not Escalation.RUNNING:
            return state, ()
        return _settle(evolve(state, escalation=Escalation.DONE, holds_linger=False))
    if state.published or not state.lingering or state.pipes_ended:
        return state, ()
    state = evolve(state, writers_may_be_alive=True, published=True)
    return state, (Action.STOP_READING, Action.CANCEL_TIMERS, Action.PUBLISH)


def _exited(state: Supervision) -> tuple[Supervision, Actions]:
    if state.exited:
        return state, ()
    state = evolve(state, exited=True)
    if not state.reap or state.timed_out:
        return _settle(state)
    if state.escalation is Escalation.RUNNING:
        # A caller's kill is bringing the group down already; what was asked of us is that it be down.
        return _settle(evolve(state, holds_linger=True))
    state, actions = _settle(evolve(state, escalation=Escalation.RUNNING, holds_linger=True))
    return state, (Action.ESCALATE, *actions)


def _deadline(state: Supervision) -> tuple[Supervision, Actions]:
    if state.exited or state.timed_out:
        return state, ()
    state = evolve(state, timed_out=True, holds_linger=True)
    if state.escalation is Escalation.RUNNING:
        return state, ()
    return evolve(state, escalation=Escalation.RUNNING), (Action.ESCALATE,)


def _kill(state: Supervision) -> tuple[Supervision, Actions]:
    if not (state.exited or state.timed_out):
        state = evolve(state, kill_requested=True)
    if state.escalation is Escalation.RUNNING:
        return state, ()
    return evolve(state, escalation=Escalation.RUNNING), (Action.ESCALATE,)


def _settle(state: Supervision) -> tuple[Supervision, Actions]:
    """After anything that can complete the result: publish, start the linger, or go on waiting."""
    if state.published or not state.exited or state.holds_linger:
        return state, ()
    if state.pipes_ended:
        return evolve(state, published=True), (Action.CANCEL_TIMERS, Action.PUBLISH)
    if state.lingering:
        return state, ()
    return evolve(state, lingering=True), (Action.START_LINGER,)


def cause(state: Supervision, signalled: bool, out_of_memory: bool) -> Cause:
    """Why the exec ended; `out_of_memory` is the kernel's word that it killed the child for memory."""
    if state.timed_out and not state.kill_requested:
        return Cause.TIMEOUT
    if signalled and out_of_memory:
        return Cause.OUT_OF_MEMORY
    if state.kill_requested:
        return Cause.KILLED
    return Cause.SIGNAL if signalled else Cause.EXIT


@frozen
class EscalationStep:
    """What an escalation does next."""

    send_kill: bool
    """Send SIGKILL to the group now."""
    finished: bool
    """It is over."""


def escalate(alive: bool, waited: float, grace: float) -> EscalationStep:
    """Decide one look at a group that got SIGTERM `waited` seconds ago (contract c.6).

    The group is gone: finished. Alive when the `grace` (seconds) is over: kill and finish. Otherwise look
    again later.
    """
    if not alive:
        return EscalationStep(send_kill=False, finished=True)
    if waited >= grace:
        return EscalationStep(send_kill=True, finished=True)
    return EscalationStep(send_kill=False, finished=False)


MAX_DEADLINE_SECS = 18446744073709551615.0
"""What the wire's duration type holds: a larger `timeout_sec` is malformed (contract a.2)."""

CLOCK_RANGE_SECS = 9.2e18
"""Beyond this a deadline is past any clock's range: accepted, and it means none (contract a.2)."""


def deadline(timeout_sec: float | None) -> float | None:
    """Seconds until the deadline, or None for none. `timeout_sec` has passed `valid_timeout`."""
    if timeout_sec is None or timeout_sec >= CLOCK_RANGE_SECS:
        return None
    return timeout_sec


def valid_timeout(timeout_sec: float | None) -> bool:
    """Whether a start request may ask for this: positive, finite, and within the duration type."""
    return timeout_sec is None or 0 < timeout_sec < MAX_DEADLINE_SECS

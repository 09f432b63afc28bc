"""The daemon's own life: serving, draining, gone.

Theory of operation
-------------------
SIGTERM, SIGINT and the terminate hook all ask for the same thing: stop taking on work, finish what is in
flight, leave. Any process in the VM can post the hook, so a knob keeps it to an acknowledgement.

    SERVING ──terminate (drain)──► DRAINING ──in-flight = 0, or the drain deadline──► STOPPED
       └─────terminate (acknowledge)──► SERVING

While draining, new execs are refused with 503; everything that lets a caller fetch what it is owed (poll,
stream, ack, kill, stdin, files, health) still answers.
"""

from enum import Enum, unique

from attrs import evolve, frozen


@unique
class Stage(Enum):
    """Where the daemon is in its life."""

    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"


@unique
class TerminateMode(Enum):
    """What the terminate hook does, the knob ``AGENTD_TERMINATE``."""

    DRAIN = "drain"
    ACKNOWLEDGE = "acknowledge"


@frozen
class Lifecycle:
    """The stage, and how many requests are in flight."""

    stage: Stage = Stage.SERVING
    in_flight: int = 0


def terminate(state: Lifecycle, mode: TerminateMode) -> Lifecycle:
    """The terminate hook was posted and answered."""
    if mode is TerminateMode.ACKNOWLEDGE or state.stage is not Stage.SERVING:
        return state
    return _settle(evolve(state, stage=Stage.DRAINING))


def stop(state: Lifecycle) -> Lifecycle:
    """A signal asked the daemon to stop: what a draining terminate does, whatever the knob says."""
    return terminate(state, TerminateMode.DRAIN)


def request_began(state: Lifecycle) -> Lifecycle:
    """A request arrived, and will be answered even while draining."""
    return Lifecycle(state.stage, state.in_flight + 1)


def request_ended(state: Lifecycle) -> Lifecycle:
    """A request's answer is complete, or its caller has gone."""
    return _settle(Lifecycle(state.stage, state.in_flight - 1))


def drain_expired(state: Lifecycle) -> Lifecycle:
    """The drain deadline passed with requests still in flight."""
    return evolve(state, stage=Stage.STOPPED) if state.stage is Stage.DRAINING else state


def may_start(state: Lifecycle) -> bool:
    """Whether new execs are taken on."""
    return state.stage is Stage.SERVING


def _settle(state: Lifecycle) -> Lifecycle:
    if state.stage is Stage.DRAINING and state.in_flight == 0:
        return evolve(state, stage=Stage.STOPPED)
    return state

"""Wrong versions of `agentd.rules.lifecycle`."""

from attrs import evolve

from agentd.rules.lifecycle import Lifecycle, Stage, TerminateMode
from checker.faults import Function, fault

MODULE = "agentd.rules.lifecycle"


@fault("a terminate hook is forgotten", MODULE, "terminate")
def _forgotten(right: Function, state: Lifecycle, mode: TerminateMode) -> Lifecycle:
    return state


@fault("every terminate hook drains", MODULE, "terminate")
def _every(right: Function, state: Lifecycle, mode: TerminateMode) -> Lifecycle:
    drained: Lifecycle = right(state, TerminateMode.DRAIN)
    return drained


@fault("a terminate hook revives the daemon", MODULE, "terminate")
def _revives(right: Function, state: Lifecycle, mode: TerminateMode) -> Lifecycle:
    return evolve(state, stage=Stage.SERVING) if state.stage is Stage.DRAINING else right(state, mode)


@fault("a drain cuts requests off", MODULE, "stop")
def _cuts(right: Function, state: Lifecycle) -> Lifecycle:
    return evolve(state, stage=Stage.STOPPED)


@fault("a terminate cuts requests off", MODULE, "terminate")
def _terminate_cuts(right: Function, state: Lifecycle, mode: TerminateMode) -> Lifecycle:
    return state if mode is TerminateMode.ACKNOWLEDGE else evolve(state, stage=Stage.STOPPED)


@fault("a signal is forgotten", MODULE, "stop")
def _signal_forgotten(right: Function, state: Lifecycle) -> Lifecycle:
    return state


@fault("a drain does not stop an idle daemon", MODULE, "_settle")
def _idle(right: Function, state: Lifecycle) -> Lifecycle:
    return state


@fault("the last request does not stop a draining daemon", MODULE, "request_ended")
def _last_request(right: Function, state: Lifecycle) -> Lifecycle:
    return Lifecycle(state.stage, state.in_flight - 1)


@fault("an idle daemon stops", MODULE, "request_ended")
def _idle_stops(right: Function, state: Lifecycle) -> Lifecycle:
    then: Lifecycle = right(state)
    return evolve(then, stage=Stage.STOPPED) if not then.in_flight else then


@fault("a request is not counted", MODULE, "request_began")
def _uncounted(right: Function, state: Lifecycle) -> Lifecycle:
    return state


@fault("a request never ends", MODULE, "request_ended")
def _never_ends(right: Function, state: Lifecycle) -> Lifecycle:
    return state


@fault("a request revives the daemon", MODULE, "request_began")
def _request_revives(right: Function, state: Lifecycle) -> Lifecycle:
    return evolve(right(state), stage=Stage.SERVING)  # type: ignore[no-any-return]


@fault("a drain never expires", MODULE, "drain_expired")
def _never_expires(right: Function, state: Lifecycle) -> Lifecycle:
    return state


@fault("a serving daemon can expire", MODULE, "drain_expired")
def _expires(right: Function, state: Lifecycle) -> Lifecycle:
    return evolve(state, stage=Stage.STOPPED)


@fault("a draining daemon takes on execs", MODULE, "may_start")
def _takes_on(right: Function, state: Lifecycle) -> bool:
    return state.stage is not Stage.STOPPED


@fault("no exec is taken on", MODULE, "may_start")
def _none(right: Function, state: Lifecycle) -> bool:
    return False

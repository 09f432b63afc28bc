"""Wrong versions of `agentd.rules.supervision`."""

from attrs import evolve

from agentd.rules.supervision import Action, Actions, Cause, Escalation, EscalationStep, Event, Supervision
from checker.faults import Function, fault

MODULE = "agentd.rules.supervision"
Stepped = tuple[Supervision, Actions]


def _step(right: Function, state: Supervision, event: Event) -> Stepped:
    stepped: Stepped = right(state, event)
    return stepped


@fault("a result is published twice", MODULE, "step")
def _published_twice(right: Function, state: Supervision, event: Event) -> Stepped:
    if event is Event.PIPES_ENDED and state.published:
        return state, (Action.PUBLISH,)
    return _step(right, state, event)


@fault("publishing is not remembered", MODULE, "step")
def _not_remembered(right: Function, state: Supervision, event: Event) -> Stepped:
    then, actions = _step(right, state, event)
    return evolve(then, published=False), actions


@fault("pipes that end publish", MODULE, "step")
def _pipes_publish(right: Function, state: Supervision, event: Event) -> Stepped:
    if event is Event.PIPES_ENDED and not state.published and not state.exited:
        return evolve(state, pipes_ended=True, published=True), (Action.CANCEL_TIMERS, Action.PUBLISH)
    return _step(right, state, event)


@fault("pipes that end are forgotten", MODULE, "step")
def _pipes_forgotten(right: Function, state: Supervision, event: Event) -> Stepped:
    # With the linger's clock stopped by the end of the pipes as well, nothing is left to publish.
    if event is Event.PIPES_ENDED and state.lingering:
        return evolve(state, pipes_ended=True), ()
    return _step(right, state, event)


@fault("pipes can end twice", MODULE, "step")
def _pipes_twice(right: Function, state: Supervision, event: Event) -> Stepped:
    if event is Event.PIPES_ENDED and state.published:
        return evolve(state, pipes_ended=True, writers_may_be_alive=not state.writers_may_be_alive), ()
    return _step(right, state, event)


@fault("the linger is skipped", MODULE, "_settle")
def _linger_skipped(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    if Action.START_LINGER in actions:
        return evolve(then, published=True), (Action.CANCEL_TIMERS, Action.PUBLISH)
    return then, actions


@fault("the linger starts before the exit", MODULE, "_deadline")
def _early_linger(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    if then.timed_out and not state.timed_out and not state.lingering:
        return evolve(then, lingering=True), (*actions, Action.START_LINGER)
    return then, actions


@fault("the linger does not wait", MODULE, "_exited")
def _linger_hurries(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    if then.holds_linger and not then.lingering and not then.pipes_ended:
        return evolve(then, lingering=True), (*actions, Action.START_LINGER)
    return then, actions


@fault("a linger starts again", MODULE, "_settle")
def _linger_again(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    waiting = state.lingering and not state.holds_linger and not state.pipes_ended and not state.published
    return then, (*actions, Action.START_LINGER) if waiting else actions


@fault("a linger can be over twice", MODULE, "step")
def _over_twice(right: Function, state: Supervision, event: Event) -> Stepped:
    if event is Event.LINGER_EXPIRED and state.published:
        return evolve(state, writers_may_be_alive=True), (Action.STOP_READING,)
    return _step(right, state, event)


@fault("writers are forgotten", MODULE, "step")
def _writers_forgotten(right: Function, state: Supervision, event: Event) -> Stepped:
    then, actions = _step(right, state, event)
    return evolve(then, writers_may_be_alive=False), actions


@fault("reading goes on", MODULE, "step")
def _reads_on(right: Function, state: Supervision, event: Event) -> Stepped:
    then, actions = _step(right, state, event)
    return then, tuple(action for action in actions if action is not Action.STOP_READING)


@fault("timers are not cancelled", MODULE, "step")
def _timers(right: Function, state: Supervision, event: Event) -> Stepped:
    then, actions = _step(right, state, event)
    return then, tuple(action for action in actions if action is not Action.CANCEL_TIMERS)


@fault("a result does not wait for the reap", MODULE, "_exited")
def _no_reap_wait(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    if Action.ESCALATE in actions and then.pipes_ended:
        return evolve(then, published=True), (*actions, Action.CANCEL_TIMERS, Action.PUBLISH)
    return then, actions


@fault("a result does not wait for the deadline", MODULE, "_exited")
def _no_deadline_wait(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    if then.timed_out and then.pipes_ended and not then.published:
        return evolve(then, published=True), (*actions, Action.CANCEL_TIMERS, Action.PUBLISH)
    return then, actions


@fault("a kill escalates again", MODULE, "_kill")
def _kill_again(right: Function, state: Supervision) -> Stepped:
    return evolve(right(state)[0], escalation=Escalation.RUNNING), (Action.ESCALATE,)


@fault("a deadline escalates again", MODULE, "_deadline")
def _deadline_again(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    return then, (Action.ESCALATE,) if then is not state else actions


@fault("a reap escalates again", MODULE, "_exited")
def _reap_again(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    if state.escalation is Escalation.RUNNING and state.reap and not state.exited:
        return then, (Action.ESCALATE, *actions)
    return then, actions


@fault("a reap escalates after the deadline", MODULE, "_exited")
def _reap_after_deadline(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    if state.reap and state.timed_out and not state.exited:
        return evolve(then, escalation=Escalation.RUNNING), (Action.ESCALATE, *actions)
    return then, actions


@fault("the end of an escalation is forgotten", MODULE, "step")
def _end_forgotten(right: Function, state: Supervision, event: Event) -> Stepped:
    return (state, ()) if event is Event.ESCALATION_ENDED else _step(right, state, event)


@fault("an escalation can end twice", MODULE, "step")
def _ends_twice(right: Function, state: Supervision, event: Event) -> Stepped:
    if event is Event.ESCALATION_ENDED and state.escalation is not Escalation.RUNNING:
        return evolve(state, escalation=Escalation.DONE), ()
    return _step(right, state, event)


@fault("a kill is forgotten", MODULE, "_kill")
def _kill_forgotten(right: Function, state: Supervision) -> Stepped:
    return evolve(state, escalation=Escalation.RUNNING), ()


@fault("a kill comes too late", MODULE, "_kill")
def _kill_late(right: Function, state: Supervision) -> Stepped:
    return (state, ()) if state.published else right(state)


@fault("a deadline is forgotten", MODULE, "_deadline")
def _deadline_forgotten(right: Function, state: Supervision) -> Stepped:
    return state, ()


@fault("a deadline does not escalate", MODULE, "_deadline")
def _deadline_quiet(right: Function, state: Supervision) -> Stepped:
    then, _ = right(state)
    return (state if then is state else evolve(state, timed_out=True)), ()


@fault("a deadline after the exit counts", MODULE, "_deadline")
def _deadline_late(right: Function, state: Supervision) -> Stepped:
    return (evolve(state, timed_out=True), ()) if state.exited else right(state)


@fault("a reap is forgotten", MODULE, "_exited")
def _reap_forgotten(right: Function, state: Supervision) -> Stepped:
    then, actions = right(evolve(state, reap=False))
    return evolve(then, reap=state.reap), actions


@fault("every exit is reaped", MODULE, "_exited")
def _all_reaped(right: Function, state: Supervision) -> Stepped:
    then, actions = right(evolve(state, reap=True))
    return evolve(then, reap=state.reap), actions


@fault("a second exit counts", MODULE, "_exited")
def _second_exit(right: Function, state: Supervision) -> Stepped:
    stepped: Stepped = right(evolve(state, exited=False))
    return stepped


@fault("a kill after the exit counts", MODULE, "_kill")
def _kill_counts(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    return evolve(then, kill_requested=True), actions


@fault("a kill is only a signal to come", MODULE, "_kill")
def _kill_uncounted(right: Function, state: Supervision) -> Stepped:
    then, actions = right(state)
    return evolve(then, kill_requested=state.kill_requested), actions


@fault("the grace is never over", MODULE, "escalate")
def _never_over(right: Function, alive: bool, waited: float, grace: float) -> EscalationStep:
    return EscalationStep(send_kill=False, finished=not alive)


@fault("the grace is not waited for", MODULE, "escalate")
def _no_grace(right: Function, alive: bool, waited: float, grace: float) -> EscalationStep:
    return EscalationStep(send_kill=alive, finished=True)


@fault("KILL goes to a group that is gone", MODULE, "escalate")
def _kills_gone(right: Function, alive: bool, waited: float, grace: float) -> EscalationStep:
    step: EscalationStep = right(alive, waited, grace)
    return evolve(step, send_kill=step.finished)


@fault("a time-out that exits well is an exit", MODULE, "cause")
def _exits_well(right: Function, state: Supervision, signalled: bool, out_of_memory: bool) -> Cause:
    return right(state, signalled, out_of_memory) if signalled else Cause.EXIT


@fault("a kill is only a signal", MODULE, "cause")
def _only_signal(right: Function, state: Supervision, signalled: bool, out_of_memory: bool) -> Cause:
    cause: Cause = right(evolve(state, kill_requested=False), signalled, out_of_memory)
    return cause


@fault("lack of memory is only a signal", MODULE, "cause")
def _no_memory(right: Function, state: Supervision, signalled: bool, out_of_memory: bool) -> Cause:
    cause: Cause = right(state, signalled, False)
    return cause


@fault("every signal is lack of memory", MODULE, "cause")
def _all_memory(right: Function, state: Supervision, signalled: bool, out_of_memory: bool) -> Cause:
    cause: Cause = right(state, signalled, signalled)
    return cause


@fault("any lack of memory is the cause", MODULE, "cause")
def _any_memory(right: Function, state: Supervision, signalled: bool, out_of_memory: bool) -> Cause:
    return Cause.OUT_OF_MEMORY if out_of_memory else right(state, signalled, out_of_memory)


@fault("no time-out is too long", MODULE, "valid_timeout")
def _any_length(right: Function, timeout_sec: float | None) -> bool:
    return timeout_sec is None or timeout_sec > 0


@fault("a time-out of nothing is valid", MODULE, "valid_timeout")
def _nothing(right: Function, timeout_sec: float | None) -> bool:
    return right(timeout_sec) or timeout_sec == 0


@fault("a huge time-out is a deadline", MODULE, "deadline")
def _huge(right: Function, timeout_sec: float | None) -> float | None:
    return timeout_sec

"""Wrong versions of `agentd.rules.hooks`, and of what a run hook does in its model."""

from typing import Any

from attrs import evolve

from agentd.rules.bootstrap import Bootstrap, RunVerdict
from agentd.rules.hooks import HANDLED, Hook, HookLog, Observation
from checker.faults import Function, fault

MODULE = "agentd.rules.hooks"
Log = HookLog[Any]
Recorded = tuple[Log, int | None]


@fault("what is dropped is not counted", MODULE, "record")
def _uncounted(right: Function, log: Log, hook: Hook, fired_at: int, cap: int) -> Recorded:
    then, index = right(log, hook, fired_at, cap)
    return evolve(then, dropped=log.dropped), index


@fault("an invocation is not recorded", MODULE, "record")
def _not_recorded(right: Function, log: Log, hook: Hook, fired_at: int, cap: int) -> Recorded:
    return (log, None) if hook is Hook.VALIDATE else right(log, hook, fired_at, cap)


@fault("the log keeps the last", MODULE, "record")
def _keeps_last(right: Function, log: Log, hook: Hook, fired_at: int, cap: int) -> Recorded:
    then, index = right(log, hook, fired_at, cap)
    if index is None:
        return evolve(then, entries=(*log.entries[1:], Observation(hook, fired_at))), None
    return then, index


@fault("the log has no bound", MODULE, "record")
def _no_bound(right: Function, log: Log, hook: Hook, fired_at: int, cap: int) -> Recorded:
    recorded: Recorded = right(log, hook, fired_at, cap + len(log.entries) + 1)
    return evolve(recorded[0], entries=recorded[0].entries[: cap + 2]), recorded[1]


@fault("the log keeps one more", MODULE, "record")
def _one_more(right: Function, log: Log, hook: Hook, fired_at: int, cap: int) -> Recorded:
    recorded: Recorded = right(log, hook, fired_at, cap + 1)
    return recorded


@fault("an entry has another hook", MODULE, "record")
def _another(right: Function, log: Log, hook: Hook, fired_at: int, cap: int) -> Recorded:
    recorded: Recorded = right(log, Hook.RUN if hook is Hook.RESUME else hook, fired_at, cap)
    return recorded


@fault("the index is off by one", MODULE, "record")
def _off_by_one(right: Function, log: Log, hook: Hook, fired_at: int, cap: int) -> Recorded:
    then, index = right(log, hook, fired_at, cap)
    return then, None if index is None else max(0, index - 1)


@fault("what is dropped has an index", MODULE, "record")
def _has_index(right: Function, log: Log, hook: Hook, fired_at: int, cap: int) -> Recorded:
    then, index = right(log, hook, fired_at, cap)
    return then, 0 if index is None else index


@fault("dropped invocations run handlers", MODULE, "runs_handler")
def _dropped_run(right: Function, hook: Hook, index: int | None, verdict: RunVerdict | None) -> bool:
    handles: bool = right(hook, 0, verdict)
    return handles


@fault("every hook runs a handler", MODULE, "runs_handler")
def _every_hook(right: Function, hook: Hook, index: int | None, verdict: RunVerdict | None) -> bool:
    return index is not None and (hook not in HANDLED or right(hook, index, verdict))


@fault("replays run the handler", MODULE, "runs_handler")
def _replays(right: Function, hook: Hook, index: int | None, verdict: RunVerdict | None) -> bool:
    return verdict is RunVerdict.REPLAYED or right(hook, index, verdict)


@fault("no hook runs a handler", MODULE, "runs_handler")
def _no_hook(right: Function, hook: Hook, index: int | None, verdict: RunVerdict | None) -> bool:
    return False


@fault("an outcome goes to the first entry", MODULE, "attach_outcome")
def _first_entry(right: Function, log: Log, index: int, outcome: Any) -> Log:
    attached: Log = right(log, 0, outcome)
    return attached


@fault("an outcome is lost", MODULE, "attach_outcome")
def _lost(right: Function, log: Log, index: int, outcome: Any) -> Log:
    return log


@fault("an outcome cuts the log", MODULE, "attach_outcome")
def _cuts(right: Function, log: Log, index: int, outcome: Any) -> Log:
    attached: Log = right(log, index, outcome)
    return evolve(attached, entries=attached.entries[: index + 1])


@fault("an outcome forgets what was dropped", MODULE, "attach_outcome")
def _forgets(right: Function, log: Log, index: int, outcome: Any) -> Log:
    return evolve(right(log, index, outcome), dropped=0)


@fault("any run hook conflicts", "agentd.rules.bootstrap", "run_hook")
def _conflicts(right: Function, state: Bootstrap, token: bytes) -> tuple[Bootstrap, RunVerdict]:
    return state, RunVerdict.CONFLICT

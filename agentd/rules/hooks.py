"""The hook log, and which hook runs a workload handler.

Theory of operation
-------------------
Every POST to a hook route is recorded before anything else is done with it, because the log is the only
trace some hooks leave. The routes need no credential and are reachable from inside the VM, so the log keeps
the *first* `cap` entries: a workload that floods it can add entries, never remove the platform's.

    invocation ──► record (entry i, or dropped) ──► verdict of the hook ──► handler? ──► outcome on entry i

A handler runs only for an invocation that has an entry (one that was dropped could run without a trace, and
as often as a workload likes), only for the four hooks of a VM's life, and for `run` only on the winning
one (contract g.3, g.4).
"""

from enum import Enum, unique
from typing import Generic, TypeVar

from attrs import evolve, frozen

from agentd.rules.bootstrap import RunVerdict

Outcome = TypeVar("Outcome")


@unique
class Hook(Enum):
    """The lifecycle hooks, spelled as in their routes."""

    READY = "ready"
    VALIDATE = "validate"
    RUN = "run"
    SUSPEND = "suspend"
    RESUME = "resume"
    TERMINATE = "terminate"


HANDLED = frozenset({Hook.RUN, Hook.SUSPEND, Hook.RESUME, Hook.TERMINATE})
"""The hooks a workload may answer with a handler of its own."""


@frozen
class Observation(Generic[Outcome]):
    """One recorded invocation."""

    hook: Hook
    fired_at: int
    """Epoch seconds on the daemon's clock."""
    outcome: Outcome | None = None
    """What the handler did, when one ran."""


@frozen
class HookLog(Generic[Outcome]):
    """The first `cap` invocations, oldest first, and how many came after."""

    entries: tuple[Observation[Outcome], ...] = ()
    dropped: int = 0


def record(log: HookLog[Outcome], hook: Hook, fired_at: int, cap: int) -> tuple[HookLog[Outcome], int | None]:
    """Record an invocation; returns the log and the entry's index, or None when it was dropped."""
    if len(log.entries) >= cap:
        return evolve(log, dropped=log.dropped + 1), None
    entries = (*log.entries, Observation[Outcome](hook, fired_at))
    return evolve(log, entries=entries), len(entries) - 1


def runs_handler(hook: Hook, index: int | None, verdict: RunVerdict | None) -> bool:
    """Whether this invocation runs the workload's handler.

    `index` is what `record` returned; `verdict` is the bootstrap verdict of a run hook, None when it was
    refused before one was reached and for every other hook.
    """
    if index is None or hook not in HANDLED:
        return False
    return hook is not Hook.RUN or verdict is RunVerdict.INSTALLED


def attach_outcome(log: HookLog[Outcome], index: int, outcome: Outcome) -> HookLog[Outcome]:
    """Put a handler's outcome on its entry."""
    entry = evolve(log.entries[index], outcome=outcome)
    return evolve(log, entries=(*log.entries[:index], entry, *log.entries[index + 1 :]))

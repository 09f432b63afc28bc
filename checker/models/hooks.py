"""Lifecycle hooks, their log and their handlers: contract a.1, g.2 to g.4, over `rules.hooks` and
`rules.bootstrap`.

Anybody in the VM can post a hook, as often as they like; the log keeps the first few. Handlers run one at a
time, behind each other. The time of an invocation is its number.
"""

from collections.abc import Hashable
from typing import cast

from attrs import evolve, frozen

from agentd.rules import bootstrap, hooks
from agentd.rules.bootstrap import Bootstrap, RunVerdict
from agentd.rules.hooks import Hook, HookLog, Observation
from checker.model import Component, Edge, Event, Model, Values
from checker.models import Config
from checker.properties import (
    Always,
    EdgePredicate,
    OnEdge,
    Property,
    SometimesOnEdge,
    unchanged_by,
)

CAP = 2
"""Entries of the hook log."""
MOST_DROPPED = 1
"""Invocations beyond that, to bound the model."""
TOKENS = {"platform": b"H", "attacker": b"A"}

Log = HookLog[str]
Queue = tuple[int, ...]
"""Entries whose handler runs, or waits for the one before it."""


# --- Events ------------------------------------------------------------------------------------------------


def _post(hook: Hook, actor: str, token: bytes | None = None) -> Event:
    """An invocation of a hook; of `run` with a token, or malformed."""

    def effect(log: Log, queue: Queue, boot: Bootstrap) -> tuple[Values, Hashable]:
        log, index = hooks.record(log, hook, len(log.entries) + log.dropped, CAP)
        verdict: RunVerdict | None = None
        if token is not None:
            boot, verdict = bootstrap.run_hook(boot, token)
        handles = hooks.runs_handler(hook, index, verdict)
        if handles and index is not None:
            queue = (*queue, index)
        return (log, queue, boot), (verdict, index, handles)

    def guard(log: Log, queue: Queue, boot: Bootstrap) -> bool:
        return log.dropped < MOST_DROPPED

    how = "" if hook is not Hook.RUN else " malformed" if token is None else f" with {token.decode()}"
    places = ("log", "queue", "boot")
    args = {"hook": hook, "token": token}
    return Event(f"{actor} posts {hook.value}{how}", "hook", actor, places, places, effect, guard, args)


def _handled() -> Event:
    def effect(log: Log, queue: Queue) -> tuple[Values, Hashable]:
        index, *rest = queue
        return (hooks.attach_outcome(log, index, f"outcome {index}"), tuple(rest)), index

    places = ("log", "queue")
    return Event(
        "the handler that runs is done",
        "handled",
        "workload",
        places,
        places,
        effect,
        lambda log, queue: bool(queue),
    )


def events() -> tuple[Event, ...]:
    """Every event."""
    return (
        *(_post(hook, "platform") for hook in Hook if hook is not Hook.RUN),
        _post(Hook.RUN, "somebody"),
        *(_post(Hook.RUN, actor, token) for actor, token in TOKENS.items()),
        _handled(),
    )


# --- Properties --------------------------------------------------------------------------------------------


@frozen
class Posted:
    """One invocation, as a property sees it."""

    before: Log
    after: Log
    verdict: RunVerdict | None
    index: int | None
    handles: bool
    installed: bool
    """Whether a token was installed before."""


def _posted(edge: Edge) -> Posted:
    verdict, index, handles = cast("tuple[RunVerdict | None, int | None, bool]", edge.response)
    boot = edge.before["boot"]
    assert isinstance(boot, Bootstrap)
    return Posted(edge.before["log"], edge.after["log"], verdict, index, handles, boot.installed)  # type: ignore[arg-type]


def _should_handle(edge: Edge) -> bool:
    posted, hook = _posted(edge), edge.event.args["hook"]
    if posted.index is None or hook in (Hook.READY, Hook.VALIDATE):
        return False
    return hook is not Hook.RUN or (edge.event.args["token"] is not None and not posted.installed)


def _property(
    name: str, holds: EdgePredicate, witness: str, faults: tuple[str, ...], meaning: str, kind: str = "hook"
) -> OnEdge:
    return OnEdge(
        name=name, kinds=frozenset({kind}), holds=holds, witness=witness, faults=faults, meaning=meaning
    )


def _count(log: Log) -> int:
    return len(log.entries) + log.dropped


def properties() -> tuple[Property, ...]:
    return (
        _property(
            "every invocation is counted",
            lambda e: _count(_posted(e).after) == _count(_posted(e).before) + 1,
            "an invocation is dropped",
            ("what is dropped is not counted", "an invocation is not recorded"),
            "In the log or in hooks_dropped, also when malformed or refused (g.3).",
        ),
        _property(
            "the first invocations are kept",
            lambda e: _posted(e).after.entries[: len(_posted(e).before.entries)] == _posted(e).before.entries,
            "an invocation is dropped",
            ("the log keeps the last",),
            "A flood cannot push the platform's own hooks out (g.3).",
        ),
        Always(
            name="the log is bounded",
            reads=("log",),
            holds=lambda log: len(log.entries) <= CAP and (not log.dropped or len(log.entries) == CAP),
            witness="an invocation is dropped",
            faults=("the log has no bound", "the log keeps one more"),
            meaning="Only what does not fit is dropped (b, g.3).",
        ),
        _property(
            "an entry says what was posted and when",
            lambda e: (
                _posted(e).index is None
                or _posted(e).after.entries[_posted(e).index or 0]
                == Observation(e.event.args["hook"], _count(_posted(e).before), None)  # type: ignore[arg-type]
            ),
            "a handler runs",
            ("an entry has another hook", "the index is off by one"),
            "The hook and its time, in the order of arrival (g.3).",
        ),
        _property(
            "what is dropped has no entry",
            lambda e: (_posted(e).index is None) == (_posted(e).after.dropped > _posted(e).before.dropped),
            "an invocation is dropped",
            ("what is dropped has an index",),
            "An invocation without a trace is known as one (g.3).",
        ),
        _property(
            "handlers run for recorded invocations of the four hooks, and for run when it wins",
            lambda e: _posted(e).handles == _should_handle(e),
            "a handler runs",
            (
                "dropped invocations run handlers",
                "every hook runs a handler",
                "replays run the handler",
                "no hook runs a handler",
            ),
            "One trace for each run of a handler, one run of the run handler (g.2, g.3, g.4).",
        ),
        _property(
            "a dropped run hook still bootstraps",
            lambda e: (
                e.event.args["token"] is None
                or _posted(e).installed
                or _posted(e).verdict is RunVerdict.INSTALLED
            ),
            "a dropped run hook bootstraps",
            ("any run hook conflicts",),
            "Only its handler is not run (g.3).",
        ),
        _property(
            "an outcome goes to the entry of its invocation",
            lambda e: (
                _outcomes(e.after["log"])
                == {**_outcomes(e.before["log"]), e.response: f"outcome {e.response}"}
            ),
            "an outcome is attached",
            ("an outcome goes to the first entry", "an outcome is lost"),
            "And every other entry stays as it is (g.4).",
            "handled",
        ),
        unchanged_by(
            "an outcome changes no count",
            ("handled",),
            ("log",),
            unless=lambda e: _kept(e.before["log"]) == _kept(e.after["log"]),
            witness="an outcome is attached",
            faults=("an outcome cuts the log", "an outcome forgets what was dropped"),
            meaning="Hooks, times and dropped stay (g.4).",
        ),
        SometimesOnEdge(
            name="an invocation is dropped",
            kinds=frozenset({"hook"}),
            holds=lambda e: _posted(e).after.dropped > 0,
        ),
        SometimesOnEdge(name="a handler runs", kinds=frozenset({"hook"}), holds=lambda e: _posted(e).handles),
        SometimesOnEdge(
            name="a dropped run hook bootstraps",
            kinds=frozenset({"hook"}),
            holds=lambda e: _posted(e).index is None and _posted(e).verdict is RunVerdict.INSTALLED,
        ),
        SometimesOnEdge(
            name="an outcome is attached", kinds=frozenset({"handled"}), holds=lambda e: e.response == 1
        ),
    )


def _outcomes(log: Hashable) -> dict[Hashable, str]:
    assert isinstance(log, HookLog)
    return {place: entry.outcome for place, entry in enumerate(log.entries) if entry.outcome is not None}


def _kept(log: Hashable) -> Log:
    assert isinstance(log, HookLog)
    return evolve(log, entries=tuple(evolve(entry, outcome=None) for entry in log.entries))


CONFIGS = {
    "flood": Config(
        lambda name: Model(
            "hooks",
            name,
            (
                Component("log", HookLog(), meaning="the hook log"),
                Component("queue", (), meaning="handlers that run or wait, by their entry"),
                Component("boot", Bootstrap(), meaning="what is installed"),
            ),
            events(),
            properties(),
            bounds={"entries": CAP, "dropped": MOST_DROPPED},
            meaning="lifecycle hooks, their log and their handlers, under a flood of them",
        )
    ),
}

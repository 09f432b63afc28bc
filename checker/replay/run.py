"""Playing runs of a model to a daemon, and making a run that differs short.

A run is played step by step: the event is done, the answer is compared with the model's, and the state with the state
the model is in. The first difference ends it. To make it short, a shortest way to where it was is tried first, and then
the steps are left out that are not needed (delta debugging: Zeller and Hildebrandt 2002), as long as what is left is a
run of the model that still differs.
"""

from collections.abc import Callable, Iterator, Sequence

from attrs import frozen

from checker.model import Model
from checker.replay.adapter import Adapter
from checker.replay.tours import Arc, Graph
from checker.replay.wire import NoAnswer
from checker.result import Step, Trace

Begin = Callable[[], Adapter]
"""Makes a fresh subject, and the adapter that plays to it."""

ATTEMPTS = 400
"""Runs played at most to make one shorter."""


@frozen(eq=False)
class Divergence:
    """A run after which the daemon is not what the model says."""

    trace: Trace
    """Its last step is the one that differs."""
    differences: tuple[str, ...]
    at_end: bool = False
    """Whether it showed only when everything had ended."""
    shortest: bool = False
    """Whether it was made as short as it gets."""


def play(begin: Begin, trace: Trace, looks: Sequence[bool] | None = None) -> Divergence | None:
    """Play a run to a fresh daemon; what differs, or None.

    The state is looked at after each step; if `looks` says after which, only there, and answers are compared anyway.
    """
    adapter = begin()
    names = [component.name for component in trace.model.components]
    done = 0
    found: tuple[str, ...] = ()
    try:
        found = tuple(_begun(adapter, trace.model))
        while done < len(trace.steps) and not found:
            found = tuple(_step(adapter, names, trace.steps[done], looks is None or looks[done]))
            done += 1
    finally:
        left = list(_left(adapter))
    if found or left:
        return Divergence(Trace(trace.model, trace.steps[:done]), found or tuple(left), not found)
    return None


def _left(adapter: Adapter) -> Iterator[str]:
    try:
        for line in adapter.finish():
            yield f"when all has ended, there is still {line}"
    except Exception as reason:
        yield f"the daemon failed when all ended: {type(reason).__name__}: {reason}"


def _begun(adapter: Adapter, model: Model) -> Iterator[str]:
    try:
        adapter.begin(model)
    except NoAnswer as reason:
        yield f"before the first step: {reason}"


def _step(adapter: Adapter, names: Sequence[str], step: Step, looks: bool) -> Iterator[str]:
    if step.note:
        yield f"the model's rule did not return: {step.note}"
        return
    values = dict(zip(names, step.after, strict=True))
    try:
        yield from adapter.play(step, values)
        if looks:
            yield from adapter.state(values)
    except NoAnswer as reason:
        yield str(reason)
    except Exception as reason:
        # The daemon's own code runs in this process: what it raises is what it did.
        yield f"the daemon failed: {type(reason).__name__}: {reason}"


def shortened(begin: Begin, whole: Graph, found: Divergence, attempts: int = ATTEMPTS) -> Divergence:
    """The divergence, on as few steps as can be found."""
    number = {event.name: place for place, event in enumerate(whole.model.events)}
    best, best_arcs = found, whole.follow([number[step.event.name] for step in found.trace.steps])
    assert best_arcs is not None

    def better(events: Sequence[int]) -> bool:
        nonlocal attempts, best, best_arcs
        candidate = whole.follow(events)
        if candidate is None or attempts <= 0:
            return False
        attempts -= 1
        diverged = play(begin, whole.trace(candidate))
        if diverged is None or diverged.at_end is not found.at_end:
            return False
        if len(diverged.trace.steps) >= len(best.trace.steps):
            return False
        best, best_arcs = diverged, candidate[: len(diverged.trace.steps)]
        return True

    def events_of(run: Sequence[Arc]) -> list[int]:
        return [whole.ways[node][number].event for node, number in run]

    last = best_arcs[-1]
    better(events_of([*whole.path(last[0]), last]))
    size = max(1, len(best_arcs) // 2)
    while size:
        before, at = len(best_arcs), 0
        while at < len(best_arcs):
            events = events_of(best_arcs)
            if not better([*events[:at], *events[at + size :]]):
                at += size
        # One step may be of no more use only now that another is gone.
        if size > 1 or len(best_arcs) == before:
            size //= 2
    return Divergence(best.trace, best.differences, best.at_end, attempts > 0)

"""Every edge of models, replayed against the daemon in memory, on several processors.

Runs are dealt out in turn, so that a shard has short and long ones, and a shard is a number: whoever works on it builds
the graph anew, which takes less time than sending it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING

from attrs import frozen

from checker import models, pool
from checker.model import Event, Model, ModelError
from checker.replay.adapter import IN_MEMORY, Adapter, Subject
from checker.replay.adapters import ADAPTERS, adapter, lacks
from checker.replay.memory import MemorySubject
from checker.replay.run import Begin, Divergence, play, shortened
from checker.replay.tours import Arc, Explored, Graph, explore, graph, tours

if TYPE_CHECKING:
    from checker.fleet import Fleet

SHARD_STEPS = 4_000
"""Steps of a shard, some tenths of a second."""
MOST_DIVERGENCES = 5
"""Runs that differ until that is enough to report."""


@frozen(eq=False)
class Replayed:
    """One model in one variant."""

    key: str
    variant: str
    states: int
    edges: int
    """Occurrences of events that were replayed, each at least once."""
    runs: int
    steps: int
    seconds: float
    """That its runs took, one after the other; several processes share them."""
    left_out: Counter[str]
    """Occurrences that cannot be done to this daemon, by kind."""
    complete: bool
    divergences: tuple[Divergence, ...] = ()
    """One of each kind that was met, the shortest first."""

    @property
    def name(self) -> str:
        """The model, and the variant if there are several."""
        return f"{self.key} [{self.variant}]" if self.variant else self.key


@frozen
class Share:
    """Some of the runs of one model in one variant."""

    key: str
    variant: str
    number: int
    of: int


Part = tuple[int, float, list[int]]
"""Of a share: steps, seconds, and the first runs that differ."""


@frozen
class Extent:
    """How much of a graph is replayed."""

    most: int
    """States, those nearest to the first."""
    reduced: bool = True
    """Whether states that are the same but for names are replayed once."""


Plan = tuple[Graph, Sequence[Sequence[Arc]]]
"""A graph, and runs over all of it that has to be gone over."""


@cache
def planned(key: str, variant: str, extent: Extent) -> Plan:
    """The graph of a model as a daemon in memory can be led through it, and runs over it."""
    model, kind = _begun(key), adapter(key.partition(":")[0])
    return _plan(kind, variant, extent.reduced, _explored(key, _able(kind, model, variant), extent.most))


@cache
def _begun(key: str) -> Model:
    model = models.load(key)
    return adapter(model.name).begins(model, True)


def _able(kind: type[Adapter], model: Model, variant: str) -> tuple[bool, ...]:
    return tuple(kind.can(event, True, variant) for event in model.events)


@cache
def _explored(key: str, able: tuple[bool, ...], most: int) -> Explored:
    """Once for all variants in which the same can be done."""
    return explore(_begun(key), able, most)


def plan(model: Model, variant: str, most: int, reduced: bool = True) -> Plan:
    """The same of a model that is at hand."""
    kind = adapter(model.name)
    begun = kind.begins(model, True)
    return _plan(kind, variant, reduced, explore(begun, _able(kind, begun, variant), most))


def _plan(kind: type[Adapter], variant: str, reduced: bool, explored: Explored) -> Plan:
    def wants(event: Event) -> bool:
        return kind.wants(event, variant)

    whole = graph(explored, reduced=reduced, wants=wants, sees=kind.sees)
    return whole, list(tours(whole))


@cache
def first_times(key: str, variant: str, extent: Extent) -> Sequence[Sequence[bool]]:
    """Run and step to whether no run before, in their order, has taken that edge. On its way to what it is there for, a
    run goes over edges that others have shown to be right."""
    _, runs = planned(key, variant, extent)
    taken: set[Arc] = set()
    found = []
    for run in runs:
        found.append([arc not in taken for arc in run])
        taken.update(run)
    return found


def in_memory(model: Model, variant: str) -> Begin:
    """Begins a run: a fresh daemon in memory, and the adapter that plays to it."""
    kind = adapter(model.name)

    def begin() -> Adapter:
        subject: Subject = MemorySubject(kind.settings(model))
        return kind(subject, IN_MEMORY, variant)

    return begin


def replay(
    keys: Sequence[str], extent: Extent, jobs: int | None = None, fleet: "Fleet | None" = None
) -> Iterator[Replayed]:
    """Replay every edge of each of these configurations, one result for each of their variants; by `jobs` processes, by
    default one a processor, or by a fleet."""
    shares: dict[tuple[str, str], list[Share]] = {}
    for key in keys:
        model = models.load(key)
        ways = adapter(model.name).ways(model)
        if not ways:
            raise ModelError(f"{model.key} is about a daemon of another version than this")
        for variant in ways:
            # Planned here, so that processes that are forked need not.
            _, runs = planned(key, variant, extent)
            count = max(1, sum(map(len, runs)) // SHARD_STEPS)
            shares[key, variant] = [Share(key, variant, number, count) for number in range(count)]
    everything = [share for several in shares.values() for share in several]
    if fleet is None:
        parts = pool.each(lambda number: one(extent, everything[number]), len(everything), jobs)
    else:
        parts = fleet.each(one, extent, everything)
    for (key, variant), several in shares.items():
        yield _together(key, variant, extent, [next(parts) for _ in several])


def replayable() -> list[str]:
    """The configurations that are replayed when none is named: those of models whose adapters have what they need, and
    which are about a daemon of this version."""
    found = []
    for key in models.every():
        name, _, _ = key.partition(":")
        if name in ADAPTERS and lacks(name) is None and adapter(name).ways(models.load(key)):
            found.append(key)
    return found


def _together(key: str, variant: str, extent: Extent, parts: Sequence[Part]) -> Replayed:
    whole, runs = planned(key, variant, extent)
    begin = in_memory(whole.model, variant)
    # A divergence does not travel, for a trace holds functions; the number of its run does, and it is played again.
    again = [play(begin, whole.trace(runs[number])) for _, _, differ in parts for number in differ]
    found = distinct(begin, whole, [one for one in again if one is not None])
    return Replayed(
        whole.model.key,
        variant,
        len(whole.values),
        whole.edges,
        len(runs),
        sum(steps for steps, _, _ in parts),
        sum(seconds for _, seconds, _ in parts),
        whole.left_out,
        whole.complete,
        found,
    )


def one(extent: Extent, share: Share) -> Part:
    """Play the runs of a share."""
    whole, runs = planned(share.key, share.variant, extent)
    looks = first_times(share.key, share.variant, extent)
    begin = in_memory(whole.model, share.variant)
    started = perf_counter()
    steps = 0
    differ = []
    for number in range(share.number, len(runs), share.of):
        steps += len(runs[number])
        if play(begin, whole.trace(runs[number]), looks[number]) is not None:
            differ.append(number)
            if len(differ) >= MOST_DIVERGENCES:
                break
    return steps, perf_counter() - started, differ


def distinct(begin: Begin, whole: Graph, found: Sequence[Divergence]) -> tuple[Divergence, ...]:
    """Divergences without those that differ in the same way, made short, the shortest first."""
    kinds: dict[tuple[str, str], Divergence] = {}
    for one in sorted(found, key=lambda one: len(one.trace.steps)):
        kinds.setdefault((one.trace.steps[-1].event.kind, one.differences[0]), one)
    short = [shortened(begin, whole, one) for one in list(kinds.values())[:MOST_DIVERGENCES]]
    # Runs that seemed to differ in several ways may do so in one when there is nothing else in them.
    each = {(*(step.event.name for step in one.trace.steps), one.differences): one for one in short}
    return tuple(sorted(each.values(), key=lambda one: len(one.trace.steps)))

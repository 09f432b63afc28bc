"""Searches that are not breadth-first: depth-first, random walks, and swarms of randomised depth-first searches.

They find violations far from the initial state sooner, in spaces too large to exhaust, and their
counterexamples are whatever runs they happened to be on. A depth-first search without a limit is exhaustive
and counts what breadth-first search counts; walks and swarms only ever sample, unless a search of the swarm gets
to the end (Holzmann, Joshi and Groce, "Swarm verification techniques", 2011).
"""

import random
import sys
from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from checker.layout import FieldOverflowError
from checker.limits import Limits, Watch
from checker.model import Model
from checker.packed import Packed, Successor, replay
from checker.pool import each
from checker.properties import Property
from checker.result import Hit, Result, Trace
from checker.table import RULES_RETURN, Table

if TYPE_CHECKING:
    from checker.fleet import Fleet

SAMPLED = "only samples were taken"


@frozen
class Sampling:
    """How to sample."""

    seed: int = 0
    """The same seed takes the same samples."""
    walks: int = 1000
    """Random walks to take."""
    length: int = 200
    """Steps of a random walk, and the depth of a search of the swarm."""
    searches: int = 8
    """Searches of the swarm."""
    states: int = 50_000
    """Unique states of each search of the swarm."""
    jobs: int | None = None
    """Processes of the swarm; by default, one for each processor."""


DEFAULTS = Sampling()


def depth_first(table: Table, watch: Watch | None = None, *, shuffle: random.Random | None = None) -> Result:
    """Depth-first search; with `shuffle`, the successors of each state are taken in random order."""
    space = Packed(table)
    watch = watch or Watch()
    while True:
        try:
            return _depth_first(space, watch, shuffle)
        except FieldOverflowError:
            space.reset()


def _depth_first(space: Packed, watch: Watch, shuffle: random.Random | None) -> Result:
    bound = watch.limits.depth
    start = space.initial
    parents = {start: start}
    depths = {start: 0}
    transitions = stutters = deepest = rounds = 0
    most = watch.limits.states or sys.maxsize
    limit: str | None = None

    def successors(state: int) -> Iterator[Successor]:
        nonlocal transitions, stutters
        occurrences, still, found = space.expand(state)
        transitions += occurrences
        stutters += still
        if not found:
            space.judge_quiet(state)
        if shuffle is not None:
            shuffle.shuffle(found)
        return iter(found)

    space.judge_states([start], 0)
    space.depth = 0
    stack = [(start, successors(start))]
    while stack:
        state, rest = stack[-1]
        depth = len(stack)
        for _, successor in rest:
            known = depths.get(successor)
            # A state reached by a shorter way than before may lead further within the depth that is left.
            if known is not None and (bound is None or known <= depth):
                continue
            depths[successor] = depth
            parents[successor] = state
            deepest = max(deepest, depth)
            if known is None:
                space.judge_states([successor], depth)
            if bound is not None and depth >= bound:
                limit = f"depth {bound}"
                continue
            space.depth = depth
            stack.append((successor, successors(successor)))
            break
        else:
            stack.pop()
        rounds += 1
        if not rounds & 1023 or len(depths) >= most:
            watch.tell(len(depths), transitions, len(stack), len(stack))
            used_up = watch.exhausted(len(depths))
            if used_up:
                limit = used_up
                break
    watch.done()
    counts = (len(depths), transitions, stutters, deepest)
    return _result(space, watch, "depth-first", counts, limit, parents)


def random_walks(table: Table, watch: Watch | None = None, sampling: Sampling = DEFAULTS) -> Result:
    """Random walks from the initial state, each step to one of the states that are next, alike in likelihood."""
    space = Packed(table)
    watch = watch or Watch()
    while True:
        try:
            return _random_walks(space, watch, sampling)
        except FieldOverflowError:
            space.reset()


def _random_walks(space: Packed, watch: Watch, sampling: Sampling) -> Result:
    choose = random.Random(sampling.seed).choice
    start = space.initial
    parents = {start: start}
    transitions = stutters = deepest = 0
    length = min(sampling.length, watch.limits.depth or sampling.length)
    space.judge_states([start], 0)
    limit: str | None = None
    for _ in range(sampling.walks):
        state = start
        for depth in range(length):
            space.depth = depth
            occurrences, still, moves = space.expand(state)
            transitions += occurrences
            stutters += still
            if not moves:
                space.judge_quiet(state)
                break
            _, successor = choose(moves)
            if successor not in parents:
                parents[successor] = state
                space.judge_states([successor], depth + 1)
                deepest = max(deepest, depth + 1)
            state = successor
        watch.tell(len(parents), transitions, length, 0)
        limit = watch.exhausted(len(parents))
        if limit:
            break
    watch.done()
    counts = (len(parents), transitions, stutters, deepest)
    return _result(space, watch, "random walks", counts, limit or SAMPLED, parents)


def _result(
    space: Packed,
    watch: Watch,
    engine: str,
    counts: tuple[int, int, int, int],
    limit: str | None,
    parents: Mapping[int, int],
) -> Result:
    start = space.initial

    def locate(hit: Hit) -> Trace:
        path = [hit.state]
        while path[-1] != start:
            path.append(parents[path[-1]])
        return space.trace(hit, path[::-1])

    table = space.table
    seconds = watch.seconds
    return Result(
        table.model, engine, *counts, limit, seconds, table.calls, space.hits, locate, table.coverage()
    )


@frozen
class _Found:
    """What one search of the swarm found, in terms that travel between processes."""

    states: int
    transitions: int
    stutters: int
    depth: int
    complete: bool
    calls: int
    coverage: dict[str, dict[Hashable, int]]
    runs: tuple[tuple[str, tuple[str, ...]], ...]
    """Property, and the events of the run that decided it."""


def _search_of_swarm(model: Model, sampling: Sampling, limits: Limits, number: int) -> _Found:
    limits = evolve(
        limits,
        states=min(sampling.states, limits.states or sampling.states),
        depth=min(sampling.length, limits.depth or sampling.length),
    )
    result = depth_first(
        Table(model), Watch(limits), shuffle=random.Random(sampling.seed * 1_000_003 + number)
    )
    runs = tuple((p.name, tuple(step.event.name for step in result.trace(p).steps)) for p in result.hits)
    return _Found(
        result.states,
        result.transitions,
        result.stutters,
        result.depth,
        result.complete,
        result.calls,
        {name: dict(responses) for name, responses in result.coverage.items()},
        runs,
    )


def _search_by_name(shared: tuple[str, Sampling, Limits], number: int) -> _Found:
    """The same on a machine of a fleet. The model it finds has every property; those asked for are found among them."""
    from checker.models import load

    key, sampling, limits = shared
    return _search_of_swarm(load(key), sampling, limits, number)


def swarm(
    model: Model,
    watch: Watch | None = None,
    sampling: Sampling = DEFAULTS,
    fleet: "Fleet | None" = None,
) -> Result:
    """Several depth-first searches, each in an order and, if there are processors, a process of its own, or done by a
    fleet.

    The counts are those of the search that got furthest, as different searches may visit the same states.
    """
    watch = watch or Watch()
    if fleet is None:
        work = partial(_search_of_swarm, model, sampling, watch.limits)
        found = list(each(work, sampling.searches, sampling.jobs))
    else:
        asked = (model.key, sampling, watch.limits)
        found = list(fleet.each(_search_by_name, asked, range(sampling.searches)))
    known = {prop.name: prop for prop in (*model.properties, RULES_RETURN)}
    runs: dict[Hit, tuple[str, ...]] = {}
    hits: dict[Property, Hit] = {}
    for one in found:
        for name, events in one.runs:
            if name not in known:
                continue  # nobody asked about it
            if known[name] not in hits or len(events) < hits[known[name]].depth:
                hits[known[name]] = hit = Hit(len(runs), None, len(events))
                runs[hit] = events
    best = max(found, key=lambda one: (one.complete, one.states))
    coverage: dict[str, dict[Hashable, int]] = {event.name: {} for event in model.events}
    for one in found:
        for name, responses in one.coverage.items():
            for response, count in responses.items():
                coverage[name][response] = max(count, coverage[name].get(response, 0))
    return Result(
        model,
        "swarm",
        best.states,
        best.transitions,
        best.stutters,
        best.depth,
        None if best.complete else SAMPLED,
        watch.seconds,
        sum(one.calls for one in found),
        hits,
        lambda hit: replay(model, runs[hit]),
        coverage,
    )

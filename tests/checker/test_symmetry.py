"""Searching one state of each orbit decides what searching all of them decides."""

from math import comb

from hypothesis import HealthCheck, given, settings

from checker import frontier, packed
from checker.layout import Layout, Orbits
from checker.model import Model
from checker.models import load
from checker.properties import Sometimes
from checker.result import Result
from checker.table import Table
from tests.checker.systems import counters, symmetric_models


def kinds(result: Result) -> set[str]:
    """What is violated, whichever member it concerns."""
    return {prop.name.split()[0] for prop in result.violations()}


def orbits_of(model: Model) -> int:
    """How many orbits the reachable states of a model fall into, by the definition."""
    table = Table(model)
    whole = packed.search(table)
    layout = Layout([8] * len(model.components))
    exchange = Orbits(model, layout)
    states = []
    space = packed.Packed(table)
    seen = {space.initial}
    queue = [space.initial]
    for state in queue:
        for _, successor in space.expand(state)[2]:
            if successor not in seen:
                seen.add(successor)
                queue.append(successor)
    states = [layout.pack(space.layout.unpack(state)) for state in queue]
    assert len(states) == whole.states
    return len({min(exchange.orbit(state)) for state in states})


@given(symmetric_models())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_symmetry_decides_alike(model: Model) -> None:
    whole = packed.search(Table(model))
    for search in (packed.search, frontier.search):
        reduced = search(Table(model), symmetric=True)
        assert kinds(reduced) == kinds(whole)
        assert reduced.states == orbits_of(model)
        for prop in reduced.violations():
            trace = reduced.trace(prop)
            state = model.initial
            for step in trace.steps:
                assert step.before == state
                state = step.after
        assert shortest(reduced) == shortest(whole)


def shortest(result: Result) -> dict[str, int]:
    """Steps of the shortest counterexample of each sort: which member it is about may differ."""
    found: dict[str, int] = {}
    for prop in result.violations():
        steps = len(result.trace(prop).steps)
        sort = prop.name.split()[0]
        found[sort] = min(steps, found.get(sort, steps))
    return found


def test_interchangeable_counters() -> None:
    found = Sometimes(name="one is far ahead", reads=("n0", "n1"), holds=lambda a, b: (a, b) == (9, 0))
    for search in (packed.search, frontier.search):
        result = search(Table(counters(3, 9, (found,))), symmetric=True)
        assert result.states == comb(3 + 9, 3)
        assert result.depth == 27


def test_the_published_reduction() -> None:
    model = load("bootstrap_exec:three_ids")
    assert packed.search(Table(model)).states == 1_373
    for search in (packed.search, frontier.search):
        result = search(Table(model), symmetric=True)
        assert result.states == 337
        assert not result.violations()
        assert not result.unwitnessed()


def test_a_trace_is_told_of_the_members_it_concerns() -> None:
    model = load("bootstrap_exec:three_ids")
    last = Sometimes(name="exec 0 alone is acked", reads=("exec.0", "exec.1"), holds=_only_first)
    model = Model(model.name, model.config, model.components, model.events, (last,), model.symmetry)
    for search in (packed.search, frontier.search):
        result = search(Table(model), symmetric=True)
        if last in result.hits:
            names = [step.event.name for step in result.trace(last).steps]
            assert packed.replay(model, names).last == result.trace(last).last


def _only_first(first: object, second: object) -> bool:
    return second is None and getattr(first, "acked_at", None) is not None

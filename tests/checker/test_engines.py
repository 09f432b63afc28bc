"""The engines agree: with each other, with the naive one, and with what is known on paper."""

import io

import pytest
from hypothesis import HealthCheck, given, settings

from checker import clusters, frontier, naive, packed, runs, sampling
from checker.layout import Layout, roomy
from checker.limits import Limits, Watch
from checker.model import Component, Event, Model, ModelError
from checker.models import load
from checker.properties import Always, DeadlockFree, OnEdge, Sometimes
from checker.result import Result
from checker.table import RULES_RETURN, Table
from tests.checker.systems import counter, counters, models

PUBLISHED = load("published:deployment_invariant_held")


def told(result: Result) -> naive.Counts:
    """What every engine must agree on."""
    return naive.Counts(
        result.states,
        result.transitions,
        result.stutters,
        result.depth,
        frozenset(prop.name for prop in result.hits),
    )


def replays(result: Result) -> None:
    """Each trace is a run of the model: it starts at the start, and each step follows from the one before."""
    for prop in result.hits:
        trace = result.trace(prop)
        state = result.model.initial
        for step in trace.steps:
            assert step.before == state
            state = step.after
        assert packed.replay(result.model, [step.event.name for step in trace.steps]).last == state


@given(models())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_engine_agrees_with_the_naive_one(model: Model) -> None:
    expected = naive.explore(model)
    results = [packed.search(Table(model)), frontier.search(Table(model))]
    for result in results:
        assert told(result) == expected
        assert result.complete
        assert sum(result.levels) == result.states
        replays(result)
    by_name = [{prop.name: hit.depth for prop, hit in result.hits.items()} for result in results]
    assert by_name[0] == by_name[1]
    deep = sampling.depth_first(Table(model))
    assert (deep.states, deep.transitions, deep.stutters) == (
        expected.states,
        expected.transitions,
        expected.stutters,
    )
    assert {prop.name for prop in deep.hits} == expected.decided
    replays(deep)


@pytest.mark.parametrize("search", [packed.search, frontier.search])
def test_published_counts(search: object) -> None:
    result = search(Table(PUBLISHED))  # type: ignore[operator]
    assert (result.states, result.generated) == (3_303, 42_518)
    assert not result.violations()
    assert not result.unwitnessed()


def test_published_counts_of_the_naive_engine() -> None:
    counts = naive.explore(PUBLISHED)
    assert (counts.states, 1 + counts.transitions - counts.stutters) == (3_303, 42_518)


def test_published_counts_of_the_wide_configuration() -> None:
    result = frontier.search(Table(load("published:wide")))
    assert (result.states, result.generated) == (111_872, 2_051_208)


def test_a_count_known_on_paper() -> None:
    for search in (packed.search, frontier.search):
        result = search(Table(counter(1_000)))
        assert (result.states, result.transitions, result.stutters, result.depth) == (1_001, 1_000, 0, 1_000)


def test_rules_run_once_for_each_footprint() -> None:
    result = packed.search(Table(counters(3, 9)))
    assert result.states == 1_000
    assert result.transitions == 3 * 9 * 100
    assert result.calls == 3 * 10


def test_a_counterexample_is_shortest() -> None:
    bad = Always(name="n is not 7", reads=("n",), holds=lambda n: n != 7)
    both = Event("two up", "two", "clock", ("n",), ("n",), lambda n: ((n + 2,), None), lambda n: n < 20)
    model = counter(20, (bad,))
    model = Model("m", "c", model.components, (*model.events, both), (bad,))
    for search in (packed.search, frontier.search):
        result = search(Table(model))
        assert len(result.trace(bad).steps) == 4
        assert result.trace(bad).last == (7,)


def test_a_trace_of_an_edge_ends_with_it() -> None:
    bad = OnEdge(name="never past 4", holds=lambda edge: edge.after["n"] != 5)
    for search in (packed.search, frontier.search):
        result = search(Table(counter(9, (bad,))))
        trace = result.trace(bad)
        assert [step.after for step in trace.steps] == [(1,), (2,), (3,), (4,), (5,)]
        assert trace.steps[-1].response == 5


def test_a_rule_that_raises_is_a_violation() -> None:
    def effect(n: int) -> tuple[tuple[int], None]:
        return (1 + 6 // (3 - n) * 0 + n,), None

    up = Event("up", "up", "clock", ("n",), ("n",), effect, lambda n: n < 9)
    model = Model("raises", "one", (Component("n", 0),), (up,))
    for search in (packed.search, frontier.search):
        result = search(Table(model))
        assert result.violations() == [RULES_RETURN]
        assert result.trace(RULES_RETURN).steps[-1].note.startswith("ZeroDivisionError")
        assert result.states == 4


def test_deadlock() -> None:
    ends = DeadlockFree(name="it ends at 5", reads=("n",), final=lambda n: n == 5)
    for limit, violated in ((5, []), (6, [ends])):
        for search in (packed.search, frontier.search):
            result = search(Table(counter(limit, (ends,))))
            assert result.violations() == violated
    assert result.trace(ends).last == (6,)


@pytest.mark.parametrize("search", [packed.search, frontier.search])
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(depth=5), "depth 5"),
        (Limits(states=5_000), "5,000 states"),
        (Limits(seconds=1e-9), "1e-09 seconds"),
        (Limits(memory=1), "0 MiB of memory"),
    ],
)
def test_limits_leave_the_result_incomplete(search: object, limits: Limits, reason: str) -> None:
    result = search(Table(counters(4, 20)), Watch(limits))  # type: ignore[operator]
    assert not result.complete
    assert result.limit == reason
    assert result.states < 21**4
    if limits.depth:
        assert result.depth == 5


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", ["depth", "states", "seconds", "memory"])
def test_a_limit_that_makes_no_sense_is_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"a limit on {name} must be positive"):
        Limits(**{name: value})


def test_stopping_at_the_first_violation() -> None:
    bad = Always(name="n is small", reads=("n",), holds=lambda n: n < 3)
    for search in (packed.search, frontier.search):
        result = search(Table(counter(1_000, (bad,))), stop_at=1)
        assert result.violations() == [bad]
        assert result.states == 4
        assert not result.complete


def test_states_of_more_than_one_word() -> None:
    names = [f"n{number}" for number in range(100)]
    events = tuple(
        Event(f"up {name}", "up", "clock", (name,), (name,), lambda n: ((n + 1,), None), lambda n: n < 1)
        for name in names[:14]
    )
    model = Model("wide", "one", tuple(Component(name, 0) for name in names), events)
    result = frontier.search(Table(model))
    assert roomy(Table(model), frontier.SPARE).bits > Layout.WORD
    assert (result.states, result.transitions) == (2**14, 14 * 2**13)


def test_states_too_wide_for_arrays_are_refused() -> None:
    names = [f"n{number}" for number in range(150)]
    up = Event("up", "up", "clock", ("n0",), ("n0",), lambda n: ((n + 1,), None), lambda n: n < 1)
    model = Model("wider", "one", tuple(Component(name, 0) for name in names), (up,))
    assert packed.search(Table(model)).states == 2
    with pytest.raises(ModelError, match="too wide"):
        frontier.search(Table(model))


def test_fields_grow_when_values_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "PILOT", 4)
    result = frontier.search(Table(counter(3_000)))
    assert (result.states, result.depth) == (3_001, 3_000)


def test_levels_in_several_chunks_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "CHUNK", 16)
    monkeypatch.setattr(frontier, "PENDING", 64)
    monkeypatch.setattr(frontier, "LATELY", 3)
    monkeypatch.setattr(runs, "BLOCK", 32)
    found = Sometimes(name="all at 9", reads=("n0", "n1", "n2"), holds=lambda *n: n == (9, 9, 9))
    result = frontier.search(Table(counters(3, 9, (found,))))
    assert (result.states, result.transitions) == (1_000, 2_700)
    assert len(result.trace(found).steps) == 27


@pytest.mark.parametrize("bits", [0, 4])
def test_footprints_too_wide_for_a_dense_table(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "DENSE_BITS", bits)
    result = frontier.search(Table(PUBLISHED))
    assert (result.states, result.generated) == (3_303, 42_518)


def test_a_random_walk_samples() -> None:
    bad = Always(name="n stays below 50", reads=("n",), holds=lambda n: n < 50)
    result = sampling.random_walks(Table(counter(99, (bad,))), sampling=sampling.Sampling(walks=2, length=60))
    assert result.violations() == [bad]
    assert len(result.trace(bad).steps) == 50
    assert result.limit == sampling.SAMPLED


def test_the_same_seed_takes_the_same_walks() -> None:
    model = counters(4, 30)
    seen = [
        sampling.random_walks(Table(model), sampling=sampling.Sampling(seed, walks=20, length=50))
        for seed in (1, 1, 2)
    ]
    assert (seen[0].states, seen[0].transitions) == (seen[1].states, seen[1].transitions)
    assert seen[0].states != seen[2].states


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_swarm_finds_what_is_far(jobs: int) -> None:
    bad = Always(name="not all are 9", reads=("n0", "n1", "n2"), holds=lambda *n: n != (9, 9, 9))
    model = counters(3, 9, (bad,))
    result = sampling.swarm(model, sampling=sampling.Sampling(searches=4, jobs=jobs))
    assert result.violations() == [bad]
    assert result.trace(bad).last == (9, 9, 9)
    assert result.complete
    assert result.states == 1_000


def test_a_swarm_within_limits_is_incomplete() -> None:
    result = sampling.swarm(counters(3, 9), sampling=sampling.Sampling(searches=2, states=100, jobs=1))
    assert result.limit == sampling.SAMPLED


def test_depth_first_within_a_depth_still_reaches_what_is_near() -> None:
    result = sampling.depth_first(Table(counters(2, 9)), Watch(Limits(depth=4)))
    assert result.states == 15
    assert result.limit == "depth 4"


def test_progress_is_told() -> None:
    stream = io.StringIO()
    watch = Watch(Limits(), stream, started=-10.0)
    packed.search(Table(counter(10)), watch)
    assert "states" in stream.getvalue()
    assert "transitions" in stream.getvalue()

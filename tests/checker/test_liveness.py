"""Liveness: known graphs, and every small graph against the definition."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checker import liveness
from checker.limits import Limits, Watch
from checker.model import Model
from checker.models import load
from checker.properties import Fair, LeadsTo, Strength, eventually
from checker.result import Trace
from tests.checker.systems import switch

WEAK, STRONG = Strength.WEAK, Strength.STRONG


def reaches(goal: int, *fair: Fair) -> LeadsTo:
    """Every fair run from node 0 gets to a node."""
    return LeadsTo(
        name="reaches", reads=("node",), when=lambda n: n == 0, then=lambda n: n == goal, fair=fair
    )


def lasso(arcs: dict[str, tuple[tuple[int, int], ...]], prop: LeadsTo) -> Trace | None:
    return liveness.check(switch(arcs, (prop,)), prop).lasso


def path(trace: Trace | None) -> tuple[list[str], int | None]:
    assert trace is not None
    return [step.event.name for step in trace.steps], trace.loop


def fair(kind: str, strength: Strength = WEAK) -> Fair:
    return Fair(frozenset({kind}), strength)


def test_nothing_has_to_happen_without_promises() -> None:
    assert path(lasso({"go": ((0, 1),)}, reaches(1))) == ([], 0)
    assert lasso({"go": ((0, 1),)}, reaches(1, fair("go"))) is None


def test_a_dead_end_is_for_ever() -> None:
    arcs = {"go": ((0, 1), (0, 2))}
    assert path(lasso(arcs, reaches(1, fair("go")))) == (["go 0-2"], 1)


def test_a_weak_promise_is_kept_by_going_where_it_is_not_possible() -> None:
    arcs = {"step": ((0, 2), (2, 0)), "exit": ((0, 1),)}
    weak = lasso(arcs, reaches(1, fair("step"), fair("exit")))
    assert path(weak) == (["step 0-2", "step 2-0"], 0)
    assert lasso(arcs, reaches(1, fair("step"), fair("exit", STRONG))) is None


def test_a_strong_promise_holds_in_the_part_that_never_enables_it() -> None:
    arcs = {"step": ((0, 2), (2, 3), (3, 2), (3, 0)), "exit": ((0, 1),)}
    found = lasso(arcs, reaches(1, fair("exit", STRONG)))
    assert found is not None
    assert "exit 0-1" not in path(found)[0]
    nodes = [step.after[0] for step in found.steps[found.loop :]]
    assert 0 not in nodes


def test_a_cycle_passes_a_place_for_each_promise() -> None:
    arcs = {"a": ((0, 2),), "b": ((2, 3),), "c": ((3, 0),), "x": ((0, 1),), "y": ((2, 1),), "z": ((3, 1),)}
    found = lasso(arcs, reaches(1, *(fair(kind) for kind in "abcxyz")))
    assert path(found)[1] == 0
    assert sorted(path(found)[0]) == ["a 0-2", "b 2-3", "c 3-0"]


def test_a_step_that_changes_nothing_is_none() -> None:
    arcs = {"idle": ((0, 0),), "go": ((0, 1),)}
    assert path(lasso(arcs, reaches(1, fair("idle")))) == ([], 0)
    assert lasso(arcs, reaches(1, fair("idle"), fair("go"))) is None


def test_eventually() -> None:
    prop = eventually("ends", ("node",), lambda n: n == 2, fair=(fair("go"),), witness="", faults=())
    assert lasso({"go": ((0, 1), (1, 2))}, prop) is None
    assert path(lasso({"go": ((0, 1), (1, 0))}, prop))[1] == 0


def test_a_promise_about_some_events_only() -> None:
    model = load("bootstrap_exec:deployment_invariant_held")
    prop = next(p for p in model.properties if p.name == "every running exec is published")
    assert isinstance(prop, LeadsTo)
    other = LeadsTo(
        name="other",
        reads=prop.reads,
        when=prop.when,
        then=prop.then,
        fair=(Fair(frozenset({"exit"}), about={"id": 1}),),
    )
    assert liveness.check(model, prop).lasso is None
    assert liveness.check(model, other).lasso is not None


def test_a_lasso_is_told_of_the_whole_model() -> None:
    model = load("bootstrap_exec:deployment_invariant_held")
    prop = next(p for p in model.properties if p.name == "every acked exec is collected")
    assert isinstance(prop, LeadsTo)
    unfair = LeadsTo(name="unfair", reads=prop.reads, when=prop.when, then=prop.then)
    found = liveness.check(model, unfair).lasso
    assert found is not None
    assert found.model is model
    assert len(found.steps[0].before) == len(model.components)


def test_a_limit_leaves_it_undecided() -> None:
    prop = reaches(9, fair("go"))
    model = switch({"go": tuple((n, n + 1) for n in range(9))}, (prop,))
    answer = liveness.check(model, prop, Watch(Limits(states=3)))
    assert answer.lasso is None
    assert answer.limit == "3 states"


NODES = 5
arcs_of = st.dictionaries(
    st.sampled_from("abc"),
    st.lists(
        st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), min_size=1, max_size=4, unique=True
    ).map(tuple),
    min_size=1,
)


def violated(
    arcs: dict[str, tuple[tuple[int, int], ...]],
    when: frozenset[int],
    then: frozenset[int],
    promises: dict[str, Strength],
) -> bool:
    """By the definition: some set of nodes is visited for ever, and keeps every promise."""
    edges = {(kind, a, b) for kind, pairs in arcs.items() for a, b in pairs if a != b}

    def closure(start: set[int], allowed: set[int]) -> set[int]:
        seen, queue = set(start), list(start)
        for node in queue:
            for _, a, b in edges:
                if a == node and b in allowed and b not in seen:
                    seen.add(b)
                    queue.append(b)
        return seen

    everything = set(range(NODES))
    region = everything - then
    starts = closure({0}, everything) & when & region
    possible = closure(starts, region)
    for size in range(1, NODES + 1):
        for chosen in combinations(sorted(possible), size):
            nodes = set(chosen)
            if any(closure({node}, nodes) != nodes for node in nodes):
                continue
            if all(_kept(edges, nodes, kind, strength) for kind, strength in promises.items()):
                return True
    return False


def _kept(edges: set[tuple[str, int, int]], nodes: set[int], kind: str, strength: Strength) -> bool:
    """Whether going around in `nodes` keeps the promise about each event of a kind: an event is one arc."""
    for found, a, b in edges:
        if found != kind:
            continue
        if a in nodes and b in nodes:
            continue
        if strength is STRONG and a in nodes:
            return False
        if strength is WEAK and nodes == {a}:
            return False
    return True


@given(
    arcs_of,
    st.frozensets(st.integers(0, NODES - 1)),
    st.frozensets(st.integers(0, NODES - 1)),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(Strength)),
)
@settings(max_examples=300, deadline=None)
def test_every_small_graph(
    arcs: dict[str, tuple[tuple[int, int], ...]],
    when: frozenset[int],
    then: frozenset[int],
    promises: dict[str, Strength],
) -> None:
    prop = LeadsTo(
        name="p",
        reads=("node",),
        when=lambda n: n in when,
        then=lambda n: n in then,
        fair=tuple(Fair(frozenset({kind}), strength) for kind, strength in promises.items()),
    )
    found = lasso(arcs, prop)
    assert (found is not None) == violated(arcs, when, then, promises)
    if found is not None:
        check_lasso(found, when, then, promises)


def check_lasso(
    found: Trace, when: frozenset[int], then: frozenset[int], promises: dict[str, Strength]
) -> None:
    """It is a run that comes back to where it loops, meets `when` without `then` after, and keeps promises."""
    nodes = [0, *(int(str(step.after[0])) for step in found.steps)]
    loop = found.loop
    assert loop is not None
    assert nodes[loop] == nodes[-1]
    begun = [place for place, node in enumerate(nodes) if node in when]
    assert any(not set(nodes[place:]) & then for place in begun)
    around = set(nodes[loop:])
    taken = {step.event.name for step in found.steps[loop:]}
    for event in found.model.events:
        source, goal = map(int, event.name.split()[1].split("-"))
        strength = promises.get(event.kind)
        if strength is None or source == goal or event.name in taken:
            continue
        assert source not in around if strength is STRONG else around != {source}


@pytest.mark.parametrize(
    "key", ["bootstrap_exec", "output", "stdin", "supervision", "lifecycle", "exec_start:shells"]
)
def test_the_models_have_liveness(key: str) -> None:
    model = load(key)
    found = [prop for prop in model.properties if isinstance(prop, LeadsTo)]
    assert found
    for prop in found:
        assert liveness.check(model, prop).lasso is None


def test_models_share_graphs() -> None:
    model: Model = load("supervision")
    graphs: liveness.Graphs = {}
    for prop in model.properties:
        if isinstance(prop, LeadsTo):
            liveness.check(model, prop, graphs=graphs)
    assert len(graphs) == 1

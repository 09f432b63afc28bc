"""Models that do not fit together are refused with one line; helpers of properties mean what they say."""

import pytest
from attrs import evolve

from checker import packed
from checker.model import Component, Edge, Event, ModelError, run_event
from checker.properties import Always, OnEdge, Sometimes, response_table, unchanged_by
from checker.table import Table
from tests.checker.systems import counter, counters

GOOD = counter(3)
UP = GOOD.events[0]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"components": (Component("n", 0), Component("n", 1))}, "two of component 'n'"),
        ({"events": (UP, UP)}, "two of event 'up'"),
        ({"events": (evolve(UP, reads=("m",)),)}, "event 'up' names unknown component 'm'"),
        ({"events": (evolve(UP, writes=("m",)),)}, "event 'up' names unknown component 'm'"),
        ({"events": (evolve(UP, when=("m",)),)}, "the guard of event 'up' names unknown read 'm'"),
        (
            {"properties": (Always(name="p", reads=("m",), holds=bool),)},
            "property 'p' names unknown component",
        ),
        ({"properties": (OnEdge(name="p", kinds=frozenset({"x"}), holds=bool),)}, "unknown event kind 'x'"),
        ({"properties": (Always(name="p", holds=bool, witness="w"),)}, "names unknown witness 'w'"),
        (
            {"properties": (Always(name="p", holds=bool), Sometimes(name="p", holds=bool))},
            "two of property 'p'",
        ),
        ({"violates": frozenset({"p"})}, "the configuration names unknown property 'p'"),
        ({"symmetry": ((("x",), ("y",)),)}, "a symmetry group names unknown component 'x'"),
        ({"symmetry": ((("n",), ("n",)),)}, "without a shared domain"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint) as caught:
        evolve(GOOD, **change)
    assert "\n" not in str(caught.value)


def test_symmetric_members_share_their_domains() -> None:
    model = counters(2, 1)
    components = (model.components[0], Component("n1", 0, "other"))
    with pytest.raises(ModelError, match="differ in their domains"):
        evolve(model, components=components)


def test_an_event_writes_as_many_values_as_it_says() -> None:
    event = evolve(UP, effect=lambda n: ((n, n), None))
    with pytest.raises(ModelError, match="event 'up' writes 1 components, returned 2"):
        run_event(event, (0,))
    with pytest.raises(ModelError, match="writes 1 components"):
        packed.search(Table(evolve(GOOD, events=(event,))))


def test_a_guard_takes_what_it_names() -> None:
    event = Event(
        "e", "e", "a", ("x", "y"), ("x",), lambda x, y: ((x + y,), None), lambda y: y > 1, when=("y",)
    )
    assert run_event(event, (5, 1)) is None
    assert run_event(event, (5, 2)) == ((7,), None)


def test_the_digest_tells_shapes_apart() -> None:
    assert counter(3).digest() == counter(3).digest()
    assert counter(3).digest() != evolve(GOOD, components=(Component("n", 1),)).digest()
    assert counter(3).digest() != evolve(GOOD, events=(evolve(UP, name="up!"),)).digest()


def edge(before: int, after: int, response: object) -> Edge:
    return Edge(UP, {"n": before}, {"n": after}, response)


def test_unchanged_by() -> None:
    prop = unchanged_by("p", ("up",), witness="", faults=())
    assert prop.holds(edge(1, 1, None))
    assert not prop.holds(edge(1, 2, None))
    spared = unchanged_by("p", ("up",), ("n",), unless=lambda e: e.response == "may", witness="", faults=())
    assert spared.reads == ("n",)
    assert spared.holds(edge(1, 2, "may"))
    assert not spared.holds(edge(1, 2, "may not"))


def test_a_response_table_is_the_whole_specification() -> None:
    prop = response_table(
        "p",
        ("up",),
        case=lambda e: e.before["n"],
        table={0: "low", 1: "high"},
        spares=(2,),
        witness="",
        faults=(),
    )
    assert prop.holds(edge(0, 0, "low"))
    assert not prop.holds(edge(0, 0, "high"))
    assert prop.holds(edge(2, 0, "whatever"))
    assert not prop.holds(edge(3, 0, "low"))
    assert prop.about(UP)
    assert not prop.about(evolve(UP, kind="down"))


def test_a_predicate_that_cannot_cope_says_no() -> None:
    prop = Always(name="p", reads=("n",), holds=lambda n: n.value)
    result = packed.search(Table(counter(1, (prop,))))
    assert result.violations() == [prop]


def test_values_that_are_equal_share_a_number() -> None:
    table = Table(counters(2, 3))
    assert table.number(0, 2) == table.number(1, 2)
    assert table.value(0, table.number(1, 2)) == 2

"""Models to test engines with: random ones, and a few whose every number is known on paper."""

from collections.abc import Hashable

from hypothesis import strategies as st

from checker.model import Component, Event, Model, Values
from checker.properties import Always, DeadlockFree, LeadsTo, OnEdge, Property, Sometimes, SometimesOnEdge

SIZE = 4
"""Values of a component of a random model: 0 to SIZE - 1."""


def table_event(
    name: str,
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    table: dict[Values, tuple[Values, Hashable] | None],
    kind: str = "step",
) -> Event:
    """An event that does what a table says; a footprint that is absent, or None, disables it."""
    return Event(
        name,
        kind,
        "somebody",
        reads,
        writes,
        lambda *values: table[values],
        lambda *values: table.get(values) is not None,
    )


@st.composite
def models(draw: st.DrawFn, *, symmetric: bool = False) -> Model:
    """A small random model with properties of states and edges."""
    count = draw(st.integers(2, 4))
    names = [f"c{number}" for number in range(count)]
    value = st.integers(0, SIZE - 1)
    components = tuple(Component(name, draw(value)) for name in names)
    events = []
    for number in range(draw(st.integers(1, 5))):
        reads = tuple(draw(st.lists(st.sampled_from(names), min_size=0, max_size=2, unique=True)))
        writes = tuple(draw(st.lists(st.sampled_from(names), min_size=0, max_size=2, unique=True)))
        outcome = st.none() | st.tuples(st.tuples(*[value] * len(writes)), st.sampled_from(["yes", "no"]))
        footprints = [()]
        for _ in reads:
            footprints = [(*rest, one) for rest in footprints for one in range(SIZE)]
        table = {footprint: draw(outcome) for footprint in footprints}
        events.append(table_event(f"e{number}", reads, writes, table, draw(st.sampled_from(["a", "b"]))))
    kinds = sorted({event.kind for event in events})
    properties = [
        draw(properties_of(f"p{number}", names, kinds)) for number in range(draw(st.integers(0, 4)))
    ]
    return Model("random", "one", components, tuple(events), tuple(properties))


@st.composite
def properties_of(draw: st.DrawFn, name: str, names: list[str], kinds: list[str]) -> Property:
    """A random property of states or edges."""
    reads = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)))
    bad = draw(st.frozensets(st.tuples(*[st.integers(0, SIZE - 1)] * len(reads)), max_size=3))
    which = draw(st.sampled_from(["always", "sometimes", "edge", "some edge", "deadlock"]))
    if which == "always":
        return Always(name=name, reads=reads, holds=lambda *values: values not in bad)
    if which == "sometimes":
        return Sometimes(name=name, reads=reads, holds=lambda *values: values in bad)
    if which == "deadlock":
        return DeadlockFree(name=name, reads=reads, final=lambda *values: values not in bad)
    kind = frozenset({draw(st.sampled_from(kinds))})
    if which == "edge":
        return OnEdge(
            name=name,
            reads=reads,
            kinds=kind,
            holds=lambda edge: tuple(edge.after[n] for n in reads) not in bad or edge.response == "yes",
        )
    return SometimesOnEdge(
        name=name,
        reads=reads,
        kinds=kind,
        holds=lambda edge: (
            tuple(edge.before[n] for n in reads) in bad and edge.before[reads[0]] != edge.after[reads[0]]
        ),
    )


def counter(limit: int, properties: tuple[Property, ...] = (), name: str = "counter") -> Model:
    """One number that counts up to a limit: limit + 1 states in a row."""
    up = Event("up", "up", "clock", ("n",), ("n",), lambda n: ((n + 1,), n + 1), lambda n: n < limit)
    return Model(name, "one", (Component("n", 0),), (up,), properties)


def counters(members: int, limit: int, properties: tuple[Property, ...] = ()) -> Model:
    """Interchangeable counters: (limit + 1) ** members states, one orbit for each multiset."""
    names = [f"n{number}" for number in range(members)]
    events = tuple(
        Event(f"up {name}", "up", "clock", (name,), (name,), lambda n: ((n + 1,), None), lambda n: n < limit)
        for name in names
    )
    components = tuple(Component(name, 0, "count") for name in names)
    return Model("counters", "one", components, events, properties, (tuple((name,) for name in names),))


def switch(fair_kinds: dict[str, tuple[tuple[int, int], ...]], properties: tuple[LeadsTo, ...]) -> Model:
    """A graph of numbered nodes from node 0: for each kind, the arcs it can take."""
    events = [
        Event(
            f"{kind} {source}-{then}",
            kind,
            "somebody",
            ("node",),
            ("node",),
            lambda node, then=then: ((then,), None),  # type: ignore[misc]
            lambda node, source=source: node == source,  # type: ignore[misc]
        )
        for kind, arcs in fair_kinds.items()
        for source, then in arcs
    ]
    return Model("switch", "one", (Component("node", 0),), tuple(events), properties)


@st.composite
def symmetric_models(draw: st.DrawFn) -> Model:
    """A random model of two or three members that are alike, beside something they share."""
    members = draw(st.integers(2, 3))
    value = st.integers(0, 2)
    start, shared = draw(value), draw(value)
    tables = []
    for _ in range(draw(st.integers(1, 3))):
        outcome = st.none() | st.tuples(st.tuples(value, value), st.sampled_from(["yes", "no"]))
        tables.append({(one, two): draw(outcome) for one in range(3) for two in range(3)})
    events, properties = [], []
    bad_state = draw(st.tuples(value, value))
    bad_edge = draw(st.tuples(value, value))
    for member in range(members):
        name = f"m{member}"
        for number, table in enumerate(tables):
            events.append(table_event(f"{name} does {number}", ("shared", name), ("shared", name), table))
        properties.append(
            Always(name=f"state {name}", reads=("shared", name), holds=lambda s, m: (s, m) != bad_state)
        )
    properties.append(
        OnEdge(  # type: ignore[arg-type]
            name="edge",
            holds=lambda e: tuple(e.after[n] for n in e.event.writes) != bad_edge or e.response == "no",
        )
    )
    components = (Component("shared", shared), *(Component(f"m{m}", start, "m") for m in range(members)))
    group = tuple((f"m{member}",) for member in range(members))
    return Model("symmetric", "one", components, tuple(events), tuple(properties), (group,))

"""A part of a model's state graph that is small enough to look at.

Theory of operation
-------------------
A graph of a thousand states says nothing to anybody, so a picture is always of a slice:

``all``
    the whole graph, for models that are small;
``property:NAME``
    the graph of what the property depends on and of nothing else (`checker.slicing`): a run of the slice is a
    run of the whole, with what nothing shows of here left out;
``components:A,B``
    the *quotient*: one node for each combination of values of some components that is reachable, and an arc where
    some state of the one class has an event that leads to the other. Every run of the whole is a path there, but
    not every path is a run, since the states of a class may differ in what cannot be seen;
``run:NAME``
    the run that decides a property (a counterexample or a witness), and the states one step off it.

Depths are distances within the slice, so that an arc leads at most one layer down, which a drawing relies on.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

from attrs import evolve, frozen

from checker.check import asked, check
from checker.model import Component, Event, Model, ModelError, Values
from checker.properties import Property
from checker.report.states import Reached, after, occurrences, reached
from checker.report.words import verdict
from checker.result import Trace
from checker.slicing import cut
from checker.table import RULES_RETURN, Numbers, Table

SEARCHED = 100_000
"""States a quotient is made of at most."""


@frozen(eq=False)
class Offer:
    """An event that is enabled in a node."""

    event: Event
    response: Hashable
    to: int | None
    """The node it leads to: its own when it changes nothing, None when that is not in the slice."""
    error: str = ""
    """Of a rule that did not return."""


@frozen(eq=False)
class Node:
    """A state, or in a quotient a class of states."""

    values: Values
    depth: int
    """Steps from the first node, within the slice."""
    parent: int
    """The node before it on a shortest way from the first, which is its own parent."""
    offers: tuple[Offer, ...]
    """In a quotient only those that lead to another node."""


@frozen(eq=False)
class Slice:
    """Some nodes, the first of them initial."""

    model: Model
    title: str
    components: tuple[Component, ...]
    """Those whose values a node has."""
    nodes: tuple[Node, ...]
    note: str = ""
    """What has to be known to read it right: what was left out, what an arc means."""
    complete: bool = True
    """Whether everything that was asked for is in it."""
    run: tuple[tuple[int, int], ...] | None = None
    """The steps of a run: node, and the number of the offer taken there. None for a slice that is not about one."""
    loop: int | None = None
    """As for `checker.result.Trace`."""


def take(model: Model, what: str, most: int) -> Slice:
    """The slice that `what` describes, of at most `most` nodes. Raises ModelError for what there is not."""
    sort, _, name = what.partition(":")
    if what == "all":
        return whole(model, most)
    if sort == "property" and name:
        small = cut(model, asked(model, [name]).properties)
        return whole(small, most, f"{model.key}, what {name!r} depends on")
    if sort == "components" and name:
        return quotient(model, [part.strip() for part in name.split(",")], most)
    if sort == "run" and name:
        trace, prop, decided = deciding(model, name)
        return of_trace(trace, f"{name}: {decided}", most, prop.meaning)
    raise ModelError(f"no slice {what!r}: all, property:NAME, components:A,B or run:PROPERTY")


def whole(model: Model, most: int, title: str = "") -> Slice:
    """Every state of a model, or the first of them."""
    found = reached(Table(model), most)
    note = "" if found.complete else f"Only the {len(found.states):,} states nearest to the first are here."
    return _of(found.table, title or model.key, found.states, note, found.complete)


def quotient(model: Model, names: Sequence[str], most: int) -> Slice:
    """The classes of states that agree on some components."""
    place = model.index()
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in place:
            raise ModelError(f"{model.key} has no component {name!r}; it has {', '.join(place)}")
    places = [place[name] for name in names]
    found = reached(Table(model), SEARCHED)
    numbers: dict[Numbers, int] = {}
    for state in found.states:
        numbers.setdefault(tuple(state[p] for p in places), len(numbers))
    kept = list(numbers)[:most]
    offers = _quotient_offers(found, places, numbers, len(kept))
    table = found.table
    values = [tuple(table.value(p, number) for p, number in zip(places, one, strict=True)) for one in kept]
    notes = ["A node stands for all states that agree on what is shown; not every path is a run."]
    if not found.complete:
        notes.append(f"Made of the {SEARCHED:,} states nearest to the first.")
    if len(kept) < len(numbers):
        notes.append(f"{len(numbers) - len(kept):,} of {len(numbers):,} nodes are left out.")
    return Slice(
        model,
        f"{model.key}, {', '.join(names)}",
        tuple(model.components[p] for p in places),
        _nodes(values, offers),
        " ".join(notes),
        found.complete and len(kept) == len(numbers),
    )


def _quotient_offers(
    found: Reached, places: Sequence[int], numbers: Mapping[Numbers, int], kept: int
) -> list[list[Offer]]:
    table = found.table
    offers: list[dict[tuple[int, Hashable, int | None], Offer]] = [{} for _ in range(kept)]
    for state in found.states:
        number = numbers[tuple(state[p] for p in places)]
        if number >= kept:
            continue
        for event, entry in occurrences(table, state):
            then = after(table, event, entry, state)
            # Beyond the states a quotient is made of, there may be classes nobody has numbered.
            to = numbers.get(tuple(then[p] for p in places))
            if to != number:
                to = None if to is None or to >= kept else to
                offer = Offer(table.model.events[event], entry.response, to)
                offers[number].setdefault((event, entry.response, to), offer)
    return [list(one.values()) for one in offers]


def deciding(model: Model, name: str) -> tuple[Trace, Property, str]:
    """The run that decides a property, with the property and its verdict. Raises ModelError when there is none."""
    result = check(asked(model, [name] if name != RULES_RETURN.name else []))
    prop = next((prop for prop in result.model.properties if prop.name == name), RULES_RETURN)
    decided = verdict(prop, result)
    if decided not in ("violated", "witnessed"):
        raise ModelError(f"{model.key}: {name}: {decided}, so there is no run to show")
    # The search was of a model with this property only; events and components are the same.
    return evolve(result.trace(prop), model=model), prop, decided


def of_trace(trace: Trace, title: str, most: int, meaning: str = "") -> Slice:
    """A run, and the states one step off it as far as there is room; the run itself always is in it."""
    model = trace.model
    table = Table(model)
    path = [
        tuple(table.number(place, value) for place, value in enumerate(values))
        for values in (model.initial, *(step.after for step in trace.steps))
    ]
    states = dict.fromkeys(path)
    complete = True
    for state in list(states):
        for event, entry in occurrences(table, state):
            then = after(table, event, entry, state)
            if then not in states and len(states) >= most:
                complete = False
            else:
                states.setdefault(then)
    notes = [*([meaning] if meaning else []), "The run, and the states one step off it."]
    if not complete:
        notes.append(f"Some of those are left out: only {len(states):,} states are here.")
    part = _of(table, f"{model.key}: {title}", list(states), " ".join(notes), complete)
    numbers = {state: number for number, state in enumerate(states)}
    run: list[tuple[int, int]] = []
    for step, before in zip(trace.steps, path, strict=False):
        node = numbers[before]
        names = [offer.event.name for offer in part.nodes[node].offers]
        run.append((node, names.index(step.event.name)))
    return evolve(part, run=tuple(run), loop=trace.loop)


def _of(table: Table, title: str, states: Sequence[Numbers], note: str, complete: bool) -> Slice:
    numbers = {state: number for number, state in enumerate(states)}
    offers = [
        [
            Offer(
                table.model.events[event],
                entry.response,
                numbers.get(after(table, event, entry, state)),
                entry.raised,
            )
            for event, entry in occurrences(table, state)
        ]
        for state in states
    ]
    nodes = _nodes([table.decode(state) for state in states], offers)
    return Slice(table.model, title, table.model.components, nodes, note, complete)


def _nodes(values: Sequence[Values], offers: Sequence[Iterable[Offer]]) -> tuple[Node, ...]:
    """Nodes with their distance from the first, from which each can be reached within the slice."""
    fixed = [tuple(one) for one in offers]
    depths, parents = {0: 0}, {0: 0}
    queue = [0]
    for node in queue:  # which grows meanwhile
        for offer in fixed[node]:
            if offer.to is not None and offer.to not in depths:
                depths[offer.to] = depths[node] + 1
                parents[offer.to] = node
                queue.append(offer.to)
    return tuple(
        Node(one, depths[number], parents[number], fixed[number]) for number, one in enumerate(values)
    )

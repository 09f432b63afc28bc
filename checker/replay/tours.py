"""Every edge of a model's graph, and runs that go over all of them: transition tours.

Theory of operation
-------------------
An occurrence that changes nothing can be done wherever a run is, so a run does all of them at each state it comes to
for the first time. What is left are the arcs between different states, and a run goes on over arcs that no run has
taken, preferring those behind which there are more. Where there is none it goes on to a state nearby that still has
some; if none is near, the next run begins anew, on a shortest way to one. A daemon cannot be put into a state, only
led there, so runs that are long are worth more than few steps on the whole. (The cheapest set of runs is the Chinese
postman's problem on a directed graph with a reset; this greedy one takes a tenth of a second to find.)

Where members of a model are interchangeable, states that are the same but for their names have the same edges but for
names, and the edges of one of them are enough. Where whoever does an event sees a part of the state alone, as an end of
a connection does, it does the same wherever that part is the same, and once is enough too: what it cannot see cannot
change what it does. What is left is the reduced graph. A run may still pass through the rest.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from attrs import field, frozen

from checker.layout import Orbits, roomy
from checker.model import Event, Model
from checker.result import Step, Trace
from checker.table import Numbers, Table

NEARBY = 150
"""States that are looked at for one that has something left."""

Arc = tuple[int, int]
"""A node, and the number of an edge that leaves it."""


@frozen
class Way:
    """An occurrence of an event at a node."""

    event: int
    to: int
    response: Hashable
    raised: str = ""


@frozen(eq=False)
class Graph:
    """The states of a model and every occurrence in them."""

    model: Model
    values: Sequence[tuple[Hashable, ...]]
    ways: Sequence[Sequence[Way]]
    parents: Sequence[Arc]
    """Node to the edge by which a shortest way comes to it; of the first node itself."""
    complete: bool
    left_out: Counter[str]
    """Kind of event to occurrences that cannot be done, and what is behind them is not here unless something else
    leads there."""
    asked: Sequence[Sequence[bool]]
    """Node and way to whether runs have to go over that edge."""

    @property
    def edges(self) -> int:
        """How many occurrences runs have to go over."""
        return sum(map(sum, self.asked))

    def path(self, node: int) -> list[Arc]:
        """A shortest way to a node."""
        arcs = []
        while node:
            arcs.append(self.parents[node])
            node = self.parents[node][0]
        return arcs[::-1]

    def step(self, arc: Arc) -> Step:
        """An edge as the step of a run."""
        node, number = arc
        way = self.ways[node][number]
        return Step(
            self.model.events[way.event], way.response, self.values[node], self.values[way.to], way.raised
        )

    def trace(self, arcs: Sequence[Arc]) -> Trace:
        """A run."""
        return Trace(self.model, tuple(map(self.step, arcs)))

    def follow(self, events: Sequence[int]) -> list[Arc] | None:
        """The run of these events, by number; None when one of them cannot happen where it would have to."""
        node, arcs = 0, []
        for event in events:
            number = self._offers[node].get(event)
            if number is None:
                return None
            arcs.append((node, number))
            node = self.ways[node][number].to
        return arcs

    _offers: list[dict[int, int]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Index the edges by their events."""
        offers = [{way.event: number for number, way in enumerate(ways)} for ways in self.ways]
        object.__setattr__(self, "_offers", offers)


@frozen(eq=False)
class Explored:
    """The states reached by some events of a model, and every occurrence of those in them."""

    table: Table
    states: Sequence[Numbers]
    ways: Sequence[Sequence[Way]]
    parents: Sequence[Arc]
    complete: bool
    left_out: Counter[str]


def explore(model: Model, able: Sequence[bool], most: int) -> Explored:
    """The states reached by the events that can be done, at most `most` of them, and what occurs in each."""
    from checker.report.states import after, occurrences

    table = Table(model)
    states = [table.initial]
    numbers = {table.initial: 0}
    parents: list[Arc] = [(0, 0)]
    ways: list[list[Way]] = []
    left_out: Counter[str] = Counter()
    complete = True
    for node, state in enumerate(states):  # which grows meanwhile
        out: list[Way] = []
        for event, entry in occurrences(table, state):
            if not able[event]:
                left_out[model.events[event].kind] += 1
                continue
            then = after(table, event, entry, state)
            to = numbers.get(then)
            if to is None:
                if len(states) >= most:
                    complete = False
                    continue
                to = numbers[then] = len(states)
                states.append(then)
                parents.append((node, len(out)))
            out.append(Way(event, to, entry.response, entry.raised))
        ways.append(out)
    return Explored(table, states, ways, parents, complete, left_out)


def graph(
    found: Explored,
    *,
    reduced: bool = True,
    wants: Callable[[Event], bool] = lambda event: True,
    sees: Callable[[Event], Sequence[str] | None] = lambda event: None,
) -> Graph:
    """What was explored, and which of its edges runs have to go over.

    Those of events that it `wants`; if it is not to be `reduced`, in every state, and else in one of those that are the
    same but for names, or whose components that whoever does the event `sees` are the same.
    """
    wanted = _first_of_orbits(found.table, found.states) if reduced else [True] * len(found.states)
    asked = _asked(found, wanted, wants, sees if reduced else lambda event: None)
    values = [found.table.decode(state) for state in found.states]
    return Graph(
        found.table.model,
        values,
        found.ways,
        found.parents,
        found.complete,
        found.left_out,
        asked,
    )


def _first_of_orbits(table: Table, states: Sequence[Numbers]) -> list[bool]:
    """Whether a state is the first of those that are the same but for names."""
    layout = roomy(table, 0)
    orbits = Orbits(table.model, layout)
    places = range(len(layout.widths))
    seen: set[int] = set()
    first = []
    for state in states:
        least = orbits.least(layout.put(places, state))
        first.append(least not in seen)
        seen.add(least)
    return first


def _asked(
    found: Explored,
    wanted: Sequence[bool],
    wants: Callable[[Event], bool],
    sees: Callable[[Event], Sequence[str] | None],
) -> list[list[bool]]:
    """Node and way to whether runs have to go over that edge."""
    table = found.table
    able = [wants(event) for event in table.model.events]
    seen = [sees(event) for event in table.model.events]
    places = [None if names is None else [table.place[name] for name in names] for names in seen]
    known: set[tuple[int, ...]] = set()

    def new(state: Numbers, event: int) -> bool:
        of = places[event]
        if of is None:
            return True
        look = (event, *(state[place] for place in of))
        if look in known:
            return False
        known.add(look)
        return True

    return [
        [want and able[way.event] and new(state, way.event) for way in out]
        for state, out, want in zip(found.states, found.ways, wanted, strict=True)
    ]


def tours(whole: Graph) -> Iterator[list[Arc]]:
    """Runs that together go over every edge that is wanted."""
    still, ahead = (
        [
            [
                number
                for number, way in enumerate(ways)
                if (way.to == node) is stays and whole.asked[node][number]
            ]
            for node, ways in enumerate(whole.ways)
        ]
        for stays in (True, False)
    )
    for start in range(len(whole.ways)):
        while still[start] or ahead[start]:
            run = whole.path(start)
            for arc in run:  # what it happens to pass
                _drop(ahead[arc[0]], arc[1])
            node = start
            while True:
                run += [(node, number) for number in still[node]]
                still[node] = []
                if not ahead[node]:
                    way = _nearby(whole, node, still, ahead)
                    if not way:
                        break
                    run += way
                    node = whole.ways[way[-1][0]][way[-1][1]].to
                    continue
                number = max(ahead[node], key=lambda n: _promise(whole.ways[node][n].to, still, ahead))
                ahead[node].remove(number)
                run.append((node, number))
                node = whole.ways[node][number].to
            yield run


def _nearby(
    whole: Graph, start: int, still: Sequence[Sequence[int]], ahead: Sequence[Sequence[int]]
) -> list[Arc]:
    """A shortest way to a state that has something left, if one is among the nearest."""
    before: dict[int, Arc] = {start: (start, -1)}
    for node in (queue := [start]):  # which grows meanwhile
        for number, way in enumerate(whole.ways[node]):
            if way.to in before:
                continue
            before[way.to] = node, number
            if still[way.to] or ahead[way.to]:
                arcs, here = [], way.to
                while here != start:
                    arcs.append(before[here])
                    here = before[here][0]
                return arcs[::-1]
            if len(before) > NEARBY:
                return []
            queue.append(way.to)
    return []


def _promise(node: int, still: list[list[int]], ahead: list[list[int]]) -> int:
    return len(ahead[node]) + bool(still[node])


def _drop(numbers: list[int], number: int) -> None:
    if number in numbers:
        numbers.remove(number)

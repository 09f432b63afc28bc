"""Every edge of a model's graph, and runs that go over all of them: transition tours.

Theory of operation
-------------------
An occurrence that changes nothing can be done wherever a run is, so a run does all of them at each state it comes to
for the first time. What is left are the arcs between different states, and a run goes on over arcs that no run has
taken, preferring those behind which there are more, until there is none where it is; the next one begins anew, on a
shortest way to a state that still has some. A daemon cannot be put into a state, only led there, so runs that are long
are worth more than few steps on the whole. (The cheapest set of runs is the Chinese postman's problem on a directed
graph with a reset; this greedy one is within a third of its bound on our graphs, and takes no time to find.)
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from attrs import field, frozen

from checker.model import Event, Model
from checker.result import Step, Trace
from checker.table import Table

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

    @property
    def edges(self) -> int:
        """How many occurrences there are."""
        return sum(map(len, self.ways))

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


def graph(model: Model, can: Callable[[Event], bool], most: int = 100_000) -> Graph:
    """The states reached by events that can be done, at most `most` of them, and what occurs in each."""
    from checker.report.states import after, occurrences

    table = Table(model)
    states = [table.initial]
    numbers = {table.initial: 0}
    parents: list[Arc] = [(0, 0)]
    ways: list[list[Way]] = []
    left_out: Counter[str] = Counter()
    complete = True
    able = [can(event) for event in model.events]
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
    return Graph(model, [table.decode(state) for state in states], ways, parents, complete, left_out)


def tours(whole: Graph) -> Iterator[list[Arc]]:
    """Runs that together go over every edge."""
    still = [
        [number for number, way in enumerate(ways) if way.to == node] for node, ways in enumerate(whole.ways)
    ]
    ahead = [
        [number for number, way in enumerate(ways) if way.to != node] for node, ways in enumerate(whole.ways)
    ]
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
                    break
                number = max(ahead[node], key=lambda n: _promise(whole.ways[node][n].to, still, ahead))
                ahead[node].remove(number)
                run.append((node, number))
                node = whole.ways[node][number].to
            yield run


def _promise(node: int, still: list[list[int]], ahead: list[list[int]]) -> int:
    return len(ahead[node]) + bool(still[node])


def _drop(numbers: list[int], number: int) -> None:
    if number in numbers:
        numbers.remove(number)

"""Liveness under fairness: is there a run that keeps every promise and never gets there?

Theory of operation
-------------------
`when` leads to `then` fails exactly if some reachable state satisfies `when` and not `then`, and from it a run
through states without `then` goes on for ever keeping the promises. For ever means around in a strongly
connected component of those states, or standing still, which every state allows.

For one promised event and a component of the graph,

* a **weak** promise is kept by going around if the event is disabled somewhere in it, or taken inside it. If
  neither, it is enabled all the way and never taken, and the same is true of every part of the component;
* a **strong** promise is kept if the event is taken inside it, or enabled nowhere in it. If neither, only parts
  without the states that enable it can keep it, and those are searched in turn (Emerson and Lei 1987).

A component that keeps every promise gives the counterexample, a *lasso*: the shortest way into it, and a cycle
through a place for each promise; or, where no promised event can change anything, standing still.

An occurrence that changes nothing is none: it neither keeps a promise nor is one that must be kept.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from attrs import frozen

from checker.graph import Arc, Graph, components, explore
from checker.limits import Watch
from checker.model import Model
from checker.packed import replay
from checker.properties import LeadsTo, Strength
from checker.result import Trace
from checker.slicing import cut
from checker.table import Table


@frozen
class Answer:
    """What a search for a lasso found."""

    lasso: Trace | None
    states: int
    """Unique states of the slice that decides the property."""
    limit: str | None
    """What stopped the search; without a lasso the property then is undecided."""


Graphs = dict[tuple[str, ...], Graph]
"""Graphs by the names of the components and events of their slices: properties often share one."""


def check(
    model: Model,
    prop: LeadsTo,
    watch: Watch | None = None,
    *,
    table: Table | None = None,
    graphs: Graphs | None = None,
) -> Answer:
    """Look for a run that keeps the promises and violates `prop`, in the slice of the model that matters.

    `table` is one of the whole model, whose remembered rule calls are used when the slice is all of it; graphs
    are looked up in and added to `graphs`.
    """
    sliced = cut(model, [prop])
    whole = len(sliced.components) == len(model.components)
    if whole:
        # Events that were left out write nothing, and the whole model has been searched already.
        sliced = model
    key = (*(c.name for c in sliced.components), *(e.name for e in sliced.events))
    graph = None if graphs is None else graphs.get(key)
    if graph is None:
        graph = explore(table if whole and table is not None else Table(sliced), watch or Watch())
        if graphs is not None:
            graphs[key] = graph
    found = Search(graph, prop).lasso()
    if found is None:
        return Answer(None, len(graph.states), graph.limit)
    stem, cycle = found
    # Whatever the slice leaves out has no say in it: the same events are a run of the whole.
    names = [sliced.events[event].name for event in (*stem, *cycle)]
    return Answer(replay(model, names, len(stem)), len(graph.states), None)


class Search:
    """The search of one graph for one property."""

    def __init__(self, graph: Graph, prop: LeadsTo) -> None:
        self.graph = graph
        table, layout = graph.space.table, graph.space.layout
        places = [table.place[name] for name in prop.reads]
        events = table.model.events
        self.promises = [
            (number, fair.strength)
            for fair in prop.fair
            for number, event in enumerate(events)
            if fair.covers(event)
        ]
        verdicts: dict[tuple[int, ...], tuple[bool, bool]] = {}
        self.region: set[int] = set()
        """Expanded nodes without `then`: beyond the others nothing is known."""
        self.starts: list[int] = []
        """Those of them with `when`."""
        for node, state in enumerate(graph.states[: graph.expanded]):
            numbers = layout.read(state, places)
            if numbers not in verdicts:
                values = tuple(map(table.value, places, numbers))
                verdicts[numbers] = prop.when(*values), prop.then(*values)
            when, then = verdicts[numbers]
            if not then:
                self.region.add(node)
                if when:
                    self.starts.append(node)

    def lasso(self) -> tuple[list[int], list[int]] | None:
        """Events of the stem and of the cycle, which is empty when what repeats is standing still."""
        distance, before = self._reach()
        best: tuple[int, int, set[int]] | None = None
        for component in self._fair(components(distance, self.graph.arcs)):
            node = min(component, key=lambda node: (not self._still(node), distance[node]))
            if best is None or distance[node] < best[0]:
                best = distance[node], node, component
        if best is None:
            return None
        _, node, component = best
        cycle = [] if self._still(node) else self._cycle(node, component)
        return self._stem(node, before), cycle

    def _reach(self) -> tuple[dict[int, int], dict[int, Arc]]:
        """The nodes of runs without `then` since some start: steps from the initial state, and from where."""
        distance: dict[int, int] = {}
        before: dict[int, Arc] = {}
        queue = [(self.graph.depths[node], node, -1, -1) for node in self.starts]
        heapq.heapify(queue)
        while queue:
            steps, node, event, source = heapq.heappop(queue)
            if node in distance:
                continue
            distance[node] = steps
            if event >= 0:
                before[node] = (event, source)
            for event, then in self.graph.arcs[node]:
                if then in self.region and then not in distance:
                    heapq.heappush(queue, (steps + 1, then, event, node))
        return distance, before

    def _still(self, node: int) -> bool:
        """Whether standing still here keeps every promise: no promised event would change anything."""
        return not any(self._enabled(event, node) for event, _ in self.promises)

    def _enabled(self, event: int, node: int) -> bool:
        return any(event == other for other, _ in self.graph.arcs[node])

    def _fair(self, found: Iterable[list[int]]) -> Iterator[set[int]]:
        """The components in which going around can keep every promise."""
        queue = deque(set(component) for component in found)
        while queue:
            component = queue.popleft()
            keeps = True
            for event, strength in self.promises:
                if self._taken(event, component):
                    continue
                enabling = {node for node in component if self._enabled(event, node)}
                if strength is Strength.WEAK and len(enabling) < len(component):
                    continue
                if strength is Strength.STRONG and not enabling:
                    continue
                keeps = False
                if strength is Strength.STRONG:
                    queue.extend(map(set, components(component - enabling, self.graph.arcs)))
                break
            if keeps:
                yield component

    def _taken(self, event: int, component: set[int]) -> bool:
        return any(
            event == other and then in component
            for node in component
            for other, then in self.graph.arcs[node]
        )

    def _cycle(self, start: int, component: set[int]) -> list[int]:
        """Events of a cycle from `start` inside `component` with a place for each promise."""
        node, cycle, passed = start, [], {start}
        for event, strength in self.promises:
            if event in cycle:
                continue
            taken = self._taken(event, component)
            if strength is Strength.WEAK and any(not self._enabled(event, seen) for seen in passed):
                continue
            if strength is Strength.STRONG and not taken:
                continue

            def keeps(arc: Arc, event: int = event, weak: bool = strength is Strength.WEAK) -> bool:
                return arc[0] == event or (weak and not self._enabled(event, arc[1]))

            for step in self._walk(node, component, keeps):
                cycle.append(step[0])
                node = step[1]
                passed.add(node)
        if node != start or not cycle:
            cycle += [event for event, _ in self._walk(node, component, lambda arc: arc[1] == start)]
        return cycle

    def _walk(self, node: int, component: set[int], goal: Callable[[Arc], bool]) -> list[Arc]:
        """The shortest walk inside `component` whose last arc satisfies `goal`."""
        before: dict[int, tuple[int, Arc]] = {}
        queue = deque([node])
        seen = {node}
        while queue:
            here = queue.popleft()
            for arc in self.graph.arcs[here]:
                if arc[1] not in component:
                    continue
                if goal(arc):
                    walk = [arc]
                    while here != node:
                        here, arc = before[here]
                        walk.append(arc)
                    return walk[::-1]
                if arc[1] not in seen:
                    seen.add(arc[1])
                    before[arc[1]] = (here, arc)
                    queue.append(arc[1])
        raise LookupError("a strongly connected component has no way on")

    def _stem(self, node: int, before: dict[int, Arc]) -> list[int]:
        """Events from the initial state by way of a start to `node`."""
        stem = []
        while node in before:
            event, node = before[node]
            stem.append(event)
        path = self.graph.path(node)
        for source, then in zip(path[-2::-1], path[:0:-1], strict=True):
            stem.append(next(event for event, other in self.graph.arcs[source] if other == then))
        return stem[::-1]

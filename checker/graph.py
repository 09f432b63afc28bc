"""The reachable states of a model as an explicit graph, and its strongly connected components."""

import sys
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from checker.layout import FieldOverflowError
from checker.limits import Watch
from checker.packed import Packed
from checker.table import Table

Arc = tuple[int, int]
"""Event, and the node it leads to."""


@frozen(eq=False)
class Graph:
    """Every reachable state is a node, numbered from the initial one in breadth-first order."""

    space: Packed
    states: Sequence[int]
    arcs: Sequence[Sequence[Arc]]
    """Node to the occurrences that change something."""
    parents: Sequence[int]
    depths: Sequence[int]
    limit: str | None
    """What stopped the search, if anything did."""
    expanded: int
    """How many nodes, from the first, have all their arcs; the others have none of theirs."""

    def path(self, node: int) -> list[int]:
        """A shortest path of nodes from the initial one."""
        nodes = [node]
        while node:
            node = self.parents[node]
            nodes.append(node)
        return nodes[::-1]


def explore(table: Table, watch: Watch) -> Graph:
    """Search the whole space, keeping every transition that changes something."""
    done = table.searched
    space = done if isinstance(done, Packed) else Packed(table, judging=False)
    while True:
        try:
            return _explore(space, watch)
        except FieldOverflowError:
            space.reset()


def _explore(space: Packed, watch: Watch) -> Graph:
    states = [space.initial]
    numbers = {space.initial: 0}
    parents, depths = [0], [0]
    arcs: list[list[Arc]] = []
    limit: str | None = None
    most = watch.limits.states or sys.maxsize
    for node, state in enumerate(states):  # which grows meanwhile
        if not node & 1023 or len(states) >= most:
            watch.tell(len(states), sum(map(len, arcs[-1:])), depths[node], len(states) - node)
            limit = watch.exceeded(len(states), depths[node])
        if limit:
            break
        out: list[Arc] = []
        for event, successor in space.expand(state)[2]:
            number = numbers.get(successor)
            if number is None:
                number = numbers[successor] = len(states)
                states.append(successor)
                parents.append(node)
                depths.append(depths[node] + 1)
            out.append((event, number))
        arcs.append(out)
    expanded = len(arcs)
    arcs += [[] for _ in range(len(states) - expanded)]
    return Graph(space, states, arcs, parents, depths, limit, expanded)


def components(nodes: Iterable[int], arcs: Sequence[Sequence[Arc]]) -> Iterator[list[int]]:
    """The strongly connected components of the subgraph on `nodes` (Tarjan 1972, without recursion)."""
    within = set(nodes)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    for root in within:
        if root in index:
            continue
        work = [(root, iter(arcs[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for _, then in rest:
                if then not in within:
                    continue
                if then not in index:
                    index[then] = low[then] = len(index)
                    stack.append(then)
                    on_stack.add(then)
                    work.append((then, iter(arcs[then])))
                    break
                if then in on_stack:
                    low[node] = min(low[node], index[then])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found: list[int] = []
                    while not found or found[-1] != node:
                        found.append(stack.pop())
                        on_stack.discard(found[-1])
                    yield found

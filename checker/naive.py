"""The engine that is too simple to be wrong: values in tuples, tuples in a dict, every function run every time.

It shares nothing with `checker.table`, so that the other engines' counts and verdicts can be compared with it.
"""

from attrs import frozen

from checker.model import Edge, Model, Values, run_event
from checker.properties import Always, DeadlockFree, OnEdge, Sometimes, SometimesOnEdge


@frozen
class Counts:
    """What every engine must agree on."""

    states: int
    transitions: int
    """Occurrences of events in reachable states."""
    stutters: int
    """Those of them that change nothing."""
    depth: int
    """Steps to the state farthest from the initial one."""
    decided: frozenset[str]
    """Names of the properties of states and edges violated, or, for those that ask for a witness, witnessed."""


def explore(model: Model) -> Counts:
    """Breadth-first search of the whole space of `model`."""
    names = [component.name for component in model.components]
    depths: dict[Values, int] = {model.initial: 0}
    queue = [model.initial]
    transitions = stutters = 0
    decided: set[str] = set()
    for state in queue:  # which grows meanwhile
        now = dict(zip(names, state, strict=True))
        moves = False
        for event in model.events:
            outcome = run_event(event, tuple(now[name] for name in event.reads))
            if outcome is None:
                continue
            then = {**now, **dict(zip(event.writes, outcome[0], strict=True))}
            transitions += 1
            stutters += then == now
            moves = moves or then != now
            edge = Edge(event, now, then, outcome[1])
            for prop in model.properties:
                if not isinstance(prop, (OnEdge, SometimesOnEdge)) or not prop.about(event):
                    continue
                if prop.holds(edge) is isinstance(prop, SometimesOnEdge):
                    decided.add(prop.name)
            successor = tuple(then.values())
            if successor not in depths:
                depths[successor] = depths[state] + 1
                queue.append(successor)
        for prop in model.properties:
            if isinstance(prop, (Always, Sometimes, DeadlockFree)):
                values = [now[name] for name in prop.reads]
                if isinstance(prop, DeadlockFree):
                    if not moves and not prop.final(*values):
                        decided.add(prop.name)
                elif prop.holds(*values) is isinstance(prop, Sometimes):
                    decided.add(prop.name)
    return Counts(len(depths), transitions, stutters, max(depths.values()), frozenset(decided))

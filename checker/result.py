"""What a search found: counts, decided properties, and traces of them."""

from collections.abc import Callable, Hashable, Iterator, Mapping

from attrs import frozen

from checker.model import Component, Event, Model, Values
from checker.properties import Property, Sometimes, SometimesOnEdge


@frozen(eq=False)
class Step:
    """One step of a trace."""

    event: Event
    response: Hashable
    before: Values
    after: Values
    note: str = ""
    """Why the step has no after-state of its own: the error of a rule that did not return."""

    def changes(self, model: Model) -> Iterator[tuple[Component, Hashable, Hashable]]:
        """Each component the step changes, with its values before and after."""
        for component, before, after in zip(model.components, self.before, self.after, strict=True):
            if before != after:
                yield component, before, after


@frozen(eq=False)
class Trace:
    """A run from the initial state: finite, or a lasso whose steps from `loop` on repeat for ever."""

    model: Model
    steps: tuple[Step, ...]
    loop: int | None = None
    """Index of the first repeated step; ``len(steps)`` when what repeats is nothing happening at all."""

    @property
    def last(self) -> Values:
        """The state after the last step."""
        return self.steps[-1].after if self.steps else self.model.initial


@frozen
class Hit:
    """Where a property was decided: in a state, or on the edge of `event` that leaves it."""

    state: int
    """The packed state."""
    event: int | None
    depth: int
    """Steps from the initial state to `state`."""


@frozen(eq=False)
class Result:
    """The outcome of one search of one model."""

    model: Model
    engine: str
    states: int
    transitions: int
    stutters: int
    """Transitions that change nothing."""
    depth: int
    """Steps to the state farthest from the initial one, as far as was searched."""
    limit: str | None
    """What stopped the search before the end; None when the space is exhausted."""
    seconds: float
    calls: int
    """How often a rule function really ran."""
    hits: Mapping[Property, Hit]
    traces: Callable[[Hit], Trace]
    coverage: Mapping[str, Mapping[Hashable, int]]
    """Event to response to the number of distinct footprints that gave it."""
    levels: tuple[int, ...] = ()
    """New states by depth, for a breadth-first search."""
    lassos: Mapping[Property, Trace] = {}
    """Counterexamples of properties of liveness."""

    @property
    def complete(self) -> bool:
        """Whether the space was exhausted."""
        return self.limit is None

    @property
    def generated(self) -> int:
        """The initial state and every transition that changes something: the usual count of explored states
        in breadth-first checkers, and the published one."""
        return 1 + self.transitions - self.stutters

    def violations(self) -> list[Property]:
        """The properties that do not hold, in the order found."""
        found = [prop for prop in self.hits if not isinstance(prop, (Sometimes, SometimesOnEdge))]
        return found + list(self.lassos)

    def witnessed(self) -> list[Property]:
        """The properties whose witness was found."""
        return [prop for prop in self.hits if isinstance(prop, (Sometimes, SometimesOnEdge))]

    def unwitnessed(self) -> list[Property]:
        """The properties that ask for a witness and have none."""
        return [
            prop
            for prop in self.model.properties
            if isinstance(prop, (Sometimes, SometimesOnEdge)) and prop not in self.hits
        ]

    def trace(self, prop: Property) -> Trace:
        """The run that decided a property of `violations` or `witnessed`."""
        if prop in self.lassos:
            return self.lassos[prop]
        return self.traces(self.hits[prop])

"""What a model is: components, events and properties, and nothing that decides anything.

Theory of operation
-------------------
A model describes a closed system: the daemon's rules together with everybody who can act on them. Its state
is a vector of *components*, each a small frozen hashable value. What can happen is a list of *events*; one
event says who acts, when it may (the guard: bounds and environment, never a rule), and what follows (the
effect: a call of a function of `agentd.rules` and the answer that comes back).

An event is given its **footprint** and nothing else: the values of the components it reads, in the order it
names them. It returns the new values of the components it writes, and the response somebody observes. An
event is therefore a finite function of a few small values, which is why an engine may call the real function
once per footprint and remember what it did (`checker.table`), and why components that no property can be
influenced by may be left out (`checker.slicing`).

Choice is always a choice between events: an event itself is deterministic, and whatever the environment may
pick (which token, whether a spawn works) is a separate event for each possibility.
"""

import hashlib
from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

if TYPE_CHECKING:
    from checker.properties import Property

Values = tuple[Hashable, ...]
"""Values of some components, in an order given beside it."""

Effect = Callable[..., tuple[Values, Hashable]]
"""Takes the values of `Event.reads`; returns the values of `Event.writes`, and the response."""

Guard = Callable[..., bool]
"""Takes the values of `Event.when`; says whether the environment offers the event here."""


class ModelError(ValueError):
    """A model that cannot be checked; the message is one line and names what is wrong."""


@frozen
class Component:
    """One variable of the state."""

    name: str
    initial: Hashable
    domain: str = ""
    """Components of one domain number their values alike, which symmetry needs; by default its own name."""
    meaning: str = ""


@frozen(eq=False)
class Event:
    """One thing that can happen. Compared by identity; `name` is unique within its model."""

    name: str
    """A sentence without its full stop: ``client acks exec 0``."""
    kind: str
    """What properties and fairness select by: ``ack``."""
    actor: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    effect: Effect
    guard: Guard | None = None
    args: Mapping[str, Hashable] = field(factory=dict)
    """What distinguishes it from the other events of its kind, for properties, reports and replay."""
    when: tuple[str, ...] | None = None
    """The components the guard takes, of those the event reads; None for all of them, in the same order."""


@frozen(eq=False)
class Edge:
    """One occurrence of an event, as a property sees it."""

    event: Event
    before: Mapping[str, Hashable]
    """The components the event and the property read, before it."""
    after: Mapping[str, Hashable]
    """The same, and the components the event writes, after it."""
    response: Hashable


@frozen(eq=False)
class Model:
    """A closed system, with what must hold of it."""

    name: str
    config: str
    components: tuple[Component, ...]
    events: tuple[Event, ...]
    properties: "tuple[Property, ...]" = ()
    symmetry: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """Groups of interchangeable members; a member is the tuple of its components, for instance
    ``((("exec.0",), ("exec.1",)),)``. Exchanging two members must map the model onto itself, its properties too:
    what is asked of one member is asked of each. A reduced search then decides for some member what the whole
    one decides for any; a witness about a particular member it may leave out."""
    violates: frozenset[str] = frozenset()
    """Properties that a counterfactual configuration exists to break: there, holding is the failure."""
    bounds: Mapping[str, Hashable] = field(factory=dict)
    """The numbers that make the state space finite, for the reader of a report."""
    meaning: str = ""

    def __attrs_post_init__(self) -> None:
        """Refuse a model whose parts do not fit together, with ModelError."""
        names = _unique("component", (component.name for component in self.components))
        _unique("event", (event.name for event in self.events))
        properties = _unique("property", (prop.name for prop in self.properties))
        for event in self.events:
            _known(f"event {event.name!r}", (*event.reads, *event.writes), names)
            _known(f"the guard of event {event.name!r}", event.when or (), event.reads, "read")
        kinds = {event.kind for event in self.events}
        for prop in self.properties:
            _known(f"property {prop.name!r}", prop.reads, names)
            _known(f"property {prop.name!r}", prop.kinds, kinds, "event kind")
            if prop.witness:
                _known(f"property {prop.name!r}", (prop.witness,), properties, "witness")
        _known("the configuration", self.violates, properties, "property")
        for group in self.symmetry:
            self._check_group(group, names)

    def _check_group(self, group: tuple[tuple[str, ...], ...], names: frozenset[str]) -> None:
        domains = {component.name: component.domain for component in self.components}
        for member in group:
            _known("a symmetry group", member, names)
            if [domains[name] for name in member] != [domains[name] for name in group[0]]:
                raise ModelError(f"symmetric members {group[0]} and {member} differ in their domains")
            if any(not domains[name] for name in member):
                raise ModelError(f"symmetric member {member} has a component without a shared domain")

    @property
    def key(self) -> str:
        """``model:configuration``, as the command line names it."""
        return f"{self.name}:{self.config}"

    @property
    def initial(self) -> Values:
        """The one state everything starts from."""
        return tuple(component.initial for component in self.components)

    def index(self) -> dict[str, int]:
        """Component name to its place in a state."""
        return {component.name: place for place, component in enumerate(self.components)}

    def digest(self) -> str:
        """Identifies the shape of the model: traces and checkpoints of another shape are refused.

        It covers names, footprints and initial values. Effects are code, so a changed rule keeps its digest,
        and a stored trace is then judged by replaying it.
        """
        parts = [self.key, *(f"{c.name}={c.initial!r}" for c in self.components)]
        parts += [f"{e.actor}/{e.name}/{','.join(e.reads)}/{','.join(e.writes)}" for e in self.events]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def offered(event: Event, reads: Values) -> bool:
    """Whether the guard of an event offers it, given the values the event reads."""
    if event.guard is None:
        return True
    if event.when is not None:
        values = dict(zip(event.reads, reads, strict=True))
        return event.guard(*(values[name] for name in event.when))
    return event.guard(*reads)


def run_event(event: Event, reads: Values) -> tuple[Values, Hashable] | None:
    """Run an event on the values it reads: None when its guard says no, else new values and the response.

    Raises ModelError when it returns another number of values than it declares to write.
    """
    if not offered(event, reads):
        return None
    values, response = event.effect(*reads)
    if len(values) != len(event.writes):
        raise ModelError(
            f"event {event.name!r} writes {len(event.writes)} components, returned {len(values)}"
        )
    return values, response


def _unique(what: str, names: Iterable[str]) -> frozenset[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"two of {what} {name!r}")
        seen.add(name)
    return frozenset(seen)


def _known(where: str, used: Iterable[str], known: Container[str], what: str = "component") -> None:
    for name in used:
        if name not in known:
            raise ModelError(f"{where} names unknown {what} {name!r}")

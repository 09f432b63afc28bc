"""Relevance slicing: leave out of a model whatever cannot influence the properties asked about.

Theory of operation
-------------------
A component is *relevant* when a property reads it, or when an event reads it that writes a relevant one: the
least fixed point (the cone of influence). The slice keeps the relevant components, and the events that write
one of them or that a property speaks of. Each kept event reads relevant components only, so it is enabled,
answers and writes in the slice exactly as in the whole; each event left out changes nothing relevant. A run of
the whole therefore is a run of the slice with stutters in it, and a run of the slice is a run of the whole:
every property is decided alike, and a trace of the slice is a trace of the whole, event by event.
"""

from collections.abc import Callable, Hashable, Iterable

from attrs import evolve

from checker.model import Event, Model, Values
from checker.properties import DeadlockFree, LeadsTo, OnEdge, Property, SometimesOnEdge


def cut(model: Model, properties: Iterable[Property]) -> Model:
    """The slice of `model` for some of its properties, which become all of its properties."""
    kept = tuple(properties)
    relevant: set[str] = set()
    spoken: set[Event] = set()
    for prop in kept:
        relevant.update(prop.reads)
        spoken.update(_spoken(model, prop))
    for event in spoken:
        relevant.update(event.reads, event.writes)
    grown = True
    while grown:
        grown = False
        for event in model.events:
            if not relevant.isdisjoint(event.writes) and not relevant.issuperset(event.reads):
                relevant.update(event.reads)
                grown = True
    events = [e for e in model.events if e in spoken or not relevant.isdisjoint(e.writes)]
    names = {prop.name for prop in kept}
    return evolve(
        model,
        components=tuple(c for c in model.components if c.name in relevant),
        events=tuple(_narrowed(event, relevant) for event in events),
        properties=tuple(
            evolve(prop, witness=prop.witness if prop.witness in names else "") for prop in kept
        ),
        symmetry=tuple(
            group for group in model.symmetry if all(relevant.issuperset(member) for member in group)
        ),
        violates=model.violates & names,
    )


def _spoken(model: Model, prop: Property) -> Iterable[Event]:
    if isinstance(prop, (OnEdge, SometimesOnEdge)):
        return (event for event in model.events if prop.about(event))
    if isinstance(prop, LeadsTo):
        return (event for event in model.events if any(fair.covers(event) for fair in prop.fair))
    if isinstance(prop, DeadlockFree):
        return model.events
    return ()


def _narrowed(event: Event, relevant: set[str]) -> Event:
    """The event writing relevant components only."""
    places = [place for place, name in enumerate(event.writes) if name in relevant]
    if len(places) == len(event.writes):
        return event
    return evolve(
        event, writes=tuple(event.writes[p] for p in places), effect=_narrow_effect(event.effect, places)
    )


def _narrow_effect(
    effect: Callable[..., tuple[Values, Hashable]], places: list[int]
) -> Callable[..., tuple[Values, Hashable]]:
    def narrowed(*reads: Hashable) -> tuple[Values, Hashable]:
        values, response = effect(*reads)
        return tuple(values[place] for place in places), response

    return narrowed

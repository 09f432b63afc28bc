"""A model with one defence off: what it is there for, shown by what falls without it.

A defence is a decision of a rule, so it is off when a fault that is named for its absence is planted while the model's
own events run, and only then: whoever searches the model, in whatever way, meets the daemon without it. What has to
fall is listed, and is all that is asked; that it does is a better witness than the one that it names.
"""

from collections.abc import Hashable
from typing import Any

from attrs import evolve

from checker.faults import Plot, plot, seeded
from checker.model import Effect, Event, Model, ModelError, Values


def without(model: Model, fault: str, breaks: tuple[str, ...], never: tuple[str, ...] = ()) -> Model:
    """The model under a seeded fault, which has to violate the properties that `breaks` names. Events that `never`
    happen then are left out.

    Raises ModelError when there is no such fault.
    """
    known = seeded()
    if fault not in known:
        raise ModelError(f"{model.key}: no fault {fault!r}")
    ground = plot(known[fault])
    return evolve(
        model,
        events=tuple(_under(ground, event) for event in model.events if event.name not in never),
        properties=tuple(evolve(prop, witness="") for prop in model.properties if prop.name in breaks),
        violates=frozenset(breaks),
        meaning=f"{model.meaning}; {fault}",
    )


def _under(ground: Plot, event: Event) -> Event:
    effect: Effect = event.effect

    def run(*values: Any) -> tuple[Values, Hashable]:
        ground.plant()
        try:
            return effect(*values)
        finally:
            ground.clear()

    return evolve(event, effect=run)

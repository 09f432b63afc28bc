"""What ``check --strict`` asks beyond verdicts: that no property holds for want of anything to break it.

Each property that is not itself a witness names a witness and at least one seeded fault, and each fault it
names breaks it, which is tried on the spot. Events have true footprints (`checker.footprints`).
"""

from collections.abc import Iterable, Iterator

from checker import footprints, liveness, packed
from checker.check import asked
from checker.faults import planted, seeded
from checker.limits import Limits, Watch
from checker.model import Model
from checker.models import load
from checker.properties import LeadsTo, Property, Sometimes, SometimesOnEdge
from checker.table import Table

STATES = 20_000
"""Where a search for a violation under a fault is given up."""


def complaints(found: Iterable[Model]) -> Iterator[str]:
    """One line for everything that is wrong with some models."""
    by_fault: dict[str, list[tuple[str, Property]]] = {}
    for model in found:
        for line in footprints.check(model).wrong:
            yield f"{model.key}: {line}"
        for prop in model.properties:
            if isinstance(prop, (Sometimes, SometimesOnEdge)) or prop.name in model.violates:
                continue
            if not prop.witness:
                yield f"{model.key}: {prop.name}: names no witness of its antecedent"
            if not prop.faults:
                yield f"{model.key}: {prop.name}: names no fault that breaks it"
            for name in prop.faults:
                by_fault.setdefault(name, []).append((model.key, prop))
    known = seeded()
    for name, broken in by_fault.items():
        if name not in known:
            for key, prop in broken:
                yield f"{key}: {prop.name}: names unknown fault {name!r}"
            continue
        with planted(known[name]):
            for key in dict.fromkeys(key for key, _ in broken):
                names = [prop.name for other, prop in broken if other == key]
                for unbroken in _unbroken(asked(load(key), names), names):
                    yield f"{key}: {unbroken}: is not broken by {name!r}"


def _unbroken(model: Model, names: list[str]) -> Iterator[str]:
    """Those of the properties that a model, built under a fault, does not violate."""
    limits = Limits(states=STATES)
    safety = sum(not isinstance(prop, LeadsTo) for prop in model.properties if prop.name in names)
    hits = {prop.name for prop in packed.search(Table(model), Watch(limits), stop_at=safety).hits}
    for prop in model.properties:
        if prop.name not in names or prop.name in hits:
            continue
        if not isinstance(prop, LeadsTo) or liveness.check(model, prop, Watch(limits)).lasso is None:
            yield prop.name

"""The kill matrix: which property notices which fault.

Theory of operation
-------------------
Each fault is planted, and every configuration that runs the faulty function is checked. A fault is

* **killed** when a property is violated that otherwise holds, or a rule does not return, or a witness that is
  otherwise found is not;
* **drifted** when no property minds, but the numbers of states and transitions are not what they were: the
  pinned counts notice it, without saying what is wrong;
* **survived** when nothing is different. Such a fault is equivalent to the rule as far as the daemon can ever
  use it, which has to be explained (`explained`), or the models are blind to it.

A fault with a name is put to the properties that name it, and each of those has to break: that is what shows that
every property can. An automatic one is put to everything, in the quickest configurations first, until something
notices; so is a seeded one that no property names. `everything` puts each seeded fault to every property instead.

Which functions a configuration runs is measured, by a profile of one check of it.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, unique
from functools import lru_cache
from types import FrameType
from typing import TYPE_CHECKING, Any

from attrs import frozen

from checker import liveness, models, packed
from checker.check import Options, asked, check
from checker.faults import Fault, planted, seeded
from checker.faults.explained import EXPLAINED
from checker.limits import Limits, Watch
from checker.model import ModelError
from checker.mutation import mutants
from checker.pool import each
from checker.properties import LeadsTo, Sometimes, SometimesOnEdge
from checker.result import Result
from checker.table import Table

if TYPE_CHECKING:
    from checker.fleet import Fleet

EXPLOSION = 4
"""A fault may make the space this many times larger before its check is given up."""
SECONDS = 20.0
"""The longest check of one configuration under one fault."""


@unique
class Fate(Enum):
    """What became of a fault."""

    KILLED = "killed"
    DRIFTED = "drifted"
    SURVIVED = "survived"


@frozen
class Baseline:
    """A configuration without faults."""

    key: str
    states: int
    transitions: int
    violated: frozenset[str]
    witnessed: frozenset[str]
    functions: frozenset[tuple[str, str]]
    """Module and qualified name of what it runs."""
    seconds: float
    """What checking it takes, to go by."""


@frozen
class Row:
    """One fault, and what noticed it."""

    fault: str
    fate: Fate
    killers: tuple[tuple[str, str], ...]
    """Configuration and property."""
    checked: tuple[str, ...]
    """The configurations that run the faulty function."""
    explained: str = ""


def baseline(key: str) -> Baseline:
    """Check a configuration as it is, watching which functions it runs."""
    ran: set[tuple[str, str]] = set()

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            if module.startswith(("agentd.rules", "checker.models")):
                ran.add((module, frame.f_code.co_qualname))

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        result = check(models.load(key), Options(live=False))
    finally:
        sys.setprofile(previous)
    return Baseline(
        key,
        result.states,
        result.transitions,
        frozenset(prop.name for prop in result.violations()),
        frozenset(prop.name for prop in result.witnessed()),
        frozenset(ran),
        result.seconds,
    )


def noticed(fault: Fault, base: Baseline, *, everything: bool) -> tuple[list[str], bool]:
    """The properties that notice a fault in one configuration, and whether the counts drift; without
    `everything`, the first that do."""
    limits = Limits(states=EXPLOSION * base.states + 1000, seconds=SECONDS)
    with planted(fault):
        try:
            model = models.load(base.key)
        except Exception as error:
            return [f"the model cannot be built: {type(error).__name__}"], True
        table = Table(model)
        result = packed.search(table, Watch(limits), stop_at=0 if everything else len(base.violated) + 1)
        killers = _differences(result, base)
        if everything or not killers:
            killers += _lassos(table, limits)
    return killers, (result.states, result.transitions) != (base.states, base.transitions)


def _lassos(table: Table, limits: Limits) -> list[str]:
    """The properties of liveness that a model violates."""
    graphs: liveness.Graphs = {}
    return [
        prop.name
        for prop in table.model.properties
        if isinstance(prop, LeadsTo)
        and liveness.check(table.model, prop, Watch(limits), table=table, graphs=graphs).lasso is not None
    ]


def broken(fault: Fault, base: Baseline, names: Sequence[str]) -> list[str]:
    """Those of some properties, which hold without it, that a fault breaks."""
    limits = Limits(states=EXPLOSION * base.states + 1000, seconds=SECONDS)
    with planted(fault):
        model = asked(models.load(base.key), names)
        table = Table(model)
        safety = sum(not isinstance(prop, LeadsTo) for prop in model.properties if prop.name in names)
        hits = packed.search(table, Watch(limits), stop_at=safety).hits if safety else {}
        found = {prop.name for prop in hits} | set(_lassos(table, limits))
    return [name for name in names if name in found]


def _differences(result: Result, base: Baseline) -> list[str]:
    violated = {prop.name for prop in result.violations()}
    killers = sorted(violated - base.violated)
    if result.complete:
        killers += sorted(base.violated - violated)
        killers += sorted(base.witnessed - {prop.name for prop in result.witnessed()})
    return killers


def row(fault: Fault, bases: Sequence[Baseline], *, everything: bool) -> Row:
    """Check the configurations that run the faulty function: all of them and every property with `everything`,
    otherwise the quickest first, until something notices. Liveness then is asked only when nothing else does.
    """
    running = [base for base in bases if (fault.module, fault.function) in base.functions]
    if not everything:
        running.sort(key=lambda base: base.seconds)
    killers: list[tuple[str, str]] = []
    drifted = False
    for base in running:
        found, drift = noticed(fault, base, everything=everything)
        killers += [(base.key, name) for name in found]
        drifted = drifted or drift
        if killers and not everything:
            break
    fate = Fate.KILLED if killers else Fate.DRIFTED if drifted else Fate.SURVIVED
    return Row(fault.name, fate, tuple(killers), tuple(base.key for base in running), explanation(fault))


def named_row(fault: Fault, bases: Sequence[Baseline], naming: Mapping[str, Sequence[str]]) -> Row:
    """Check the properties that name a fault: those of `naming`, by configuration."""
    running = [base for base in bases if base.key in naming]
    killers = [(base.key, name) for base in running for name in broken(fault, base, naming[base.key])]
    fate = Fate.KILLED if killers else Fate.SURVIVED
    return Row(fault.name, fate, tuple(killers), tuple(base.key for base in running), explanation(fault))


def explanation(fault: Fault) -> str:
    """Why a fault need not be noticed, as written beside the faults; empty for none."""
    return EXPLAINED.get(fault.name.partition(":")[0], "")


@frozen
class Matrix:
    """Every fault with its fate, and every property with what it notices."""

    bases: tuple[Baseline, ...]
    rows: tuple[Row, ...]
    unkillable: tuple[tuple[str, str], ...]
    """Configuration and name of the properties that no fault breaks."""
    unbroken: tuple[tuple[str, str, str], ...]
    """Configuration, property, and a fault it names that does not break it."""

    def survivors(self) -> list[Row]:
        """The faults that nothing noticed and nobody has explained."""
        return [found for found in self.rows if found.fate is not Fate.KILLED and not found.explained]


@frozen
class Work:
    """What is asked of every fault."""

    bases: Sequence[Baseline]
    naming: Mapping[str, Mapping[str, Sequence[str]]]
    """Fault to configuration to the properties that name it."""


def one(work: Work, fault: Fault, thorough: bool) -> Row:
    """The row of one fault: put to every property if `thorough`, otherwise to those that name it, or to whichever
    notices it first."""
    if not thorough and fault.name in work.naming:
        return named_row(fault, work.bases, work.naming[fault.name])
    return row(fault, work.bases, everything=thorough)


@lru_cache(maxsize=1)
def known() -> dict[str, Fault]:
    """Every fault there is, by name."""
    return {**seeded(), **{fault.name: fault for fault in mutants()}}


def one_named(work: Work, item: tuple[str, bool]) -> Row:
    """`one`, of a fault that is known by its name, on a machine of a fleet."""
    return one(work, known()[item[0]], item[1])


def rows(
    faults: Sequence[Fault],
    work: Work,
    *,
    thorough: int = 0,
    jobs: int | None = None,
    tell: Callable[[int, int], None] | None = None,
    fleet: "Fleet | None" = None,
) -> Iterator[Row]:
    """The rows of some faults, in order, computed by `jobs` processes (by default, one for each processor) or by a
    fleet. The first `thorough` of them are put to every property."""
    if fleet is None:
        found = each(lambda number: one(work, faults[number], number < thorough), len(faults), jobs)
    else:
        items = [(fault.name, number < thorough) for number, fault in enumerate(faults)]
        found = fleet.each(one_named, work, items)
    for number, done in enumerate(found):
        yield done
        if tell is not None:
            tell(number + 1, len(faults))


def matrix(
    keys: Iterable[str] | None = None,
    *,
    automatic: bool = True,
    everything: bool = False,
    jobs: int | None = None,
    tell: Callable[[int, int], None] | None = None,
    fleet: "Fleet | None" = None,
) -> Matrix:
    """The matrix of some configurations, by default of those a check of everything includes."""
    bases = tuple(baseline(key) for key in (keys if keys is not None else models.every()))
    for base in bases:
        wrong = base.violated - models.load(base.key).violates
        if wrong:
            raise ModelError(f"{base.key} violates {sorted(wrong)[0]!r} without any fault")
    ran = frozenset().union(*(base.functions for base in bases))
    named = seeded()
    faults = [fault for fault in named.values() if (fault.module, fault.function) in ran]
    seeds = len(faults)
    naming = _naming(bases)
    if automatic:
        faults += [fault for fault in mutants() if (fault.module, fault.function) in ran]
    work = Work(bases, naming)
    found = tuple(rows(faults, work, thorough=seeds if everything else 0, jobs=jobs, tell=tell, fleet=fleet))
    by_fault = {one.fault: set(one.killers) for one in found}
    killing = set().union(*by_fault.values()) if by_fault else set()
    unkillable, unbroken = [], []
    for base in bases:
        for prop in models.load(base.key).properties:
            if isinstance(prop, (Sometimes, SometimesOnEdge)) or prop.name in base.violated:
                continue
            if (base.key, prop.name) not in killing:
                unkillable.append((base.key, prop.name))
            for name in prop.faults:
                if (base.key, prop.name) not in by_fault.get(name, ()):
                    unbroken.append((base.key, prop.name, name))
    return Matrix(bases, found, tuple(unkillable), tuple(unbroken))


def _naming(bases: Iterable[Baseline]) -> dict[str, dict[str, list[str]]]:
    """Fault to configuration to the properties that name it."""
    found: dict[str, dict[str, list[str]]] = {}
    for base in bases:
        for prop in models.load(base.key).properties:
            if prop.name not in base.violated:
                for name in prop.faults:
                    found.setdefault(name, {}).setdefault(base.key, []).append(prop.name)
    return found

"""Checking one model: which engine, what is asked, and what the answer comes to.

The verdict of a result is one of the command line's exit codes. Violations come first; then what was not
searched to the end; then what holds for no good reason; then counts that are not the pinned ones.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import TextIO

from attrs import evolve, field, frozen

from checker import liveness, packed
from checker.limits import NO_LIMITS, Limits, Watch
from checker.model import Model, ModelError
from checker.properties import LeadsTo, Property
from checker.result import Result, Trace
from checker.table import Table

SMALL = 30_000
"""States up to which the packed engine is done before arrays would be."""


class Exit(IntEnum):
    """What a run of the checker comes to."""

    HOLDS = 0
    VIOLATED = 1
    USAGE = 2
    INCOMPLETE = 3
    VACUOUS = 4
    DIVERGED = 5
    DRIFTED = 6


WORST_FIRST = (Exit.VIOLATED, Exit.DIVERGED, Exit.INCOMPLETE, Exit.VACUOUS, Exit.DRIFTED, Exit.HOLDS)
"""Which of several verdicts is the verdict of all."""


@frozen
class Options:
    """How to check."""

    engine: str = "auto"
    """``packed``, ``frontier``, or ``auto``: packed, and frontier once that turns out to be large."""
    symmetric: bool = False
    sliced: bool = False
    """Leave out of the model what the properties asked about do not depend on."""
    limits: Limits = NO_LIMITS
    progress: TextIO | None = None
    stop_at: int = 0
    """Stop once so many properties are violated; 0 to go on."""
    live: bool = True
    """Whether to check liveness."""
    spill: str | None = None
    checkpoint: str | None = None
    resume: bool = False
    budget: int = 1 << 30
    """Bytes of visited states kept in memory before they are spilled."""


DEFAULTS = Options()


def asked(model: Model, names: Iterable[str]) -> Model:
    """The model with some of its properties, and the witnesses of those. Raises ModelError for unknown ones."""
    known = {prop.name: prop for prop in model.properties}
    kept: dict[str, Property] = {}
    for name in names:
        if name not in known:
            raise ModelError(f"{model.key} has no property {name!r}")
        kept[name] = known[name]
        if known[name].witness:
            kept[known[name].witness] = known[known[name].witness]
    return evolve(model, properties=tuple(kept.values()), violates=model.violates & kept.keys())


def check(model: Model, options: Options = DEFAULTS) -> Result:
    """Search a model and decide its properties. Raises ModelError for what cannot be done."""
    if options.sliced:
        from checker.slicing import cut

        model = cut(model, model.properties)
    watch = Watch(options.limits, options.progress)
    table = Table(model)
    result = _search(table, options, watch)
    lassos: dict[Property, Trace] = {}
    limit = result.limit
    graphs: liveness.Graphs = {}
    for prop in model.properties:
        if isinstance(prop, LeadsTo) and options.live and (not options.stop_at or not result.violations()):
            answer = liveness.check(model, prop, watch, table=table, graphs=graphs)
            if answer.lasso is not None:
                lassos[prop] = answer.lasso
            limit = limit or (answer.limit if answer.lasso is None else None)
    return evolve(result, lassos=lassos, limit=limit, seconds=watch.seconds)


def _search(table: Table, options: Options, watch: Watch) -> Result:
    on_disk = options.spill is not None or options.checkpoint is not None
    if options.engine == "packed" and on_disk:
        raise ModelError(
            "the packed engine keeps nothing on disk; spilling and checkpoints need the frontier engine"
        )
    if options.engine == "packed" or (options.engine == "auto" and not on_disk):
        limits = options.limits
        if options.engine == "auto":
            limits = evolve(limits, states=min(SMALL, limits.states or SMALL))
        first = Watch(limits, options.progress, watch.started)
        result = packed.search(table, first, symmetric=options.symmetric, stop_at=options.stop_at)
        large = result.limit == f"{SMALL:,} states" and options.limits.states != SMALL
        if options.engine == "packed" or not large:
            return result
    try:
        from checker.frontier import Disk, search
    except ImportError as error:
        raise ModelError(f"the frontier engine needs numpy ({error}); install agentd[checker]") from None
    from pathlib import Path

    disk = Disk(
        Path(options.spill) if options.spill else None,
        options.budget,
        Path(options.checkpoint) if options.checkpoint else None,
        options.resume,
    )
    return search(table, watch, symmetric=options.symmetric, stop_at=options.stop_at, disk=disk)


@frozen
class Verdict:
    """What one result comes to."""

    code: Exit
    unexpected: tuple[Property, ...] = ()
    """Violated properties that should hold."""
    expected: tuple[Property, ...] = ()
    """Violated properties that a counterfactual configuration exists to break."""
    unbroken: tuple[str, ...] = ()
    """Properties that it should break, and that hold."""
    unwitnessed: tuple[Property, ...] = ()
    idle: tuple[str, ...] = field(default=())
    """Events that never happen: their guards never let them."""


def judge(result: Result, *, counterfactual: bool = True) -> Verdict:
    """The verdict of a search. With `counterfactual` the violations that the configuration expects are right,
    and their absence is wrong; without, a violation is a violation."""
    violated = result.violations()
    meant = result.model.violates if counterfactual else frozenset[str]()
    unexpected = tuple(prop for prop in violated if prop.name not in meant)
    expected = tuple(prop for prop in violated if prop.name in meant)
    unbroken: tuple[str, ...] = ()
    unwitnessed: tuple[Property, ...] = ()
    idle: tuple[str, ...] = ()
    if result.complete:
        unbroken = tuple(sorted(meant - {prop.name for prop in violated}))
        unwitnessed = tuple(result.unwitnessed())
        idle = tuple(name for name, responses in result.coverage.items() if not responses)
    if unexpected or unbroken:
        code = Exit.VIOLATED
    elif not result.complete:
        code = Exit.INCOMPLETE
    elif unwitnessed or idle:
        code = Exit.VACUOUS
    else:
        code = Exit.HOLDS
    return Verdict(code, unexpected, expected, unbroken, unwitnessed, idle)


def worst(codes: Iterable[Exit]) -> Exit:
    """The verdict of several."""
    found = set(codes)
    return next((code for code in WORST_FIRST if code in found), Exit.HOLDS)

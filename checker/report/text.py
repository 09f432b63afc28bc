"""Reports for people: numbered steps, what each changes, and a line of numbers."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from checker.check import Verdict
from checker.model import Model
from checker.properties import Property
from checker.report.words import kind, say, say_change, verdict
from checker.result import Result, Trace

if TYPE_CHECKING:
    from checker.matrix import Matrix


def summary(result: Result) -> str:
    """One line: what was searched, how large it is, and how fast that was."""
    rate = result.transitions / result.seconds / 1e6 if result.seconds else 0.0
    end = "complete" if result.complete else f"stopped at {result.limit}"
    return (
        f"{result.model.key}: {result.states:,} states, {result.transitions:,} transitions "
        f"({result.generated:,} generated), depth {result.depth}, {end}; "
        f"{result.engine}, {result.calls:,} rule calls, {result.seconds:.2f} s, {rate:.1f} M/s"
    )


def steps(trace: Trace) -> Iterator[str]:
    """The lines of a trace: numbered steps, each with the response and with what it changes."""
    if not trace.steps:
        yield "  (the initial state)"
    for number, step in enumerate(trace.steps):
        if trace.loop == number:
            yield "  -- from here on, again and again:"
        answer = "" if step.response is None else f"  =>  {say(step.response)}"
        yield f"  {number + 1:>2}. {step.event.name}{answer}"
        if step.note:
            yield f"        !! {step.note}"
        for component, before, after in step.changes(trace.model):
            yield f"        {component.name}: {say_change(before, after)}"
    if trace.loop is not None and trace.loop >= len(trace.steps):
        yield "  -- and then nothing more, for ever"


def finding(prop: Property, result: Result, how: str) -> Iterator[str]:
    """A decided property with its trace."""
    yield f"{how}: {prop.name}"
    if prop.meaning:
        yield f"  {prop.meaning}"
    yield from steps(result.trace(prop))


def check(result: Result, judged: Verdict, drift: str | None = None) -> Iterator[str]:
    """The report of one configuration."""
    yield summary(result)
    for prop in judged.unexpected:
        yield from finding(prop, result, "VIOLATED")
    for prop in judged.expected:
        yield from finding(prop, result, "violated, as it must be here")
    for name in judged.unbroken:
        yield f"NOT BROKEN: {name}: this configuration exists to violate it"
    for prop in judged.unwitnessed:
        yield f"NEVER SEEN: {prop.name}: no reachable state or edge shows it"
    for name in judged.idle:
        yield f"NEVER HAPPENS: {name}"
    if drift:
        yield f"COUNTS DRIFTED: {drift}"


def describe(model: Model) -> Iterator[str]:
    """A model: what it is made of and what is asked of it."""
    yield f"{model.key}: {model.meaning}"
    if model.bounds:
        yield "bounds: " + ", ".join(f"{name} {say(value)}" for name, value in model.bounds.items())
    yield ""
    yield f"{len(model.components)} components"
    for component in model.components:
        meaning = f"  ({component.meaning})" if component.meaning else ""
        yield f"  {component.name} = {say(component.initial)}{meaning}"
    yield ""
    yield f"{len(model.events)} events"
    for event in model.events:
        yield f"  {event.name}  [{event.kind}]  reads {', '.join(event.reads) or 'nothing'}"
        if event.writes:
            yield f"      writes {', '.join(event.writes)}"
    yield ""
    yield f"{len(model.properties)} properties"
    for prop in model.properties:
        yield f"  {prop.name}  [{kind(prop)}]"
        if prop.meaning:
            yield f"      {prop.meaning}"
        if prop.witness:
            yield f"      reached: {prop.witness}"
        for name in prop.faults:
            yield f"      broken by: {name}"


def properties(result: Result) -> Iterator[str]:
    """One line for each property with its verdict."""
    for prop in result.model.properties:
        yield f"  {verdict(prop, result):<12} {prop.name}"


def coverage(result: Result) -> Iterator[str]:
    """For each event, the responses it was seen to give, with the number of footprints that gave it."""
    for name, responses in result.coverage.items():
        told = ", ".join(f"{say(response)} ({count})" for response, count in responses.items())
        yield f"  {name}: {told or 'never happens'}"


def kill_matrix(found: "Matrix") -> Iterator[str]:
    """The kill matrix: every fault with what notices it, then what nothing notices and what notices nothing."""
    from checker.matrix import Fate

    for row in found.rows:
        yield f"{row.fate.value:<9} {row.fault}"
        if row.fate is Fate.KILLED:
            by_config: dict[str, list[str]] = {}
            for key, name in row.killers:
                by_config.setdefault(key, []).append(name)
            for key, names in by_config.items():
                yield f"            {key}: {', '.join(names)}"
        elif row.explained:
            yield f"            explained: {row.explained}"
    yield ""
    killed = sum(row.fate is Fate.KILLED for row in found.rows)
    explained = sum(row.fate is not Fate.KILLED and bool(row.explained) for row in found.rows)
    share = 100 * killed / len(found.rows) if found.rows else 100.0
    yield f"{len(found.rows)} faults: {killed} killed ({share:.1f} %), {explained} explained"
    yield from _listed("faults that nothing notices", (row.fault for row in found.survivors()))
    yield from _listed(
        "properties that no fault breaks", (f"{key}: {name}" for key, name in found.unkillable)
    )
    yield from _listed(
        "faults that do not break the property naming them",
        (f"{key}: {name}: {fault}" for key, name, fault in found.unbroken),
    )


def _listed(what: str, items: Iterable[str]) -> Iterator[str]:
    told = list(items)
    if told:
        yield f"{what}:"
        yield from (f"  {item}" for item in told)

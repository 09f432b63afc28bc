"""What replay found, for people and for machines."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from checker.report import text
from checker.report.machine import trace_data

if TYPE_CHECKING:
    from checker.replay.edges import Replayed
    from checker.replay.run import Divergence


def lines(found: "Replayed") -> Iterator[str]:
    """The report of one model in one variant."""
    verdict = "DIVERGES" if found.divergences else "the daemon does what the model says"
    end = "" if found.complete else ", of the states nearest to the first"
    yield (
        f"{found.name}: {found.states:,} states, {found.edges:,} edges{end}; {found.runs:,} runs, "
        f"{found.steps:,} steps, {found.seconds:.2f} s: {verdict}"
    )
    if found.left_out:
        told = ", ".join(f"{count:,} of {kind}" for kind, count in sorted(found.left_out.items()))
        yield f"  not to be done to it: {told}"
    for one in found.divergences:
        yield f"  DIVERGES in {len(one.trace.steps)} steps:"
        yield from diverged(one)


def diverged(found: "Divergence") -> Iterator[str]:
    """A divergence: the steps that lead to it, and what differs after the last."""
    yield from text.steps(found.trace)
    for line in found.differences:
        yield f"     >> {line}"


def data(found: "Replayed") -> dict[str, Any]:
    """The same as data."""
    return {
        "model": found.key,
        "variant": found.variant or None,
        "states": found.states,
        "edges": found.edges,
        "complete": found.complete,
        "runs": found.runs,
        "steps": found.steps,
        "seconds": round(found.seconds, 6),
        "left_out": dict(found.left_out),
        "divergences": [divergence_data(one) for one in found.divergences],
    }


def divergence_data(found: "Divergence") -> dict[str, Any]:
    """A divergence as data."""
    return {
        "differences": list(found.differences),
        "shortest": found.shortest,
        "trace": trace_data(found.trace),
    }

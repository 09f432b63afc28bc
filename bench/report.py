"""What a run found, as text for a person and as JSON for a machine.

A *figure* is a set of samples of one thing, shown by its percentiles. A *ratio* is taken within each interleaved
pair of a measurement and its floor, and its median is quoted: whatever else the machine was doing then, it did to
both. A *count* has a value it must have; a run in which one differs has found a fault, and says so.

Percentiles are by nearest rank. Goals are shown beside what was reached, and decide nothing.
"""

import math
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

PERCENTILES: Final = (50, 90, 99)
_WIDTH: Final = 58


def percentile(samples: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of at least one sample."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@frozen
class Figure:
    """Samples of one thing, in `unit`."""

    name: str
    unit: str
    samples: tuple[float, ...]

    def summary(self) -> dict[str, Any]:
        """Its JSON."""
        shown = {f"p{percent}": percentile(self.samples, percent) for percent in PERCENTILES}
        return {
            "name": self.name,
            "unit": self.unit,
            "samples": len(self.samples),
            "min": min(self.samples),
            **shown,
            "max": max(self.samples),
        }


@frozen
class Goal:
    """The most or the least that a median may be to count as reached."""

    least: float | None = None
    most: float | None = None

    def reached(self, value: float) -> bool:
        """Whether `value` is within."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        return f">= {self.least:g}" if self.least is not None else f"<= {self.most:g}"


@frozen
class Ratio:
    """One quotient for each interleaved pair."""

    name: str
    quotients: tuple[float, ...]
    goal: Goal | None

    @property
    def median(self) -> float:
        """What is quoted."""
        return percentile(self.quotients, 50)

    def summary(self) -> dict[str, Any]:
        """Its JSON."""
        found: dict[str, Any] = {
            "name": self.name,
            "pairs": len(self.quotients),
            "median": self.median,
            "min": min(self.quotients),
            "max": max(self.quotients),
        }
        if self.goal is not None:
            found["goal"] = str(self.goal)
            found["reached"] = self.goal.reached(self.median)
        return found


@frozen
class Target:
    """One number, not a ratio, that has a goal: a median, or a percentile that its name gives."""

    name: str
    unit: str
    value: float
    goal: Goal

    def summary(self) -> dict[str, Any]:
        """Its JSON."""
        return {
            "name": self.name,
            "unit": self.unit,
            "value": self.value,
            "goal": str(self.goal),
            "reached": self.goal.reached(self.value),
        }


@frozen
class Count:
    """A number that is right or wrong."""

    name: str
    value: int
    expected: int | None

    @property
    def right(self) -> bool:
        """Whether it is what it must be."""
        return self.expected is None or self.value == self.expected

    def summary(self) -> dict[str, Any]:
        """Its JSON."""
        found: dict[str, Any] = {"name": self.name, "value": self.value}
        if self.expected is not None:
            found["expected"] = self.expected
        return found


def this_machine() -> dict[str, Any]:
    """What the run was on: enough to compare two reports, nothing that identifies the machine."""
    model = "unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "processors": len(os.sched_getaffinity(0)),
        "processor": model,
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": platform.release(),
        "client_python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


@define
class Report:
    """Everything one run found. `settings` are what the run was asked for."""

    benchmark: str
    settings: dict[str, Any]
    version: str = "unknown"
    """The daemon's, as its health answer gives it."""
    figures: list[Figure] = field(factory=list)
    ratios: list[Ratio] = field(factory=list)
    targets: list[Target] = field(factory=list)
    counts: list[Count] = field(factory=list)
    notes: list[str] = field(factory=list)
    machine: dict[str, Any] = field(factory=this_machine)

    def figure(self, name: str, unit: str, samples: Sequence[float], goal: Goal | None = None) -> None:
        """Add samples; a `goal` is about their median."""
        self.figures.append(Figure(name, unit, tuple(samples)))
        if goal is not None:
            self.targets.append(Target(name, unit, percentile(samples, 50), goal))

    def tail(self, name: str, unit: str, samples: Sequence[float], goal: Goal) -> None:
        """Add samples whose 99th percentile has a goal."""
        self.figures.append(Figure(name, unit, tuple(samples)))
        self.targets.append(Target(f"{name}, p99", unit, percentile(samples, 99), goal))

    def ratio(self, name: str, pairs: Sequence[tuple[float, float]], goal: Goal | None = None) -> None:
        """Add the quotients of ``(measured, floor)`` pairs."""
        self.ratios.append(Ratio(name, tuple(measured / floor for measured, floor in pairs), goal))

    def count(self, name: str, value: int, expected: int | None = None) -> None:
        """Add a count, and what it must be, if anything."""
        self.counts.append(Count(name, value, expected))

    def note(self, text: str) -> None:
        """Add a line of prose."""
        self.notes.append(text)

    @property
    def right(self) -> bool:
        """Whether every count is what it must be."""
        return all(count.right for count in self.counts)

    def as_json(self) -> dict[str, Any]:
        """The whole report, of plain values."""
        return {
            "benchmark": self.benchmark,
            "version": self.version,
            "settings": self.settings,
            "machine": self.machine,
            "figures": [figure.summary() for figure in self.figures],
            "ratios": [ratio.summary() for ratio in self.ratios],
            "targets": [target.summary() for target in self.targets],
            "counts": [count.summary() for count in self.counts],
            "right": self.right,
            "notes": self.notes,
        }

    def as_text(self) -> str:
        """The whole report, for a terminal."""
        asked = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        shown = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        lines = [f"{self.benchmark}: agentd {self.version}; {asked}", f"on {shown}", ""]
        if self.figures:
            lines.append(f"{'':{_WIDTH}} {'p50':>10} {'p90':>10} {'p99':>10} {'max':>10}")
            lines += [_figure_line(figure) for figure in self.figures]
        if self.ratios:
            lines += [
                "",
                f"{'ratio, median of pairs':{_WIDTH}} {'median':>10} {'min':>10} {'max':>10} {'goal':>10}",
            ]
            lines += [_ratio_line(ratio) for ratio in self.ratios]
        if self.targets:
            lines += ["", *(_target_line(target) for target in self.targets)]
        if self.counts:
            lines += ["", *(_count_line(count) for count in self.counts)]
        if self.notes:
            lines += ["", *self.notes]
        return "\n".join(lines) + "\n"

    def as_markdown(self) -> str:
        """Rows for ``docs/performance.md``: everything that has a goal, and everything that was counted."""
        rows = ["| Measured | Reached | Goal |", "| --- | --- | --- |"]
        for ratio in self.ratios:
            spread = f"{_number(min(ratio.quotients))} to {_number(max(ratio.quotients))}"
            goal = "" if ratio.goal is None else f"{_sign(ratio.goal)} × floor"
            rows.append(
                f"| {ratio.name} | {_number(ratio.median)} ({spread}, {len(ratio.quotients)} pairs) | {goal} |"
            )
        for target in self.targets:
            goal = f"{_sign(target.goal)} {target.unit}"
            rows.append(f"| {target.name} | {_number(target.value)} {target.unit} | {goal} |")
        for count in self.counts:
            if count.expected is not None:
                rows.append(f"| {count.name} | {count.value} | {count.expected} |")
        return "\n".join(rows) + "\n"


def _sign(goal: Goal) -> str:
    return str(goal).replace(">=", "≥").replace("<=", "≤")


def _figure_line(figure: Figure) -> str:
    summary = figure.summary()
    label = f"{figure.name} [{figure.unit}, n={len(figure.samples)}]"
    cells = (summary["p50"], summary["p90"], summary["p99"], summary["max"])
    return f"{label:{_WIDTH}} " + " ".join(f"{_number(cell):>10}" for cell in cells)


def _ratio_line(ratio: Ratio) -> str:
    label = f"{ratio.name} [n={len(ratio.quotients)}]"
    cells = " ".join(
        f"{_number(cell):>10}" for cell in (ratio.median, min(ratio.quotients), max(ratio.quotients))
    )
    goal = "" if ratio.goal is None else f" {ratio.goal!s:>10}  {_verdict(ratio.goal, ratio.median)}"
    return f"{label:{_WIDTH}} {cells}{goal}"


def _target_line(target: Target) -> str:
    label = f"{target.name} [{target.unit}]"
    cells = f"{_number(target.value):>10} {'':>10} {'':>10} {target.goal!s:>10}"
    return f"{label:{_WIDTH}} {cells}  {_verdict(target.goal, target.value)}"


def _count_line(count: Count) -> str:
    told = "" if count.expected is None else f" of {count.expected}"
    return f"{count.name:{_WIDTH}} {count.value:>10}{told}{'' if count.right else '  WRONG'}"


def _verdict(goal: Goal, value: float) -> str:
    return "reached" if goal.reached(value) else "not reached"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"

"""``python -m bench checker``: what the model checker costs, from an interpreter's start to its verdict.

Every run is a process of its own, as CI starts it: the default configurations of all models, the wide configuration
by both engines, and when asked the whole mutant matrix, the replay of every edge against the daemon in memory, and the
product of a hundred million states. Wall-clock time
is what somebody waits; beside it stands processor time, which other work on the machine disturbs less. The floor of the
first is an interpreter that starts and imports what the checker is made of.
"""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from agentd import __version__
from bench.report import Goal, Report

REPOSITORY: Final = Path(__file__).resolve().parent.parent
WIDE: Final = "bootstrap_exec:wide"
LARGE: Final = "product:large"
FLOOR: Final = ("-c", "import argparse, ast, json, attrs")


@frozen
class Ran:
    """One process that has ended."""

    status: int
    output: str
    seconds: float
    cpu: float
    """Seconds of processor time, of its own children too."""
    resident: int
    """The most it had in memory, in bytes."""


def run_python(python: str, *arguments: str) -> Ran:
    """Run an interpreter to its end; it is ended with this one."""
    with tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        child = subprocess.Popen([python, *arguments], cwd=REPOSITORY, stdout=output)
        try:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if child.returncode is None:
                child.kill()
                child.wait()
        seconds = time.perf_counter() - began
        output.seek(0)
        cpu = usage.ru_utime + usage.ru_stime
        return Ran(child.returncode, output.read(), seconds, cpu, usage.ru_maxrss * 1024)


def _check(python: str, *arguments: str) -> tuple[Ran, list[dict[str, Any]]]:
    """A check, and what it says of each configuration."""
    ran = run_python(python, "-m", "checker", "check", *arguments, "--format", "json")
    found: list[dict[str, Any]] = json.loads(ran.output)["configurations"] if ran.output else []
    return ran, found


def run(python: str, rounds: int, faults: bool, replayed: bool, large: bool) -> Report:
    """`rounds` default checks and wide searches; the matrix with `faults`, replay with `replayed`, the large product
    with `large`."""
    report = Report("checker", {"rounds": rounds}, __version__)
    _default(report, python, rounds)
    _wide(report, python, rounds)
    if faults:
        _matrix(report, python)
    if replayed:
        _replay(report, python)
    if large:
        _product(report, python)
    return report


def _default(report: Report, python: str, rounds: int) -> None:
    pairs, walls, cpus, right = [], [], [], 0
    for _ in range(rounds):
        floor = run_python(python, *FLOOR)
        ran = run_python(python, "-m", "checker", "check")
        pairs.append((ran.cpu, floor.cpu))
        walls.append(ran.seconds)
        cpus.append(ran.cpu)
        right += ran.status == 0
    states = sum(one["states"] for one in _check(python)[1])
    report.figure("default check of all models", "s", walls, Goal(most=2.0))
    report.figure("its processor time", "s", cpus)
    report.ratio("processor time of the default check / of a bare interpreter", pairs)
    report.count("default checks in which everything holds", right, rounds)
    report.count("states of the default configurations", states)


def _wide(report: Report, python: str, rounds: int) -> None:
    rates, pairs, right = [], [], 0
    for _ in range(rounds):
        frontier, packed = (
            _check(python, WIDE, "--engine", engine)[1][0] for engine in ("frontier", "packed")
        )
        fast, slow = (one["transitions"] / one["seconds"] for one in (frontier, packed))
        rates.append(fast / 1e6)
        pairs.append((fast, slow))
        right += frontier["states"] == packed["states"] and frontier["exit"] == packed["exit"] == 0
    report.figure(f"transitions/s of the frontier engine, {WIDE}", "M/s", rates, Goal(least=5.0))
    report.ratio("speed of the frontier engine / of the packed engine", pairs)
    report.count("wide searches in which both engines agree", right, rounds)


def _matrix(report: Report, python: str) -> None:
    ran = run_python(python, "-m", "checker", "mutants", "--jobs", "2")
    report.figure("whole mutant matrix, 2 processes", "s", [ran.seconds], Goal(most=60.0))
    report.figure("its processor time", "s", [ran.cpu])
    report.count("exit status of the matrix", ran.status, 0)
    report.note(next((line for line in ran.output.splitlines() if " faults: " in line), "no matrix"))


def _replay(report: Report, python: str) -> None:
    ran = run_python(python, "-m", "checker", "replay", "--format", "json")
    told: dict[str, Any] = json.loads(ran.output) if ran.output else {"replayed": []}
    report.figure("every edge replayed in memory", "s", [ran.seconds], Goal(most=30.0))
    report.figure("its processor time", "s", [ran.cpu])
    report.count("exit status of replay", ran.status, 0)
    report.count("edges replayed", sum(one["edges"] for one in told["replayed"]))
    report.count("steps that took", sum(one["steps"] for one in told["replayed"]))


def _product(report: Report, python: str) -> None:
    ran, found = _check(python, LARGE, "--engine", "frontier")
    one: dict[str, Any] = found[0] if found else {"states": 0, "seconds": 1.0, "transitions": 0}
    report.figure(f"{LARGE}, whole search", "s", [one["seconds"]], Goal(most=600.0))
    report.figure("its transitions/s", "M/s", [one["transitions"] / one["seconds"] / 1e6])
    report.figure("its memory", "GiB", [ran.resident / 2**30], Goal(most=4.0))
    report.count(f"exit status of {LARGE}", ran.status, 0)
    report.count(f"states of {LARGE}", one["states"])

"""``checker schedules``: try the orders in which what happens can reach the real handlers.

Exit codes: 0 all that were tried are right, 1 one is wrong, 2 usage, 3 there was no time for all that was asked for.
"""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from checker.commands.arguments import count, positive, seconds
from checker.commands.output import write
from checker.model import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from checker.check import Exit
    from checker.schedules.search import Ran, Searched


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser(
        "schedules", help="try the orders in which what happens can reach the real handlers"
    )
    command.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="by default, all of them")
    command.add_argument("--list", action="store_true", help="say what there is")
    command.add_argument(
        "--bound",
        type=count,
        default=3,
        metavar="N",
        help="deviations from the usual order, all of them (3)",
    )
    command.add_argument(
        "--random",
        type=count,
        default=200,
        metavar="N",
        help="schedules drawn at random, beyond the bound (200)",
    )
    command.add_argument("--seed", type=int, default=0, help="of those (0)")
    command.add_argument(
        "--seconds", type=seconds, metavar="S", help="stop after this time, for each scenario"
    )
    command.add_argument(
        "--schedule", metavar="CHOICES", help="run this one schedule, as a report names it: 0.0.2.1"
    )
    command.add_argument("--jobs", type=positive, default=None, help="processes; by default one a processor")
    command.add_argument("--format", choices=("text", "json"), default="text")


def run(given: argparse.Namespace) -> "Exit":
    """Try them. Raises ModelError for an unknown scenario, or choices that it does not offer."""
    from checker.check import Exit, worst
    from checker.pool import each
    from checker.schedules import search
    from checker.schedules.scenarios import SCENARIOS, scenario

    chosen = [scenario(name) for name in given.scenarios] or list(SCENARIOS.values())
    if given.list:
        write(f"{one.name}: {one.about}" for one in chosen)
        return Exit.HOLDS
    if given.schedule is not None:
        if len(given.scenarios) != 1:
            raise ModelError("a schedule is of one scenario; name it")
        ran = search.run(chosen[0], search.parse(given.schedule))
        _tell(given, [_data_of(ran)], _of(ran))
        return Exit.VIOLATED if ran.wrong else Exit.HOLDS

    def work(number: int) -> "Searched":
        return search.search(chosen[number], given.bound, given.random, given.seed, given.seconds)

    found = list(each(work, len(chosen), given.jobs))
    _tell(given, list(map(_data, found)), (line for one in found for line in _lines(one, given)))
    codes = [Exit.HOLDS]
    codes += [Exit.VIOLATED for one in found if one.failed is not None]
    codes += [Exit.INCOMPLETE for one in found if not one.complete]
    return worst(codes)


def _tell(given: argparse.Namespace, data: "list[dict[str, Any]]", lines: "Iterator[str]") -> None:
    if given.format == "json":
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        write(lines)


def _lines(found: "Searched", given: argparse.Namespace) -> "Iterator[str]":
    end = "" if found.complete else ", and there was no time for more"
    verdict = "WRONG" if found.failed else "right"
    extent = f"all with up to {found.deviations} deviations, {found.sampled} drawn with seed {given.seed}"
    if found.exhausted:
        extent = "all there are"
    yield (
        f"{found.scenario}: {found.schedules:,} schedules, {found.steps:,} steps, {extent}{end}: {verdict}"
    )
    if found.failed is not None:
        yield from _of(found.failed)


def _of(ran: "Ran") -> "Iterator[str]":
    from checker.schedules.search import as_text

    yield from ran.transcript
    for line in ran.wrong:
        yield f"    >> {line}"
    yield f"  again: python -m checker schedules {ran.scenario} --schedule {as_text(ran.choices)}"


def _data(found: "Searched") -> "dict[str, Any]":
    return {
        "scenario": found.scenario,
        "schedules": found.schedules,
        "steps": found.steps,
        "bound": found.deviations,
        "exhausted": found.exhausted,
        "random": found.sampled,
        "complete": found.complete,
        "failed": None if found.failed is None else _data_of(found.failed),
    }


def _data_of(ran: "Ran") -> "dict[str, Any]":
    from checker.schedules.search import as_text

    return {
        "scenario": ran.scenario,
        "schedule": as_text(ran.choices),
        "transcript": list(ran.transcript),
        "wrong": list(ran.wrong),
    }

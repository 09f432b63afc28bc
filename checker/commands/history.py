"""``checker history``: whether what several callers saw at once can be explained by one order of it all.

Exit codes: 0 it can, 1 it cannot, 2 usage, 3 unknown: the budget was used up, 4 there is nothing to explain.
"""

import argparse
import os
from typing import TYPE_CHECKING, Any

from checker.commands.arguments import add_daemon, positive, token
from checker.commands.output import write
from checker.model import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from checker.check import Exit
    from checker.histories.history import History


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser(
        "history", help="record what several callers see of a daemon at once, and judge it"
    )
    command.add_argument("files", nargs="*", metavar="FILE", help="histories that were recorded")
    command.add_argument(
        "--budget", type=positive, metavar="N", help="states to look at for each exec (1,000,000)"
    )
    command.add_argument("--record", action="store_true", help="record one from the daemon at --url")
    add_daemon(command)
    command.add_argument("--clients", type=positive, default=4, metavar="N", help="callers at once (4)")
    command.add_argument("--operations", type=positive, default=100, metavar="N", help="of each caller (100)")
    command.add_argument("--execs", type=positive, default=40, metavar="N", help="execs they are about (40)")
    command.add_argument("--seed", type=int, default=0, help="of what they ask for (0)")
    command.add_argument("--output", metavar="FILE", help="keep what is recorded there")


def run(given: argparse.Namespace) -> "Exit":
    """Judge. Raises ModelError for what is no history, or cannot be recorded; OSError."""
    from checker.check import Exit
    from checker.check import worst as worst_of
    from checker.histories.linear import BUDGET, Verdict
    from checker.histories.report import judge_all, report, worst

    codes = {
        Verdict.LINEARIZABLE: Exit.HOLDS,
        Verdict.NOT: Exit.VIOLATED,
        Verdict.UNKNOWN: Exit.INCOMPLETE,
    }
    budget = given.budget or BUDGET
    found = []
    for recorded in _histories(given):
        judged = judge_all(recorded, budget)
        write(report(recorded, judged, budget))
        found.append(codes[worst(judged)] if judged else Exit.VACUOUS)
    return worst_of(found)


def _histories(given: argparse.Namespace) -> "Iterator[History]":
    from checker.histories import history

    if given.record == bool(given.files):
        raise ModelError("history needs either files or --record")
    if not given.record:
        for path in given.files:
            yield history.load(path)
        return
    if not given.url:
        raise ModelError("--record needs --url")
    if given.output and not os.path.isdir(os.path.dirname(os.path.abspath(given.output))):
        raise ModelError(f"{given.output}: there is no such directory")
    from checker.histories.record import Workload, record

    recorded = record(
        Workload(
            given.url,
            token(given),
            given.clients,
            given.operations,
            given.seed,
            given.execs,
            given.deadline,
        )
    )
    if given.output:
        history.save(recorded, given.output)
    yield recorded

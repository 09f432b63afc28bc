"""``checker pin``: pin the counts of complete searches, which every check compares with its own."""

import argparse
from typing import TYPE_CHECKING, Any

from checker.commands.output import keys, write
from checker.model import ModelError

if TYPE_CHECKING:
    from checker.check import Exit


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser("pin", help="pin the counts of complete searches")
    command.add_argument("models", nargs="*", metavar="MODEL[:CONFIG]", help="by default, all of them")


def run(given: argparse.Namespace) -> "Exit":
    """Pin them. Raises ModelError when a search is cut short; OSError."""
    from checker import models, pins
    from checker.check import Exit, Options, check
    from checker.report import text

    results = [check(models.load(key), Options(live=False)) for key in keys(given.models)]
    incomplete = [result.model.key for result in results if not result.complete]
    if incomplete:
        raise ModelError(f"{', '.join(incomplete)}: not searched to the end, so nothing is pinned")
    pins.save(results)
    write(text.summary(result) for result in results)
    return Exit.HOLDS

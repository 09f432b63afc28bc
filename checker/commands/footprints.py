"""``checker footprints``: try whether events depend on what they do not read.

Exit codes: 0 they do not, 1 one does, 2 usage.
"""

import argparse
from typing import TYPE_CHECKING, Any

from checker.commands.output import keys, write

if TYPE_CHECKING:
    from checker.check import Exit


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser("footprints", help="try whether events depend on what they do not read")
    command.add_argument("models", nargs="*", metavar="MODEL[:CONFIG]", help="by default, all of them")
    command.add_argument("--seed", type=int, default=0)


def run(given: argparse.Namespace) -> "Exit":
    """Try. Raises ModelError for unknown models."""
    from checker import footprints, models
    from checker.check import Exit

    code = Exit.HOLDS
    for key in keys(given.models):
        model = models.load(key)
        found = footprints.check(model, given.seed)
        write([f"{model.key}: {found.tried:,} runs of events, {len(found.wrong)} wrong"])
        write(f"  WRONG: {line}" for line in found.wrong)
        write(f"  {event!r} reads {name} to no effect" for event, name in found.idle_reads)
        if found.wrong:
            code = Exit.VIOLATED
    return code

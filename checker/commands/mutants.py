"""``checker mutants``: plant faults in the rules and see what notices them.

Exit codes: 0 everything is noticed or explained, 1 a fault survives, 2 usage, 4 nothing breaks some property.
"""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from checker.commands.arguments import add_workers, workers
from checker.commands.output import write

if TYPE_CHECKING:
    from checker.check import Exit


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser("mutants", help="plant faults in the rules and see what notices them")
    command.add_argument("models", nargs="*", metavar="MODEL[:CONFIG]", help="by default, all of them")
    command.add_argument(
        "--seeded", action="store_true", help="only faults with a name, not the automatic ones"
    )
    command.add_argument(
        "--everything",
        action="store_true",
        help="put faults with a name to every property, not to those naming it",
    )
    add_workers(command)
    command.add_argument("--progress", action="store_true", help="say how many faults are done")


def run(given: argparse.Namespace) -> "Exit":
    """Plant them. Raises ModelError for unknown models, or one that violates something without any fault."""
    from checker.check import Exit
    from checker.matrix import matrix
    from checker.report import text

    def tell(done: int, total: int) -> None:
        sys.stderr.write(f"\r{done} of {total} faults")
        sys.stderr.flush()

    with workers(given) as fleet:
        found = matrix(
            given.models or None,
            automatic=not given.seeded,
            everything=given.everything,
            jobs=given.jobs,
            tell=tell if given.progress else None,
            fleet=fleet,
        )
    write(text.kill_matrix(found))
    if found.survivors():
        return Exit.VIOLATED
    return Exit.VACUOUS if found.unkillable or found.unbroken else Exit.HOLDS

"""``checker oracle``: write a model for Spin or TLC, so that somebody else searches it.

Exit codes: 0 written, 2 usage, 3 written, but only of the states nearest to the first.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checker.commands.arguments import positive
from checker.model import ModelError

if TYPE_CHECKING:
    from checker.check import Exit


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser("oracle", help="write a model for Spin or TLC, to have it searched by them")
    command.add_argument("model", metavar="MODEL[:CONFIG]")
    command.add_argument("--format", choices=("promela", "tla"), default="promela")
    command.add_argument(
        "--output", metavar="DIR", default=".", help="where its two files go; by default here"
    )
    command.add_argument(
        "--states", type=positive, default=200_000, metavar="N", help="of the graph, so many (200,000)"
    )


def run(given: argparse.Namespace) -> "Exit":
    """Write it. Raises ModelError for an unknown model or one that cannot be written; OSError."""
    from checker import models
    from checker.check import Exit
    from checker.oracle.promela import promela
    from checker.oracle.tables import tables
    from checker.oracle.tla import tla

    model = models.load(given.model)
    found = tables(model, given.states)
    name = f"{model.name}_{model.config}"
    try:
        files = promela(found, name) if given.format == "promela" else tla(found, name)
    except OverflowError as reason:
        raise ModelError(f"{model.key}: {reason}") from None
    directory = Path(given.output)
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (directory / file).write_text(text)
        sys.stdout.write(f"{directory / file}\n")
    if found.complete:
        return Exit.HOLDS
    sys.stderr.write(f"checker: incomplete: {found.states:,} states, and there are more\n")
    return Exit.INCOMPLETE

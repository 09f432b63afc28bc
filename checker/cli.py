"""The command line of the checker.

Exit codes: 0 holds, 1 violated, 2 usage, 3 incomplete, 4 vacuous or unkillable, 5 replay divergence, 6 pinned
count drift. Bad usage is one line on standard error.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from checker.check import Exit
from checker.commands import COMMANDS
from checker.model import ModelError


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(Exit.USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="checker", description="A model checker over the rules of agentd.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for module in COMMANDS.values():
        module.add(commands)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    try:
        given = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        return int(COMMANDS[given.command].run(given))
    except BrokenPipeError:
        # Whoever read the report has seen enough; nothing more can be written, not even on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.HOLDS)
    except (ModelError, OSError) as error:
        sys.stderr.write(f"checker: {error}\n")
        return int(Exit.USAGE)

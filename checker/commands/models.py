"""``checker models``: list models and configurations."""

import argparse
from typing import TYPE_CHECKING, Any

from checker.commands.output import write

if TYPE_CHECKING:
    from checker.check import Exit


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    commands.add_parser("models", help="list models and configurations")


def run(given: argparse.Namespace) -> "Exit":
    """List them."""
    from checker import models
    from checker.check import Exit

    for name in models.MODULES:
        for config, how in models.configs(name).items():
            write([f"{name}:{config}" + ("" if how.default else "  (large: only when named, or with --all)")])
    return Exit.HOLDS

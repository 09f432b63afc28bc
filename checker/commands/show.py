"""``checker show``: describe a model, or the run that decides a property of it."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from checker.commands.output import write
from checker.model import ModelError

if TYPE_CHECKING:
    from checker.check import Exit


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser("show", help="describe a model, or the run that decides a property of it")
    command.add_argument("model", metavar="MODEL[:CONFIG]")
    command.add_argument("property", nargs="?", metavar="PROPERTY")
    command.add_argument("--format", choices=("text", "json", "mermaid"), default="text")


def run(given: argparse.Namespace) -> "Exit":
    """Show it. Raises ModelError for an unknown model or property."""
    from checker import models
    from checker.check import Exit, asked, check
    from checker.report import text

    model = models.load(given.model)
    if given.property is None:
        write(text.describe(model))
        return Exit.HOLDS
    prop = next((prop for prop in model.properties if prop.name == given.property), None)
    if prop is None:
        raise ModelError(f"{model.key} has no property {given.property!r}")
    result = check(asked(model, [prop.name]))
    decided = next((p for p in (*result.violations(), *result.witnessed()) if p.name == prop.name), None)
    if decided is None:
        from checker.report.words import verdict

        write([f"{prop.name}: {verdict(result.model.properties[0], result)}, so there is no run to show"])
        return Exit.HOLDS
    trace = result.trace(decided)
    if given.format == "text":
        write(text.finding(decided, result, "witness" if decided in result.witnessed() else "violated"))
    elif given.format == "mermaid":
        from checker.report.mermaid import diagram

        sys.stdout.write(diagram(trace, decided.name))
    else:
        import json

        from checker.report.machine import trace_data

        sys.stdout.write(json.dumps(trace_data(trace), indent=2) + "\n")
    return Exit.HOLDS

"""``checker slice``: a part of a model's state graph, to look at or to walk in.

Exit codes: 0 written, 2 there is no such slice, 3 written, but not all of what was asked for.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checker.commands.arguments import positive

if TYPE_CHECKING:
    from checker.check import Exit
    from checker.report.slices import Slice

FORMATS = ("svg", "dot", "html", "json")


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser(
        "slice", help="draw a part of a model's states, or make a page to walk in it"
    )
    command.add_argument("model", metavar="MODEL[:CONFIG]")
    command.add_argument(
        "what", metavar="WHAT", help="all, property:NAME, components:A,B (classes of states) or run:PROPERTY"
    )
    command.add_argument("--format", choices=FORMATS, default="svg")
    command.add_argument("--most", type=positive, default=200, metavar="N", help="states there may be in it")
    command.add_argument("--output", metavar="FILE", help="instead of standard output")


def run(given: argparse.Namespace) -> "Exit":
    """Write the slice. Raises ModelError when there is none, OSError when it cannot be written."""
    from checker import models
    from checker.check import Exit
    from checker.report.slices import take

    part = take(models.load(given.model), given.what, given.most)
    report = _drawn(part, given.format).encode()
    if given.output:
        Path(given.output).write_bytes(report)
    else:
        # All of these formats are UTF-8, whatever the terminal is.
        sys.stdout.buffer.write(report)
        sys.stdout.flush()
    if part.complete:
        return Exit.HOLDS
    sys.stderr.write(f"checker: incomplete: {part.note}\n")
    return Exit.INCOMPLETE


def _drawn(part: "Slice", how: str) -> str:
    if how == "dot":
        from checker.report.dot import dot

        return dot(part)
    if how == "svg":
        from checker.report.svg import svg

        return svg(part)
    if how == "html":
        from checker.report.explorer import page

        return page(part)
    import json

    from checker.report.slice_data import slice_data

    return json.dumps(slice_data(part), indent=2) + "\n"

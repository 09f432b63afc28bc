"""``checker replay``: do to the daemon, in memory, what the models say, and compare.

Exit codes: 0 the daemon does what the models say, 2 usage, 3 a graph was not replayed whole, 5 it does something else.
"""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from checker.commands.arguments import add_workers, positive, workers
from checker.commands.output import tell_replayed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from checker.check import Exit
    from checker.replay.edges import Replayed

MOST_STATES = 20_000


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser(
        "replay", help="do to the daemon in memory what the models say, and compare"
    )
    command.add_argument("models", nargs="*", metavar="MODEL[:CONFIG]", help="by default, all that can be")
    command.add_argument(
        "--trace",
        action="append",
        default=[],
        metavar="FILE",
        help="replay only this run, as `show --format json` writes it; may be given again",
    )
    command.add_argument(
        "--states", type=positive, default=MOST_STATES, metavar="N", help="of a graph, replay so many"
    )
    command.add_argument(
        "--whole",
        action="store_true",
        help="also what is the same but for names, or for what whoever does it cannot see",
    )
    add_workers(command)
    command.add_argument("--format", choices=("text", "json"), default="text")


def run(given: argparse.Namespace) -> "Exit":
    """Replay. Raises ModelError for what cannot be replayed."""
    return tell_replayed(_replayed(given), given.format)


def _replayed(given: argparse.Namespace) -> "Iterator[Replayed]":
    from checker.replay import edges, traces
    from checker.replay.adapters import ADAPTERS, lacks

    if given.trace:
        for path in given.trace:
            yield from traces.replay(path)
        return
    if not given.models:
        for model in ADAPTERS:
            lacking = lacks(model)
            if lacking is not None:
                sys.stderr.write(f"{model} is left out: it needs agentd[{lacking}]\n")
    with workers(given) as fleet:
        extent = edges.Extent(given.states, not given.whole)
        yield from edges.replay(given.models or edges.replayable(), extent, given.jobs, fleet)

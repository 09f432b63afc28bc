"""``checker conform``: run the models against a daemon on a socket, of whoever made it.

Exit codes: 0 it does what the models say, 2 usage, 3 not all of a graph was tried, 5 it does something else.
"""

import argparse
from typing import TYPE_CHECKING, Any

from checker.commands.arguments import add_daemon, token
from checker.commands.output import tell_replayed
from checker.model import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from checker.check import Exit
    from checker.replay.edges import Replayed


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser("conform", help="run the models against a daemon on a socket, any daemon")
    command.add_argument("models", nargs="*", metavar="MODEL[:CONFIG]", help="by default, all that can be")
    add_daemon(command)
    command.add_argument(
        "--spawn",
        action="store_true",
        help="start a fresh daemon of this installation for each witness of a model, instead of --url",
    )
    command.add_argument("--format", choices=("text", "json"), default="text")


def run(given: argparse.Namespace) -> "Exit":
    """Run them. Raises ModelError for what cannot be tried."""
    return tell_replayed(_tried(given), given.format)


def _tried(given: argparse.Namespace) -> "Iterator[Replayed]":
    from checker.replay import conform

    if given.spawn == bool(given.url):
        raise ModelError("conform needs either --url or --spawn")
    if given.spawn:
        yield from conform.witnesses(given.models, given.deadline)
    else:
        yield from conform.every_edge(given.url, token(given), given.models, given.deadline)

"""``checker conform``: run the models against a daemon on a socket, of whoever made it.

Exit codes: 0 it does what the models say, 2 usage, 3 not all of a graph was tried, 5 it does something else.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checker.commands.arguments import seconds
from checker.model import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from checker.check import Exit
    from checker.replay.edges import Replayed

TOKEN_VARIABLE = "AGENTD_TOKEN"


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
    command = commands.add_parser("conform", help="run the models against a daemon on a socket, any daemon")
    command.add_argument("models", nargs="*", metavar="MODEL[:CONFIG]", help="by default, all that can be")
    command.add_argument("--url", metavar="URL", help="where the daemon is: http://HOST:PORT")
    command.add_argument(
        "--token",
        metavar="T",
        help=f"the token it holds, or is to be given; better in {TOKEN_VARIABLE}, which nobody can list",
    )
    command.add_argument("--token-file", metavar="FILE", help="a file with the token")
    command.add_argument(
        "--spawn",
        action="store_true",
        help="start a fresh daemon of this installation for each witness of a model, instead of --url",
    )
    command.add_argument(
        "--deadline", type=seconds, default=30.0, metavar="S", help="seconds an answer may take (30)"
    )
    command.add_argument("--format", choices=("text", "json"), default="text")


def run(given: argparse.Namespace) -> "Exit":
    """Run them. Raises ModelError for what cannot be tried."""
    from checker.check import Exit, worst
    from checker.report.replayed import data, lines

    codes, found = [Exit.HOLDS], []
    for one in _tried(given):
        if one.divergences:
            codes.append(Exit.DIVERGED)
        elif not one.complete:
            codes.append(Exit.INCOMPLETE)
        if given.format == "json":
            found.append(data(one))
        else:
            sys.stdout.writelines(f"{line}\n" for line in lines(one))
            sys.stdout.flush()
    code = worst(codes)
    if given.format == "json":
        sys.stdout.write(json.dumps({"exit": int(code), "replayed": found}, indent=2) + "\n")
    return code


def _tried(given: argparse.Namespace) -> "Iterator[Replayed]":
    from checker.replay import conform

    if given.spawn == bool(given.url):
        raise ModelError("conform needs either --url or --spawn")
    if given.spawn:
        yield from conform.witnesses(given.models, given.deadline)
    else:
        yield from conform.every_edge(given.url, token(given), given.models, given.deadline)


def token(given: argparse.Namespace) -> bytes:
    """The token that was given. Raises ModelError when none was; OSError."""
    if given.token_file:
        found = Path(given.token_file).read_bytes().strip()
    else:
        found = (given.token or os.environ.get(TOKEN_VARIABLE, "")).encode()
    if not found:
        raise ModelError(f"{given.command} needs the token: --token, --token-file or {TOKEN_VARIABLE}")
    return bytes(found)

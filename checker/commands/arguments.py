"""Values of options that several commands take."""

import os
from argparse import ArgumentParser, Namespace
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from checker.model import ModelError

if TYPE_CHECKING:
    from checker.fleet import Fleet

TOKEN_VARIABLE = "AGENTD_TOKEN"
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def positive(value: str) -> int:
    """A whole number, at least 1."""
    number = int(value)
    if number <= 0:
        raise ValueError
    return number


def count(value: str) -> int:
    """A whole number, not less than nothing."""
    number = int(value)
    if number < 0:
        raise ValueError
    return number


def seconds(value: str) -> float:
    """A time, more than nothing and less than for ever."""
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError
    return number


def size(value: str) -> int:
    """A number of bytes, with K, M or G for powers of 1024."""
    unit = _UNITS.get(value[-1:].upper(), 1)
    return positive(value[:-1]) * unit if unit > 1 else positive(value)


# What argparse says of a value these refuse: "invalid <name> value".
positive.__name__ = "positive integer"
count.__name__ = "number"
seconds.__name__ = "number of seconds"
size.__name__ = "number of bytes"


def add_daemon(command: ArgumentParser) -> None:
    """Declare which daemon is meant, and how patient a command is with it."""
    command.add_argument("--url", metavar="URL", help="where the daemon is: http://HOST:PORT")
    command.add_argument(
        "--token",
        metavar="T",
        help=f"the token it holds, or is to be given; better in {TOKEN_VARIABLE}, which nobody can list",
    )
    command.add_argument("--token-file", metavar="FILE", help="a file with the token")
    command.add_argument(
        "--deadline", type=seconds, default=30.0, metavar="S", help="seconds an answer may take (30)"
    )


def token(given: Namespace) -> bytes:
    """The token that was given. Raises ModelError when none was; OSError."""
    if given.token_file:
        found = Path(given.token_file).read_bytes().strip()
    else:
        found = (given.token or os.environ.get(TOKEN_VARIABLE, "")).encode()
    if not found:
        raise ModelError(f"{given.command} needs the token: --token, --token-file or {TOKEN_VARIABLE}")
    return bytes(found)


def add_workers(command: ArgumentParser) -> None:
    """Declare who is to do the work of a command."""
    command.add_argument("--jobs", type=positive, default=None, help="processes; by default one a processor")
    command.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="have the workers of this Dask scheduler do it instead, tcp://HOST:PORT",
    )


def workers(given: Namespace) -> "AbstractContextManager[Fleet | None]":
    """The fleet that was asked for, None for this machine alone. Raises ModelError when it cannot be had."""
    if given.scheduler is None:
        return nullcontext()
    from checker.fleet import fleet

    return fleet(given.scheduler)

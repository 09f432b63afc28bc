"""The options that every command takes, and how they reach the session.

They may stand before the command or after it; the last one counts. A token on a command line can be read by
every process of the machine, so a file or the environment are offered beside the flag.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from agentd.cli.session import Session

F = TypeVar("F", bound=Callable[..., Any])


def _url(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Session).url = value


def _token(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Session).token = value


def _token_file(context: click.Context, _: click.Parameter, value: Any) -> None:
    if value is not None:
        context.ensure_object(Session).token = value.read().strip()


def _json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Session).as_json = True


_OPTIONS = (
    click.option(
        "--url",
        metavar="URL",
        expose_value=False,
        callback=_url,
        help="The daemon's address [AGENTD_URL; default http://127.0.0.1:9000].",
    ),
    click.option(
        "--token",
        metavar="TOKEN",
        expose_value=False,
        callback=_token,
        help="The agent token [AGENTD_TOKEN]. Other processes can read a command line: prefer the others.",
    ),
    click.option(
        "--token-file",
        type=click.File(),
        expose_value=False,
        callback=_token_file,
        help="A file that holds the agent token.",
    ),
    click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_json,
        help="Print JSON: results on standard output, errors on standard error.",
    ),
)


def common(function: F) -> F:
    """Give a command the options that all of them take."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def line_range(text: str) -> tuple[int | None, int | None]:
    """``A:B``, ``A:``, ``:B`` or ``A`` as a window of lines.

    Raises:
        click.BadParameter: anything else.
    """
    found = re.fullmatch(r"(\d*)(:?)(\d*)", text, re.ASCII)
    start, end = (int(part) if part else None for part in found.group(1, 3)) if found else (None, None)
    bounds = [bound for bound in (start, end) if bound is not None]
    if not bounds or bounds[0] < 1 or bounds != sorted(bounds):
        raise click.BadParameter(f"{text!r} is not a range of lines such as 10:20, 10:, :20 or 10")
    return start, end if found and found[2] else start


def forward_spec(text: str) -> tuple[str, int, int]:
    """``[ADDRESS:]LOCAL:REMOTE`` as address, local and remote port; local 0 is any free port.

    Raises:
        click.BadParameter: anything else.
    """
    address, _, ports = text.rpartition(":")[0].rpartition(":")
    local, remote = (ports, text.rpartition(":")[2]) if ports else ("", "")
    address = address.strip("[]") or "127.0.0.1"
    if not (local.isdecimal() and remote.isdecimal()) or int(local) > 65535 or not 1 <= int(remote) <= 65535:
        raise click.BadParameter(f"{text!r} is not LOCAL:REMOTE, two ports")
    return address, int(local), int(remote)

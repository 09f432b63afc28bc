"""Commands about the machine: `health`, `ps`, `schema`, `bootstrap`."""

import base64
import secrets
from typing import TYPE_CHECKING, Any

import click

from agentd.cli.options import common
from agentd.cli.session import Session, parse_assignments

if TYPE_CHECKING:
    from agentd.client.client import Client


@click.command()
@common
@click.pass_obj
def health(session: Session) -> int:
    """Show the daemon's state."""

    async def show(client: "Client") -> None:
        from agentd.client.client import as_json

        found = as_json(await client.health())
        session.show(found, lambda: _table(_health_rows(found)))

    return session.run(show)


def _health_rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    disk = found["disk"]
    rows = [
        ("version", found["version"]),
        ("bootstrapped", _yes(found["bootstrapped"])),
        ("busy", _yes(found["busy"])),
        ("execs", str(found["execs"])),
        ("identity", "degraded" if found["identity_degraded"] else _repair(found["identity_repaired"])),
        ("disk", "cannot be measured" if disk is None else _disk(disk)),
        ("hooks", ", ".join(hook["hook"] for hook in found["hooks"]) or "none"),
    ]
    if found["restarts"]:
        rows.append(("restarts", str(found["restarts"])))
    if found["hooks_dropped"]:
        rows.append(("hooks not kept", str(found["hooks_dropped"])))
    return rows


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _repair(done: bool) -> str:
    return "repaired" if done else "as baked"


def _disk(disk: dict[str, Any]) -> str:
    state = ", under pressure" if disk["under_pressure"] else ""
    free, reserve = disk["available_bytes"] / 2**20, disk["reserve_bytes"] / 2**20
    return f"{free:,.0f} MiB free, {reserve:,.0f} MiB in reserve{state}"


@click.command()
@common
@click.pass_obj
def ps(session: Session) -> int:
    """List the execs and their live processes."""

    async def show(client: "Client") -> None:
        from agentd.client.client import as_json

        groups = [as_json(group) for group in await client.procs()]
        session.show(groups, lambda: _groups(groups))

    return session.run(show)


def _groups(groups: list[dict[str, Any]]) -> None:
    import time

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("EXEC", "STATE", "PGID", "STARTED", "PIDS"):
        table.add_column(heading, overflow="fold")
    for group in groups:
        left = bool(group["pids"]) and group["child_exited"]
        state = "exited, processes left" if left else "exited" if group["child_exited"] else "running"
        started = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(group["started_at"]))
        pids = " ".join(map(str, group["pids"]))
        row = (group["exec_id"], state, str(group["pgid"] or "-"), started, pids)
        table.add_row(*(Text(_plain(cell)) for cell in row))
    Console().print(table)


@click.command()
@click.option("--openapi", is_flag=True, help="The same routes as an OpenAPI document.")
@common
@click.pass_obj
def schema(session: Session, openapi: bool) -> int:
    """Print the wire contract that the daemon publishes."""

    async def show(client: "Client") -> None:
        session.show(await client.schema(openapi=openapi))

    return session.run(show)


@click.command()
@click.option("--env", "-e", multiple=True, metavar="NAME=VALUE", help="The launch environment; repeatable.")
@click.option(
    "--identity-seed",
    type=click.File("rb"),
    help="A file with the VM's own tunnel key: 32 bytes, or base64 of them. Needs --host-public-key.",
)
@click.option(
    "--host-public-key", metavar="BASE64", help="The public key of the only verified tunnel caller."
)
@common
@click.pass_obj
def bootstrap(session: Session, env: tuple[str, ...], identity_seed: Any, host_public_key: str | None) -> int:
    """Install the token, as a platform's run hook does; without one, a fresh one is made and printed."""
    launch_env = parse_assignments(env)
    made = session.token is None
    token = session.token or secrets.token_urlsafe(32)

    async def install(client: "Client") -> None:
        from agentd.client import TunnelIdentity

        identity = None
        if identity_seed is not None or host_public_key is not None:
            if identity_seed is None or host_public_key is None:
                raise ValueError("--identity-seed and --host-public-key go together")
            identity = TunnelIdentity(key_bytes(identity_seed.read()), key_bytes(host_public_key.encode()))
        await client.bootstrap(token, launch_env, identity)
        report = {"bootstrapped": True} | ({"token": token} if made else {})
        session.show(report, lambda: print(f"AGENTD_TOKEN={token}" if made else "bootstrapped", flush=True))

    return session.run(install)


def key_bytes(raw: bytes) -> bytes:
    """A 32-byte key, given as it is or in base64.

    Raises:
        ValueError: neither; the key is not shown.
    """
    if len(raw) == 32:
        return raw
    try:
        key = base64.b64decode(raw.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ValueError("a key is 32 bytes, or base64 of them")
    return key


def _table(rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {_plain(value)}", flush=True)


def _plain(text: str) -> str:
    """Text from the guest as a terminal may show it: without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)

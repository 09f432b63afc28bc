"""Commands about files: `cp` and `cat`.

`cp` copies one file or one tree in either direction. A path in the VM is written `vm:/path`. What arrives is
checked against the digest that the far end took: of an upload the daemon tells it, of a download too where it can,
else sha256sum(1) is asked in the VM. Nothing is resumed, and a copy that fails leaves no half file. A tree is
copied so that the destination becomes that tree: what is in SRC lands directly in DST.
"""

import base64
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from twisted.internet.threads import deferToThreadPool

from agentd.cli import exits
from agentd.cli.options import common, line_range
from agentd.cli.session import Session
from agentd.cli.terminal import Writer

if TYPE_CHECKING:
    from agentd.client.client import Client

PREFIX = "vm:"


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.option("--quiet", "-q", is_flag=True, help="No progress bar.")
@common
@click.pass_obj
def cp(session: Session, source: str, destination: str, quiet: bool) -> int:
    """Copy a file or a tree; one of SRC and DST is a path in the VM, written vm:/path.

    A DST that ends in / (or, here, is a directory) takes a file under its own name. A tree's contents go directly
    into DST.
    """
    up, down = destination.startswith(PREFIX), source.startswith(PREFIX)
    if up == down:
        raise click.UsageError("one of SRC and DST must be vm:/path, and only one")

    async def copy(client: "Client") -> None:
        seconds = session.reactor().seconds
        began = seconds()
        with _bar(session, quiet, source) as progress:
            if up:
                report = await _up(session, client, source, destination.removeprefix(PREFIX), progress)
            else:
                report = await _down(client, source.removeprefix(PREFIX), destination, progress)
        report["seconds"] = round(seconds() - began, 3)
        session.show({"source": source, "destination": destination, **report}, lambda: _tell(report))

    return session.run(copy)


Progress = Callable[[int, int | None], None]
"""Told bytes moved and bytes in all, where known."""


async def _up(
    session: Session, client: "Client", local: str, path: str, progress: Progress
) -> dict[str, Any]:
    reactor = session.reactor()
    info = await deferToThreadPool(reactor, reactor.getThreadPool(), os.stat, local)
    if stat.S_ISDIR(info.st_mode):
        packed = await client.tar.push(local, path, progress=progress)
        return {"kind": "tree", "members": packed.members, **_stored(packed.stored)}
    if path.endswith("/"):
        path += os.path.basename(os.path.abspath(local))
    total = info.st_size
    stored = await client.files.put(local, path, progress=lambda done: progress(done, total))
    return {"kind": "file", **_stored(stored)}


def _stored(stored: Any) -> dict[str, Any]:
    return {
        "bytes": stored.size,
        "sha256": stored.sha256.hex(),
        "verified": stored.verified,
        "written": stored.how,
    }


async def _down(client: "Client", path: str, local: str, progress: Progress) -> dict[str, Any]:
    from agentd.client.errors import DigestMismatch, MalformedRequest

    try:
        download = await client.files.read(path)
    except MalformedRequest:
        # Only a directory is refused so; if the path is refused for anything else, this says what.
        pulled = await client.tar.pull(path, local, progress=progress)
        return {
            "kind": "tree",
            "members": pulled.members,
            "bytes": pulled.received,
            "sha256": pulled.sha256.hex(),
            "verified": pulled.verified,
        }
    if local.endswith("/") or os.path.isdir(local):
        local = os.path.join(local, os.path.basename(path))
    download.progress = lambda done: progress(done, download.length)
    await client.files.keep(download, local)
    verified = download.verified
    if not verified and (there := await client.sha256(path)) is not None:
        if there != download.sha256:
            raise DigestMismatch(f"{local} is not what {path} in the VM holds now")
        verified = True
    return {
        "kind": "file",
        "bytes": download.received,
        "sha256": download.sha256.hex(),
        "verified": verified,
    }


def _tell(report: dict[str, Any]) -> None:
    seconds = max(report["seconds"], 0.001)
    words = f"{_size(report['bytes'])} in {seconds:.1f} s, {_size(report['bytes'] / seconds)}/s"
    if report["kind"] == "tree":
        words += f", {report['members']} entries"
    print(words + (", digest verified" if report["verified"] else ", digest not offered"), flush=True)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


@contextmanager
def _bar(session: Session, quiet: bool, title: str) -> Iterator[Progress]:
    """A progress bar on standard error, where that is a terminal."""
    if quiet or session.as_json or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(Text(os.path.basename(title.rstrip("/")) or title).markup, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@click.command()
@click.argument("path")
@click.option(
    "--lines", "-l", "window", metavar="A:B", help="Only these lines, counted from 1, both included."
)
@common
@click.pass_obj
def cat(session: Session, path: str, window: str | None) -> int:
    """Print a file of the VM, whole or a window of its lines."""
    start, end = line_range(window) if window is not None else (None, None)

    async def show(client: "Client") -> int:
        files = client.files
        name = path.removeprefix(PREFIX)
        download = await (files.read(name) if window is None else files.lines(name, start, end))
        writer = Writer(session.reactor(), 1)
        async with download:
            try:
                async for data in download:
                    await writer.write(_line(data) if session.as_json else data)
            except BrokenPipeError:
                return exits.SIGNALLED + 13
        return exits.OK

    return session.run(show)


def _line(data: bytes) -> bytes:
    return b'{"data_b64":"%s"}\n' % base64.b64encode(data)

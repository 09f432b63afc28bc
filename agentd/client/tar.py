"""Whole trees, in one archive each way (contract e.5, e.6).

A tree is packed into an unlinked temporary file first, so its length is known before a byte is sent, and an archive
from the VM is received into one and extracted when it is whole. Both are `agentd.files`: links are never followed,
and no member lands outside the target whatever it is called.
"""

import os
from collections.abc import Callable

from attrs import frozen

from agentd.client.files import Download, Stored, send
from agentd.client.local import LocalFiles
from agentd.client.transport import Transport
from agentd.client.upload import Upload
from agentd.rules.members import Caps

PACK_SECONDS = 600.0
"""How long the daemon may pack before its answer begins."""

TreeProgress = Callable[[int, int | None], object]
"""Called with the bytes moved so far, and how many there are in all where that is known."""


@frozen
class Pushed:
    """A tree that was sent: its entries, and what became of the archive."""

    members: int
    stored: Stored


@frozen
class Pulled:
    """A tree that was fetched: its entries, the archive's bytes, and whether its digest was declared and right."""

    members: int
    received: int
    sha256: bytes
    verified: bool


class Tar:
    """`Client.tar`.

    Args:
        transport: requests to the daemon.
        caps: what an archive from the VM may hold at most.
    """

    def __init__(self, transport: Transport, caps: Caps | None = None) -> None:
        self._transport = transport
        self._local = LocalFiles(transport.reactor, caps)

    async def push(
        self, source: str | os.PathLike[str], path: str, progress: TreeProgress | None = None
    ) -> Pushed:
        """Send what is in the local directory `source` into the directory `path` of the VM.

        Args:
            source: a local directory.
            path: absolute; it and its parents are made.
            progress: told the archive's bytes.

        Raises:
            LocalFault: the directory cannot be read.
            MalformedRequest: the daemon refuses a member, and names it; what came before it stays.
            TooLarge, DiskFull: as they say.
            DigestMismatch: the daemon received something else.
        """
        archive, members = await self._local.pack(source)
        total = archive.length
        try:
            moved = None if progress is None else (lambda done: progress(done, total))
            upload = Upload(self._transport.reactor, archive, total, moved)
            headers = {"Content-Type": "application/x-tar"}
            stored = await send(self._transport, "/v1/fs/tar", [("path", path)], headers, upload)
        finally:
            await archive.close()
        return Pushed(members, stored)

    async def pull(
        self, path: str, target: str | os.PathLike[str], progress: TreeProgress | None = None
    ) -> Pulled:
        """Fetch what is in the directory `path` of the VM into the local directory `target`, which is made.

        Raises:
            NotFound, TooLarge: as they say.
            MalformedRequest: it is not a directory.
            LocalFault: a member is refused, a cap is passed, or this side's disk fails.
        """
        answer = await self._transport.open(
            "GET",
            "/v1/fs/tar",
            query=[("path", path)],
            headers={"Want-Repr-Digest": "sha-256=10"},
            timeout=PACK_SECONDS,
        )
        download = Download(
            answer, None if progress is None else (lambda done: progress(done, answer.length))
        )
        async with download:
            sink = await self._local.extract(target)
            extracted = await download.into(sink)
        return Pulled(extracted.members, download.received, download.sha256, download.verified)

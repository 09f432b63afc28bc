"""Single files in the VM: read, read by lines, write; each streamed, each checked (contract e.1 to e.4).

An upload is hashed on its way out and the digest compared with the `Repr-Digest` the daemon answers, which it
took from what it stored; bytes that are in memory also carry the header in the request, so that a difference
leaves the old content in place. A download asks for the digest (`Want-Repr-Digest`, RFC 9530) and is checked
where it comes; its length is checked always. A local file appears whole or not at all (`agentd.client.local`).
"""

import hashlib
import os
from collections.abc import AsyncIterable
from typing import Any

from attrs import frozen

from agentd.client.body import Answer
from agentd.client.errors import AnswerError, DigestMismatch, ProtocolFault, TransportFault
from agentd.client.local import LocalFiles, Sink
from agentd.client.transport import Transport
from agentd.client.upload import BytesSource, IterableSource, Progress, Source, Upload
from agentd.rules.writes import InvalidDigest, format_digest, parse_digest

ANSWER_SECONDS = 600.0
"""How long a stored body may take to be answered: a disk flushes, an archive unpacks."""


@frozen
class Stored:
    """What became of an upload.

    Args:
        size: bytes sent.
        sha256: their digest.
        verified: whether the daemon confirmed it (an older one confirms nothing).
        how: `atomic` or `in-place`, where the daemon says so.
    """

    size: int
    sha256: bytes
    verified: bool
    how: str | None


class Download:
    """The bytes of a file or archive, as they arrive: an asynchronous iterator.

    Args:
        answer: the answer that carries them.
        progress: told the bytes received so far.
    """

    def __init__(self, answer: Answer, progress: Progress | None = None) -> None:
        self._body = answer.body
        self._declared = declared_digest(answer)
        self._digest = hashlib.sha256()
        self.progress = progress
        self.length = answer.length
        """How many bytes are to come, where the daemon says so."""
        self.received = 0
        """How many came so far."""
        self.verified = False
        """Whether the digest was declared and, at the end, found right."""

    @property
    def sha256(self) -> bytes:
        """The digest of what came so far."""
        return self._digest.digest()

    def __aiter__(self) -> "Download":
        return self

    async def __aenter__(self) -> "Download":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def __anext__(self) -> bytes:
        """The next bytes.

        Raises:
            TransportFault: the connection was cut before the end.
            DigestMismatch: everything came, and it is not what the daemon read.
        """
        data = await self._body.read()
        if not data:
            if self._declared is not None:
                if self.sha256 != self._declared:
                    raise DigestMismatch(f"{self.received} bytes received, and their SHA-256 differs")
                self.verified = True
            raise StopAsyncIteration
        self.received += len(data)
        self._digest.update(data)
        if self.progress is not None:
            self.progress(self.received)
        return data

    async def into(self, sink: Sink) -> Any:
        """Write everything to `sink` and finish it; what is not whole and right is aborted.

        Returns:
            what the sink's `finish` returns.

        Raises:
            LocalFault: this side could not take it.
            as the iteration.
        """
        async with self:
            try:
                async for data in self:
                    await sink.write(data)
            except BaseException:
                await sink.abort()
                raise
            return await sink.finish()

    def close(self) -> None:
        """Stop receiving. May be repeated."""
        self._body.close()


class Files:
    """`Client.files`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._local = LocalFiles(transport.reactor)

    async def read(self, path: str, progress: Progress | None = None) -> Download:
        """A whole file.

        Raises:
            NotFound: there is none of this name.
            MalformedRequest: it is a directory.
        """
        return await self._get([("path", path)], progress)

    async def lines(self, path: str, start: int | None = None, end: int | None = None) -> Download:
        """A window of lines, counted from 1, both ends included; each with its newline (contract e.2).

        Args:
            path: the file.
            start: the first line; None for 1.
            end: the last line; None, or past the last, for the end of the file.
        """
        bounds = [("start_line", start), ("end_line", end)]
        return await self._get([("path", path), *((n, str(v)) for n, v in bounds if v is not None)], None)

    async def read_bytes(self, path: str, limit: int = 64 * 1024 * 1024) -> bytes:
        """A whole file in memory.

        Raises:
            ProtocolFault: longer than `limit` bytes.
        """
        parts: list[bytes] = []
        async with await self.read(path) as download:
            async for data in download:
                parts.append(data)
                if download.received > limit:
                    raise ProtocolFault(f"{path!r} is longer than {limit} bytes")
        return b"".join(parts)

    async def write(
        self,
        path: str,
        content: bytes | AsyncIterable[bytes],
        *,
        mode: int | None = None,
        length: int | None = None,
        progress: Progress | None = None,
    ) -> Stored:
        """Write a file, whole; parents are made (contract e.3).

        Args:
            path: where.
            content: its bytes, or an asynchronous iterable of them.
            mode: permission bits; None keeps an existing file's.
            length: how many bytes, where known and `content` is not bytes.
            progress: told the bytes sent so far.

        Raises:
            DigestMismatch: the daemon stored something else.
            DiskFull, TooLarge, MalformedRequest: as they say.
        """
        headers = {"Content-Type": "application/octet-stream"}
        source: Source
        if isinstance(content, bytes):
            source, length = BytesSource(content), len(content)
            headers["Repr-Digest"] = format_digest(hashlib.sha256(content).digest())
        else:
            source = IterableSource(content)
        return await self._put(path, source, length, mode, progress, headers)

    async def _put(
        self,
        path: str,
        source: Source,
        length: int | None,
        mode: int | None,
        progress: Progress | None,
        headers: dict[str, str],
    ) -> Stored:
        query = [("path", path)] + ([("mode", f"{mode:04o}")] if mode is not None else [])
        upload = Upload(self._transport.reactor, source, length, progress)
        return await send(self._transport, "/v1/fs/file", query, headers, upload)

    async def put(
        self,
        source: str | os.PathLike[str],
        path: str,
        *,
        mode: int | None = None,
        progress: Progress | None = None,
    ) -> Stored:
        """Send a local file, by default with its own permission bits.

        Raises:
            LocalFault: it cannot be read.
            as `write`.
        """
        opened = await self._local.open(source)
        try:
            bits = mode if mode is not None else await self._local.run(_permissions, source)
            headers = {"Content-Type": "application/octet-stream"}
            return await self._put(path, opened, opened.length, bits, progress, headers)
        finally:
            await opened.close()

    async def get(
        self, path: str, target: str | os.PathLike[str], progress: Progress | None = None
    ) -> Download:
        """Fetch a file into a local one.

        Returns:
            the finished download: `received`, `sha256`, and whether it was `verified`.

        Raises:
            LocalFault: it cannot be written.
            as `read` and the iteration of a `Download`.
        """
        download = await self.read(path, progress)
        await self.keep(download, target)
        return download

    async def keep(self, download: Download, target: str | os.PathLike[str]) -> None:
        """Write what is being downloaded to a local file.

        Raises:
            as `get`.
        """
        async with download:
            sink = await self._local.write(target)
            await download.into(sink)

    async def _get(self, query: list[tuple[str, str]], progress: Progress | None) -> Download:
        answer = await self._transport.open(
            "GET", "/v1/fs/file", query=query, headers={"Want-Repr-Digest": "sha-256=10"}
        )
        return Download(answer, progress)


def declared_digest(answer: Answer) -> bytes | None:
    """The SHA-256 the daemon declares for a representation, or None."""
    field = answer.header("repr-digest")
    try:
        return None if field is None else parse_digest(field)
    except InvalidDigest as fault:
        raise ProtocolFault(f"Repr-Digest in the answer: {fault}") from None


async def send(
    transport: Transport, path: str, query: list[tuple[str, str]], headers: dict[str, str], upload: Upload
) -> Stored:
    """PUT a body that streams, and check the digest that comes back.

    Raises:
        as `Files.write`.
    """
    try:
        answer = await transport.open(
            "PUT", path, query=query, headers=headers, body=upload, timeout=ANSWER_SECONDS
        )
    except TransportFault:
        if upload.fault is not None:
            raise upload.fault from None
        raise
    except AnswerError as refusal:
        if refusal.status == 400 and "digest" in refusal.detail.lower() and "Repr-Digest" in headers:
            raise DigestMismatch(refusal.detail) from None
        raise
    finally:
        upload.stopProducing()
    answer.body.close()
    declared = declared_digest(answer)
    if declared is not None and declared != upload.sha256:
        raise DigestMismatch(f"{upload.sent} bytes sent, and the daemon stored others")
    return Stored(upload.sent, upload.sha256, declared is not None, answer.header("agentd-write"))


def _permissions(path: str | os.PathLike[str]) -> int:
    return os.stat(path).st_mode & 0o7777

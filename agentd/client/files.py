"""Single files in the VM: read, read by lines, write; each streamed, each checked (contract e.1 to e.4).

An upload is hashed on its way out and the digest compared with the `Repr-Digest` the daemon answers, which it
took from what it stored; bytes that are in memory also carry the header in the request, so that a difference
leaves the old content in place. A download asks for the digest (`Want-Repr-Digest`, RFC 9530) and is checked
where it comes; its length is checked always. To a local file it is written beside the target and renamed.
"""

import hashlib
import os
import tempfile
from collections.abc import AsyncIterable
from typing import Any, BinaryIO

from attrs import frozen
from twisted.internet.threads import deferToThreadPool

from agentd.client.body import Answer
from agentd.client.errors import AnswerError, DigestMismatch, ProtocolFault, TransportFault
from agentd.client.transport import Transport
from agentd.client.upload import READ_BYTES, BytesSource, FileSource, IterableSource, Progress, Source, Upload
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
        self._progress = progress
        self._declared = declared_digest(answer)
        self._digest = hashlib.sha256() if self._declared is not None else None
        self.length = answer.length
        """How many bytes are to come, where the daemon says so."""
        self.received = 0
        """How many came so far."""
        self.verified = False
        """Whether the digest was declared and, at the end, found right."""

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
            if self._digest is not None and not self.verified:
                if self._digest.digest() != self._declared:
                    raise DigestMismatch(f"{self.received} bytes received, and their SHA-256 differs")
                self.verified = True
            raise StopAsyncIteration
        self.received += len(data)
        if self._digest is not None:
            self._digest.update(data)
        if self._progress is not None:
            self._progress(self.received)
        return data

    def close(self) -> None:
        """Stop receiving. May be repeated."""
        self._body.close()


class Files:
    """`Client.files`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

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
        content: bytes | AsyncIterable[bytes] | BinaryIO,
        *,
        mode: int | None = None,
        length: int | None = None,
        progress: Progress | None = None,
    ) -> Stored:
        """Write a file, whole; parents are made (contract e.3).

        Args:
            path: where.
            content: its bytes, an asynchronous iterable of them, or a binary file, read from where it stands.
            mode: permission bits; None keeps an existing file's.
            length: how many bytes, where known and `content` is not bytes.
            progress: told the bytes sent so far.

        Raises:
            DigestMismatch: the daemon stored something else.
            DiskFull, TooLarge, MalformedRequest: as they say.
            OSError: `content` is a file and cannot be read.
        """
        headers = {"Content-Type": "application/octet-stream"}
        source: Source
        if isinstance(content, bytes):
            source, length = BytesSource(content), len(content)
            headers["Repr-Digest"] = format_digest(hashlib.sha256(content).digest())
        elif isinstance(content, AsyncIterable):
            source = IterableSource(content)
        else:
            source = FileSource(self._transport.reactor, content)
        query = [("path", path)] + ([("mode", f"{mode:04o}")] if mode is not None else [])
        upload = Upload(self._transport.reactor, source, length, progress)
        return await send(self._transport, "/v1/fs/file", query, headers, upload)

    async def put(
        self,
        local: str | os.PathLike[str],
        path: str,
        *,
        mode: int | None = None,
        progress: Progress | None = None,
    ) -> Stored:
        """Send a local file, by default with its own permission bits.

        Raises:
            OSError: it cannot be opened or read.
            as `write`.
        """
        file = await self._in_thread(open, local, "rb")
        try:
            info = os.fstat(file.fileno())
            bits = info.st_mode & 0o7777 if mode is None else mode
            return await self.write(path, file, mode=bits, length=info.st_size, progress=progress)
        finally:
            file.close()

    async def get(
        self, path: str, local: str | os.PathLike[str], progress: Progress | None = None
    ) -> Download:
        """Fetch a file into a local one, which appears whole or not at all.

        Returns:
            the finished download: `received`, and whether it was `verified`.

        Raises:
            OSError: it cannot be written here.
            as `read` and the iteration of a `Download`.
        """
        async with await self.read(path, progress) as download:
            await save(self._transport.reactor, download, os.fspath(local))
        return download

    async def _get(self, query: list[tuple[str, str]], progress: Progress | None) -> Download:
        answer = await self._transport.open(
            "GET", "/v1/fs/file", query=query, headers={"Want-Repr-Digest": "sha-256=10"}
        )
        return Download(answer, progress)

    async def _in_thread(self, function: Any, *args: Any) -> Any:
        reactor = self._transport.reactor
        return await deferToThreadPool(reactor, reactor.getThreadPool(), function, *args)


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


async def save(reactor: Any, download: Download, local: str) -> None:
    """Write a download to `local`: beside it first, renamed over it at the end, in the thread pool throughout."""

    async def run(function: Any, *args: Any) -> Any:
        return await deferToThreadPool(reactor, reactor.getThreadPool(), function, *args)

    target = await run(os.path.realpath, local)
    spool = await run(_beside, target)
    try:
        batch: list[bytes] = []
        size = 0
        async for data in download:
            batch.append(data)
            size += len(data)
            if size >= READ_BYTES:
                await run(spool.writelines, batch)
                batch, size = [], 0
        await run(spool.writelines, batch)
        await run(_settle, spool, target)
    except BaseException:
        _abandon(spool)
        raise


def _beside(target: str) -> Any:
    """A new temporary file in the directory of `target`, open for writing."""
    if os.path.isdir(target):
        raise IsADirectoryError(f"is a directory: {target!r}")
    directory, name = os.path.split(target)
    return tempfile.NamedTemporaryFile(  # closed by _settle or _abandon
        "wb", dir=directory, prefix=f".{name[:64]}.", delete=False
    )


def _settle(spool: Any, target: str) -> None:
    """Give the finished file the mode a plain write would have, and its name."""
    try:
        mode = os.stat(target).st_mode & 0o7777
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    spool.flush()
    os.fchmod(spool.fileno(), mode)
    spool.close()
    os.replace(spool.name, target)


def _abandon(spool: Any) -> None:
    spool.close()
    try:
        os.unlink(spool.name)
    except FileNotFoundError:
        pass


def _umask() -> int:
    """This process's umask; it can only be read by setting it, and threads share it, so /proc is asked first."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    current = os.umask(0o077)
    os.umask(current)
    return current

"""A tree as an archive, ready to be sent: measured, packed into an unlinked spool, then streamed (contract e.6).

Nothing is sent before the whole archive is there, so every failure is still an honest status, and the length is
known. A content coding is applied on the way into the spool, which is then as small as what is sent.
"""

import os
from collections.abc import Generator

from attrs import frozen

from agentd.files.codings import IDENTITY, Encoder, encoder
from agentd.files.copy import copy, write_batch
from agentd.files.disk import DISK_FULL, DiskGuard, Meter, Spool, write_failure
from agentd.files.read import Content, spooled
from agentd.files.tar_pack import Packed, measure, pack
from agentd.rules.members import Caps

BUFFER_BYTES = 1024 * 1024
"""Small pieces are gathered up to this size before they are written or encoded."""


class _SpoolOutput:
    """Appends to a spool, plain or encoded. Its `copy` is the kernel's where nothing has to be encoded."""

    def __init__(self, fd: int, spool: Spool, meter: Meter, encoder: Encoder | None) -> None:
        self._fd = fd
        self._spool = spool
        self._meter = meter
        self._encoder = encoder
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self.size = 0

    def write(self, data: bytes) -> None:
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= BUFFER_BYTES:
            self._flush()

    def copy(self, source: int, offset: int, count: int) -> Generator[int, None, int]:
        if self._encoder is None:
            self._flush()
            copied = 0
            try:
                for piece in copy(source, offset, self._fd, count):
                    self._wrote(piece)
                    copied += piece
                    yield piece
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise  # of the source
                raise write_failure("spool in", self._spool.directory, error) from error
            return copied
        end = offset + count
        position = offset
        while position < end and (data := os.pread(source, min(BUFFER_BYTES, end - position), position)):
            self.write(data)
            position += len(data)
            yield len(data)
        return position - offset

    def finish(self) -> None:
        self._flush()
        if self._encoder is not None:
            self._store([self._encoder.flush()])

    def _flush(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if self._encoder is not None:
            gathered = [self._encoder.compress(b"".join(gathered))]
        self._store(gathered)

    def _store(self, batch: list[bytes]) -> None:
        size = sum(map(len, batch))
        try:
            while batch:
                batch = write_batch(self._fd, batch)
        except OSError as error:
            raise write_failure("spool in", self._spool.directory, error) from error
        self._wrote(size)

    def _wrote(self, count: int) -> None:
        self.size += count
        self._meter.wrote(count)


@frozen
class PackedTree:
    """A packed tree: its content, the content coding it is in, and what went into it."""

    content: Content
    coding: str
    packed: Packed


def pack_tree(
    root: bytes, caps: Caps, guard: DiskGuard, spool: Spool, coding: str = IDENTITY
) -> Generator[None, None, PackedTree]:
    """Pack the tree at `root` into a spool; the result's content owns it.

    Raises `FilesError`: `NOT_FOUND` (ENOENT), `BAD_REQUEST` (not a directory), `TOO_LARGE`, `NO_SPACE`, `FAILED`.
    """
    tree = yield from measure(root, caps)
    guard.check(spool.directory)
    fd = spool.open()
    try:
        output = _SpoolOutput(fd, spool, guard.meter(spool.directory), encoder(coding))
        packed = yield from pack(root, tree, caps, output)
        output.finish()
        return PackedTree(spooled(fd, output.size), coding, packed)
    except BaseException:
        os.close(fd)
        raise

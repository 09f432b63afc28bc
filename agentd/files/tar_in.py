"""An uploaded archive: spooled as it arrives, decoded and counted on the way, extracted when it is complete.

The body goes to an unlinked file, so a broken upload changes nothing (contract e.5). A body with a content
coding is decoded into the spool, and a reader follows the spool and counts the caps on what is decoded: the header
of an oversized member stops the upload before its content takes any room, and nothing behind the archive's end is
kept. A plain body needs none of that, the wire's cap bounds it; its caps are counted while it is extracted.
"""

import os
from collections.abc import Generator

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from agentd.files.codings import BadCoding, Decoder
from agentd.files.copy import write_batch
from agentd.files.disk import DiskGuard, Spool, write_failure
from agentd.files.errors import FilesError, Kind
from agentd.files.pump import Flow, Pump
from agentd.files.tar_extract import Extracted, check_caps, extract
from agentd.files.tar_reader import CorruptArchive, NotYet, TarReader
from agentd.files.threads import Ending, RunInThread, run_sliced, shielded
from agentd.rules.members import Caps

HEADER_ALLOWANCE_BYTES = 8 * 1024
"""Per member that the cap allows, and for a few more: what headers, names and padding add to a decoded archive."""
MAX_TRAILING_BYTES = 64 * 1024 * 1024
"""Most decoded bytes behind the end of an archive, where only a tape's padding belongs."""

_log = Logger()


class SpooledArchive:
    """The blocking half of an upload; pool threads only, one step at a time."""

    def __init__(
        self, root: bytes, caps: Caps, guard: DiskGuard, spool: Spool, decoder: Decoder | None
    ) -> None:
        self._root = root
        self._caps = caps
        self._guard = guard
        self._spool = spool
        self._decoder = decoder
        self._meter = guard.meter(spool.directory)
        self._fd = -1
        self._size = 0
        self._trailing = 0
        self._members = self._total = 0
        self._reader: TarReader | None = None

    def open(self) -> None:
        """Check the disks of the root and of the spool, and open the spool. Raises `FilesError`."""
        self._guard.check(self._root)
        self._guard.check(self._spool.directory)
        self._fd = self._spool.open()
        if self._decoder is not None:
            self._reader = TarReader(self._fd, 0, complete=False)

    def write(self, batch: list[bytes]) -> list[bytes]:
        """Append a batch of the body. Raises `FilesError`."""
        if self._decoder is None:
            self._store(batch)
            return []
        try:
            for data in batch:
                self._decoder.feed(data, self._decoded)
        except BadCoding as error:
            raise FilesError(Kind.BAD_REQUEST, f"the body does not decode: {error}") from error
        return []

    def _store(self, batch: list[bytes]) -> None:
        size = sum(map(len, batch))
        try:
            while batch:
                batch = write_batch(self._fd, batch)
        except OSError as error:
            raise write_failure("spool in", self._spool.directory, error) from error
        self._size += size
        self._meter.wrote(size)

    def _decoded(self, data: bytes) -> None:
        """Keep decoded bytes and count the members that have become known."""
        assert self._reader is not None
        if self._reader.ended:
            self._trailing += len(data)
            if self._trailing > MAX_TRAILING_BYTES:
                raise FilesError(Kind.BAD_REQUEST, "too much data behind the end of the archive")
            return
        most = self._caps.bytes + (self._caps.members + 128) * HEADER_ALLOWANCE_BYTES
        if self._size + len(data) > most:
            raise FilesError(Kind.TOO_LARGE, f"the decoded archive is longer than {most} bytes")
        self._store([data])
        self._reader.size = self._size
        try:
            while (member := self._reader.next()) is not None:
                self._members += 1
                self._total += member.size
                check_caps(self._members, self._total, self._caps)
        except NotYet:
            pass
        except CorruptArchive as error:
            raise FilesError(Kind.BAD_REQUEST, str(error)) from error

    def extract(self) -> Generator[None, None, Extracted]:
        """Extract what was spooled, and close the spool. Raises `FilesError`."""
        try:
            if self._decoder is not None:
                try:
                    self._decoder.close()
                except BadCoding as error:
                    raise FilesError(Kind.BAD_REQUEST, f"the body does not decode: {error}") from error
            reader = TarReader(self._fd, self._size)
            return (yield from extract(self._root, self._fd, reader, self._caps, self._guard))
        finally:
            self.close()

    def close(self) -> None:
        """Close the spool, which frees it. May be called more than once."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class TarSink:
    """Takes the body of one archive. Made by `Files.extract`, then: `write` …, and `finish` or `abort`."""

    def __init__(self, run_in_thread: RunInThread, archive: SpooledArchive, flow: Flow) -> None:
        self._run = run_in_thread
        self._archive = archive
        self._ended = False
        self._ending = Ending()
        self._pump = Pump(run_in_thread, archive.write, flow)

    def write(self, data: bytes) -> None:
        """Queue bytes of the body; `flow.pause` may be called before this returns."""
        self._pump.write(data)

    def finish(self) -> Deferred[Extracted]:
        """The body is complete: extract it. Fails with `FilesError`.

        Cancelling stops between two members or two pieces of one; complete members stay, as after a failure.
        """
        if self._ended:
            return fail(FilesError(Kind.FAILED, "the upload has ended already"))
        self._ended = True
        return Deferred.fromCoroutine(self._finish())

    async def _finish(self) -> Extracted:
        try:
            await self._pump.drain()
        except BaseException:
            await self._close()
            raise
        try:
            return await run_sliced(self._run, self._archive.extract())
        finally:
            self._ending.over()

    def abort(self) -> Deferred[None]:
        """The body will not become complete: forget it, extract nothing.

        After `finish` it does nothing but wait until that is over, either way.
        """
        if self._ended:
            return self._ending.wait()
        self._ended = True
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        await shielded(self._pump.stop(), lambda _: None)
        try:
            await shielded(self._run(self._archive.close), lambda _: None)
        finally:
            self._ending.over()


def open_tar_sink(run_in_thread: RunInThread, archive: SpooledArchive, flow: Flow) -> Deferred[TarSink]:
    """Open the spool in a thread and give the sink for it. Cancelling leaves nothing behind."""

    def close(_: object) -> None:
        run_in_thread(archive.close).addErrback(lambda reason: _log.failure("closing a spool", reason))

    opening = shielded(run_in_thread(archive.open), close)
    return opening.addCallback(lambda _: TarSink(run_in_thread, archive, flow))

"""The daemon's ends of a child's pipes.

Reading: large reads, several per wake-up, into one buffer that all pipes share, because Twisted's own reader takes
8 KiB at a time into new memory and is several times slower (``docs/performance.md``). Writing: one write at a time,
each with an answer: written, broken, timed out, failed (contract a.5). Both are plain descriptors of the injected
reactor.

The events a reactor works through were collected together, and what it does about one may close a descriptor whose
number another gets before the next. So no pipe takes the reactor's word for a hang-up or an error: it asks the
kernel.
"""

import errno
import mmap
import os
import select
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadDescriptor, IWriteDescriptor
from twisted.internet.main import CONNECTION_DONE
from zope.interface import implementer

from agentd.linux import pipes
from agentd.rules.stdin import Result, Written

READ_BYTES: Final = 256 * 1024
READS_PER_WAKE: Final = 4
"""Reads of one pipe in one turn: 1 MiB at most, so that other descriptors get theirs."""
MORE_BYTES: Final = 16 * 1024
"""After a read of so many another one follows at once: the child is writing much, and the way back through the reactor
costs more than a read that finds nothing."""
FULL_BYTES: Final = 64 * 1024
"""What an ordinary pipe holds (pipe(7))."""
PIPE_BYTES: Final = 256 * 1024
"""What a captured pipe is widened to once it has filled (fcntl(2) F_SETPIPE_SZ)."""

_APART: Final = 64
_room = memoryview(mmap.mmap(-1, _APART + READ_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))[_APART:]
"""Where every pipe is read to. One is enough: all are read on the reactor thread, and whoever is fed copies.

Its place in a page matters. Where a copy's target lies less than 32 bytes behind its source, page offset against
page offset, some processors copy thirty times slower (measured: 300 instead of 8 microseconds for 256 KiB). The kernel
copies here from page starts, and from here bytes go to allocated blocks, which begin 16 bytes into a page; 64 is
clear of both."""


class _Descriptor:
    """What the reactor wants of any descriptor."""

    def __init__(self, reactor: Any, fd: int) -> None:
        os.set_blocking(fd, False)
        self._reactor = reactor
        self._fd = fd

    def fileno(self) -> int:
        """The descriptor's number; -1 once it is closed, when the number may be another's."""
        return self._fd

    def logPrefix(self) -> str:
        return "agentd.process"

    def doRead(self) -> Any:
        """An event of an older descriptor of this number, unless this one is read."""

    def doWrite(self) -> Any:
        """An event of an older descriptor of this number, unless this one is written."""

    def _close_fd(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


@implementer(IReadDescriptor)
class PipeReader(_Descriptor):
    """Reads a pipe to its end: `feed` gets the bytes, `ended` is called once.

    `feed` is handed a view that is good only for the length of the call.
    """

    def __init__(
        self, reactor: Any, fd: int, feed: Callable[[memoryview], None], ended: Callable[[], None]
    ) -> None:
        super().__init__(reactor, fd)
        self._feed: Callable[[memoryview], None] | None = feed
        self._ended: Callable[[], None] | None = ended
        self._wide = False
        self._paused = False
        reactor.addReader(self)

    @property
    def open(self) -> bool:
        """Whether it is still read, or will be."""
        return self._fd >= 0

    def doRead(self) -> Any:
        """Read what is there."""
        return self._read(to_the_end=False)

    def read_rest(self) -> None:
        """Read what is in the pipe right now, paused or not, and see its end if it is there."""
        if self.open and self._read(to_the_end=True) is not None:
            self._end()

    def _read(self, to_the_end: bool) -> Any:
        for _ in range(READS_PER_WAKE):
            feed = self._feed
            if feed is None or (self._paused and not to_the_end):
                return None
            try:
                count = os.readv(self._fd, [_room])
            except BlockingIOError:
                return None
            except OSError:
                return CONNECTION_DONE
            if count == 0:
                return CONNECTION_DONE
            feed(_room[:count])
            if count >= FULL_BYTES and not self._wide:
                self._widen()
            if count < MORE_BYTES and not to_the_end:
                return None
        return None

    def _widen(self) -> None:
        # The kernel charges pipe memory per user, so only a pipe that has filled up gets more.
        if self.open:
            self._wide = True
            pipes.grow(self._fd, PIPE_BYTES)

    def pause(self) -> None:
        """Leave bytes in the pipe; the child will block when it is full."""
        if self.open and not self._paused:
            self._paused = True
            self._reactor.removeReader(self)

    def resume(self) -> None:
        """Read on."""
        if self.open and self._paused:
            self._paused = False
            self._reactor.addReader(self)

    def discard(self) -> None:
        """Go on reading, for nobody: whoever still writes must not meet a broken pipe."""
        if self.open:
            self._feed, self._ended = _drop, None

    def connectionLost(self, reason: Any) -> None:
        """The reactor's way to say that `doRead` ended it, or that it saw a hang-up."""
        if not self.open:
            return
        if self._read(to_the_end=True) is not None:
            self._end()
        elif self.open and not self._paused:
            self._reactor.addReader(self)

    def _end(self) -> None:
        ended = self._ended
        self.close()
        if ended is not None:
            ended()

    def close(self) -> None:
        """Stop reading and close, without calling `ended`."""
        if self.open:
            self._reactor.removeReader(self)
            self._close_fd()
            # Whoever is behind these is not kept alive by a closed pipe.
            self._feed = self._ended = None


def _drop(data: memoryview) -> None:
    pass


@define(eq=False)
class _Write:
    """A write that has not been answered."""

    size: int
    rest: memoryview
    done: "Deferred[Written]"


@implementer(IWriteDescriptor)
class PipeWriter(_Descriptor):
    """Writes to a pipe, one write at a time in the order they were asked for."""

    def __init__(self, reactor: Any, fd: int, timeout: float) -> None:
        super().__init__(reactor, fd)
        self._timeout = timeout
        self._queue: deque[_Write] = deque()
        self._serving = False
        self._timer: Any = None
        """Running while the first of the queue waits for room in the pipe."""

    @property
    def open(self) -> bool:
        """Whether the pipe is."""
        return self._fd >= 0

    def write(self, data: bytes) -> "Deferred[Written]":
        """Write all of `data`; fires with what became of it. Its time starts when its turn comes."""
        done: Deferred[Written] = Deferred()
        self._queue.append(_Write(len(data), memoryview(data), done))
        if self._timer is None:
            self._serve()
        return done

    def broken(self) -> bool:
        """Whether nobody can read from the pipe any more, as far as the kernel knows now (poll(2), POLLERR)."""
        if not self.open:
            return True
        looking = select.poll()
        looking.register(self._fd, 0)
        return bool(looking.poll(0))

    def close(self) -> None:
        """Close the pipe: the child reads its end of file. Writes that wait are broken."""
        if self.open:
            self._stop_waiting()
            self._close_fd()
            self._serve()

    def _serve(self) -> None:
        """Work through the queue until a write has to wait for room.

        A loop, because answering may lead to more writes or to the end, and thousands may be waiting.
        """
        if self._serving:
            return
        self._serving = True
        try:
            while self._queue and self._timer is None:
                result = self._attempt()
                if result is None:
                    self._timer = self._reactor.callLater(self._timeout, self._expired)
                    self._reactor.addWriter(self)
                else:
                    self._answer(result)
        finally:
            self._serving = False

    def _attempt(self) -> Result | None:
        """Write what fits of the first of the queue; None when something is left over."""
        write = self._queue[0]
        if not self.open:
            return Result.BROKEN
        while write.rest:
            try:
                sent = os.write(self._fd, write.rest)
            except BlockingIOError:
                return None
            except OSError as error:
                return Result.BROKEN if error.errno == errno.EPIPE else Result.FAILED
            write.rest = write.rest[sent:]
        return Result.WRITTEN

    def _answer(self, result: Result) -> None:
        self._stop_waiting()
        write = self._queue.popleft()
        if result is Result.BROKEN and self.open:
            self._close_fd()
        write.done.callback(Written(result, write.size - len(write.rest)))

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            if self._timer.active():
                self._timer.cancel()
            self._timer = None
            self._reactor.removeWriter(self)

    def doWrite(self) -> None:
        """The pipe has room."""
        if self._timer is None:
            return
        result = self._attempt()
        if result is not None:
            self._answer(result)
            self._serve()

    def _expired(self) -> None:
        self._answer(Result.TIMED_OUT)
        self._serve()

    def connectionLost(self, reason: Any) -> None:
        """The reactor saw an error, and has stopped watching: the child has closed its end, if it is true."""
        self.doWrite()
        if self._timer is not None:
            self._reactor.addWriter(self)

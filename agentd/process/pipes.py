"""The daemon's ends of a child's pipes.

Reading: large reads, several per wake-up, because Twisted's own reader takes 8 KiB at a time and is three to
four times slower (``docs/performance.md``). Writing: one write at a time, each with an answer: written, broken,
timed out, failed (contract a.5). Both are plain descriptors of the injected reactor.
"""

import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadDescriptor, IWriteDescriptor
from twisted.internet.main import CONNECTION_DONE
from zope.interface import implementer

from agentd.linux import pipes
from agentd.rules.stdin import Result

READ_BYTES: Final = 256 * 1024
READS_PER_WAKE: Final = 4
"""Reads of one pipe in one turn: 1 MiB at most, so that other descriptors get theirs."""
PIPE_BYTES: Final = 256 * 1024
"""What a captured pipe is widened to once it has filled (fcntl(2) F_SETPIPE_SZ)."""


class _Descriptor:
    """What the reactor wants of any descriptor."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def logPrefix(self) -> str:
        return "agentd.process"


@implementer(IReadDescriptor)
class PipeReader(_Descriptor):
    """Reads a pipe to its end: `feed` gets the bytes, `ended` is called once."""

    def __init__(
        self, reactor: Any, fd: int, feed: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        super().__init__(fd)
        self._reactor = reactor
        self._feed = feed
        self._ended = ended
        self._wide = False
        self._open = True
        reactor.addReader(self)

    def doRead(self) -> Any:
        """Read what is there."""
        for _ in range(READS_PER_WAKE):
            try:
                data = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                return None
            except InterruptedError:
                continue
            except OSError:
                return CONNECTION_DONE
            if not data:
                return CONNECTION_DONE
            self._feed(data)
            if not self._open:
                return None
            if len(data) < 65536:
                return None
            if not self._wide:
                self._widen()
        return None

    def _widen(self) -> None:
        # The kernel charges pipe memory per user, so only a pipe that has filled up gets more.
        self._wide = True
        pipes.grow(self._fd, PIPE_BYTES)

    def pause(self) -> None:
        """Leave bytes in the pipe; the child will block when it is full."""
        if self._open:
            self._reactor.removeReader(self)

    def resume(self) -> None:
        """Read on."""
        if self._open:
            self._reactor.addReader(self)

    def connectionLost(self, reason: Any) -> None:
        """The reactor's way to say that `doRead` ended it."""
        if self._open:
            self.close()
            self._ended()

    def close(self) -> None:
        """Stop reading and close, without calling `ended`."""
        if self._open:
            self._open = False
            self._reactor.removeReader(self)
            os.close(self._fd)


@implementer(IWriteDescriptor)
class PipeWriter(_Descriptor):
    """Writes to a pipe, one write at a time in the order they were asked for."""

    def __init__(self, reactor: Any, fd: int, timeout: float) -> None:
        super().__init__(fd)
        self._reactor = reactor
        self._timeout = timeout
        self._queue: deque[tuple[memoryview, Deferred[Result]]] = deque()
        self._current: Deferred[Result] | None = None
        self._rest = memoryview(b"")
        self._timer: Any = None
        self.open = True

    def write(self, data: bytes) -> "Deferred[Result]":
        """Write all of `data`; fires with what became of it. Its time starts when its turn comes."""
        done: Deferred[Result] = Deferred()
        self._queue.append((memoryview(data), done))
        if self._current is None:
            self._next()
        return done

    def _next(self) -> None:
        if not self._queue:
            return
        self._rest, self._current = self._queue.popleft()
        if not self.open:
            self._finish(Result.BROKEN)
            return
        if self._pump():
            return
        self._timer = self._reactor.callLater(self._timeout, self._expired)
        self._reactor.addWriter(self)

    def _pump(self) -> bool:
        """Write what fits now; True once the current write is finished."""
        while self._rest:
            try:
                sent = os.write(self._fd, self._rest)
            except BlockingIOError:
                return False
            except OSError as error:
                self._finish(Result.BROKEN if error.errno == errno.EPIPE else Result.FAILED)
                return True
            self._rest = self._rest[sent:]
        self._finish(Result.WRITTEN)
        return True

    def doWrite(self) -> None:
        """The pipe has room."""
        self._pump()

    def _expired(self) -> None:
        self._timer = None
        self._finish(Result.TIMED_OUT)

    def _finish(self, result: Result) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.open:
            self._reactor.removeWriter(self)
        self._rest = memoryview(b"")
        current, self._current = self._current, None
        if result is Result.BROKEN:
            self.close()
        if current is not None:
            current.callback(result)
        if self._current is None:
            self._next()

    def connectionLost(self, reason: Any) -> None:
        """The reactor found the pipe broken: the child has closed its end."""
        if self._current is not None:
            self._finish(Result.BROKEN)
        else:
            self.close()

    def close(self) -> None:
        """Close the pipe: the child reads its end of file. Writes that wait are broken."""
        if not self.open:
            return
        self.open = False
        self._reactor.removeWriter(self)
        os.close(self._fd)
        if self._current is not None:
            self._finish(Result.BROKEN)

"""Standard input and output, without ever blocking the reactor.

Writes go to a thread and are awaited, so a slow terminal or pipe holds back the stream that feeds it and
nothing else: an interrupt is still heard. Reads come from a thread of their own that is asked for one block at
a time and that does not keep the process alive, since a read of a terminal cannot be taken back.
"""

import os
import select
import threading
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

READ_BYTES = 64 * 1024


class Writer:
    """Bytes to a file descriptor, in order.

    Args:
        reactor: the Twisted reactor.
        fd: 1 for standard output, 2 for standard error.
    """

    def __init__(self, reactor: Any, fd: int) -> None:
        self._reactor = reactor
        self._fd = fd

    async def write(self, data: bytes) -> None:
        """Write everything.

        Raises:
            BrokenPipeError: the reader is gone.
        """
        if data:
            await deferToThreadPool(self._reactor, self._reactor.getThreadPool(), write_all, self._fd, data)


def write_all(fd: int, data: bytes) -> None:
    """Write everything to `fd`, whether it blocks or not."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])


class StandardInput:
    """Standard input as an asynchronous iterator of bytes."""

    def __init__(self, reactor: Any, fd: int = 0) -> None:
        self._reactor = reactor
        self._fd = fd
        self._wanted = threading.Semaphore(0)
        self._waiting: Deferred[bytes] | None = None
        self._thread: threading.Thread | None = None

    def __aiter__(self) -> "StandardInput":
        return self

    async def __anext__(self) -> bytes:
        """The next block.

        Raises:
            OSError: it cannot be read.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="stdin", daemon=True)
            self._thread.start()
        waiting: Deferred[bytes] = Deferred()
        self._waiting = waiting
        self._wanted.release()
        data = await waiting
        if not data:
            raise StopAsyncIteration
        return data

    def _read(self) -> None:
        data: bytes | OSError = b" "
        while data and not isinstance(data, OSError):
            self._wanted.acquire()
            try:
                data = os.read(self._fd, READ_BYTES)
            except OSError as fault:
                data = fault
            self._reactor.callFromThread(self._deliver, data)

    def _deliver(self, data: bytes | OSError) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            if isinstance(data, OSError):
                waiting.errback(data)
            else:
                waiting.callback(data)

"""SHA-256 of everything an exec writes, off the reactor thread and in order.

Hashing a gigabyte takes a second of processor time, so it happens on a pool thread, a batch at a time. What
waits for the thread is bounded: past `HIGH_BYTES` the child's pipes are paused until it is below `LOW_BYTES`.
Only execs that asked for a digest pay for it, with that pause as part of the price.
"""

import hashlib
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred, succeed

from agentd.process.groups import RunInThread

HIGH_BYTES: Final = 4 << 20
LOW_BYTES: Final = 1 << 20


class StreamDigest:
    """A running SHA-256."""

    def __init__(
        self, run_in_thread: RunInThread, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._run = run_in_thread
        self._pause = pause
        self._resume = resume
        self._hash = hashlib.sha256()
        self._waiting: list[bytes] = []
        self._owed = 0
        self._busy = False
        self._paused = False
        self._done: Deferred[str] | None = None

    def update(self, data: bytes) -> None:
        """The next bytes."""
        self._waiting.append(data)
        self._owed += len(data)
        if self._owed > HIGH_BYTES and not self._paused:
            self._paused = True
            self._pause()
        self._work()

    def finish(self) -> "Deferred[str]":
        """The digest of all of it, in lower-case hexadecimal."""
        if not self._busy:
            return succeed(self._hash.hexdigest())
        self._done = Deferred()
        return self._done

    def _work(self) -> None:
        if self._busy or not self._waiting:
            return
        batch, self._waiting = self._waiting, []
        self._busy = True
        self._run(self._hash_all, batch).addCallback(self._worked)

    def _hash_all(self, batch: list[bytes]) -> int:
        for data in batch:
            self._hash.update(data)
        return sum(map(len, batch))

    def _worked(self, count: int) -> None:
        self._busy = False
        self._owed -= count
        if self._paused and self._owed <= LOW_BYTES:
            self._paused = False
            self._resume()
        self._work()
        if not self._busy and self._done is not None:
            done, self._done = self._done, None
            done.callback(self._hash.hexdigest())

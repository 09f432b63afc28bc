"""What waits to be written to a process' stdin: a bounded queue in front of the pipe (environments 8.3).

A message is taken whole or refused whole, and nobody waits for the pipe. One write is in the pipe's hands at a
time; the rest is one array of bytes, so that a million small messages cost what their bytes cost.
"""

from typing import Final

from twisted.internet.defer import Deferred

from agentd.process.job import Job
from agentd.rules import processes
from agentd.rules.processes import Fault, Input
from agentd.rules.stdin import Result

WRITE_BYTES: Final = 64 * 1024


class InputQueue:
    """The queue of one process; `requested` if it was started with a pipe."""

    def __init__(self, job: Job, requested: bool, capacity: int) -> None:
        self._job = job
        self._capacity = capacity
        self._state = Input(requested, requested)
        self._queue = bytearray()
        self._pumping = False

    @property
    def writable(self) -> bool:
        """Whether more can be written."""
        return processes.writable(self._look())

    def _look(self) -> Input:
        """The state, with what the kernel knows of the other end."""
        if self._state.open and self._job.child.stdin_broken():
            self.close()
        return self._state

    def judge(self, size: int | None) -> Fault | None:
        """Why `size` more bytes, or with None an end of file, are refused."""
        return processes.judge_input(self._look(), size, self._capacity)

    def put(self, data: bytes) -> None:
        """Take what was judged to be fine."""
        self._state = processes.queued(self._state, len(data))
        self._queue += data
        self._pump()

    def end(self) -> None:
        """Close the pipe behind what is queued."""
        self._state = processes.ended(self._state)
        self._pump()

    def close(self) -> None:
        """Nobody reads any more."""
        self._state = processes.closed(self._state)
        self._queue = bytearray()

    def _pump(self) -> None:
        if not self._pumping:
            self._pumping = True
            Deferred.fromCoroutine(self._write())

    async def _write(self) -> None:
        try:
            while self._queue and self._state.open:
                piece = bytes(memoryview(self._queue)[:WRITE_BYTES])
                del self._queue[:WRITE_BYTES]
                written = await self._job.write_stdin(piece, False)
                if written.result is not Result.WRITTEN:
                    self.close()
                    return
                if self._state.open:
                    self._state = processes.drained(self._state, len(piece))
            if self._state.ended and self._state.open:
                await self._job.write_stdin(b"", True)
                self.close()
        finally:
            self._pumping = False

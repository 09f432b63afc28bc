"""Handles to commands running in the VM.

An exec is a record in the daemon, named by an id its caller mints. A handle is only that name and a way to reach
it: it can be made again from the id alone, in another process, after any crash, and every verb but a write to
standard input may be repeated. The order that loses nothing: `start`, follow as wanted, `wait` (which reads the
record), and `ack` only once the result is safe, since an ack is what lets the daemon forget it (contract a.2 to
a.7, c.8).
"""

import base64
import re
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from agentd.client.body import Answer
from agentd.client.errors import (
    AlreadyAcked,
    OutputReleased,
    StdinClosed,
    StdinWriteTimeout,
    WaitTimedOut,
)
from agentd.client.follow import STREAM_BACKOFF, ByteStream, Follow, exec_path
from agentd.client.messages import KillResponse, PollResponse, StdinResponse
from agentd.client.retry import Backoff
from agentd.client.sse import Gap
from agentd.client.transport import Transport

LONG_POLL_SECONDS = 25
"""What `wait` asks the daemon to hold a poll for: below the idle limits of what may stand in between."""

PIPE_BUF = 4096
"""A write of so many bytes to a pipe is taken whole or not at all (pipe(7))."""

KILL_TIMEOUT_SECONDS = 60.0
"""A kill answers when the group is gone, up to the daemon's grace (10 s by default) and a little more."""


def start_body(
    exec_id: str,
    command: Sequence[str],
    *,
    shell: bool | str = False,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    user: int | str | None = None,
    group: int | str | None = None,
    timeout: float | None = None,
    stdin: bool = False,
    reap_group_on_exit: bool = False,
    inherit_image_env: bool = False,
    digest: bool = False,
) -> bytes:
    """The JSON of a start request; what is at its default is left out, so that any daemon understands it.

    Raises:
        ValueError: the request could not be sent at all: an empty id, or a command that is not a list of strings.
    """
    if not exec_id:
        raise ValueError("an exec id is a string of at least one character")
    if isinstance(command, (str, bytes)) or not all(isinstance(word, str) for word in command):
        raise ValueError("a command is a list of strings")
    optional: dict[str, Any] = {
        "shell": shell,
        "cwd": cwd,
        "env": dict(env) if env else None,
        "user": user,
        "group": group,
        "timeout_sec": timeout,
        "stdin": stdin,
        "reap_group_on_exit": reap_group_on_exit,
        "inherit_image_env": inherit_image_env,
        "digest": digest,
    }
    chosen = {name: value for name, value in optional.items() if value is not None and value is not False}
    return msgspec.json.encode({"exec_id": exec_id, "command": list(command), **chosen})


def wait_applied(answer: Answer) -> bool:
    """Whether the daemon held the answer as `Prefer: wait` asked (RFC 7240, section 3)."""
    return re.search(r"(^|[,;\s])wait\s*=", answer.header("preference-applied") or "") is not None


class Exec:
    """A handle to one exec.

    Args:
        transport: requests to the daemon.
        exec_id: its id.
        poll_interval: seconds between polls of a daemon that does not hold them.
        last: the last answer about it, where there was one.
    """

    def __init__(
        self,
        transport: Transport,
        exec_id: str,
        *,
        poll_interval: float = 1.0,
        last: PollResponse | None = None,
    ) -> None:
        if not exec_id:
            raise ValueError("an exec id is a string of at least one character")
        self.exec_id = exec_id
        self._transport = transport
        self._poll_interval = poll_interval
        self._last = last if last is not None and last.has_outcome else None

    def __repr__(self) -> str:
        return f"<Exec {self.exec_id!r}>"

    async def poll(self) -> PollResponse:
        """Its record as it is; changes nothing (contract a.3).

        Raises:
            UnknownExec: there is none of this id.
        """
        return (await self._poll(None))[0]

    async def _poll(self, hold: int | None) -> tuple[PollResponse, bool]:
        headers = {} if hold is None else {"Prefer": f"wait={hold}"}
        poll, answer = await self._transport.call(
            "GET",
            exec_path(self.exec_id),
            PollResponse,
            headers=headers,
            timeout=self._transport.timeout + (hold or 0),
        )
        if poll.has_outcome:
            self._last = poll
        return poll, hold is not None and wait_applied(answer)

    async def wait(self, timeout: float | None = None) -> PollResponse:
        """Wait for the result and return it, whole; the exec stays unacknowledged.

        The result is read from the record. Asks the daemon to hold the answer, and polls where it does not.

        Args:
            timeout: seconds to wait at most; None for as long as it takes.

        Raises:
            WaitTimedOut: still running then.
            OutputReleased: it was acknowledged before its result was read here.
            UnknownExec: there is none of this id, or it was collected.
        """
        seconds = self._transport.reactor.seconds
        deadline = None if timeout is None else seconds() + timeout
        if self._last is not None:
            return self._last
        while True:
            left = None if deadline is None else deadline - seconds()
            hold = LONG_POLL_SECONDS if left is None else min(LONG_POLL_SECONDS, int(left))
            poll, held = await self._poll(hold if hold > 0 else None)
            if poll.has_outcome:
                return poll
            if poll.phase == "acked":
                raise OutputReleased(f"exec {self.exec_id!r} was acknowledged; its result is gone")
            left = None if deadline is None else deadline - seconds()
            if left is not None and left <= 0:
                raise WaitTimedOut(f"exec {self.exec_id!r} still runs after {timeout:g} seconds")
            if not held:
                await self._transport.pause(
                    self._poll_interval if left is None else min(self._poll_interval, left)
                )

    async def ack(self) -> PollResponse:
        """Release the result: the daemon may forget it from now on (contract a.6).

        Returns:
            the record, with the result once more.

        Raises:
            StillRunning, UnknownExec: as they say.
            AlreadyAcked: it was acknowledged before. When only the answer to this very call was lost and the
                result had been read here, that result is returned instead.
        """
        try:
            poll, _ = await self._transport.call("POST", exec_path(self.exec_id, "ack"), PollResponse)
        except AlreadyAcked as fault:
            if fault.attempts > 1 and self._last is not None:
                return msgspec.structs.replace(self._last, phase="acked")
            raise
        self._last = poll
        return poll

    async def kill(self) -> bool:
        """End its whole process group, TERM first and KILL after the grace (contract a.7, c.6). May be repeated.

        Returns:
            whether anything was left to signal.
        """
        answer, _ = await self._transport.call(
            "POST", exec_path(self.exec_id, "kill"), KillResponse, timeout=KILL_TIMEOUT_SECONDS
        )
        return answer.killed

    def follow(self, offset: int = 0, backoff: Backoff = STREAM_BACKOFF) -> Follow:
        """Both streams, in the order the daemon read them, with gaps and the exit."""
        return Follow(self._transport, self.exec_id, offset, backoff)

    def stdout(self, offset: int = 0, on_gap: Callable[[Gap], object] | None = None) -> ByteStream:
        """Standard output alone."""
        return ByteStream(self.follow(offset), "stdout", on_gap)

    def stderr(self, offset: int = 0, on_gap: Callable[[Gap], object] | None = None) -> ByteStream:
        """Standard error alone."""
        return ByteStream(self.follow(offset), "stderr", on_gap)

    async def write(self, data: bytes, *, eof: bool = False) -> StdinResponse:
        """Write to its standard input, and close it afterwards if `eof` (contract a.5).

        Sent once: a repeated write could arrive twice.

        Raises:
            StdinNotRequested, StdinClosed, TooLarge: as they say.
            StdinWriteTimeout: the child does not read; `written` on it is how much was taken, where known.
        """
        body: dict[str, str] = {}
        if data:
            body["data_b64"] = base64.b64encode(data).decode()
        if eof:
            body["signal"] = "eof"
        answer, _ = await self._transport.call(
            "POST",
            exec_path(self.exec_id, "stdin"),
            StdinResponse,
            repeat=False,
            headers={"Content-Type": "application/json"},
            body=msgspec.json.encode(body),
        )
        return answer

    async def close_stdin(self) -> StdinResponse:
        """End of file, and nothing more."""
        return await self.write(b"", eof=True)

    async def feed(self, source: AsyncIterable[bytes], chunk: int = PIPE_BUF) -> int:
        """Write all of `source` and then the end of file, at the pace the child reads.

        A write that timed out is repeated: in pieces of at most `PIPE_BUF` bytes none of it was taken. Larger
        pieces take fewer requests, but then only a daemon that says how much was taken can be gone on with;
        from any other the timeout is raised, since a byte repeated cannot be told from one more.

        Args:
            source: the input.
            chunk: bytes in one write.

        Returns:
            how many bytes were taken.

        Raises:
            StdinClosed: the child closed its end; `written` on it counts what went before.
            StdinWriteTimeout: see above.
        """
        total = 0
        async for data in source:
            rest = memoryview(data)
            while rest:
                try:
                    written = (await self.write(bytes(rest[:chunk]))).written
                except StdinWriteTimeout as timeout:
                    if timeout.written is None and chunk > PIPE_BUF:
                        raise
                    written = timeout.written or 0
                except StdinClosed as closed:
                    closed.written = total + (closed.written or 0)
                    raise
                total += written
                rest = rest[written:]
        await self.close_stdin()
        return total

"""Following an exec's output across cut connections.

A follower is a cursor in the exec's one offset space. It attaches at the cursor, yields what comes, and when
the connection ends without the terminal event it attaches again where it was, along the back-off; any event is
progress and starts the ladder anew. What it yields tiles the space: bytes that a reconnect would deliver twice
are trimmed, and bytes that never came are a `Gap`, whether the daemon announced it or not. A stream that ends
means nothing about the command: only the `ExitEvent` does, and `Exec.wait` reads the record instead (contract
(d), (e) of the seeds' "Streaming and stdin").

Nothing is buffered beyond one read of the socket and one unfinished event; a slow reader stops the socket, and
the daemon then drops what leaves its window and says so.
"""

from collections import deque
from collections.abc import Callable
from urllib.parse import quote

from agentd.client.body import Body
from agentd.client.errors import AnswerError, StreamLost, TransportFault
from agentd.client.messages import ExitEvent
from agentd.client.retry import Backoff, Fault
from agentd.client.sse import Event, EventParser, Gap, Output, Stream
from agentd.client.transport import Transport

STREAM_BACKOFF = Backoff()
"""0.25, 0.5, 1, 2 and 4 seconds (contract (d))."""


def exec_path(exec_id: str, verb: str = "") -> str:
    """The path of an exec's route; the id is one percent-encoded segment, whatever is in it (contract a.0)."""
    segment = quote(exec_id, safe="")
    if set(segment) <= {"."}:
        segment = segment.replace(".", "%2E")
    return f"/v1/exec/{segment}" + (f"/{verb}" if verb else "")


class Follow:
    """An asynchronous iterator over `Output`, `Gap` and, last, one `ExitEvent`.

    Close it when leaving before the end (or use it in an ``async with``). Any number may follow one exec.

    Args:
        transport: requests to the daemon.
        exec_id: whose output.
        offset: where to begin.
        backoff: the pauses between fruitless attempts; when they are used up, `StreamLost`.
    """

    def __init__(
        self, transport: Transport, exec_id: str, offset: int = 0, backoff: Backoff = STREAM_BACKOFF
    ) -> None:
        if offset < 0:
            raise ValueError("an offset is 0 or more")
        self._transport = transport
        self._exec_id = exec_id
        self._backoff = backoff
        self._body: Body | None = None
        self._parser = EventParser()
        self._ready: deque[Event] = deque()
        self._failures = 0
        self._done = False
        self.cursor = offset
        """The offset after the last byte yielded: where another follower would go on."""
        self.lost = 0
        """How many bytes the gaps held so far."""

    def __aiter__(self) -> "Follow":
        return self

    async def __aenter__(self) -> "Follow":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def __anext__(self) -> Event:
        """The next event.

        Raises:
            StreamLost: cut, and the back-off is used up.
            AnswerError: the daemon refuses, for instance `UnknownExec` or `CredentialFault`.
            ProtocolFault: the stream breaks the contract.
        """
        while not self._ready:
            if self._done:
                raise StopAsyncIteration
            await self._advance()
        event = self._ready.popleft()
        if isinstance(event, ExitEvent):
            self.close()
        return event

    def close(self) -> None:
        """Detach; the exec does not notice. May be repeated."""
        self._done = True
        self._ready.clear()
        body, self._body = self._body, None
        if body is not None:
            body.close()

    async def _advance(self) -> None:
        """One step: attach, or take what the connection brings."""
        try:
            if self._body is None:
                answer = await self._transport.open(
                    "GET",
                    exec_path(self._exec_id, "stream"),
                    query=[("offset", str(self.cursor))],
                    headers={"Accept": "text/event-stream"},
                )
                if self._done:
                    answer.body.close()
                    return
                self._body, self._parser = answer.body, EventParser()
            self._parser.check()
            data = await self._body.read()
            if not data:
                raise TransportFault("the stream ended before the exit event")
            for event in self._parser.feed(data):
                self._failures = 0
                self._place(event)
        except (TransportFault, AnswerError) as fault:
            self._drop()
            if self._done:
                return
            if fault.fault is not Fault.RETRYABLE:
                raise
            self._failures += 1
            delay = self._backoff.after(self._failures)
            if delay is None:
                raise StreamLost(self.cursor, str(fault)) from None
            await self._transport.pause(delay)

    def _place(self, event: Event) -> None:
        """Queue `event` so that what is yielded tiles the offsets from where this follower began."""
        if isinstance(event, Output):
            self._skip_to(event.offset)
            fresh = event.data[self.cursor - event.offset :]
            if fresh:
                self._ready.append(Output(self.cursor, event.stream, fresh))
                self.cursor += len(fresh)
        elif isinstance(event, Gap):
            self._skip_to(event.end)
        else:
            self._skip_to(event.offset)
            self._ready.append(event)

    def _skip_to(self, offset: int) -> None:
        if offset > self.cursor:
            self._ready.append(Gap(self.cursor, offset))
            self.lost += offset - self.cursor
            self.cursor = offset

    def _drop(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.close()


class ByteStream:
    """One of an exec's two streams as an asynchronous iterator of bytes, over a connection of its own.

    Two connections rather than one split in two: a reader of one stream then never makes the library hold the
    other's bytes, and stopping to read one does not stop the other.

    Args:
        follow: the follower to filter.
        stream: which of the two.
        on_gap: called with each gap; a gap cannot say which of the streams its bytes belonged to.
    """

    def __init__(self, follow: Follow, stream: Stream, on_gap: Callable[[Gap], object] | None = None) -> None:
        self._follow = follow
        self._stream = stream
        self._on_gap = on_gap

    @property
    def lost(self) -> int:
        """How many bytes, of both streams, were lost to gaps so far."""
        return self._follow.lost

    def __aiter__(self) -> "ByteStream":
        return self

    async def __aenter__(self) -> "ByteStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def __anext__(self) -> bytes:
        """The next bytes of this stream; the iteration ends with the exec's `ExitEvent`."""
        async for event in self._follow:
            if isinstance(event, Output) and event.stream == self._stream:
                return event.data
            if isinstance(event, Gap) and self._on_gap is not None:
                self._on_gap(event)
        raise StopAsyncIteration

    def close(self) -> None:
        """Detach. May be repeated."""
        self._follow.close()

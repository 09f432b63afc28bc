"""``GET /v1/exec/{id}/stream``: an exec's output as server-sent events (contract d).

An event's frame is made once and shared by every reader at the same offset, because a hundred readers of one exec
ask for the same pieces; a few recent frames per exec are kept for that.
"""

from base64 import b64encode
from collections import OrderedDict
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from agentd.config import PIECE_BYTES
from agentd.http import sse
from agentd.http.messages import EVENTS, HANDED_OVER, Answer
from agentd.http.query import Malformed, unsigned
from agentd.http.reading import malformed, read_query
from agentd.http.request import AgentRequest
from agentd.microvm import shapes
from agentd.microvm.context import Daemon
from agentd.microvm.exec import unknown, usage
from agentd.process.follow import Follower, Item, Piece
from agentd.process.job import Job
from agentd.process.output import Output
from agentd.process.table import Exec
from agentd.rules.output import End, Gap

FRAMES_KEPT: Final = 16
"""Recent frames kept per exec that is being streamed: some 350 KiB at most."""
HEADERS: Final = ((b"Cache-Control", b"no-cache"), (b"X-Accel-Buffering", b"no"))

_encode = msgspec.json.Encoder().encode


def output_frame(piece: Piece) -> bytes:
    """The event of a piece. Written out by hand: nothing in it needs escaping, and it is the hot path."""
    data = b'{"offset":%d,"stream":"%s","output":"%s"}' % (
        piece.offset,
        shapes.STREAMS[piece.stream].value.encode(),
        b64encode(piece.data),
    )
    return sse.event(b"output", data, piece.offset + len(piece.data))


def gap_frame(gap: Gap) -> bytes:
    """The event of a gap."""
    return sse.event(b"gap", _encode(shapes.GapEvent(gap.start, gap.end)), gap.end)


def exit_frame(job: Job) -> bytes:
    """The last event."""
    outcome = job.outcome
    assert outcome is not None
    total = job.output.span.total
    event = shapes.ExitEvent(
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        timed_out=outcome.timed_out,
        truncated=job.output.truncated,
        writers_may_be_alive=outcome.writers_may_be_alive,
        offset=total,
        bytes_total=total,
        cause=outcome.cause,
        usage=usage(outcome),
        sha256=msgspec.UNSET if job.sha256 is None else job.sha256,
    )
    return sse.event(b"exit", _encode(event), total)


class _Frames:
    """Recent frames of one output, by where their piece starts and ends."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def of(self, piece: Piece) -> bytes:
        key = (piece.offset, len(piece.data))
        frame = self._kept.get(key)
        if frame is None:
            frame = self._kept[key] = output_frame(piece)
            if len(self._kept) > FRAMES_KEPT:
                self._kept.popitem(last=False)
        return frame


class _Reader:
    """One caller following one exec."""

    def __init__(self, request: AgentRequest, job: Job, offset: int, daemon: Daemon, frames: _Frames) -> None:
        self._request = request
        self._job = job
        self._frames = frames
        self._keepalive = daemon.config.sse_keepalive_secs
        self._clock = daemon.clock
        slack = daemon.config.stream_channel_capacity * PIECE_BYTES
        self._follower = Follower(job.output, offset, self, daemon.clock.callLater, slack)
        request.start_stream(200, EVENTS, HEADERS)
        request.write(b"")
        request.registerProducer(self._follower, True)
        request.when_gone(self._gone)
        self._timer: Any = self._clock.callLater(self._keepalive, self._silent)
        self._follower.start()

    def deliver(self, items: list[Item]) -> None:
        """Write what the follower has."""
        self._timer.reset(self._keepalive)
        last = isinstance(items[-1], End)
        self._request.write(b"".join([self._frame(item) for item in items]))
        if last:
            self._timer.cancel()
            self._request.unregisterProducer()
            self._request.finish()

    def _frame(self, item: Item) -> bytes:
        if isinstance(item, Piece):
            return self._frames.of(item)
        if isinstance(item, Gap):
            return gap_frame(item)
        return exit_frame(self._job)

    def _silent(self) -> None:
        self._timer = self._clock.callLater(self._keepalive, self._silent)
        if not self._follower.paused:
            self._request.write(sse.KEEP_ALIVE)

    def _gone(self) -> None:
        self._follower.stop()
        if self._timer.active():
            self._timer.cancel()


class StreamRoute:
    """The handler."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._frames: WeakKeyDictionary[Output, _Frames] = WeakKeyDictionary()

    def stream(self, request: AgentRequest, id: str) -> Answer:
        """``GET /v1/exec/{id}/stream``. A bad offset is refused before the id is looked up (contract a.4)."""
        offset = _offset(request)
        entry: Exec | None = self._daemon.execs.get(id)
        if entry is None:
            raise unknown(id)
        if request.method == b"HEAD":
            request.start_stream(200, EVENTS, HEADERS)
            request.finish()
            return HANDED_OVER
        frames = self._frames.setdefault(entry.job.output, _Frames())
        _Reader(request, entry.job, offset, self._daemon, frames)
        return HANDED_OVER


def _offset(request: AgentRequest) -> int:
    given = read_query(request).get("offset")
    name = "offset"
    if given is None:
        lines = request.requestHeaders.getRawHeaders(b"last-event-id")
        if not lines:
            return 0
        given, name = lines[0].decode("latin-1").strip(), "Last-Event-ID"
    try:
        return unsigned(given, name)
    except Malformed as reason:
        raise malformed(str(reason)) from None

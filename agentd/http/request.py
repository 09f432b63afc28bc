"""One request: decided when its headers are complete, its body streamed, its answer always delivered.

Theory of operation
-------------------
twisted.web reads a whole body, to memory or a temporary file, before anybody may look at the request. Here the
request is dispatched as soon as its headers are complete, so that a refusal costs nothing (contract a.0, i.1):

    headers ──► dispatch ──► handler reads the body        ──► answer when the handler is done
                   └───────► refused, body not yet here    ──► drain, then answer   (short body: keep-alive)
                                                           └─► answer, then linger  (long body: close)

*Drain*: up to `max_drain_bytes` of the refused body are read and dropped before the answer is sent, so that the
connection can be used again. *Linger*: closing a socket with unread bytes makes the kernel send a reset, which
can overtake the answer; so after an early answer the write half is closed and a bounded amount is still read.

A body that nobody has asked for yet is held back by pausing the transport; what came in the same read (at most
one buffer of 64 KiB) waits in memory.

The names of Twisted that this module relies on beyond its documented interface are `HTTPChannel._command`,
`_path`, `_version`, and that it calls `gotLength`, `handleContentChunk` and `requestReceived` in that order;
``tests/http/test_canaries.py`` fails when a release changes them.
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web import server
from twisted.web.http import NO_BODY_CODES, RESPONSES, datetimeToString

from agentd._version import VERSION
from agentd.config import LINGER_BYTES, LINGER_SECS
from agentd.http.messages import Headers, Response
from agentd.rules.bootstrap import bearer_token

VERSION_HEADER: Final = b"microvms-agentd-version"
_VERSION_LINE: Final = VERSION_HEADER + b": " + VERSION.encode() + b"\r\n"


class BodyTooLarge(Exception):
    """The body went over its cap while it arrived."""


class CallerGone(Exception):
    """The connection ended before the body did."""


class BodySink(Protocol):
    """Takes a body as it arrives."""

    def data(self, chunk: bytes) -> None:
        """The next bytes. To hold back more, call the request's `pause_body`."""

    def end(self) -> None:
        """The body is complete."""

    def lost(self, reason: Exception) -> None:
        """The body will not be completed: `BodyTooLarge` or `CallerGone`."""


class _Collector:
    """Gathers a small body into memory."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.result: Deferred[bytes] = Deferred()

    def data(self, chunk: bytes) -> None:
        self.chunks.append(chunk)

    def end(self) -> None:
        self.result.callback(b"".join(self.chunks))

    def lost(self, reason: Exception) -> None:
        self.chunks.clear()
        self.result.errback(Failure(reason))


class _Discarder(_Collector):
    """Reads a body that nobody wants to its end."""

    def data(self, chunk: bytes) -> None:
        pass


class _Date:
    """The Date header, made once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def line(self) -> bytes:
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._line = b"Date: " + datetimeToString(now) + b"\r\n"
        return self._line


_date = _Date()
_STATUS_LINES: Final = {
    (version, code): b"%s %d %s\r\n" % (version, code, RESPONSES.get(code, b"Status"))
    for version in (b"HTTP/1.1", b"HTTP/1.0")
    for code in range(200, 600)
}


def origin_form(target: bytes) -> bytes:
    """The path and query of a request target, which may name the whole URL (RFC 9112 3.2.2)."""
    scheme, found, rest = target.partition(b"://")
    if not found or scheme.lower() not in (b"http", b"https"):
        return target
    authority = re.match(rb"[^/?]*", rest)
    assert authority is not None
    path = rest[authority.end() :]
    return path if path.startswith(b"/") else b"/" + path


class AgentRequest(server.Request):
    """One request on a connection of `agentd.http.site.AgentSite`."""

    site: Any
    channel: Any
    query: bytes = b""
    declared: int | None = 0
    """Declared length of the body in bytes; None for a chunked body."""
    complete = False
    """Whether the whole body has arrived."""
    received_bytes = 0

    _sink: BodySink | None = None
    _limit: int | None = None
    _early: list[bytes] | None = None
    _paused = False
    _pending: Response | None = None
    """A refusal that waits for the drain."""
    _answered_early = False
    _timer: DelayedCall | None = None
    _in_flight = False
    _continue_held = False

    if TYPE_CHECKING:  # Twisted's own carry no types.

        def write(self, data: bytes) -> None: ...
        def registerProducer(self, producer: Any, streaming: bool) -> None: ...

    def __init__(self, channel: Any, *args: Any, **kw: Any) -> None:
        super().__init__(channel, *args, parsePOSTFormSubmission=False, **kw)
        self._on_gone: list[Callable[[], None]] = []

    # -- what a handler uses ---------------------------------------------------------------------------

    @property
    def gone(self) -> bool:
        """Whether the caller has left."""
        return self._disconnected

    @property
    def bearer(self) -> bytes | None:
        """The bearer token of the first Authorization header, or None."""
        lines = self.requestHeaders.getRawHeaders(b"authorization")
        return bearer_token(lines[0]) if lines else None

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the caller leaves before the answer is complete."""
        self._on_gone.append(callback)

    def hold_continue(self) -> None:
        """Send the interim 100 only when the body is asked for, so that a refusal can come instead of it."""
        expected = self.requestHeaders.getRawHeaders(b"expect")
        if expected and expected[0].lower() == b"100-continue" and self.clientproto == b"HTTP/1.1":
            self._continue_held = not self.complete
            self.requestHeaders.removeHeader(b"expect")

    def read_body(self, limit: int) -> Deferred[bytes]:
        """The whole body; fails with `BodyTooLarge` beyond `limit` bytes, or `CallerGone`."""
        collector = _Collector()
        self.stream_body(collector, limit)
        return collector.result

    def discard_body(self, limit: int) -> Deferred[bytes]:
        """Read the body to its end and drop it; fails as `read_body` does."""
        discarder = _Discarder()
        self.stream_body(discarder, limit)
        return discarder.result

    def stream_body(self, sink: BodySink, limit: int) -> None:
        """Hand the body to `sink` as it arrives, `limit` bytes at most. Once per request."""
        if self._sink is not None:
            raise RuntimeError("the body has a reader already")
        self._sink, self._limit = sink, limit
        early, self._early = self._early, None
        if self._continue_held:
            self._continue_held = False
            if not early and not self.complete and self.channel is not None:
                self.channel.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        for chunk in early or ():
            self._deliver(chunk)
        if self.complete and self._sink is sink:
            self._sink = None
            sink.end()
        elif not self.complete:
            self.resume_body()

    def pause_body(self) -> None:
        """Stop reading from the caller; a little more may still be delivered."""
        if not self._paused and not self.complete and self.channel is not None:
            self._paused = True
            self.channel.hold_body()

    def resume_body(self) -> None:
        """Go on reading."""
        if self._paused and self.channel is not None:
            self._paused = False
            self.channel.release_body()

    def respond(self, response: Response) -> None:
        """Answer, whatever has become of the body. A caller that has gone is answered in silence."""
        if self._disconnected or self.finished or self.startedWriting or self._pending is not None:
            return
        if self.channel.refused:
            return
        if self.complete:
            self._send(response)
            return
        self._sink = self._early = None
        short = self.declared is None or self.declared - self.received_bytes <= self.site.max_drain_bytes
        if short and not self._awaits_continue():
            self._pending = response
            self.received_bytes = 0
            self._timer = self.site.clock.callLater(self.site.drain_secs, self._answer_early, response)
            self.resume_body()
        else:
            self._answer_early(response)

    def start_stream(self, status: int, content_type: bytes, headers: Headers = ()) -> None:
        """Begin an answer of unknown length; go on with `write`, `registerProducer` and `finish`."""
        self.setResponseCode(status)
        self.setHeader(VERSION_HEADER, VERSION.encode())
        self.setHeader(b"Date", _date.line()[6:-2])
        self.setHeader(b"Content-Type", content_type)
        if not self.channel.persistent:
            self.setHeader(b"Connection", b"close")
        for name, value in headers:
            self.setHeader(name, value)

    def unregisterProducer(self) -> None:
        """The stream is over; also after the caller has gone, when there is no connection to tell."""
        if self.channel is None:
            self.producer = None
        else:
            super().unregisterProducer()

    def detach(self) -> None:
        """The connection now belongs to another protocol: this request is over as far as HTTP goes."""
        self._end()

    # -- the answer ------------------------------------------------------------------------------------

    def _send(self, response: Response) -> None:
        self.startedWriting = 1
        self.code = response.status
        body = response.body
        lines = [_STATUS_LINES[self.clientproto, response.status], _VERSION_LINE, _date.line()]
        if response.content_type is not None:
            lines.append(b"Content-Type: %s\r\n" % response.content_type)
        if response.status not in NO_BODY_CODES:
            lines.append(b"Content-Length: %d\r\n" % len(body))
        if not self.channel.persistent:
            lines.append(b"Connection: close\r\n")
        for header in response.headers:
            lines.append(b"%s: %s\r\n" % header)
        lines.append(b"\r\n")
        if self.method != b"HEAD" and response.status not in NO_BODY_CODES:
            lines.append(body)
            self.sentLength = len(body)
        self.channel.write_now(b"".join(lines))
        if not self._answered_early:
            self.finish()

    def _answer_early(self, response: Response) -> None:
        # The channel looks for Expect after we have decided; without the header it sends no 100 any more.
        self.requestHeaders.removeHeader(b"expect")
        self._cancel_timer()
        self._pending = None
        self._answered_early = True
        self.received_bytes = 0
        self.channel.persistent = False
        self._send(response)
        transport = self.channel.transport
        transport.loseWriteConnection()
        self._timer = self.site.clock.callLater(LINGER_SECS, transport.abortConnection)
        self.resume_body()

    def _awaits_continue(self) -> bool:
        expects = self._continue_held or self.requestHeaders.hasHeader(b"expect")
        return expects and self.received_bytes == 0

    def finish(self) -> None:
        """The answer is complete. Once it is, or when an early answer is under way, nothing happens."""
        if self.finished or self._answered_early or self._disconnected:
            return
        self._end()
        super().finish()

    def _end(self) -> None:
        if self._in_flight:
            self._in_flight = False
            self._cancel_timer()
            self._on_gone.clear()
            self.site.request_ended()

    def _cancel_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    # -- what the channel calls ------------------------------------------------------------------------

    def supersede(self) -> None:
        """The connection was ended with an answer of its own, so a verdict that waits is not sent any more."""
        self._pending = None
        self._cancel_timer()

    def parseCookies(self) -> None:
        """Cookies mean nothing to this daemon."""

    def gotLength(self, length: int | None) -> None:
        """The headers are complete; `length` is the body's, None for chunked."""
        channel = self.channel
        self.site = channel.site
        self.method, self.uri, self.clientproto = channel._command, channel._path, channel._version
        self.path, _, self.query = origin_form(self.uri).partition(b"?")
        if self.clientproto != b"HTTP/1.1":
            self.clientproto = b"HTTP/1.0"
        self.declared = length
        if length == 0:
            return
        self._early = []
        self.process()
        if self._sink is None and self._early is not None:
            self.pause_body()

    def handleContentChunk(self, data: bytes) -> None:
        """The next bytes of the body."""
        if self._sink is None and self._early is not None:
            self._early.append(data)
            return
        self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        self.received_bytes += len(data)
        if self._answered_early:
            if self.received_bytes > LINGER_BYTES:
                self.channel.transport.abortConnection()
            return
        if self._pending is not None:
            if self.received_bytes > self.site.max_drain_bytes:
                self._answer_early(self._pending)
            return
        sink = self._sink
        if sink is None:
            return
        if self._limit is not None and self.received_bytes > self._limit:
            self._sink = None
            self._early = None
            sink.lost(BodyTooLarge())
            return
        sink.data(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """The body is complete."""
        self.complete = True
        self._paused = False
        if self.declared == 0:
            self.process()
            return
        if self._answered_early:
            self._answered_early = False
            self.finish()
        elif self._pending is not None:
            response, self._pending = self._pending, None
            self._cancel_timer()
            self._send(response)
        elif self._sink is not None:
            sink, self._sink = self._sink, None
            sink.end()

    def process(self) -> None:
        """Find the handler and run it."""
        self._in_flight = True
        self.site.request_began()
        self.prepath = []
        # Segments stay percent-encoded here, so that %2F is not taken for a separator.
        self.postpath = self.path[1:].split(b"/")
        self.site.dispatch(self)

    def getRequestHostname(self) -> bytes:
        """No route depends on the Host header, so a hostile one cannot matter."""
        return b"localhost"

    def connectionLost(self, reason: Any) -> None:
        """The caller has gone."""
        sink, self._sink = self._sink, None
        callbacks, self._on_gone = self._on_gone, []
        self._cancel_timer()
        super().connectionLost(reason)
        if sink is not None:
            sink.lost(CallerGone())
        for callback in callbacks:
            callback()
        self._end()

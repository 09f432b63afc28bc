"""What `agentd.http` relies on in Twisted, Klein and werkzeug beyond what they document.

A failure here means that an upgrade changed something underneath `agentd.http.request`, `.channel` or `.router`:
read the module that the test names before anything else.
"""

import inspect
from typing import Any

import pytest
from klein import Klein
from twisted.internet import task
from twisted.internet.error import ConnectionLost
from twisted.protocols.basic import LineReceiver
from twisted.protocols.policies import TimeoutMixin
from twisted.python.failure import Failure
from twisted.web import http, server
from twisted.web.http import HTTPChannel, HTTPFactory
from twisted.web.resource import Resource
from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.routing import Map, Rule

from tests.http.support import Transport


class Spy(server.Request):
    """Notes what the channel calls, with what it offers at that moment."""

    calls: list[tuple[Any, ...]]

    def parseCookies(self) -> None:
        self.calls = [("parseCookies",)]

    def gotLength(self, length: int | None) -> None:
        channel = self.channel
        self.calls.append(("gotLength", length, channel._command, channel._path, channel._version))

    def handleContentChunk(self, data: bytes) -> None:
        self.calls.append(("handleContentChunk", data))

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self.calls.append(("requestReceived", command, path, version, self.channel._handlingRequest))


@pytest.fixture
def channel() -> Any:
    """A stock channel whose requests are spies."""
    factory = server.Site(Resource(), reactor=task.Clock(), requestFactory=Spy)
    factory.protocol = HTTPChannel
    made = factory.buildProtocol(None)
    made.makeConnection(Transport())
    yield made
    made.setTimeout(None)


HEAD = (b"POST /p HTTP/1.1", b"POST", b"/p", b"HTTP/1.1")


@pytest.mark.parametrize(
    ("headers", "chunks", "length", "content"),
    [
        (b"", [], 0, []),
        (b"Content-Length: 0\r\n", [], 0, []),
        (b"Content-Length: 5\r\n", [b"he", b"llo"], 5, [b"he", b"llo"]),
        (
            b"Transfer-Encoding: chunked\r\n",
            [b"2\r\nhe\r\n3\r\nllo\r\n", b"0\r\n\r\n"],
            None,
            [b"he", b"llo"],
        ),
    ],
)
def test_a_request_hears_of_its_length_then_its_content_then_its_end(
    channel: Any, headers: bytes, chunks: list[bytes], length: int | None, content: list[bytes]
) -> None:
    """agentd.http.request: the order of calls, and `_command`, `_path`, `_version` at the first."""
    line, command, path, version = HEAD
    channel.dataReceived(line + b"\r\n" + headers + b"\r\n")
    for chunk in chunks:
        channel.dataReceived(chunk)
    assert channel.requests[0].calls == [
        ("parseCookies",),
        ("gotLength", length, command, path, version),
        *(("handleContentChunk", piece) for piece in content),
        ("requestReceived", command, path, version, True),
    ]


def test_100_continue_is_sent_after_the_length_was_told(channel: Any) -> None:
    """agentd.http.request removes the Expect header in between, and then none is sent."""
    head = b"POST /p HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
    channel.dataReceived(head)
    assert channel.transport.value() == b"HTTP/1.1 100 Continue\r\n\r\n"

    class Refusing(Spy):
        def gotLength(self, length: int | None) -> None:
            self.requestHeaders.removeHeader(b"expect")

    factory = server.Site(Resource(), reactor=task.Clock(), requestFactory=Refusing)
    factory.protocol = HTTPChannel
    other = factory.buildProtocol(None)
    other.makeConnection(Transport())
    other.dataReceived(head)
    assert other.transport.value() == b""
    other.setTimeout(None)


def test_the_channel_has_the_state_that_ours_looks_at(channel: Any) -> None:
    """agentd.http.channel."""
    assert channel._handlingRequest is False
    assert (channel._receivedHeaderSize, channel._receivedHeaderCount) == (0, 0)
    assert channel._networkProducer is channel.transport
    assert (channel.requests, channel.line_mode, channel._buffer) == ([], 1, b"")
    channel.dataReceived(b"GET /p HTTP/1.1\r\nA: b\r\nC: d\r\nE")
    assert len(channel.requests) == 1
    assert channel._receivedHeaderSize == len(b"GET /p HTTP/1.1A: bC: d")
    assert channel._receivedHeaderCount == 1
    assert channel._buffer == b"E"
    channel.dataReceived(b"\r\n\r\n")


def test_the_channel_reports_bad_bytes_where_ours_listens(channel: Any) -> None:
    """agentd.http.channel overrides `_respondToBadRequestAndDisconnect` and `lineLengthExceeded`."""
    seen: list[str] = []
    channel._respondToBadRequestAndDisconnect = lambda: seen.append("bad")
    channel.lineLengthExceeded = lambda line: seen.append("long")
    channel.dataReceived(b"nonsense\r\n")
    channel.clearLineBuffer()
    channel.dataReceived(b"x" * (LineReceiver.MAX_LENGTH + 2))
    assert seen == ["bad", "long"]
    assert HTTPChannel.MAX_LENGTH == 16384


def test_a_broken_chunk_is_reported_there_too(channel: Any) -> None:
    """agentd.http.channel."""
    seen: list[str] = []
    channel._respondToBadRequestAndDisconnect = lambda: seen.append("bad")
    channel.dataReceived(b"POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n")
    assert seen == ["bad"]


def test_an_endless_length_raises_out_of_the_header(channel: Any) -> None:
    """agentd.http.channel catches this in `headerReceived`; when it is gone, the catch can go too."""
    with pytest.raises(ValueError, match="digits"):
        channel.dataReceived(b"POST /p HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")


def test_a_resumed_transport_resumes_reading(channel: Any) -> None:
    """agentd.http.channel overrides `resumeProducing` because of this."""
    channel.transport.pauseProducing()
    channel.resumeProducing()
    assert channel.transport.producerState == "producing"


def test_a_timeout_forgets_its_period() -> None:
    """agentd.http.channel gives the site's period to `setTimeout`, because the mixin's own is gone by then."""
    mixin = TimeoutMixin()
    mixin.callLater = task.Clock().callLater
    assert mixin.setTimeout(5) is None
    assert mixin.setTimeout(None) == 5
    assert mixin.timeOut is None


def test_the_site_is_where_ours_expects_it() -> None:
    """agentd.http.channel and .request reach the site through `channel.site`, and its period as `timeOut`."""
    site = server.Site(Resource(), timeout=7, reactor=task.Clock())
    site.protocol = HTTPChannel
    made: Any = site.buildProtocol(None)
    assert made.site is site
    assert site.timeOut == made.timeOut == 7
    assert issubclass(server.Site, HTTPFactory)


def test_a_request_has_the_state_that_ours_looks_at(channel: Any) -> None:
    """agentd.http.request."""
    request = server.Request(channel)
    assert (request.finished, request.startedWriting, request._disconnected) == (0, 0, False)
    assert request.site is None, "a request that never got its length knows no site"
    assert "parsePOSTFormSubmission" in inspect.signature(http.Request.__init__).parameters
    assert http.NO_BODY_CODES == (204, 304)
    assert http.RESPONSES[507]


def test_a_lost_request_has_no_channel_and_its_watchers_hear_of_it(channel: Any) -> None:
    """agentd.http.request and .router: `notifyFinish` fails, after `_disconnected` is set."""
    request = server.Request(channel)
    seen: list[Any] = []
    request.notifyFinish().addErrback(lambda failure: seen.append(request._disconnected))
    request.connectionLost(Failure(ConnectionLost()))
    assert seen == [True]
    assert request.channel is None


def test_klein_answers_what_a_handler_returns_and_nothing_before() -> None:
    """agentd.http.router registers `(request, **parameters)` and returns a Deferred that ends with the request."""
    app = Klein()
    app.url_map.merge_slashes = False
    app.url_map.strict_slashes = True
    seen: list[dict[str, str]] = []
    app.route("/a/<id>", methods=["GET"], endpoint="GET /a/{id}")(lambda request, **p: seen.append(p))
    assert "GET /a/{id}" in app.endpoints
    assert set(inspect.signature(Klein.handle_errors).parameters) == {
        "self",
        "f_or_exception",
        "additional_exceptions",
    }
    assert callable(app.resource().render)


def test_werkzeug_matches_encoded_segments_and_forgives_slashes() -> None:
    """agentd.http.router keeps segments encoded, and fences what werkzeug forgives: leading slashes and case."""
    table = Map([Rule("/a/<id>", methods=["GET"], endpoint="x")], merge_slashes=False, strict_slashes=True)

    def match(path: str, method: str = "GET") -> Any:
        return table.bind("localhost", path_info=path).match(method=method)

    assert match("/a/b%2Fc") == ("x", {"id": "b%2Fc"})
    assert match("//a/b") == ("x", {"id": "b"})
    assert match("/a/b", "get") == ("x", {"id": "b"})
    assert match("/a/b", "HEAD") == ("x", {"id": "b"})
    for path in ("/a/b/", "/a//b", "/a/"):
        with pytest.raises(NotFound):
            match(path)
    with pytest.raises(MethodNotAllowed) as refused:
        match("/a/b", "PUT")
    assert "GET" in (refused.value.valid_methods or ())

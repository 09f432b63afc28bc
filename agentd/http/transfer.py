"""Bodies between a request and `agentd.files`: an upload into a sink, a file into an answer."""

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.tcp import Connection
from twisted.python.failure import Failure

from agentd.files.pump import Flow
from agentd.files.send import ConsumerVanished, FileRead
from agentd.http.messages import HANDED_OVER, Answer, Headers
from agentd.http.request import AgentRequest


class _Upload:
    """Carries a request's body into a sink of `agentd.files`, and the sink's wishes back to the request."""

    def __init__(self, request: AgentRequest) -> None:
        self._request = request
        self._sink: Any = None
        self.result: Deferred[Any] = Deferred(self._cancelled)
        self.flow = Flow(request.pause_body, request.resume_body, self._failed)

    def start(self, sink: Any, limit: int) -> None:
        """Begin; `result` fires with what the sink makes of the whole body."""
        self._sink = sink
        if self.result.called:
            sink.abort()
        else:
            self._request.stream_body(self, limit)

    def data(self, chunk: bytes) -> None:
        self._sink.write(chunk)

    def end(self) -> None:
        self._sink.finish().addCallbacks(self._done, self._fault)

    def lost(self, reason: Exception) -> None:
        def aborted(result: object) -> None:
            self._fault(Failure(reason))

        self._sink.abort().addBoth(aborted)

    def _done(self, result: object) -> None:
        if not self.result.called:
            self.result.callback(result)

    def _fault(self, failure: Failure) -> None:
        if not self.result.called:
            self.result.errback(failure)

    def _failed(self, error: Exception) -> None:
        # The sink cannot go on: answer now rather than when the caller has sent the rest.
        def aborted(result: object) -> None:
            self._fault(Failure(error))

        self._sink.abort().addBoth(aborted)

    def _cancelled(self, _: object) -> None:
        if self._sink is not None:
            self._sink.abort()


async def receive(request: AgentRequest, begin: Callable[[Flow], "Deferred[Any]"], limit: int) -> Any:
    """Carry the body, of at most `limit` bytes, into the sink that `begin` opens; returns what the sink makes of it.

    Fails as the sink does, with `BodyTooLarge`, or with `CallerGone`; the sink is then aborted, and that is over.
    """
    upload = _Upload(request)
    if request.channel is not None:
        request.channel.transport.bufferSize = 262144
    upload.start(await begin(upload.flow), limit)
    return await upload.result


def _socket(request: AgentRequest) -> int | None:
    """A descriptor of its own for the request's connection, where that is a plain socket."""
    transport = getattr(request.channel, "transport", None)
    if not isinstance(transport, Connection) or transport.TLS:
        return None
    try:
        return os.dup(transport.fileno())
    except OSError:  # no descriptor left: it goes the ordinary way
        return None


async def send(
    request: AgentRequest, found: FileRead, status: int, content_type: bytes, headers: Headers
) -> Answer:
    """Answer with the content of `found`, which is closed whatever happens."""
    if found.length is not None:
        headers = (*headers, (b"Content-Length", b"%d" % found.length))
    if request.gone:
        await found.close()
        return HANDED_OVER
    request.start_stream(status, content_type, headers)
    if request.method == b"HEAD":
        await found.close()
    else:
        try:
            await found.send(request, _socket(request))
        except ConsumerVanished:
            return HANDED_OVER
    request.finish()
    return HANDED_OVER

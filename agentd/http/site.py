"""The HTTP server: connections in, requests to the router, a drain on the way out."""

from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.web import server
from twisted.web.resource import Resource

from agentd.config import Config
from agentd.http.channel import AgentChannel
from agentd.http.request import AgentRequest
from agentd.http.router import Router
from agentd.rules import lifecycle
from agentd.rules.lifecycle import Lifecycle, Stage

CLOSE_SECS: Final = 1.0
"""How long a connection may take to send what is left when the daemon closes it."""


class AgentSite(server.Site):
    """A twisted.web site whose requests are decided before their bodies.

    `state` is the daemon's life as `agentd.rules.lifecycle` sees it; `drain` starts the way out.
    """

    requestFactory = AgentRequest
    noisy = False

    def __init__(self, router: Router, config: Config, clock: Any) -> None:
        super().__init__(Resource(), timeout=config.idle_timeout_secs, reactor=clock)
        self.protocol = AgentChannel  # type: ignore[method-assign,assignment]  # without HTTP/2, no wrapper
        self.clock = clock
        self.dispatch = router.dispatch
        self.max_drain_bytes = config.max_drain_bytes
        self.drain_secs = config.drain_secs
        self.header_timeout_secs = config.header_timeout_secs
        self.max_connections = config.max_connections
        self.state = Lifecycle()
        self._connections: set[AgentChannel] = set()
        self._drained: list[Deferred[None]] = []
        self._closed: Deferred[None] | None = None
        self._abort: Any = None

    def startFactory(self) -> None:
        """No access log: nothing to start, and no clock tick to pay for once a second."""

    def stopFactory(self) -> None:
        """The port is closed; connections live until they are done or `abort`."""

    def log(self, request: Any) -> None:
        """No access log: what matters is logged where it happens."""

    def connection_made(self, channel: AgentChannel) -> bool:
        """Whether this connection is within the limit."""
        self._connections.add(channel)
        return len(self._connections) <= self.max_connections

    def connection_lost(self, channel: AgentChannel) -> None:
        """A connection has ended."""
        self._connections.discard(channel)
        if self._closed is not None and not self._connections:
            closed, self._closed = self._closed, None
            if self._abort.active():
                self._abort.cancel()
            closed.callback(None)

    def request_began(self) -> None:
        """A request was dispatched."""
        self.state = lifecycle.request_began(self.state)

    def request_ended(self) -> None:
        """A request's answer is complete, or its caller has gone."""
        self._move(lifecycle.request_ended(self.state))

    def drain(self, seconds: float) -> Deferred[None]:
        """Take on no more work; fires when nothing is in flight, or after `seconds`."""
        self._move(lifecycle.stop(self.state))
        if self.state.stage is Stage.STOPPED:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._drained.append(done)
        timer = self.clock.callLater(seconds, self._expire)

        def stop_timer(result: None) -> None:
            if timer.active():
                timer.cancel()

        return done.addCallback(stop_timer)

    def close(self) -> Deferred[None]:
        """Close every connection once what it has to send is sent; `CLOSE_SECS` later, abort what is left."""
        done: Deferred[None] = Deferred()
        if not self._connections:
            return succeed(None)
        self._closed = done
        self._abort = self.clock.callLater(CLOSE_SECS, self._abort_all)
        for channel in list(self._connections):
            # Ends in this very call where the write half is closed already.
            channel.loseConnection()
        return done

    def _abort_all(self) -> None:
        for channel in list(self._connections):
            channel.transport.abortConnection()

    def _expire(self) -> None:
        self._move(lifecycle.drain_expired(self.state))

    def _move(self, state: Lifecycle) -> None:
        self.state = state
        if state.stage is Stage.STOPPED:
            waiting, self._drained = self._drained, []
            for done in waiting:
                done.callback(None)

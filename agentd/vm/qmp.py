"""QEMU's machine protocol: one JSON object a line, over a UNIX socket (QEMU's qmp-spec).

A connection opens with a greeting and the negotiation of capabilities. Then each command has one answer, in order;
events come between them and are kept, since the last ones tell how a machine ended.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

ANSWER_SECONDS: Final = 20.0
"""How long one command may take. None of those used here waits for anything: the slow ones are asked after."""


_CLOSED: Final = Failure(ConnectionDone())


class MachineRefused(Exception):
    """QEMU answered a command with an error; the message is its own."""


class Monitor(LineReceiver):
    """One connection to a machine."""

    delimiter = b"\n"
    MAX_LENGTH = 1024 * 1024

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._waiting: list[Deferred[Any]] = []
        self._greeted: Deferred[None] = Deferred()
        self._gone = False
        self.events: list[dict[str, Any]] = []
        """Everything that was reported, oldest first."""
        self.on_event: Callable[[dict[str, Any]], object] | None = None
        self.lost: Deferred[None] = Deferred()
        """Fires when the connection has ended."""

    def lineReceived(self, line: bytes) -> None:
        message = json.loads(line)
        if "event" in message:
            self.events.append(message)
            if self.on_event is not None:
                self.on_event(message)
        elif "QMP" in message:
            self._greeted.callback(None)
        elif self._waiting:
            answer = self._waiting.pop(0)
            if answer.called:
                return
            if "error" in message:
                answer.errback(MachineRefused(message["error"].get("desc", "no reason given")))
            else:
                answer.callback(message["return"])

    def connectionLost(self, reason: Failure = _CLOSED) -> None:
        self._gone = True
        waiting, self._waiting = [self._greeted, *self._waiting], []
        for each in waiting:
            if not each.called:
                each.errback(reason)
        self._greeted.addErrback(lambda _: None)
        self.lost.callback(None)

    async def negotiate(self) -> None:
        """Open the connection for commands."""
        self._greeted.addTimeout(ANSWER_SECONDS, self._reactor)
        await self._greeted
        await self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> "Deferred[Any]":
        """Give a command; what it returns.

        Raises `MachineRefused`, and what Twisted raises for a connection that is lost.
        """
        answer: Deferred[Any] = Deferred()
        if self._gone:
            answer.errback(ConnectionDone())
            return answer
        self._waiting.append(answer)
        request: dict[str, Any] = {"execute": command}
        if arguments:
            request["arguments"] = {name.replace("_", "-"): value for name, value in arguments.items()}
        send: Callable[[bytes], None] = self.sendLine
        send(json.dumps(request).encode())
        return answer.addTimeout(ANSWER_SECONDS, self._reactor)

    def close(self) -> None:
        """End the connection; `lost` tells when it has."""
        transport: Any = self.transport
        transport.loseConnection()

    @property
    def shutdown(self) -> str | None:
        """Why the machine shut down, in QEMU's words; None while it has not."""
        reasons = [event["data"]["reason"] for event in self.events if event["event"] == "SHUTDOWN"]
        return reasons[-1] if reasons else None


async def connect(reactor: Any, path: Path) -> Monitor:
    """A negotiated connection to the machine that listens at `path`.

    Raises what Twisted raises when nobody does.
    """
    endpoint = UNIXClientEndpoint(reactor, str(path), timeout=ANSWER_SECONDS)
    monitor: Any = await endpoint.connect(Factory.forProtocol(lambda: Monitor(reactor)))
    found: Monitor = monitor
    await found.negotiate()
    return found

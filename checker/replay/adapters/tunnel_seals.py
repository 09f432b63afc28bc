"""A client's end of a tunnel's seals, and the daemon's connection to it."""

from copy import copy

from attrs import define

from agentd.rules.tunnel import flags
from agentd.tunnel import noise
from agentd.tunnel.relay import Relay
from checker.replay.adapters.tunnel_path import Sent
from checker.replay.network import Connection
from checker.replay.websocket import CLOSE, frames

SEED = bytes(range(32))
"""The VM's secret."""


class End:
    """A client's end of the seals."""

    def __init__(self, secret: bytes) -> None:
        self._handshake = noise.initiator(secret, noise.public_key(SEED))
        self._session: noise.Session | None = None

    def twin(self) -> "End":
        """Another that opens what this one will."""
        found = copy(self)
        found._handshake = copy(self._handshake)
        found._handshake._steps = list(self._handshake._steps)
        found._handshake._cipher = copy(self._handshake._cipher)
        if self._session is not None:
            sending, receiving = copy(self._session._sending), copy(self._session._receiving)
            found._session = noise.Session(sending, receiving, self._session.handshake_hash)
        return found

    def greet(self, offers: bool) -> bytes:
        """The first message of the handshake."""
        return self._handshake.write(flags(offers))

    def read(self, message: bytes) -> bytes | None:
        """What a message of the daemon's says, the second of the handshake or the next that is sealed; None when it
        does not open."""
        try:
            if self._session is not None:
                return self._session.open(message)
            payload = self._handshake.read(message)
            self._session = self._handshake.split()
        except noise.NoiseError:
            return None
        return payload

    def seal(self, data: bytes) -> bytes:
        """The next message to the daemon."""
        assert self._session is not None
        return self._session.seal(data)


@define(eq=False)
class Socket:
    """The daemon's connection to the client."""

    connection: Connection
    seen: int
    """Bytes of the daemon's that were looked at."""
    over: bool = False
    """Whether its close frame, or its end of the connection, was seen."""

    @property
    def relay(self) -> Relay:
        """The daemon's end."""
        relay = self.connection.channel.dataReceived.__self__
        assert isinstance(relay, Relay)
        return relay

    def news(self) -> list[Sent | None]:
        """What the daemon has sent since the last time: its frames, and None when it ended the connection without a
        close frame."""
        told, length = frames(self.connection.received[self.seen :])
        self.seen += length
        found: list[Sent | None] = list(told)
        if not self.over:
            self.over = any(opcode == CLOSE for opcode, _ in told)
            if self.connection.closed and not self.over:
                self.over = True
                found.append(None)
        return found

"""The client library's end of a tunnel, over a network in memory: the code that `agentctl` runs, as somebody uses it.

What comes is read as soon as it is there, and what the reader gets is what the local connection would: bytes, an end,
or a failure.
"""

from collections.abc import Iterator
from typing import Any, Final

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from agentd.client.errors import AgentError
from agentd.client.retry import Backoff
from agentd.client.transport import Transport
from agentd.client.tunnel import Tunnel, TunnelRefused, Tunnels, Verify
from agentd.client.websocket import Socket
from agentd.rules.tunnel import Stage, Verdict
from checker.models.tunnel_terms import Frames, Near, Party
from checker.replay.adapter import compared
from checker.replay.adapters.tunnel_path import Sent
from checker.replay.network import Dial, Timers
from checker.replay.websocket import BINARY, CLOSE, kind, pieces, served

URL: Final = "http://192.0.2.2:9000"
TIMERS: Final = ("openHandshakeTimeout", "closeHandshakeTimeout", "serverConnectionDropTimeout")
"""Settings of a `Socket` whose timers run on the reactor of the process, which is none of a run's."""


@define(eq=False)
class Library:
    """One tunnel of the library's."""

    port: int
    token: bytes = field(repr=False)
    keys: Verify | None = field(repr=False)
    """What it is pinned to, if it is a verified one."""
    clock: Timers = field(init=False, factory=Timers)
    tunnel: Tunnel | None = field(init=False, default=None)
    opening: "Deferred[None]" = field(init=False)
    got: bytes = field(init=False, default=b"")
    saw: str = field(init=False, default="")
    """How the stream ended for its reader: ``eof`` or ``reset``."""
    failure: BaseException | None = field(init=False, default=None)
    """Why it did, or why there is no tunnel."""
    dial: Dial = field(init=False)
    _seen: int = field(init=False, default=0)
    _over: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        """Ask for the tunnel."""
        for name in TIMERS:
            setattr(Socket, name, 0)
        transport = Transport(
            URL,
            reactor=self.clock,
            http=None,  # type: ignore[arg-type]  # nothing but tunnels is asked for
            token=self.token.decode(),
            proxy=None,
            port=9000,
            backoff=Backoff(),
            timeout=1.0,
            idle=1.0,
        )
        tunnels = Tunnels(transport, None, _nothing)
        self.opening = Deferred.fromCoroutine(self._open(tunnels))
        self.clock.settle()
        (self.dial,) = self.clock.dials
        self.dial.accept()
        self.clock.settle()

    async def _open(self, tunnels: Tunnels) -> None:
        try:
            self.tunnel = await tunnels.open(self.port, verify=self.keys)
        except BaseException as reason:
            self.failure = reason
        else:
            self._read()

    def _read(self) -> None:
        assert self.tunnel is not None
        Deferred.fromCoroutine(self.tunnel.receive()).addCallbacks(self._received, self._failed)

    def _received(self, data: bytes) -> None:
        if data:
            self.got += data
            self._read()
        else:
            self.saw = "eof"

    def _failed(self, failure: Failure) -> None:
        self.saw, self.failure = "reset", failure.value

    def upgrade(self) -> bytes:
        """The request, which is all that it has sent when it begins."""
        self._seen = len(self._transport.sent)
        return bytes(self._transport.sent)

    @property
    def _transport(self) -> Any:
        return self.dial.transport

    def hear(self, data: bytes) -> None:
        """Bytes of the daemon's arrive."""
        self.dial.send(data)
        self.clock.settle()

    def lose(self) -> None:
        """The far end of the connection is gone."""
        self.dial.fail()
        self.clock.settle()

    def says(self, data: bytes) -> None:
        """The local side sends something."""
        assert self.tunnel is not None
        Deferred.fromCoroutine(self.tunnel.send(data)).addErrback(self._failed)
        self.clock.settle()

    def ends(self, *, broken: bool) -> None:
        """The local side sends its last, or breaks; before there is a tunnel, it is not wanted any more."""
        if self.tunnel is None:
            self.opening.cancel()
        elif broken:
            self.tunnel.fail()
        else:
            self.tunnel.end()
        self.clock.settle()

    def read(self, one: Sent | None) -> None:
        """A frame arrives; a close frame, and with it the end of the connection, which is the daemon's to make."""
        if one is not None:
            self.hear(served(*one))
        if one is None or one[0] == CLOSE:
            self.lose()

    def differences(self, near: Near, local: Party) -> Iterator[str]:
        """What of its state, and of what its reader has had, is not as the model has it."""
        stage, verdict = near.client.stage, near.client.verdict
        if self.tunnel is not None:
            yield from compared("the client's end", near.client, self.tunnel._state)
            yield from compared("what the reader has had", (local.got, local.saw), (self.got, self.saw))
        elif stage is Stage.HANDSHAKE:
            yield from compared("the tunnel is being opened", None, self.failure)
        elif verdict is Verdict.LEFT:
            yield from compared("the opening", "CancelledError", type(self.failure).__name__)
        else:
            pinned = "does not hold the pinned key" in str(self.failure)
            refused = isinstance(self.failure, TunnelRefused) and not pinned
            yield from compared("a tunnel that is refused", verdict is Verdict.REFUSED, refused)

    def sent(self) -> list[bytes | None]:
        """The frames it has sent since the last time, None for the end of the connection."""
        told, length = pieces(bytes(self._transport.sent[self._seen :]))
        self._seen += length
        found: list[bytes | None] = list(told)
        if self._transport.disconnecting and not self._over:
            self._over = True
            found.append(None)
        return found

    def close(self) -> list[str]:
        """It is given up. What of it is left, a line each."""
        self.opening.cancel()
        if self.dial.open:
            self.lose()
        for name in TIMERS:
            if name in Socket.__dict__:
                delattr(Socket, name)
        return [f"a timer of the client's: {call.func.__qualname__}" for call in self.clock.arm()]


async def _nothing(port: int) -> Any:
    raise AgentError("there is no proxy that could say more")


def shown(piece: bytes | None) -> str:
    """A frame that it sent, for a person to read and for comparison."""
    if piece is None:
        return "end"
    opcode, code = kind(piece)
    return f"close {code}" if opcode == CLOSE else "message" if opcode == BINARY else f"kind {opcode}"


def sent_as(expected: Frames, closed: bool, found: list[bytes | None]) -> list[bytes | None]:
    """What it sent, as the model speaks of that.

    A direction is closed once: by a close frame, or by the end of the connection, which may come with an answer to the
    daemon's close frame.
    """
    closing = [place for place, one in enumerate(found) if one is None or kind(one)[0] == CLOSE]
    if not closing:
        return found
    kept = found[: closing[0]]
    if closed:
        return kept
    if not expected or expected[-1].kind not in ("lost", "close"):
        return found
    return [*kept, None] if expected[-1].kind == "lost" else [*kept, found[closing[0]]]

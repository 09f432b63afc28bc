"""Connections to ports inside the VM, each over a WebSocket of its own (contract (f)).

What a tunnel does and what its end proves is decided by the client's half of `agentd.rules.tunnel`; this module
carries it out. `Tunnels.open` returns once the upgrade, and in a verified tunnel the handshake, is complete. The
daemon dials the port only then, so a port where nothing listens shows at the first `receive`.

A plain tunnel is a byte pipe without a half-close: the first end on either side ends both. A verified one proves
both ends' keys in a Noise handshake and has an end of stream of its own, so that a cut connection is never taken
for a finished one.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from attrs import field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.task import deferLater

from agentd.client.errors import AgentError, ProtocolFault, TransportFault, answer_error, one_line
from agentd.client.flow import cancellable
from agentd.client.proxy import MARKER, Diagnosis
from agentd.client.secret import scrub
from agentd.client.transport import Transport, transport_fault
from agentd.rules import tunnel as rules
from agentd.rules.tunnel import CloseCode, Verdict

if TYPE_CHECKING:
    from agentd.client.websocket import Socket
    from agentd.tunnel.noise import Handshake, Session

PLAIN_FRAME_BYTES = 65536
"""What one binary frame of a plain tunnel carries (contract (b))."""

VERIFIED_FRAME_BYTES = 32768
"""What one message of a verified tunnel carries, before its tag."""

CLOSE_SECONDS = 10.0
"""How long `Tunnel.close` waits for the far end."""

_MEANING = {
    CloseCode.STOPPING: "the daemon is stopping",
    CloseCode.BAD_PORT: "not a port that can be dialled",
    CloseCode.NO_IDENTITY: "the VM was launched without an identity",
    CloseCode.HANDSHAKE: "the handshake was refused: a key on one of the two ends is not the pinned one",
    CloseCode.RELAY_FAILED: "the connection to the service failed",
    CloseCode.NOTHING_THERE: "nothing listens on the port",
}


class TunnelRefused(AgentError):
    """The far end ended the tunnel with a close code that says why; `code` is that."""

    def __init__(self, code: int, reason: str = "") -> None:
        self.code = code
        meaning = next((text for known, text in _MEANING.items() if known == code), "")
        super().__init__(
            " ".join(filter(None, [str(code), meaning, f"({one_line(reason)})" if reason else ""]))
        )


class TunnelFailed(TransportFault):
    """No tunnel could be opened; `diagnosis` says why, as far as one HTTPS request could tell."""

    def __init__(self, text: str, diagnosis: Diagnosis | None = None) -> None:
        self.diagnosis = diagnosis
        super().__init__(text)


class TunnelTruncated(TransportFault):
    """The tunnel was cut: bytes may be missing."""


@frozen
class Verify:
    """The keys that a verified tunnel is pinned to (contract f.2).

    Args:
        private_key: this end's X25519 secret, 32 bytes; the VM was launched with its public half.
        vm_public_key: the public half of the VM's identity seed, 32 bytes.
    """

    private_key: bytes = field(repr=False)
    vm_public_key: bytes = field()


class Tunnel:
    """One open connection. Not made by hand: see `Tunnels.open`."""

    def __init__(self, socket: "Socket", reactor: Any, state: rules.Client) -> None:
        self._socket = socket
        self._reactor = reactor
        self._state = state
        self._session: Session | None = None
        self._last_received = 0.0

    def shaken(self, handshake: "Handshake", reply: bytes) -> None:
        """The daemon's message of the handshake, or ``b""`` when the WebSocket is over instead.

        Raises:
            TunnelRefused: the daemon says why there is no tunnel, or is not the pinned one.
            TunnelFailed: the tunnel is over.
        """
        if not reply:
            self._closed()
            closing = self._socket.closing
            if self.verdict is Verdict.REFUSED and closing is not None:
                raise TunnelRefused(closing.code, closing.reason)
            if self._socket.foul:
                raise TunnelFailed("the far end answered the handshake with what is no message of one")
            raise TunnelFailed("the tunnel was closed during the handshake")
        from agentd.tunnel.noise import NoiseError

        try:
            offered = rules.offered(handshake.read(reply))
        except NoiseError:
            self._take(rules.client_broke(self._state))
            raise TunnelRefused(CloseCode.HANDSHAKE, "the VM does not hold the pinned key") from None
        self._take(rules.client_shaken(self._state, offered))
        self._session = handshake.split()

    @property
    def verdict(self) -> Verdict | None:
        """What may be believed of the received stream, once it has ended."""
        return self._state.verdict

    async def receive(self) -> bytes:
        """The next bytes from the service; ``b""`` when there will be no more, and again after that.

        Raises:
            TunnelRefused: the daemon says why there will be none.
            TunnelTruncated: the connection was cut.
            ProtocolFault: a verified tunnel delivered what its session did not send.
        """
        while self._state.verdict is None:
            message = await self._socket.inbox.get()
            if not message:
                self._closed()
                return self._over()
            data = message if self._session is None else _unsealed(self._session, message)
            if data is None:
                self._take(rules.client_broke(self._state))
                return self._over()
            for action in self._take(rules.client_received(self._state, data)):
                if isinstance(action, rules.Deliver):
                    self._last_received = self._reactor.seconds()
                    return action.data
        return self._over()

    def _closed(self) -> None:
        """The WebSocket is over, and everything that came by it was read."""
        closing = self._socket.closing
        code = None if closing is None or closing.code in (1005, 1006) else closing.code
        broke = self._socket.foul
        self._take(rules.client_broke(self._state) if broke else rules.client_closed(self._state, code))

    def _over(self) -> bytes:
        """What a reader gets after the last byte: the end of the stream, or why it is not one."""
        verdict, closing = self._state.verdict, self._socket.closing
        if verdict is Verdict.BROKEN:
            raise ProtocolFault("the tunnel delivered a message that its session did not send")
        if verdict is Verdict.REFUSED and closing is not None:
            raise TunnelRefused(closing.code, closing.reason)
        if verdict is Verdict.TRUNCATED:
            raise TunnelTruncated("the tunnel was cut before the end of the stream")
        return b""

    async def send(self, data: bytes) -> None:
        """Send bytes to the service; returns when the connection has taken them.

        Raises:
            TunnelTruncated: the tunnel is closed.
        """
        size = PLAIN_FRAME_BYTES if self._session is None else VERIFIED_FRAME_BYTES
        for start in range(0, len(data), size):
            await self._room()
            self._take(rules.local_sent(self._state, data[start : start + size]))
        await self._room()

    async def _room(self) -> None:
        try:
            await self._socket.outlet.ready()
        except CancelledError:
            raise
        except Exception:
            raise TunnelTruncated("the tunnel is closed") from None

    async def quiet(self, seconds: float) -> None:
        """Return once nothing was received for so long, or nothing more will be."""
        begin = self._reactor.seconds()
        while self._state.verdict is None and self._socket.closing is None:
            left = max(begin, self._last_received) + seconds - self._reactor.seconds()
            if left <= 0:
                return
            await deferLater(self._reactor, left, lambda: None)

    def end(self) -> None:
        """Say in good order that nothing more will be sent. It ends both directions: what the service still
        had on its way may be dropped, so read what is awaited first."""
        self._take(rules.local_ended(self._state))

    def fail(self) -> None:
        """Say that this end broke: a verified tunnel then resets the service's connection."""
        self._take(rules.local_failed(self._state))

    async def close(self) -> None:
        """End it, drop what still arrives, and wait a few seconds for the far end to agree. May be repeated."""
        self.end()
        self._socket.drain()
        if self._socket.closing is None:
            done: Deferred[None] = Deferred()
            self._socket.closed.chainDeferred(done)
            done.addTimeout(CLOSE_SECONDS, self._reactor)
            try:
                await done
            except DeferredTimeout:
                self._socket.abort()

    def abort(self) -> None:
        """Drop the connection now. May be repeated."""
        self._socket.abort()

    def _take(self, step: rules.ClientStep) -> tuple[rules.Action, ...]:
        """Go to the next state and do what it asks of the WebSocket; the reader sees to the rest."""
        self._state, actions = step
        for action in actions:
            if isinstance(action, rules.Transmit):
                self._transmit(action.data)
            elif action is rules.Do.TRANSMIT_END:
                self._transmit(b"")
            elif isinstance(action, rules.CloseFrame):
                self._socket.say_close(action.code, action.reason)
            elif action is rules.Do.DROP:
                self._socket.abort()
        return actions

    def _transmit(self, data: bytes) -> None:
        self._socket.say(data if self._session is None else self._session.seal(data))


class Tunnels:
    """`Client.tunnel`."""

    def __init__(
        self, transport: Transport, tls: Any, diagnose: Callable[[int], Awaitable[Diagnosis]]
    ) -> None:
        self._transport = transport
        self._tls = tls
        self._diagnose = diagnose

    async def open(self, port: int, *, verify: Verify | None = None, timeout: float = 15.0) -> Tunnel:
        """Open a connection to a port on the VM's loopback.

        Args:
            port: the port.
            verify: prove both ends' keys before the first byte.
            timeout: seconds for each of the steps.

        Raises:
            TunnelFailed: no WebSocket came about.
            TunnelRefused: the handshake was refused, or the VM has no identity.
            CredentialFault, Unavailable, MalformedRequest: as they say.
            ValueError: a key is not one.
        """
        # autobahn and cryptography cost more to import than all the rest: only tunnels pay for them.
        from agentd.client.websocket import Socket

        socket = Socket(whole=verify is not None)
        handshake = None if verify is None else _initiator(verify)
        query = {"port": str(port)} | ({"identity": "true"} if verify is not None else {})
        await self.connect(socket, f"/v1/tcp?{urlencode(query)}", [MARKER], timeout)
        state, _ = rules.client_opened(verified=handshake is not None)
        tunnel = Tunnel(socket, self._transport.reactor, state)
        if handshake is not None:
            socket.say(handshake.write(rules.flags(state.offers)))
            tunnel.shaken(handshake, await self._reply(socket, timeout))
        return tunnel

    async def _reply(self, socket: "Socket", timeout: float) -> bytes:
        """The second message of the handshake; ``b""`` if the tunnel is over instead."""
        waiting = Deferred.fromCoroutine(socket.inbox.get())
        waiting.addTimeout(timeout, self._transport.reactor)
        try:
            reply = await waiting
        except BaseException as fault:
            socket.abort()
            if isinstance(fault, DeferredTimeout):
                raise TunnelFailed(f"no answer to the handshake within {timeout:g} seconds") from None
            raise
        return reply

    async def connect(self, socket: "Socket", target: str, protocols: list[str], timeout: float) -> None:
        """Bring any WebSocket of the daemon's up, with the credentials that it needs.

        Args:
            socket: the client's end.
            target: path and query.
            protocols: the subprotocols to offer where there is no proxy, which has its own.
            timeout: seconds for each step.

        Raises:
            TunnelFailed, AnswerError: as `open`.
        """
        from agentd.client.websocket import socket_factory

        transport = self._transport
        headers, secrets = await transport.credentials(auth=True)
        if transport.proxy is not None:
            protocols = await transport.proxy.connect_subprotocols(transport.port)
        base = urlsplit(transport.base)
        secure = base.scheme == "https"
        host, at = base.hostname or "", base.port or (443 if secure else 80)
        url = f"{'wss' if secure else 'ws'}://{base.netloc}{base.path}{target}"
        endpoint: Any = HostnameEndpoint(transport.reactor, host, at, timeout=timeout)
        if secure:
            endpoint = wrapClientTLS(self._trust(host, at), endpoint)
        factory = socket_factory(url, headers, protocols, socket, transport.reactor, timeout)
        try:
            await cancellable(endpoint.connect(factory), lambda _: socket.abort())
        except CancelledError:
            raise
        except Exception as fault:
            raise transport_fault(fault, secrets) from None
        try:
            await socket.opened
        except ConnectionError as fault:
            raise await self._explain(socket, scrub(str(fault), secrets)) from None
        except BaseException:
            socket.abort()
            raise

    async def _explain(self, socket: "Socket", reason: str) -> AgentError:
        """Why the upgrade failed: behind a proxy by asking over HTTPS, else by the status that refused it."""
        if self._transport.proxy is not None:
            diagnosis = await self._diagnose(self._transport.port)
            if diagnosis is not Diagnosis.REACHABLE:
                return TunnelFailed(f"the WebSocket closed with 1006: {diagnosis.value}", diagnosis)
        status = socket.closing.status if socket.closing is not None else None
        if status is not None and status >= 400:
            return answer_error(status, detail="" if status in (401, 503) else "the upgrade was refused")
        return TunnelFailed(f"the WebSocket closed before it opened: {one_line(reason)}")

    def _trust(self, host: str, port: int) -> Any:
        from twisted.web.client import BrowserLikePolicyForHTTPS

        policy = self._tls or BrowserLikePolicyForHTTPS()
        return policy.creatorForNetloc(host.encode("ascii"), port)


def _unsealed(session: "Session", message: bytes) -> bytes | None:
    """What a message says; None when it is not the next that the far end has sealed."""
    from agentd.tunnel.noise import NoiseError

    try:
        return session.open(message)
    except NoiseError:
        return None


def _initiator(verify: Verify) -> Any:
    """The client's side of the handshake."""
    from agentd.tunnel.noise import NoiseError, initiator

    try:
        return initiator(verify.private_key, verify.vm_public_key)
    except NoiseError as fault:
        raise ValueError(str(fault)) from None

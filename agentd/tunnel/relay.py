"""The daemon's end of a tunnel: a WebSocket on one side, a TCP connection to the guest on the other.

What happens is decided in `agentd.rules.tunnel`; this file turns frames and sockets into its events and carries
out its actions.

Back-pressure. Each direction holds at most what one transport buffers before it asks for less (64 KiB) and one
read (64 KiB): a guest that is behind holds the WebSocket, a caller that is behind pauses the guest. A dial under
way holds the WebSocket the same way. A plain tunnel's frames are relayed as they arrive, whatever their length; a
verified tunnel's messages are gathered, to the 65535 bytes of one Noise message.

Ends. A WebSocket has no half-close, so neither has a tunnel: the guest's end of file becomes a close frame behind
its last byte, the caller's close frame an end of file behind the caller's last byte, and whatever flows the
other way at that moment is dropped (contract f.1).
"""

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from agentd.rules import tunnel as rules
from agentd.rules.payload import TunnelIdentity
from agentd.rules.tunnel import SUBPROTOCOL, CloseFrame, Deliver, Do, Stage, Transmit, Tunnel
from agentd.tunnel import guest, noise
from agentd.tunnel.guest import Guest
from agentd.tunnel.limits import TunnelLimits
from agentd.tunnel.noise import Handshake, NoiseError, Session
from agentd.tunnel.websocket import VIOLATIONS, PeerSocket

_TOO_LONG = 1009


class Relay(PeerSocket):
    """One tunnel. `over` is called when both its connections are gone, perhaps more than once."""

    def __init__(
        self,
        port: int,
        identity: bool,
        keys: TunnelIdentity | None,
        limits: TunnelLimits,
        reactor: Any,
        over: Callable[["Relay"], None],
    ) -> None:
        super().__init__(limits.close_timeout, limits.linger, reactor)
        self._keys = keys
        self._limits = limits
        self._over = over
        self._tunnel = Tunnel(port, identity)
        self._handshake: Handshake | None = None
        self._session: Session | None = None
        self._guest: Guest | None = None
        self._dialing: Deferred[Guest] | None = None
        self._caller_gone = False
        self._message = bytearray()
        self._message_length = 0

    @property
    def stage(self) -> Stage:
        """Where the tunnel is."""
        return self._tunnel.stage

    def stop(self) -> None:
        """The daemon stops: tell the caller, and leave the guest as the rules say."""
        if self.state == self.STATE_OPEN:
            self._carry_out(rules.stopping(self._tunnel))

    # -- actions ---------------------------------------------------------------------------------------

    def _carry_out(self, step: rules.Step) -> None:
        self._tunnel, actions = step
        for action in actions:
            if type(action) is Deliver:
                assert self._guest is not None
                self._guest.send(action.data)
            elif type(action) is Transmit:
                self._transmit(action.data)
            elif type(action) is CloseFrame:
                self.close(action.code, action.reason)
            elif type(action) is Do:
                self._DOINGS[action](self)

    def _transmit(self, data: bytes) -> None:
        session = self._session
        size = self._limits.read_bytes if session is None else self._limits.sealed_bytes
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            self.sendMessage(piece if session is None else session.seal(piece), True)

    def _transmit_end(self) -> None:
        assert self._session is not None
        self.sendMessage(self._session.seal(b""), True)

    def _reply(self) -> None:
        assert self._handshake is not None
        self.expect_nothing()
        self.sendMessage(self._handshake.write(rules.flags(True)), True)
        self._session = self._handshake.split()
        self._handshake = None

    def _dial(self) -> None:
        self.hold()
        self._dialing = guest.dial(self, self._tunnel.port, self._limits, self._reactor)
        self._dialing.addCallbacks(self._dialled, self._not_dialled)

    def _dialled(self, connection: Guest) -> None:
        self._dialing = None
        self._guest = connection
        if self.behind:
            connection.pause()
        self._carry_out(rules.dialled(self._tunnel))
        self.release()

    def _not_dialled(self, failure: Failure) -> None:
        self._dialing = None
        self._carry_out(rules.dial_failed(self._tunnel, failure.getErrorMessage()))
        self._check_over()

    def _shut(self) -> None:
        if self._dialing is not None:
            self._dialing.cancel()
        elif self._guest is not None:
            self._guest.shut()

    def _reset(self) -> None:
        if self._dialing is not None:
            self._dialing.cancel()
        elif self._guest is not None:
            self._guest.reset()

    _DOINGS: Mapping[Do, Callable[["Relay"], None]] = {
        Do.REPLY: _reply,
        Do.DIAL: _dial,
        Do.TRANSMIT_END: _transmit_end,
        Do.SHUT: _shut,
        Do.RESET: _reset,
        Do.DROP: PeerSocket.hang_up,
    }

    # -- the caller ------------------------------------------------------------------------------------

    def onConnect(self, request: Any) -> str | None:
        """The marker subprotocol is selected if it is offered; nothing else ever is."""
        return SUBPROTOCOL if SUBPROTOCOL in request.protocols else None

    def onOpen(self) -> None:
        """The 101 is on its way."""
        super().onOpen()
        self._carry_out(
            rules.opened(self._tunnel.port, verified=self._tunnel.verified, seeded=self._keys is not None)
        )
        if self.stage is Stage.HANDSHAKE:
            self._await_handshake()

    def _await_handshake(self) -> None:
        assert self._keys is not None
        try:
            self._handshake = noise.responder(self._keys.seed, self._keys.host_public_key)
        except NoiseError:
            self._carry_out(rules.unbuildable(self._tunnel))
            return
        self.expect(self._limits.handshake_timeout, self._handshake_late)

    def _handshake_late(self) -> None:
        self._refuse(f"none came within {self._limits.handshake_timeout:g} s")

    def onMessageBegin(self, isBinary: bool) -> None:
        """The first frame of a message."""
        self._message_length = 0
        if self._tunnel.verified and not isBinary:
            self._refuse("the first frame is text")

    def onMessageFrameBegin(self, length: int) -> None:
        """A frame of `length` bytes follows."""
        self._message_length += length
        if self.stage is Stage.OVER:
            return
        if self._tunnel.verified:
            if self._message_length > rules.MAX_MESSAGE_BYTES:
                self._refuse("it is too long")
        elif length > self._limits.max_frame_bytes or self._message_length > self._limits.max_message_bytes:
            self._fail_connection(_TOO_LONG)

    def onMessageFrameData(self, payload: bytes) -> None:
        """The next bytes of a frame."""
        if self.stage is Stage.OVER:
            return
        if self._tunnel.verified:
            self._message += payload
        elif payload:
            self._carry_out(rules.caller_sent(self._tunnel, payload))

    def onMessageFrameEnd(self) -> None:
        """A frame is complete, which means nothing: a message may have many."""

    def onMessageEnd(self) -> None:
        """A message is complete; a verified tunnel opens it."""
        message, self._message = bytes(self._message), bytearray()
        if not self._tunnel.verified:
            return
        try:
            if self.stage is Stage.HANDSHAKE and self._handshake is not None:
                offered = rules.offered(self._handshake.read(message))
                self._carry_out(rules.shaken(self._tunnel, offered))
            elif self.stage is Stage.RELAYING and self._session is not None:
                self._carry_out(rules.caller_sent(self._tunnel, self._session.open(message)))
        except NoiseError:
            self._refuse("it is not the pinned caller's")

    def _refuse(self, why: str) -> None:
        """A verified tunnel's frame is not what it must be."""
        if self.stage is Stage.HANDSHAKE:
            self._carry_out(rules.handshake_refused(self._tunnel, why))
        else:
            self._carry_out(rules.caller_broke(self._tunnel))

    def violated(self, code: int) -> None:
        """The caller broke the rules of WebSocket."""
        self._carry_out(rules.caller_violated(self._tunnel, code, VIOLATIONS[code]))

    def peer_closed(self) -> None:
        """The caller sent a close frame."""
        self._carry_out(rules.caller_closed(self._tunnel))

    def lost(self) -> None:
        """The WebSocket's connection is over."""
        self._caller_gone = True
        self._carry_out(rules.caller_lost(self._tunnel))
        self._check_over()

    def fell_behind(self) -> None:
        """The caller takes no more for now."""
        if self._guest is not None:
            self._guest.pause()

    def caught_up(self) -> None:
        """The caller has taken everything."""
        if self._guest is not None:
            self._guest.resume()

    # -- the guest, as `GuestOwner` --------------------------------------------------------------------

    def guest_sent(self, data: bytes) -> None:
        """Bytes from the guest."""
        self._carry_out(rules.guest_sent(self._tunnel, data))

    def guest_ended(self) -> None:
        """The guest sent its last byte."""
        self._carry_out(rules.guest_ended(self._tunnel))

    def guest_failed(self, while_writing: bool) -> None:
        """The guest's connection broke."""
        decide = rules.guest_refused if while_writing else rules.guest_failed
        self._carry_out(decide(self._tunnel))

    def guest_behind(self) -> None:
        """The guest takes no more for now."""
        if self.stage is not Stage.OVER:
            self.hold()

    def guest_ready(self) -> None:
        """The guest has taken everything."""
        self.release()

    def guest_gone(self) -> None:
        """The guest's connection no longer exists."""
        self._guest = None
        self._check_over()

    def _check_over(self) -> None:
        if self._caller_gone and self._guest is None and self._dialing is None:
            self._over(self)

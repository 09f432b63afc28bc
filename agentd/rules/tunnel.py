"""One tunnel, decided at both ends: who may dial, what ends it, and what its end proves.

Theory of operation
-------------------
A tunnel joins a TCP connection beside the client to a TCP connection inside the guest, through a WebSocket
that somebody else may carry (contract f). Each end is a state; each thing that can happen to it is a function
that returns the next state and the actions to carry out, in order. The daemon's end:

                 no seed: 4401                 port 0: 4400
               ┌─────────────► OVER ◄─────────────┐
    (opened) ──┤                  ▲ refused: 4403 │
               ├─ verified ─► HANDSHAKE ─ shaken ─┴► DIALING ─ dialled ─► RELAYING ─ any end ─► OVER
               └─ plain ──────────────────────────────► │ failed: 4502 ─► OVER

Nothing reaches the guest before DIALING, and a verified tunnel dials only for the host whose key the launch
pinned (AGENTD-17, AGENTD-18). Frames that arrive while the dial is under way wait outside this machine.

*Ends.* A WebSocket has no half-close, so the first end on either side ends both. In a plain tunnel an end is
the end of a TCP stream or a close frame, and whoever carries the frames can forge one. A verified tunnel
therefore has an *end of stream*, an encrypted message with nothing in it: only the holder of the key can send
it, and only after every byte before it. Each end says in its handshake message whether it will send one
(`flags`), because older ones do not. What follows from it:

* the daemon, when a caller that promised an end goes without it, *resets* the guest's connection: a server in
  the guest must not take half an upload for a whole one (AGENTD-20). A guest that ended the tunnel itself is
  closed normally; it was not waiting for more.
* the client takes the stream for complete only when it has seen the end. From a daemon that promised one,
  anything else is a truncation; from one that never did, nothing can be proved (BIND-23).

All functions are total: in a stage where an event means nothing they return the state as it was, with no
actions, so that a late event is harmless.
"""

from enum import Enum, IntEnum, unique
from typing import Final

from attrs import evolve, frozen

SUBPROTOCOL: Final = "lambda-microvms"
"""The WebSocket subprotocol that marks a caller's connection; the only one that is ever selected."""
END_OFFERED: Final = 0x01
"""Bit 0 of the first byte of a handshake payload: this end will send an end of stream (contract f.2)."""
MAX_REASON_BYTES: Final = 123
"""Longest reason of a close frame: a control frame's 125 bytes less the code (RFC 6455 5.5)."""
MAX_MESSAGE_BYTES: Final = 65535
"""Longest Noise message on the wire (Noise specification, section 3)."""
TAG_BYTES: Final = 16
"""What sealing adds to a message."""


@unique
class CloseCode(IntEnum):
    """Close codes, RFC 6455's and the tunnel's own (contract f)."""

    FINISHED = 1000
    STOPPING = 1001
    PROTOCOL_ERROR = 1002
    BAD_PORT = 4400
    NO_IDENTITY = 4401
    HANDSHAKE = 4403
    RELAY_FAILED = 4500
    NOTHING_THERE = 4502


@unique
class Stage(Enum):
    """Where an end is; the client's end has no DIALING."""

    HANDSHAKE = "handshake"
    DIALING = "dialing"
    RELAYING = "relaying"
    OVER = "over"


@unique
class Do(Enum):
    """An action with nothing to say."""

    GREET = "greet"
    """Send the first handshake message."""
    REPLY = "reply"
    """Send the second handshake message."""
    DIAL = "dial"
    """Connect to the guest's port on its loopback."""
    TRANSMIT_END = "transmit_end"
    """Send the end of stream through the tunnel."""
    SHUT = "shut"
    """Close this end's TCP connection: everything delivered to it is written, then it reads an end of file.
    If it is still being dialled, give up."""
    RESET = "reset"
    """Reset this end's TCP connection, so that what it read cannot be taken for all there was."""
    DROP = "drop"
    """Drop the WebSocket without a close frame."""


@frozen
class Deliver:
    """Write to this end's TCP connection."""

    data: bytes


@frozen
class Transmit:
    """Send through the tunnel; sealed if it is verified."""

    data: bytes


@frozen
class CloseFrame:
    """Send (or answer with) a close frame. `reason` is at most `MAX_REASON_BYTES` of UTF-8."""

    code: int
    reason: str


Action = Do | Deliver | Transmit | CloseFrame
_FINISHED: Final = CloseFrame(CloseCode.FINISHED, "")


def flags(offers: bool) -> bytes:
    """The payload of a handshake message; empty is what an older end sends."""
    return bytes([END_OFFERED]) if offers else b""


def offered(payload: bytes) -> bool:
    """Whether a handshake payload promises an end of stream. Unknown bits and bytes mean nothing."""
    return bool(payload) and bool(payload[0] & END_OFFERED)


def fit(reason: str) -> str:
    """`reason`, cut to what a close frame holds, at a character's edge."""
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")


def _frame(code: int, reason: str) -> CloseFrame:
    return CloseFrame(code, fit(reason))


# -- the daemon's end ------------------------------------------------------------------------------------


@frozen
class Tunnel:
    """The daemon's end."""

    port: int
    verified: bool
    stage: Stage = Stage.OVER
    caller_offered: bool = False
    """Whether the caller promised an end of stream."""


Step = tuple[Tunnel, tuple[Action, ...]]


def _over(tunnel: Tunnel, *actions: Action) -> Step:
    return evolve(tunnel, stage=Stage.OVER), actions


def opened(port: int, *, verified: bool, seeded: bool) -> Step:
    """The upgrade succeeded. `seeded`: the VM was launched with keys."""
    tunnel = Tunnel(port, verified)
    if not verified:
        return _dial(tunnel)
    if not seeded:
        return _over(
            tunnel,
            _frame(CloseCode.NO_IDENTITY, "this VM was launched without an identity seed to prove itself"),
        )
    return evolve(tunnel, stage=Stage.HANDSHAKE), ()


def _dial(tunnel: Tunnel) -> Step:
    if tunnel.port == 0:
        return _over(tunnel, _frame(CloseCode.BAD_PORT, "port 0 cannot be connected to"))
    return evolve(tunnel, stage=Stage.DIALING), (Do.DIAL,)


def unbuildable(tunnel: Tunnel) -> Step:
    """The keys of the launch do not make a responder."""
    if tunnel.stage is not Stage.HANDSHAKE:
        return tunnel, ()
    return _over(tunnel, _frame(CloseCode.RELAY_FAILED, "the identity of this VM cannot be used"))


def shaken(tunnel: Tunnel, caller_offered: bool) -> Step:
    """The caller's handshake message proved the pinned key."""
    if tunnel.stage is not Stage.HANDSHAKE:
        return tunnel, ()
    tunnel, actions = _dial(evolve(tunnel, caller_offered=caller_offered))
    return tunnel, (Do.REPLY, *actions)


def handshake_refused(tunnel: Tunnel, why: str) -> Step:
    """The first frame was not the pinned caller's handshake, or none came in time."""
    if tunnel.stage is not Stage.HANDSHAKE:
        return tunnel, ()
    return _over(tunnel, _frame(CloseCode.HANDSHAKE, f"handshake refused: {why}"))


def dialled(tunnel: Tunnel) -> Step:
    """The guest's port accepted the connection."""
    if tunnel.stage is not Stage.DIALING:
        return tunnel, ()
    return evolve(tunnel, stage=Stage.RELAYING), ()


def dial_failed(tunnel: Tunnel, why: str) -> Step:
    """It did not; `why` completes "port N "."""
    if tunnel.stage is not Stage.DIALING:
        return tunnel, ()
    return _over(tunnel, _frame(CloseCode.NOTHING_THERE, f"port {tunnel.port} {why}"))


def caller_sent(tunnel: Tunnel, data: bytes) -> Step:
    """A frame's bytes, opened if the tunnel is verified; there, no bytes are the caller's end of stream."""
    if tunnel.stage is not Stage.RELAYING:
        return tunnel, ()
    if data:
        return tunnel, (Deliver(data),)
    if tunnel.verified:
        return _over(tunnel, Do.SHUT, _FINISHED)
    return tunnel, ()


def _abandon(tunnel: Tunnel) -> Do:
    return Do.RESET if tunnel.caller_offered else Do.SHUT


def caller_broke(tunnel: Tunnel) -> Step:
    """A frame of a verified tunnel that is text, or does not open: forged, replayed, reordered or cut."""
    if tunnel.stage is not Stage.RELAYING or not tunnel.verified:
        return tunnel, ()
    return _over(tunnel, _abandon(tunnel), Do.DROP)


def caller_violated(tunnel: Tunnel, code: int, why: str) -> Step:
    """Bytes that are not a WebSocket's, or are over its limits; `code` is RFC 6455's for it."""
    if tunnel.stage is Stage.OVER:
        return tunnel, ()
    if tunnel.stage is Stage.HANDSHAKE:
        return handshake_refused(tunnel, why)
    if tunnel.verified:
        return _over(tunnel, _abandon(tunnel), Do.DROP)
    return _over(tunnel, Do.SHUT, _frame(code, why))


def caller_closed(tunnel: Tunnel) -> Step:
    """The caller sent a close frame."""
    if tunnel.stage is Stage.OVER:
        return tunnel, ()
    if tunnel.stage is Stage.HANDSHAKE:
        return handshake_refused(tunnel, "the caller left")
    return _over(tunnel, _abandon(tunnel), _FINISHED)


def caller_lost(tunnel: Tunnel) -> Step:
    """The WebSocket's connection ended without a close frame."""
    if tunnel.stage is Stage.OVER:
        return tunnel, ()
    if tunnel.stage is Stage.HANDSHAKE:
        return _over(tunnel)
    return _over(tunnel, _abandon(tunnel))


def guest_sent(tunnel: Tunnel, data: bytes) -> Step:
    """Bytes from the guest."""
    if tunnel.stage is not Stage.RELAYING or not data:
        return tunnel, ()
    return tunnel, (Transmit(data),)


def guest_ended(tunnel: Tunnel) -> Step:
    """The guest sent its last byte. The end of stream is sent whatever the caller offered."""
    if tunnel.stage is not Stage.RELAYING:
        return tunnel, ()
    if tunnel.verified:
        return _over(tunnel, Do.TRANSMIT_END, Do.SHUT, _FINISHED)
    return _over(tunnel, Do.SHUT, _FINISHED)


def guest_failed(tunnel: Tunnel) -> Step:
    """Reading from the guest failed: what it sent is not all it had to say."""
    if tunnel.stage is not Stage.RELAYING:
        return tunnel, ()
    return _over(tunnel, _frame(CloseCode.RELAY_FAILED, f"the connection to port {tunnel.port} failed"))


def guest_refused(tunnel: Tunnel) -> Step:
    """The guest took no more of the caller's bytes. No end of stream: its own bytes may be lost with it."""
    if tunnel.stage is not Stage.RELAYING:
        return tunnel, ()
    return _over(tunnel, _FINISHED)


def stopping(tunnel: Tunnel) -> Step:
    """The daemon stops."""
    if tunnel.stage is Stage.OVER:
        return tunnel, ()
    return _over(tunnel, _abandon(tunnel), _frame(CloseCode.STOPPING, "the daemon is stopping"))


# -- the client's end ------------------------------------------------------------------------------------


@unique
class Verdict(Enum):
    """What a client may believe of the stream it received."""

    CLOSED = "closed"
    """The end of stream was seen: every byte is here."""
    CLOSED_UNPROVEN = "closed_unproven"
    """It ended in good order as far as can be told, but nothing proves that it is whole."""
    TRUNCATED = "truncated"
    """The daemon promised an end of stream and it did not come."""
    REFUSED = "refused"
    """The daemon closed with a failure code."""
    BROKEN = "broken"
    """A frame or a handshake that the pinned daemon did not send."""
    LEFT = "left"
    """This end ended the tunnel first; what the guest still had in flight was not asked for."""


@frozen
class Client:
    """The client's end."""

    verified: bool
    offers: bool = True
    """Whether this end promises an end of stream."""
    stage: Stage = Stage.RELAYING
    daemon_offered: bool = False
    left: bool = False
    """Whether this end has said that it is done."""
    verdict: Verdict | None = None
    """Set exactly when `stage` is OVER."""


ClientStep = tuple[Client, tuple[Action, ...]]


def _judged(client: Client, verdict: Verdict, *actions: Action) -> ClientStep:
    return evolve(client, stage=Stage.OVER, verdict=verdict), actions


def client_opened(*, verified: bool, offers: bool = True) -> ClientStep:
    """The upgrade succeeded. A verified client reads its local connection only once RELAYING (BIND-21)."""
    if verified:
        return Client(True, offers, Stage.HANDSHAKE), (Do.GREET,)
    return Client(False, offers), ()


def client_shaken(client: Client, daemon_offered: bool) -> ClientStep:
    """The daemon's handshake message proved the pinned key."""
    if client.stage is not Stage.HANDSHAKE:
        return client, ()
    return evolve(client, stage=Stage.RELAYING, daemon_offered=daemon_offered), ()


def client_broke(client: Client) -> ClientStep:
    """A frame that is not the handshake's second message, or is text, or does not open."""
    if client.stage is Stage.OVER or not client.verified:
        return client, ()
    return _judged(client, Verdict.BROKEN, Do.RESET, Do.DROP)


def client_received(client: Client, data: bytes) -> ClientStep:
    """A frame's bytes, opened if the tunnel is verified; there, no bytes are the daemon's end of stream."""
    if client.stage is not Stage.RELAYING:
        return client, ()
    if data:
        return client, (Deliver(data),)
    if client.verified:
        return _judged(client, Verdict.CLOSED, Do.SHUT, _FINISHED)
    return client, ()


def local_sent(client: Client, data: bytes) -> ClientStep:
    """Bytes from the local connection."""
    if client.stage is not Stage.RELAYING or client.left or not data:
        return client, ()
    return client, (Transmit(data),)


def local_ended(client: Client) -> ClientStep:
    """The local connection sent its last byte. The close frame is for a daemon that knows no end of stream."""
    if client.stage is Stage.HANDSHAKE:
        return _judged(client, Verdict.LEFT, Do.SHUT, Do.DROP)
    if client.stage is Stage.OVER or client.left:
        return client, ()
    end = (Do.TRANSMIT_END,) if client.verified and client.offers else ()
    return evolve(client, left=True), (*end, _FINISHED)


def local_failed(client: Client) -> ClientStep:
    """The local connection broke. No end of stream, so that the guest does not take this for all there was."""
    if client.stage is Stage.HANDSHAKE:
        return _judged(client, Verdict.LEFT, Do.DROP)
    if client.stage is Stage.OVER or client.left:
        return client, ()
    return evolve(client, left=True), (_FINISHED,)


def client_closed(client: Client, code: int | None) -> ClientStep:
    """The WebSocket ended: with a close frame's `code`, or with None for a frame without one or no frame."""
    if client.stage is Stage.OVER:
        return client, ()
    verdict = _verdict(client, code)
    whole = verdict in (Verdict.CLOSED_UNPROVEN, Verdict.LEFT)
    return _judged(client, verdict, Do.SHUT if whole else Do.RESET)


def _verdict(client: Client, code: int | None) -> Verdict:
    if code not in (None, CloseCode.FINISHED):
        return Verdict.REFUSED
    if client.left:
        return Verdict.LEFT
    if client.stage is Stage.HANDSHAKE:
        return Verdict.BROKEN
    if client.verified:
        return Verdict.TRUNCATED if client.daemon_offered else Verdict.CLOSED_UNPROVEN
    return Verdict.TRUNCATED if code is None else Verdict.CLOSED_UNPROVEN

"""What there is at the two ends of a tunnel and between them, and what an edge says of it."""

from collections.abc import Hashable
from typing import Final, cast

from attrs import frozen

from agentd.rules.tunnel import Action, Client, CloseFrame, Stage, Tunnel
from checker.model import Edge, Values

Effect = tuple[Values, Hashable]
"""New values, and what somebody is answered."""

GUEST: Final = b"gh"
"""What the guest has to say."""
CALLER: Final = b"c"
"""What the local connection has to say."""
PORT: Final = 80


@frozen
class Frame:
    """One message on its way, or the end of a direction."""

    kind: str
    """``hello`` and ``reply`` of the handshake, ``sealed`` and ``plain`` data, ``forged``, ``violation`` (bytes
    that are no frame), ``close`` and ``lost`` (no close frame)."""
    number: int = 0
    """Of a sealed message: its place in its direction, which the key's holder alone can give it."""
    data: bytes = b""
    """What it carries; of a close frame nothing."""
    code: int | None = None
    """Of a close frame."""
    key: str = ""
    """Of a handshake message: whose key it proves."""


@frozen
class Far:
    """The daemon's end, and what the environment knows of it."""

    tunnel: Tunnel
    sent: int = 0
    opened: int = 0
    """Messages sealed and opened, the nonces of a session."""
    closed: bool = False
    """Whether it has ended its WebSocket."""
    heard: bool = False
    """Whether the caller's end of stream came through."""
    greeted: str = ""
    """Whose key the handshake that it accepted has proved."""
    older: bool = False
    """Whether it is of a version that knows no end of stream."""


@frozen
class Near:
    """The client's end, and what the environment knows of it."""

    client: Client
    sent: int = 0
    opened: int = 0
    closed: bool = False
    heard: bool = False
    """Whether the daemon's end of stream came through."""
    greeted: str = ""


@frozen
class Party:
    """A TCP connection beside one of the ends: the guest's, or the client's local one."""

    said: int = 0
    """How many of its bytes it has sent."""
    ended: bool = False
    """Whether it has sent its last."""
    got: bytes = b""
    saw: str = ""
    """How it was ended by the tunnel: ``eof`` or ``reset``."""


@frozen
class Setting:
    """What a configuration makes possible."""

    relaying: bool
    """It begins with the relay."""
    verified: bool
    offers: bool
    """The caller promises an end of stream."""
    daemon_offers: bool
    hostile: bool
    """There is an attacker on the path, and not only callers who do not know WebSocket."""
    everything: bool
    """It has every way to open a tunnel."""


Frames = tuple[Frame, ...]
ENDED: Final[Frames] = (Frame("ended"),)
"""A direction that nobody reads any more."""
Actions = tuple[Action, ...]


def far_before(edge: Edge) -> Far | None:
    """The daemon's end before."""
    return cast("Far | None", edge.before["far"])


def far_after(edge: Edge) -> Far:
    """The same afterwards."""
    return cast("Far", edge.after["far"])


def near_before(edge: Edge) -> Near:
    """The client's end before."""
    return cast("Near", edge.before["near"])


def near_after(edge: Edge) -> Near:
    """The same afterwards."""
    return cast("Near", edge.after["near"])


def stage(edge: Edge) -> Stage | None:
    """The stage of the daemon's end before."""
    far = far_before(edge)
    return None if far is None else far.tunnel.stage


def actions(edge: Edge) -> Actions:
    """What an end does; nothing for whatever else was answered."""
    return cast("Actions", edge.response) if isinstance(edge.response, tuple) else ()


def codes(edge: Edge) -> list[int]:
    """The codes of the close frames among that."""
    return [int(action.code) for action in actions(edge) if isinstance(action, CloseFrame)]


def head(edge: Edge, way: str) -> Frame:
    """The frame that an end reads."""
    return cast("Frames", edge.before[way])[0]

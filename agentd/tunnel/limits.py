"""How much a tunnel may hold and how long it waits; every number of contract b that concerns it."""

from typing import Final

from attrs import frozen

KIB: Final = 1024
MIB: Final = 1024 * KIB


@frozen(kw_only=True)
class TunnelLimits:
    """Bounds of one tunnel. Times are seconds, sizes bytes."""

    dial_timeout: float = 2.0
    """How long the guest's port may take to accept (4502)."""
    handshake_timeout: float = 10.0
    """How long a verified tunnel waits for the caller's handshake message (4403)."""
    close_timeout: float = 30.0
    """How long the caller may take to answer a close frame, and again to take what is still unsent, before
    the connection is dropped. It covers the time a slow caller needs to read what was sent before it."""
    linger: float = 2.0
    """How long an end that was told to go may still send: the guest after its end of file, the caller after
    the close frame for a violation. What it sends is read and dropped, for closing a socket with unread
    bytes sends a reset, which can overtake what was sent before."""
    read_bytes: int = 64 * KIB
    """Most guest bytes in one frame of a plain tunnel."""
    sealed_bytes: int = 32 * KIB
    """Most guest bytes in one message of a verified tunnel."""
    max_frame_bytes: int = 16 * MIB
    """Longest frame of a plain tunnel. It is relayed as it arrives, never held."""
    max_message_bytes: int = 64 * MIB
    """Longest message of a plain tunnel, over all its frames."""

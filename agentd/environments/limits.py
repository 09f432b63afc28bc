"""How much an environment lets a caller have: bytes, counts and seconds, each with the section that fixes it."""

from typing import Final

from attrs import frozen

MIB: Final = 1024 * 1024


@frozen(kw_only=True)
class Limits:
    """Sizes are bytes and times are seconds. The defaults are the contract's; tests make them small."""

    output_cap: int = MIB
    """What `/exec` keeps of each stream (3.5)."""
    exec_grace: float = 30.0
    """How long after its timeout `/exec` waits for a command that does not die (3.4)."""
    default_timeout: int = 60
    max_timeout: int = 600
    max_spawn_timeout: int = 31_536_000
    quiet: float = 0.1
    """After an exit, silence of the pipes for this long ends the reading (3.4)."""
    linger: float = 2.0
    """After an exit the reading ends at the latest (3.4)."""
    ring: int = 8 * MIB
    """The newest output of a process that is retained (7.1)."""
    reply: int = 4 * MIB
    """Output in one reply (7.3)."""
    chunks: int = 32_768
    """Chunks in one reply: a process that changes streams with every byte must not cost many times its output."""
    collect: float = 0.1
    """What follows the first byte is waited for (7.3)."""
    max_wait: int = 30
    """A longer wait is cut to this (7.3)."""
    processes: int = 64
    """Records, running and exited together (6.1)."""
    put: int = 1024 * MIB
    """Body of an upload (5.4)."""
    json: int = 16 * MIB
    """JSON body (2.2)."""
    listing: int = 10_000
    """Entries of a listing (5.6)."""
    message: int = MIB
    """Message of an attached client (8.3)."""
    input: int = 16 * MIB
    """What may wait for a process' stdin (8.3)."""
    ping: float = 20.0
    """Between pings of an attached client (8.4)."""
    silence: float = 60.0
    """An attached client that answers no ping for so long is dropped (8.4)."""
    close: float = 5.0
    """A closing handshake (8.4)."""


DEFAULTS: Final = Limits()

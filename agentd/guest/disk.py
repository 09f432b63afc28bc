"""How much room the disk has, as health reports it (contract e.4, h.1).

The comparison is the one writers are refused by (`agentd.rules.writes`), so that a monitor and a writer never
disagree.
"""

from attrs import frozen

from agentd.linux.statvfs import available_bytes
from agentd.rules.writes import disk_refuses


@frozen
class Headroom:
    """What a disk has left. Both in bytes."""

    available: int
    reserve: int

    @property
    def under_pressure(self) -> bool:
        """Whether the reserve has been broken into. A reserve of 0 never is."""
        return disk_refuses(self.available, self.reserve)


def headroom(path: str, reserve: int) -> Headroom | None:
    """The room where `path` is or would be, beside a reserve of `reserve` bytes; None when unmeasurable.

    Looks at the file system, which may block where that is remote.
    """
    try:
        return Headroom(available=available_bytes(path), reserve=reserve)
    except (OSError, ValueError):  # ValueError: a NUL, or a text no file name can be
        return None

"""How much room the disk has, and when that is too little to write (contract e.4).

A reserve is kept free so that a VM filled by one upload still has room to log, to answer and to be repaired. A
writer asks before it creates anything and again while it writes. A disk that cannot be measured is no reason
to refuse.
"""

from typing import Final

from attrs import frozen

from agentd.linux.statvfs import available_bytes

PROBE_INTERVAL_BYTES: Final = 8 * 1024 * 1024
"""How much is written between two looks at the disk."""


@frozen
class Headroom:
    """What a disk has left. Both in bytes."""

    available: int
    reserve: int

    @property
    def under_pressure(self) -> bool:
        """Whether the reserve has been broken into. A reserve of 0 never is."""
        return self.reserve > 0 and self.available < self.reserve


class DiskPressure(Exception):
    """A write refused to keep the reserve free: 507, with this text."""

    def __init__(self, path: str, headroom: Headroom) -> None:
        super().__init__(
            f"not enough room to write {path}: {headroom.available} bytes are available, "
            f"and {headroom.reserve} bytes are kept in reserve"
        )
        self.path = path
        self.headroom = headroom


def headroom(path: str, reserve: int) -> Headroom | None:
    """The room where `path` is or would be, beside a reserve of `reserve` bytes; None when unmeasurable.

    Looks at the file system, which may block where that is remote.
    """
    try:
        return Headroom(available=available_bytes(path), reserve=reserve)
    except (OSError, ValueError):  # ValueError: a NUL, or a text no file name can be
        return None


def require_headroom(path: str, reserve: int) -> None:
    """Raise `DiskPressure` when writing at `path` would take from the reserve. A reserve of 0 asks nothing."""
    if reserve > 0:
        found = headroom(path, reserve)
        if found is not None and found.under_pressure:
            raise DiskPressure(path, found)


class DiskGuard:
    """The watch that one writer keeps on the disk it writes to.

    Call `preflight` before creating anything, then `wrote` after every write; both may raise `DiskPressure`,
    and both look at the file system, so they belong where the writing happens.
    """

    def __init__(self, path: str, reserve: int, interval: int = PROBE_INTERVAL_BYTES) -> None:
        self._path = path
        self._reserve = reserve
        self._interval = interval
        self._unchecked = 0

    def preflight(self) -> None:
        """Check the disk now."""
        require_headroom(self._path, self._reserve)

    def wrote(self, count: int) -> None:
        """Count `count` bytes as written, and check the disk after each full interval."""
        self._unchecked += count
        if self._unchecked >= self._interval:
            self._unchecked %= self._interval
            require_headroom(self._path, self._reserve)

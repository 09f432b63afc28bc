"""How far a search may go, and what it says on the way.

A search that stops at a limit has shown nothing of what lies beyond: its result is incomplete, which is
neither a pass nor a failure (exit code 3).
"""

import time
from typing import TextIO

from attrs import define, field, frozen


@frozen
class Limits:
    """Bounds of one search; None is no bound."""

    depth: int | None = None
    """Steps from the initial state."""
    states: int | None = None
    """Unique states."""
    seconds: float | None = None
    """Wall-clock time."""
    memory: int | None = None
    """Resident bytes of this process."""

    def __attrs_post_init__(self) -> None:
        """Refuse a limit that makes no sense, with ValueError."""
        for name in ("depth", "states", "seconds", "memory"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"a limit on {name} must be positive, not {value}")


NO_LIMITS = Limits()


def resident_bytes() -> int:
    """Resident memory of this process in bytes, of ``/proc/self/statm`` (proc_pid_statm(5))."""
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * 4096


@define
class Watch:
    """Tells a search when to stop, and prints its progress line."""

    limits: Limits = NO_LIMITS
    progress: TextIO | None = None
    """Where the progress line goes, once a second; None for nowhere."""
    started: float = field(factory=time.perf_counter)
    _told: float = 0.0
    _lines: int = 0

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return time.perf_counter() - self.started

    def exceeded(self, states: int, depth: int) -> str | None:
        """The limit that stops a search with so many states, about to take a step from `depth`."""
        limits = self.limits
        if limits.depth is not None and depth >= limits.depth:
            return f"depth {limits.depth}"
        return self.exhausted(states)

    def exhausted(self, states: int) -> str | None:
        """The limit other than depth that is used up; cheap enough to ask every few thousand states."""
        limits = self.limits
        if limits.states is not None and states >= limits.states:
            return f"{limits.states:,} states"
        if limits.seconds is not None and self.seconds >= limits.seconds:
            return f"{limits.seconds:g} seconds"
        if limits.memory is not None and resident_bytes() >= limits.memory:
            return f"{limits.memory / 2**20:,.0f} MiB of memory"
        return None

    def tell(self, states: int, transitions: int, depth: int, waiting: int) -> None:
        """Say where the search is, when a second has passed since it last did."""
        seconds = self.seconds
        if self.progress is None or seconds - self._told < 1.0:
            return
        self._told = seconds
        self._lines += 1
        line = (
            f"{states:,} states  {transitions:,} transitions  depth {depth}  {waiting:,} waiting  "
            f"{transitions / seconds / 1e6:.2f} M/s  {resident_bytes() / 2**20:,.0f} MiB"
        )
        self.progress.write(f"\r{line:<110}" if self.progress.isatty() else line + "\n")
        self.progress.flush()

    def done(self) -> None:
        """End the progress line, if there was one."""
        if self._lines and self.progress is not None and self.progress.isatty():
            self.progress.write("\r" + " " * 110 + "\r")
            self.progress.flush()

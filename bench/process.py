"""What the kernel knows of one process: resident memory and processor time (proc(5))."""

import threading
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
SAMPLE_SECS: Final = 0.01


class Watched:
    """A process on this machine, by pid."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._proc = Path(f"/proc/{pid}")

    def rss(self) -> float:
        """Resident memory now, in MiB."""
        return self._status("VmRSS")

    def peak(self) -> float:
        """Largest resident memory since `reset_peak`, in MiB."""
        return self._status("VmHWM")

    def reset_peak(self) -> None:
        """Start a new peak (the value 5 of clear_refs, proc(5))."""
        (self._proc / "clear_refs").write_text("5")

    def cpu(self) -> float:
        """Seconds its main thread has run, to the nanosecond: a reactor's work, but not its pool's."""
        return int((self._proc / "schedstat").read_text().split()[0]) / 1e9

    def python(self) -> str:
        """The interpreter it runs."""
        return (self._proc / "cmdline").read_bytes().split(b"\0")[0].decode()

    def _status(self, key: str) -> float:
        for line in (self._proc / "status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == key:
                return int(rest.split()[0]) / 1024
        raise ProcessLookupError(f"process {self.pid} has ended")


class Growth:
    """How much a process grows while a block runs: ``with Growth(watched) as growth: ...``; MiB afterwards.

    Unknown (None) processes grow by 0. One of another user has no peak that we may reset, so there it is sampled.
    """

    def __init__(self, watched: Watched | None) -> None:
        self._watched = watched
        self._stop = threading.Event()
        self._sampler: threading.Thread | None = None
        self._before = self._most = 0.0
        self.peak = 0.0
        """At the highest, above what it was before."""
        self.kept = 0.0
        """Still there at the end, above what it was before."""

    def __enter__(self) -> "Growth":
        if self._watched is None:
            return self
        self._before = self._most = self._watched.rss()
        try:
            self._watched.reset_peak()
        except OSError:
            self._sampler = threading.Thread(target=self._sample, args=(self._watched,), daemon=True)
            self._sampler.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._watched is None:
            return
        if self._sampler is None:
            self._most = self._watched.peak()
        else:
            self._stop.set()
            self._sampler.join()
        self.peak = max(0.0, self._most - self._before)
        self.kept = max(0.0, self._watched.rss() - self._before)

    def _sample(self, watched: Watched) -> None:
        while not self._stop.wait(SAMPLE_SECS):
            self._most = max(self._most, watched.rss())

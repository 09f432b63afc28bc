"""What the transfer benchmarks share: repeated measurements of ours and a floor, in pairs, under a pulse."""

import os
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import define, field

from bench.client import Answer, Connection, Server
from bench.daemon import SetupFailed, Target
from bench.process import MIB, Growth
from bench.pulse import Pulse
from bench.report import Goal, Report

PULSE_GOAL: Final = Goal(most=25)


@define
class Series:
    """One kind of transfer, measured `rounds` times beside its floor."""

    name: str
    floor_name: str
    pairs: list[tuple[float, float]] = field(factory=list)
    """Seconds of ours and of the floor."""
    costs: list[float] = field(factory=list)
    """Seconds of the daemon's main thread."""
    windows: list[tuple[float, float]] = field(factory=list)
    growths: list[Growth] = field(factory=list)

    def pair(self, daemon: Target, floor: Callable[[], float], ours: Callable[[], object]) -> None:
        """One more pair: the floor, then `ours`."""
        bare = floor()
        with Growth(daemon.watched) as growth:
            spent = 0.0 if daemon.watched is None else daemon.watched.cpu()
            began = time.monotonic()
            ours()
            ended = time.monotonic()
            spent = 0.0 if daemon.watched is None else daemon.watched.cpu() - spent
        self.pairs.append((ended - began, bare))
        self.windows.append((began, ended))
        self.costs.append(spent)
        self.growths.append(growth)

    def report(
        self,
        report: Report,
        daemon: Target,
        pulse: Pulse,
        amount: float,
        unit: str,
        goal: Goal,
        most_growth: float,
    ) -> None:
        """Add what was found; `amount` is how many of `unit` one transfer moves."""
        report.figure(self.name, f"{unit}/s", [amount / ours for ours, _ in self.pairs])
        report.figure(self.floor_name, f"{unit}/s", [amount / floor for _, floor in self.pairs])
        speeds = [(amount / ours, amount / floor) for ours, floor in self.pairs]
        report.ratio(f"speed of {self.name} / {self.floor_name}", speeds, goal)
        if daemon.watched is not None:
            report.figure(f"{self.name}, the reactor's share of its time", "%", self._shares())
            peaks = [growth.peak for growth in self.growths]
            report.figure(f"{self.name}, growth at the highest", "MiB", peaks, Goal(most=most_growth))
        samples = pulse.during(self.windows)
        if samples:
            report.tail(f"health requests during {self.name}", "ms", samples, PULSE_GOAL)

    def _shares(self) -> list[float]:
        return [spent / ours * 100 for spent, (ours, _) in zip(self.costs, self.pairs, strict=True)]


def upload(server: Server, target: str, source: Path) -> Answer:
    """PUT the file `source` as it is, from the page cache to the socket without passing through here."""
    length = source.stat().st_size
    head = server.prepare("PUT", target, None, (f"Content-Length: {length}",))
    with Connection(server) as connection, source.open("rb", buffering=0) as file:
        connection.send(head)
        sent = 0
        while sent < length:
            count = os.sendfile(connection.socket.fileno(), file.fileno(), sent, length - sent)
            if count == 0:
                raise OSError("the source became shorter")
            sent += count
        return connection.receive()


def download(server: Server, target: str, into: Path | None = None) -> int:
    """GET, and drop or save; how many bytes came. Raises `OSError` for any status but 200."""
    with Connection(server) as connection:
        connection.send(server.prepare("GET", target))
        head = connection.head()
        if head.status != 200:
            raise OSError(f"{target} was answered {head.status}")
        if into is None:
            return connection.discard(head)
        with into.open("wb", buffering=0) as file:
            return sum(file.write(piece) for piece in connection.body(head))


@contextmanager
def scratch(directory: str | None, needed: int) -> Generator[Path]:
    """An empty directory that is removed afterwards; refuses to fill a file system."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=directory) as name:
        room = os.statvfs(name)
        free = room.f_bavail * room.f_frsize
        if free < needed + 512 * MIB:
            raise SetupFailed(f"{name} has room for {free // MIB} MiB, the run needs {needed // MIB + 512}")
        yield Path(name)

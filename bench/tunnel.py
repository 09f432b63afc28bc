"""``python -m bench tunnel``: bytes through a tunnel, against a bare Twisted TCP relay of the same bytes.

The far end is a plain TCP service; the relay of `twisted.protocols.portforward` and the daemon's tunnel both stand
between it and the same client (`bench.ends`). One connection per transfer, both processes of the same
interpreter.
"""

import time
from typing import Final

from bench.daemon import Choice, Started, Target, server, target
from bench.ends import FRAME_BYTES, End, Plain, Tunnel
from bench.process import MIB, Watched
from bench.pulse import Pulse
from bench.report import Goal, Report
from bench.transfer import Series

GOAL: Final = Goal(least=0.5)
GROWTH_MIB: Final = 16


def run(choice: Choice, count: int, rounds: int) -> Report:
    """`rounds` of `count` bytes each way."""
    count = max(FRAME_BYTES, count - count % FRAME_BYTES)
    report = Report("tunnel", {"bytes": count, "rounds": rounds})
    with (
        target(choice) as daemon,
        server(choice.python, "pour") as far,
        server(choice.python, "relay", str(far.server.port)) as relay,
    ):
        report.version = daemon.version
        port = far.server.port
        first = Tunnel(
            daemon.server, port
        )  # what a daemon imports for its first tunnel is no part of a transfer
        right = int(first.down(FRAME_BYTES) == FRAME_BYTES)
        first.close()
        ways = [_Way(way, daemon, relay, port, count) for way in ("down", "up")]
        with Pulse(daemon.server) as pulse:
            for _ in range(rounds):
                for way in ways:
                    right += way.once()
    for way in ways:
        way.series.report(report, daemon, pulse, count / MIB, "MiB", GOAL, GROWTH_MIB)
        if daemon.watched is not None:
            costs = list(zip(way.series.costs, way.bare_costs, strict=True))
            report.ratio(f"processor time of {way.series.name} / {way.series.floor_name}", costs)
    report.count("transfers of every byte", right, 2 * rounds + 1)
    return report


class _Way:
    """One direction."""

    def __init__(self, way: str, daemon: Target, relay: Started, port: int, count: int) -> None:
        self.series = Series(f"tunnel {way}", f"bare relay {way}")
        self.bare_costs: list[float] = []
        self._way = way
        self._daemon = daemon
        self._relay = relay
        self._port = port
        self._count = count
        self._moved = (0, 0)

    def once(self) -> bool:
        """One pair; whether both moved every byte."""
        self.series.pair(self._daemon, self._floor, self._ours)
        return self._moved == (self._count, self._count)

    def _floor(self) -> float:
        watched = Watched(self._relay.process.pid)
        spent = watched.cpu()
        began = time.perf_counter()
        moved = self._transfer(Plain(self._relay.server))
        seconds = time.perf_counter() - began
        self.bare_costs.append(watched.cpu() - spent)
        self._moved = (moved, 0)
        return seconds

    def _ours(self) -> None:
        self._moved = (self._moved[0], self._transfer(Tunnel(self._daemon.server, self._port)))

    def _transfer(self, end: End) -> int:
        try:
            return end.down(self._count) if self._way == "down" else end.up(self._count)
        finally:
            end.close()

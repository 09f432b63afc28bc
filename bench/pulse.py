"""Other requests while a transfer runs: how long a caller waits for a health answer.

A process of its own asks for the daemon's health every few milliseconds over one kept connection, so that neither
the transfer's client nor its interpreter lock is in the measurement. A request that is due while the one before
is still unanswered is timed from when it was due: what makes one caller wait makes the next wait too, and a
request that was never sent must not hide that.

    python -m bench.pulse HOST PORT TOKEN        until its stdin closes; then prints [[due, seconds], ...]
"""

import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bench.client import Connection, Server

EVERY_SECS: Final = 0.005
_TREE: Final = Path(__file__).resolve().parent.parent


class Pulse:
    """``with Pulse(server) as pulse: ...``, then `during` any stretch of that time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._samples: list[tuple[float, float]] = []

    def __enter__(self) -> "Pulse":
        where = self._server
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.pulse", where.host, str(where.port), where.token or ""],
            cwd=_TREE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *exception: object) -> None:
        found, _ = self._process.communicate()
        self._samples = [(due, seconds) for due, seconds in json.loads(found or b"[]")]

    def during(self, windows: list[tuple[float, float]]) -> list[float]:
        """Milliseconds each request took that was due within one of `windows`, in `time.monotonic` seconds."""
        return [
            seconds * 1e3
            for due, seconds in self._samples
            if any(began <= due <= ended for began, ended in windows)
        ]


def beat(server: Server) -> list[tuple[float, float]]:
    """Ask until stdin closes; when each request was due, and how long it took from then."""
    request = server.prepare("GET", "/v1/health")
    samples: list[tuple[float, float]] = []
    with Connection(server) as connection:
        connection.exchange(request)
        print("ready", flush=True)
        due = time.monotonic()
        while True:
            pause = max(0.0, due - time.monotonic())
            if select.select([sys.stdin], [], [], pause)[0]:
                return samples
            began = time.monotonic()
            late = samples and samples[-1][0] + samples[-1][1] > due
            connection.exchange(request)
            ended = time.monotonic()
            # Waking up late is this process's own affair; being kept waiting is not.
            since = due if late else began
            samples.append((since, ended - since))
            due += EVERY_SECS
            if not late:
                due = max(due, began)


if __name__ == "__main__":
    print(json.dumps(beat(Server(sys.argv[1], int(sys.argv[2]), sys.argv[3] or None))))

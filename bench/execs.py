"""``python -m bench exec``: what a command costs, start to acknowledgement.

One operation is start, exit seen, ack of `/bin/true` over one kept connection, in three ways of seeing the exit:
polling back to back, following the stream to its end, and ``Prefer: wait`` on the start. Each is measured in turn
with its floor, the bare spawn of the same program, so that a pair is a millisecond apart. Then many at once, each
with an output and an exit status of its own.
"""

import time
from collections.abc import Callable
from typing import Final

from bench import floors
from bench.client import Connection, ProtocolError, Server
from bench.daemon import Choice, target
from bench.report import Goal, Report

PROGRAM: Final = "/bin/true"
WARM: Final = 20
"""Operations before the first that counts."""
ACK_EXITED: Final = b'"exit_code":0'


def run(choice: Choice, count: int, parallel: int, rounds: int) -> Report:
    """`count` operations of each way; `rounds` of `parallel` execs at once."""
    report = Report("exec", {"count": count, "parallel": parallel, "rounds": rounds, "program": PROGRAM})
    with target(choice) as daemon:
        report.version = daemon.version
        _one_by_one(report, daemon.server, count)
        _at_once(report, daemon.server, parallel, rounds)
        if daemon.watched is not None:
            report.figure("resident memory afterwards", "MiB", [daemon.watched.rss()])
    return report


class _Operations:
    """The requests of one operation, by each way of seeing the exit."""

    def __init__(self, server: Server, connection: Connection) -> None:
        self._server = server
        self._exchange = connection.exchange
        self._made = 0
        self._run = f"bench-{time.monotonic_ns():x}"
        self.wrong = 0

    def _prepare(self, wait: bool) -> tuple[bytes, bytes, bytes, bytes]:
        self._made += 1
        exec_id = f"{self._run}-{self._made}"
        headers = ("Prefer: wait=10",) if wait else ()
        server, body = self._server, {"exec_id": exec_id, "command": [PROGRAM]}
        return (
            server.post_json("/v1/exec/start", body, headers),
            server.prepare("GET", f"/v1/exec/{exec_id}"),
            server.prepare("GET", f"/v1/exec/{exec_id}/stream"),
            server.prepare("POST", f"/v1/exec/{exec_id}/ack"),
        )

    def polled(self) -> float:
        """Start, poll until it has exited, ack."""
        start, poll, _, ack = self._prepare(False)
        exchange = self._exchange
        began = time.perf_counter()
        status = exchange(start).status
        while b'"phase":"running"' in exchange(poll).body:
            pass
        acked = exchange(ack)
        seconds = time.perf_counter() - began
        self._check(status, acked.body)
        return seconds

    def streamed(self) -> float:
        """Start, follow the stream to its exit event, ack."""
        start, _, stream, ack = self._prepare(False)
        exchange = self._exchange
        began = time.perf_counter()
        status = exchange(start).status
        exchange(stream)
        acked = exchange(ack)
        seconds = time.perf_counter() - began
        self._check(status, acked.body)
        return seconds

    def waited(self) -> float:
        """Start with ``Prefer: wait``, ack."""
        start, _, _, ack = self._prepare(True)
        exchange = self._exchange
        began = time.perf_counter()
        status = exchange(start).status
        acked = exchange(ack)
        seconds = time.perf_counter() - began
        self._check(status, acked.body)
        return seconds

    def _check(self, status: int, acked: bytes) -> None:
        if status != 200 or ACK_EXITED not in acked:
            self.wrong += 1


def _one_by_one(report: Report, server: Server, count: int) -> None:
    argv = [PROGRAM]
    with Connection(server) as connection:
        operations = _Operations(server, connection)
        ways: dict[str, tuple[Callable[[], float], Goal | None]] = {
            "polling": (operations.polled, Goal(most=2.5)),
            "stream": (operations.streamed, None),
            "Prefer: wait": (operations.waited, Goal(most=2.0)),
        }
        for _ in range(WARM):
            floors.spawn(argv)
            for way, _ in ways.values():
                way()
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(count):
            for name, (way, _) in ways.items():
                bare = floors.spawn(argv)
                pairs[name].append((way(), bare))
    report.figure(
        "bare posix_spawn and wait", "ms", [bare * 1e3 for taken in pairs.values() for _, bare in taken]
    )
    for name, taken in pairs.items():
        report.figure(f"start, exit seen by {name}, ack", "ms", [seconds * 1e3 for seconds, _ in taken])
    for name, taken in pairs.items():
        report.ratio(f"exec by {name} / bare spawn", taken, ways[name][1])
    report.count(
        "operations with the right outcome", 3 * (count + WARM) - operations.wrong, 3 * (count + WARM)
    )


def _at_once(report: Report, server: Server, parallel: int, rounds: int) -> None:
    commands = [["/bin/sh", "-c", f"echo {number}; exit {number % 256}"] for number in range(parallel)]
    pairs: list[tuple[float, float]] = []
    right = 0
    for turn in range(rounds):
        bare = floors.spawn_all(commands)
        seconds, good = _together(server, commands, f"bench-{time.monotonic_ns():x}-{turn}")
        pairs.append((seconds, bare))
        right += good
    report.figure(f"{parallel} execs at once, all acknowledged", "ms", [taken * 1e3 for taken, _ in pairs])
    report.figure(f"{parallel} bare spawns at once", "ms", [bare * 1e3 for _, bare in pairs])
    report.ratio(f"{parallel} execs at once / bare spawns", pairs)
    report.count("execs at once with the right exit and output", right, parallel * rounds)


def _together(server: Server, commands: list[list[str]], prefix: str) -> tuple[float, int]:
    """Every command on a connection of its own; seconds, and how many outcomes are right."""
    connections = [Connection(server) for _ in commands]
    try:
        starts = [
            server.post_json(
                "/v1/exec/start", {"exec_id": f"{prefix}-{number}", "command": command}, ("Prefer: wait=60",)
            )
            for number, command in enumerate(commands)
        ]
        began = time.perf_counter()
        for connection, start in zip(connections, starts, strict=True):
            connection.send(start)
        for connection in connections:
            connection.receive()
        for number, connection in enumerate(connections):
            connection.send(server.prepare("POST", f"/v1/exec/{prefix}-{number}/ack"))
        answers = [connection.receive() for connection in connections]
        seconds = time.perf_counter() - began
    finally:
        for connection in connections:
            connection.close()
    right = 0
    for number, answer in enumerate(answers):
        if answer.status != 200:
            continue
        try:
            outcome = answer.json()
        except ValueError:
            raise ProtocolError("an ack was answered with what is not JSON") from None
        right += outcome["exit_code"] == number % 256 and outcome["stdout"] == f"{number}\n"
    return seconds, right

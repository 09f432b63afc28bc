"""``python -m bench idle``: what the daemon costs when nothing runs in it.

Requests for its health against the plainest twisted.web resource that answers as many bytes, each in a process of
its own and both asked by the same client: a few connections, every one with a request under way, so that the server
is never idle. Beside requests a second stands the server's own processor time for each, which other
work on the machine disturbs less. Then the time from starting a process to its first 200, and resident memory.
"""

import time
from collections.abc import Callable
from typing import Final

from bench.client import Answer, Connection, Server
from bench.daemon import Choice, Started, launch_daemon, launch_server, server, target
from bench.process import Watched
from bench.report import Goal, Report

CONNECTIONS: Final = 8
SETTLE_SECS: Final = 1.5
"""What is imported or collected after the port listens has happened by then."""
WARM_REQUESTS: Final = 400


def run(choice: Choice, count: int, rounds: int, starts: int) -> Report:
    """`rounds` of `count` requests to each; `starts` starts of each."""
    report = Report("idle", {"count": count, "rounds": rounds, "starts": starts, "connections": CONNECTIONS})
    with target(choice) as daemon:
        report.version = daemon.version
        _requests(report, choice, daemon.server, daemon.watched, count, rounds)
    if choice.own:
        _starts(report, choice, starts)
    else:
        report.note("starts and idle memory are measured on a daemon of the run's own, without --url")
    return report


class _Load:
    """One server under requests from a few connections."""

    def __init__(self, where: Server, request: bytes, watched: Watched | None) -> None:
        self._connections = [Connection(where) for _ in range(CONNECTIONS)]
        self._request = request
        self._watched = watched
        self.answered = 0

    def round(self, count: int) -> tuple[float, float | None]:
        """`count` requests; requests a second, and microseconds of the server's processor time for each."""
        turns = max(1, count // CONNECTIONS)
        request = self._request
        for connection in self._connections:
            connection.send(request)
        cpu = 0.0 if self._watched is None else self._watched.cpu()
        began = time.perf_counter()
        for turn in range(turns):
            last = turn == turns - 1
            for connection in self._connections:
                answer = connection.receive()
                if not last:
                    connection.send(request)
                self._count(answer)
        seconds = time.perf_counter() - began
        made = turns * CONNECTIONS
        spent = None if self._watched is None else (self._watched.cpu() - cpu) / made * 1e6
        return made / seconds, spent

    def _count(self, answer: Answer) -> None:
        self.answered += answer.status == 200

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def _requests(
    report: Report, choice: Choice, where: Server, watched: Watched | None, count: int, rounds: int
) -> None:
    health = where.prepare("GET", "/v1/health")
    with Connection(where) as connection:
        size = len(connection.exchange(health).body)
    with server(choice.python, "web", str(size)) as bare:
        loads = (
            _Load(where, health, watched),
            _Load(bare.server, bare.server.prepare("GET", "/"), Watched(bare.process.pid)),
        )
        for load in loads:
            load.round(WARM_REQUESTS)
            load.answered = 0
        taken = [(loads[0].round(count), loads[1].round(count)) for _ in range(rounds)]
        for load in loads:
            load.close()
    made = max(1, count // CONNECTIONS) * CONNECTIONS * rounds
    report.figure("health", "requests/s", [mine[0] for mine, _ in taken])
    report.figure("bare twisted.web resource", "requests/s", [floor[0] for _, floor in taken])
    costs = [(mine[1], floor[1]) for mine, floor in taken if mine[1] is not None and floor[1] is not None]
    if costs:
        report.figure("health, processor time of the daemon", "us", [mine for mine, _ in costs])
        report.figure("bare resource, processor time of its server", "us", [floor for _, floor in costs])
    report.ratio(
        "health requests/s / bare resource", [(mine[0], floor[0]) for mine, floor in taken], Goal(least=0.9)
    )
    if costs:
        report.ratio("processor time of a health request / bare resource", costs)
    report.count("health answers 200", loads[0].answered, made)


def _starts(report: Report, choice: Choice, starts: int) -> None:
    taken: list[tuple[float, float]] = []
    memory: list[float] = []
    settled: list[float] = []
    bare_memory: list[float] = []
    for turn in range(starts + 1):
        seconds, started = _first_answer(launch_daemon, choice.python, "/v1/health")
        try:
            first = Watched(started.process.pid).rss()
            time.sleep(SETTLE_SECS)
            later = Watched(started.process.pid).rss()
        finally:
            started.stop()
        bare_seconds, bare = _first_answer(_launch_bare, choice.python, "/")
        try:
            bare_rss = Watched(bare.process.pid).rss()
        finally:
            bare.stop()
        if turn == 0:
            continue  # reads files from the disk that later starts find in memory
        taken.append((seconds, bare_seconds))
        memory.append(first)
        settled.append(later)
        bare_memory.append(bare_rss)
    report.figure("start to first 200", "ms", [mine * 1e3 for mine, _ in taken])
    report.figure("bare twisted.web server, start to first 200", "ms", [floor * 1e3 for _, floor in taken])
    report.ratio("start to first 200 / bare twisted.web server", taken, Goal(most=1.8))
    report.figure("bare twisted.web server, resident memory", "MiB", bare_memory)
    report.figure("resident memory at the first 200", "MiB", memory)
    report.figure(f"resident memory, idle for {SETTLE_SECS:g} s", "MiB", settled, Goal(most=42))


def _launch_bare(python: str) -> Started:
    return launch_server(python, "web", "300")


def _first_answer(launch: Callable[[str], Started], python: str, path: str) -> tuple[float, Started]:
    began = time.perf_counter()
    started = launch(python)
    try:
        started.wait(started.server.prepare("GET", path)).close()
    except BaseException:
        started.stop()
        raise
    return time.perf_counter() - began, started

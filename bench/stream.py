"""``python -m bench stream``: what output costs, with nobody reading and with many.

*Capture*: a child writes a gigabyte and nobody reads it; the time until the result is published, against the time
in which this program reads the same output from a pipe and drops it, and the daemon's memory. *Readers*: one exec
followed by a hundred connections at once, as fast as they can; what each got and what gaps told it must be exactly
what the child wrote.
"""

import selectors
import time
from typing import Any, Final

from bench import floors
from bench.client import Connection, Server
from bench.daemon import Choice, Target, target
from bench.process import MIB, Growth
from bench.report import Goal, Report
from bench.sse import EventParser, Ledger

BLOCK: Final = 128 * 1024
LINE: Final = 16
"""Bytes of a line of the child that readers follow: its number, padded, and a newline."""
MS_PER_GIB: Final = 1e3 * 2**30
POLL_SECS: Final = 0.005
DEADLINE_SECS: Final = 600.0


def run(choice: Choice, count: int, rounds: int, streams: int, stream_bytes: int) -> Report:
    """`rounds` captures of `count` bytes; `streams` readers of an exec that writes `stream_bytes`."""
    count = max(BLOCK, count - count % BLOCK)
    settings = {"bytes": count, "rounds": rounds, "streams": streams, "stream_bytes": stream_bytes}
    report = Report("stream", settings)
    with target(choice) as daemon:
        report.version = daemon.version
        _captures(report, daemon, count, rounds)
        _readers(report, daemon, streams, max(1, stream_bytes // LINE))
    return report


# -- capture -----------------------------------------------------------------------------------------------


def _captures(report: Report, daemon: Target, count: int, rounds: int) -> None:
    argv = ["/bin/dd", "if=/dev/zero", f"bs={BLOCK}", f"count={count // BLOCK}", "status=none"]
    speeds: list[tuple[float, float]] = []
    costs: list[tuple[float, float]] = []
    grown: list[tuple[Growth, Growth]] = []
    captured = 0
    with Connection(daemon.server) as connection:
        for _ in range(rounds):
            floor = floors.read_pipe(argv)
            exec_id = f"bench-{time.monotonic_ns():x}"
            with Growth(daemon.watched) as growth:
                spent = 0.0 if daemon.watched is None else daemon.watched.cpu()
                seconds = _capture(daemon.server, connection, exec_id, argv)
                spent = 0.0 if daemon.watched is None else daemon.watched.cpu() - spent
            total = _total(daemon.server, exec_id)
            with Growth(daemon.watched) as answering:
                _acknowledge(daemon.server, exec_id)
            grown.append((growth, answering))
            speeds.append((total / seconds, floor.total / floor.seconds))
            costs.append((spent / total, floor.processor_seconds / floor.total))
            captured += total == count == floor.total
    report.figure("capture, nobody reading", "MiB/s", [mine / MIB for mine, _ in speeds])
    report.figure("the same pipe, read and dropped", "MiB/s", [bare / MIB for _, bare in speeds])
    report.ratio("speed of capture / reading the pipe", speeds, Goal(least=0.5))
    if daemon.watched is not None:
        report.figure(
            "capture, processor time of the daemon", "ms/GiB", [mine * MS_PER_GIB for mine, _ in costs]
        )
        report.figure(
            "the same pipe, processor time of the reader", "ms/GiB", [bare * MS_PER_GIB for _, bare in costs]
        )
        report.ratio("processor time of capture / reading the pipe", costs)
        peaks = [growth.peak for growth, _ in grown]
        report.figure("resident memory, growth at the highest", "MiB", peaks, Goal(most=24))
        report.figure("resident memory, growth kept", "MiB", [growth.kept for growth, _ in grown])
        # 8 MiB of zero bytes are 48 MiB of JSON.
        report.figure("growth while the ack answers 8 MiB of output", "MiB", [ack.peak for _, ack in grown])
    report.count("captures of every byte", captured, rounds)


def _capture(server: Server, connection: Connection, exec_id: str, argv: list[str]) -> float:
    """Seconds until the result of `argv` is published."""
    health = server.prepare("GET", "/v1/health")
    began = time.perf_counter()
    _expect_ok(connection.exchange(server.post_json("/v1/exec/start", {"exec_id": exec_id, "command": argv})))
    # Health says when it is over and carries no output: a poll of the exec would be a reader.
    while b'"busy":true' in connection.exchange(health).body:
        if time.perf_counter() - began > DEADLINE_SECS:
            raise TimeoutError("an exec did not end, or the daemon runs others")
        time.sleep(POLL_SECS)
    return time.perf_counter() - began


def _acknowledge(server: Server, exec_id: str) -> None:
    with Connection(server) as connection:
        connection.send(server.prepare("POST", f"/v1/exec/{exec_id}/ack"))
        connection.discard(connection.head())


def _total(server: Server, exec_id: str) -> int:
    """How many bytes an exec that has exited wrote: a reader beyond the end is told, and gets none of them."""
    parser = EventParser()
    with Connection(server) as connection:
        connection.send(server.prepare("GET", f"/v1/exec/{exec_id}/stream?offset={1 << 62}"))
        connection.head()
        while not parser.ended:
            for name, event in parser.feed(connection.raw()):
                if name == b"exit":
                    return int(event["offset"])
    return -1


def _expect_ok(answer: Any) -> None:
    if answer.status != 200:
        raise OSError(f"the daemon answered {answer.status}: {answer.body[:200]!r}")


# -- readers -----------------------------------------------------------------------------------------------


def _readers(report: Report, daemon: Target, streams: int, lines: int) -> None:
    server = daemon.server
    expected = b"".join(b"%015d\n" % number for number in range(lines))
    exec_id = f"bench-{time.monotonic_ns():x}-readers"
    # The child waits for a line on its stdin, so that every reader is there before the first byte.
    script = f"read go; exec seq -f %015.0f 0 {lines - 1}"
    start = {"exec_id": exec_id, "command": [script], "shell": True, "stdin": True}
    with Connection(server) as control:
        _expect_ok(control.exchange(server.post_json("/v1/exec/start", start)))
        connections = [Connection(server) for _ in range(streams)]
        try:
            for connection in connections:
                connection.send(server.prepare("GET", f"/v1/exec/{exec_id}/stream"))
            for connection in connections:
                connection.head()
            go = server.post_json(f"/v1/exec/{exec_id}/stdin", {"data_b64": "Cg==", "signal": "eof"})
            with Growth(daemon.watched) as growth:
                began = time.perf_counter()
                _expect_ok(control.exchange(go))
                ledgers = _follow(connections, expected)
                seconds = time.perf_counter() - began
        finally:
            for connection in connections:
                connection.close()
        control.exchange(server.prepare("POST", f"/v1/exec/{exec_id}/ack"))
    delivered = sum(ledger.delivered for ledger in ledgers)
    missed = sum(ledger.missed for ledger in ledgers)
    report.figure(f"{streams} readers, from the first byte to the last exit event", "s", [seconds])
    report.figure(f"{streams} readers, output delivered to all", "MiB/s", [delivered / seconds / MIB])
    if daemon.watched is not None:
        report.figure(f"{streams} readers, growth at the highest", "MiB", [growth.peak])
    report.count("bytes delivered, all readers", delivered)
    report.count("bytes in gaps, all readers", missed)
    report.count("bytes accounted for", delivered + missed, streams * len(expected))
    report.count("readers with every byte or a gap", sum(ledger.balanced for ledger in ledgers), streams)


def _follow(connections: list[Connection], expected: bytes) -> list[Ledger]:
    """Read every stream to its end."""
    ledgers = [Ledger(expected) for _ in connections]
    deadline = time.monotonic() + DEADLINE_SECS
    with selectors.DefaultSelector() as selector:
        for connection, ledger in zip(connections, ledgers, strict=True):
            selector.register(connection.socket, selectors.EVENT_READ, (connection, EventParser(), ledger))
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(1.0):
                connection, parser, ledger = key.data
                data = connection.raw()
                for name, event in parser.feed(data):
                    ledger.enter(name, event)
                if parser.ended or not data:
                    selector.unregister(connection.socket)
    return ledgers

"""Much work at once, and what the daemon holds afterwards: what it held before.

``test_census.py`` counts what each kind of failure leaves. Here they come together: hundreds of commands at a
time, callers that leave in the middle of anything, much output. What is measured is resident memory, so there is an
allowance, over a base that is taken once every path has been walked: `ALLOWANCE_MIB` for what should leave nothing,
and the 24 MiB of the specification for a capture.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from typing import Final

import pytest
from attrs import frozen

from agentd.config import THREADS, Config
from tests.conftest import RunningDaemon, start_daemon
from tests.wire.support import DEADLINE, Raw, as_json, connect, request

ALLOWANCE_MIB: Final = 6.0
CAPTURE_MIB: Final = 24.0
AT_ONCE: Final = 200
CANCELLED: Final = 500
CAPTURED: Final = 256 << 20
"""Bytes of output that nobody reads."""


@frozen
class Census:
    """What a process holds."""

    descriptors: tuple[str, ...]
    """What they are open on, without the numbers that tell pipes and sockets apart."""
    threads: int
    resident_mib: float
    children: int

    @classmethod
    def of(cls, pid: int) -> "Census":
        fields = {}
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                name, _, value = line.partition(":")
                fields[name] = value.split()
        children = 0
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                children += len(file.read().split())
        descriptors = tuple(sorted(_descriptors(pid)))
        return cls(descriptors, int(fields["Threads"][0]), int(fields["VmRSS"][0]) / 1024, children)


def _descriptors(pid: int) -> Iterator[str]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield os.readlink(f"/proc/{pid}/fd/{name}").partition("[")[0]
        except FileNotFoundError:
            pass


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon with an exec that runs on, and everything below walked already."""
    running = start_daemon(tmp_path_factory.mktemp("load"))
    running.bootstrap()
    connection = connect(running)
    body = {"exec_id": "long", "command": ["echo here; exec cat"], "shell": True, "stdin": True}
    assert connection.send(as_json("POST", "/v1/exec/start", body, token=running.token)).reply().status == 200
    connection.close()
    cancel(running, 120)
    at_once(running, 60, "warm")
    yield running
    running.stop()


def base(daemon: RunningDaemon) -> Census:
    """What the daemon holds once no connection of ours is left there."""
    end = time.monotonic() + DEADLINE
    while True:
        found = Census.of(daemon.pid)
        if sum(each == "socket:" for each in found.descriptors) == 1:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.01)


def back_to(before: Census, daemon: RunningDaemon, allowance: float = ALLOWANCE_MIB) -> None:
    """The daemon holds what it did, and serves."""
    end = time.monotonic() + DEADLINE
    while True:
        after = Census.of(daemon.pid)
        if (after.descriptors, after.children) == (before.descriptors, before.children):
            break
        assert time.monotonic() < end, (before, after)
        time.sleep(0.01)
    assert after.threads <= 1 + THREADS
    assert after.resident_mib <= before.resident_mib + allowance, (before, after)
    connection = connect(daemon)
    long = connection.send(request("GET", "/v1/exec/long", token=daemon.token)).reply().json
    health = connection.send(request("GET", "/v1/health")).reply().json
    connection.close()
    assert long["phase"] == "running"
    assert health["busy"] is True


def reset(connection: Raw) -> None:
    """Hang up with a reset instead of an orderly end."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def cancel(daemon: RunningDaemon, count: int) -> None:
    """Requests of every kind whose callers leave before the answer, twenty at a time."""
    head = f"POST /v1/exec/start HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {daemon.token}\r\n"
    retry = {"exec_id": "long", "command": ["x"]}
    kinds = [
        request("GET", "/v1/exec/long", "Prefer: wait=60", token=daemon.token),
        as_json("POST", "/v1/exec/start", retry, "Prefer: wait=60", token=daemon.token),
        f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode(),
        f"{head}Transfer-Encoding: chunked\r\n\r\n5\r\nab".encode(),
        request("GET", "/v1/procs", token=daemon.token),
        b"POST /v1/exec/start HTTP/1.1\r\nHo",
        request("GET", "/v1/exec/long/stream", token=daemon.token),
    ]
    for first in range(0, count, 20):
        numbers = range(first, min(count, first + 20))
        callers = [connect(daemon).send(kinds[number % len(kinds)]) for number in numbers]
        for number, caller in enumerate(callers):
            if number % 2:
                reset(caller)
            else:
                caller.close()


def at_once(daemon: RunningDaemon, count: int, prefix: str) -> None:
    """Execs in parallel, each on a connection of its own, each with an output and a status of its own."""
    connections = [connect(daemon) for _ in range(count)]
    try:
        for number, connection in enumerate(connections):
            script = f"echo {number}; echo {-number} >&2; exit {number % 256}"
            body = {"exec_id": f"{prefix}-{number}", "command": [script], "shell": True}
            connection.send(as_json("POST", "/v1/exec/start", body, "Prefer: wait=60", token=daemon.token))
        for number, connection in enumerate(connections):
            found = connection.reply().json
            assert (found["phase"], found["exit_code"], found["signal"]) == ("exited", number % 256, None)
            assert (found["stdout"], found["stderr"]) == (f"{number}\n", f"{-number}\n")
            connection.send(request("POST", f"/v1/exec/{prefix}-{number}/ack", token=daemon.token))
        for connection in connections:
            assert connection.reply().json["phase"] == "acked"
    finally:
        for connection in connections:
            connection.close()


def test_hundreds_of_commands_at_once_end_right_and_leave_nothing(busy: RunningDaemon) -> None:
    before = base(busy)
    at_once(busy, AT_ONCE, "once")
    back_to(before, busy)


def test_hundreds_of_callers_that_leave_leave_nothing(busy: RunningDaemon) -> None:
    before = base(busy)
    cancel(busy, CANCELLED)
    back_to(before, busy)


def test_output_that_nobody_reads_is_captured_in_little_memory(busy: RunningDaemon) -> None:
    """A quarter of a gigabyte goes by; the head and the window are all that is kept of it."""
    before = base(busy)
    connection = connect(busy)
    command = ["dd", "if=/dev/zero", "bs=256k", f"count={CAPTURED >> 18}", "status=none"]
    body = {"exec_id": "much", "command": command, "env": {"PATH": os.defpath}}
    connection.send(as_json("POST", "/v1/exec/start", body, token=busy.token)).reply()
    peak = before.resident_mib
    end = time.monotonic() + 60
    # The phase is in the first bytes of an answer that carries eight megabytes of zeros, each as \u0000.
    while "event: exit" not in (seen := stream_end(busy, "much")):
        peak = max(peak, Census.of(busy.pid).resident_mib)
        assert time.monotonic() < end
    peak = max(peak, Census.of(busy.pid).resident_mib)
    found = json.loads(seen.rpartition("data: ")[2])
    connection.close()
    assert (found["exit_code"], found["offset"], found["truncated"]) == (0, CAPTURED, True)
    assert peak <= before.resident_mib + CAPTURE_MIB, (before, peak)
    back_to(before, busy, CAPTURE_MIB)


def stream_end(daemon: RunningDaemon, exec_id: str) -> str:
    """The exit event, if it has come within a tenth of a second of attaching beyond the end."""
    connection = connect(daemon)
    connection.socket.settimeout(0.1)
    connection.send(
        f"GET /v1/exec/{exec_id}/stream?offset={1 << 60} HTTP/1.0\r\n"
        f"Authorization: Bearer {daemon.token}\r\n\r\n".encode()
    )
    seen = b""
    try:
        while piece := connection.socket.recv(65536):
            seen += piece
    except TimeoutError:
        pass
    connection.close()
    return seen.decode()


def test_an_acknowledgement_gives_the_memory_back(busy: RunningDaemon) -> None:
    """Five heads of eight megabytes are held until they are acknowledged, and not longer."""
    before = base(busy)
    cap = Config().max_output_bytes
    connection = connect(busy)
    connection.socket.settimeout(60)
    for number in range(5):
        script = f"head -c {cap} /dev/zero | tr '\\0' x"
        body = {"exec_id": f"head-{number}", "command": [script], "shell": True, "env": {"PATH": os.defpath}}
        found = connection.send(
            as_json("POST", "/v1/exec/start", body, "Prefer: wait=60", token=busy.token)
        ).reply()
        assert found.json["stdout"] == "x" * cap
        assert found.json["truncated"] is False
    held = Census.of(busy.pid).resident_mib - before.resident_mib
    assert held >= 5 * cap / (1 << 20)
    for number in range(5):
        acked = connection.send(request("POST", f"/v1/exec/head-{number}/ack", token=busy.token)).reply()
        assert len(acked.json["stdout"]) == cap
    connection.close()
    # What stays of each until it is collected is its replay window.
    windows = 5 * Config().stream_buffer_bytes / (1 << 20)
    back_to(before, busy, ALLOWANCE_MIB + 2 * windows)

"""Nothing is left behind: descriptors, memory and children before and after what fails, resets and vanishes."""

import json
import os
import socket
import struct
import time
from pathlib import Path

import pytest

from tests.conftest import RunningDaemon
from tests.wire.conftest import Connect
from tests.wire.support import DEADLINE, Raw, as_json, request

SLACK_BYTES = 4 * 1024 * 1024
"""Growth of resident memory that is not a leak of something per request."""


def descriptors(daemon: RunningDaemon) -> int:
    """Open descriptors."""
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def resident(daemon: RunningDaemon) -> int:
    """Resident memory in bytes."""
    return int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def children(daemon: RunningDaemon) -> list[str]:
    """Children, zombies among them."""
    return Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()


def settle(daemon: RunningDaemon, base: int) -> None:
    """Wait until the daemon has let go of what is gone."""
    limit = time.monotonic() + DEADLINE
    while descriptors(daemon) > base:
        assert time.monotonic() < limit, f"{descriptors(daemon)} descriptors, {base} before"
        time.sleep(0.02)


def in_turn(connection: Raw, message: bytes, times: int, status: int) -> None:
    """The same request many times, some at once."""
    for _ in range(times // 20):
        connection.send(message * 20)
        for _ in range(20):
            assert connection.reply().status == status


def health(connection: Raw) -> dict[str, object]:
    """The health document."""
    found: dict[str, object] = json.loads(connection.send(request("GET", "/v1/health")).reply().body)
    return found


@pytest.mark.parametrize(
    ("fields", "status", "times"),
    [
        ({"command": ["/no/such/program"], "stdin": True}, 500, 1000),
        ({"command": ["true"], "cwd": "/no/such/dir", "digest": True}, 500, 400),
        ({"command": ["true"], "user": "no-such-user"}, 400, 300),
        ({"command": ["/no/such/program"], "user": "nobody", "cwd": "/"}, 500, 300),
    ],
    ids=["program", "cwd", "name", "user"],
)
def test_failed_starts(
    daemon: RunningDaemon, raw: Connect, fields: dict[str, object], status: int, times: int
) -> None:
    """Two thousand of them."""
    connection = raw(daemon)
    message = as_json("POST", "/v1/exec/start", {"exec_id": "failing", **fields}, token=daemon.token)
    in_turn(connection, message, 20, status)
    held = children(daemon)  # a zygote, from the first child of another user on
    base, memory, execs = descriptors(daemon), resident(daemon), health(connection)["execs"]
    in_turn(connection, message, times, status)
    settle(daemon, base)
    assert resident(daemon) - memory < SLACK_BYTES
    assert children(daemon) == held
    assert len(held) <= 1
    assert health(connection)["execs"] == execs


def reset(connection: Raw) -> None:
    """Hang up with a reset."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("what", ["stream", "wait", "body", "refused"])
def test_callers_that_vanish(daemon: RunningDaemon, raw: Connect, what: str) -> None:
    """Five hundred of each kind: reset inside a stream, a held answer, a body, a refusal."""
    steady = raw(daemon)
    exec_id = f"vanish-{what}"
    start = {"exec_id": exec_id, "command": ["echo out; exec sleep 300"], "shell": True}
    assert steady.send(as_json("POST", "/v1/exec/start", start, token=daemon.token)).reply().status == 200
    message = {
        "stream": request("GET", f"/v1/exec/{exec_id}/stream", token=daemon.token),
        "wait": request("GET", f"/v1/exec/{exec_id}", "Prefer: wait=50", token=daemon.token),
        "body": request("POST", "/v1/exec/start", "Content-Length: 9000", token=daemon.token) + b"x" * 1000,
        "refused": request("POST", "/v1/exec/start", "Content-Length: 900000") + b"x" * 1000,
    }[what]

    def vanish(times: int) -> None:
        for _ in range(times):
            gone = raw(daemon).send(message)
            if what in ("stream", "refused"):
                gone.socket.recv(10)
            reset(gone)

    vanish(20)
    health(steady)
    settle(daemon, base := descriptors(daemon))
    memory = resident(daemon)
    vanish(480)
    health(steady)
    settle(daemon, base)
    assert resident(daemon) - memory < SLACK_BYTES
    assert steady.send(request("POST", f"/v1/exec/{exec_id}/kill", token=daemon.token)).reply().status == 200


def test_execs_that_come_and_go(daemon: RunningDaemon, raw: Connect) -> None:
    """Their pipes and processes are gone when they are; their records stay until they are collected."""
    connection = raw(daemon)

    def run(number: int) -> None:
        start = {"exec_id": f"gone-{number}", "command": ["true"], "stdin": True}
        message = as_json("POST", "/v1/exec/start", start, "Prefer: wait=20", token=daemon.token)
        assert connection.send(message).reply().json["phase"] == "exited"
        assert (
            connection.send(request("POST", f"/v1/exec/gone-{number}/ack", token=daemon.token)).reply().status
            == 200
        )

    for number in range(20):
        run(number)
    held, base, memory = children(daemon), descriptors(daemon), resident(daemon)
    for number in range(20, 320):
        run(number)
    settle(daemon, base)
    assert resident(daemon) - memory < 2 * SLACK_BYTES
    assert children(daemon) == held
    assert len(held) <= 1

"""Real clients of a real server through `agentctl forward`: those of Redis, which pipeline, wait and are pushed to."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet.threads import deferToThread

from tests.cli.conftest import Spawn
from tests.cli.test_forward import forwarded
from tests.client.support import until
from tests.conftest import RunningDaemon

pytestmark = [
    pytest.mark.program("redis-server", "redis-server"),
    pytest.mark.program("redis-cli", "redis-tools"),
]
LIMIT = 60.0
"""Seconds any command may take."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    """A Redis server that keeps nothing; its port on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    words = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert any(b"Ready to accept connections" in line for line in process.stdout)
        yield port
        process.terminate()
        process.stdout.read()


async def redis(port: int, *words: str, data: bytes | None = None) -> bytes:
    """What ``redis-cli`` prints."""

    def run() -> bytes:
        command = ["redis-cli", "-h", "127.0.0.1", "-p", str(port), *words]
        return subprocess.run(command, input=data, capture_output=True, check=True, timeout=LIMIT).stdout

    printed: bytes = await deferToThread(run)
    return printed


@pytest_twisted.ensureDeferred
async def test_commands_of_any_size_and_many_at_once(
    server: int, spawn: Spawn, daemon: RunningDaemon
) -> None:
    run = spawn("forward", "--json", f"0:{server}", url=daemon.url, token=daemon.token)
    port = await forwarded(run)
    assert await redis(port, "PING") == b"PONG\n"
    large = os.urandom(1 << 20).hex().encode()
    assert await redis(port, "-x", "SET", "large", data=large) == b"OK\n"
    assert await redis(port, "GET", "large") == large + b"\n"

    # a pipeline: requests go on while answers come back
    commands = b"".join(b"SET key:%d %d\r\n" % (n, n * n) for n in range(20_000))
    said = await redis(port, "--pipe", data=commands)
    assert b"errors: 0, replies: 20000" in said
    # and what was written through the tunnel is there without it
    assert await redis(server, "GET", "key:12345") == b"152399025\n"
    assert await redis(server, "DBSIZE") == b"20001\n"

    run.signal(signal.SIGINT)
    assert (await run.result()).status == 130


@pytest_twisted.ensureDeferred
async def test_a_subscriber_is_pushed_to_and_a_blocked_caller_is_woken(
    server: int, spawn: Spawn, daemon: RunningDaemon
) -> None:
    """Connections where nothing goes out for a while, and then comes in unasked."""
    run = spawn("forward", "--json", f"0:{server}", url=daemon.url, token=daemon.token)
    port = await forwarded(run)
    waiting = deferToThread(
        subprocess.run,
        ["redis-cli", "-h", "127.0.0.1", "-p", str(port), "BLPOP", "list", "30"],
        capture_output=True,
        timeout=LIMIT,
    )
    command = ["redis-cli", "-h", "127.0.0.1", "-p", str(port), "SUBSCRIBE", "news"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as subscriber:
        assert subscriber.stdout is not None
        first = [await deferToThread(subscriber.stdout.readline) for _ in range(3)]
        assert first == [b"subscribe\n", b"news\n", b"1\n"]
        assert await redis(server, "PUBLISH", "news", "hello") == b"1\n"
        pushed = [await deferToThread(subscriber.stdout.readline) for _ in range(3)]
        assert pushed == [b"message\n", b"news\n", b"hello\n"]
        subscriber.terminate()
    blocked = b"blocked_clients:1"
    while blocked not in await redis(server, "INFO", "clients"):
        pass
    assert await redis(server, "RPUSH", "list", "woken") == b"1\n"
    assert (await waiting).stdout == b"list\nwoken\n"
    # the server sees its callers go
    run.signal(signal.SIGTERM)
    assert (await run.result()).status == 143
    while b"connected_clients:1\r" not in await redis(server, "INFO", "clients"):
        pass


@pytest_twisted.ensureDeferred
async def test_a_server_that_ends_ends_its_callers(
    spawn: Spawn, daemon: RunningDaemon, tmp_path: Path
) -> None:
    """And the forward goes on: the next server on that port is reached."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        there = free.getsockname()[1]
    run = spawn("forward", "--json", f"0:{there}", url=daemon.url, token=daemon.token)
    port = await forwarded(run)
    for number in range(2):
        words = [
            "redis-server",
            "--bind",
            "127.0.0.1",
            "--port",
            str(there),
            "--save",
            "",
            "--dir",
            str(tmp_path),
        ]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert any(b"Ready to accept connections" in line for line in process.stdout)
            assert await redis(port, "INCR", f"n{number}") == b"1\n"
            with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as caller:
                caller.sendall(b"SHUTDOWN NOSAVE\r\n")
                assert await deferToThread(caller.recv, 100) == b""
            process.stdout.read()
            assert process.wait(LIMIT) == 0
    run.signal(signal.SIGINT)
    await until(lambda: run.over)

"""`agentctl forward`: local connections joined to a service behind a real daemon."""

import base64
import json
import signal
from pathlib import Path
from typing import Any

import pytest_twisted
from twisted.internet import protocol, reactor
from twisted.internet.endpoints import TCP4ClientEndpoint

from agentd.tunnel.noise import public_key
from tests.cli.conftest import Ctl, Spawn
from tests.cli.support import Agentctl
from tests.client.support import until
from tests.conftest import DaemonFactory, RunningDaemon


class Upper(protocol.Protocol):
    """A service: answers each line in capitals, and a last word once its caller has closed."""

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(data.upper())


class Caller(protocol.Protocol):
    """A caller: collects what it gets."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: Any = None

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = reason


async def call(port: int) -> Any:
    return await TCP4ClientEndpoint(reactor, "127.0.0.1", port).connect(protocol.Factory.forProtocol(Caller))


async def forwarded(run: Agentctl) -> int:
    await until(lambda: run.out.endswith(b"\n"))
    return int(json.loads(run.out)["port"])


@pytest_twisted.ensureDeferred
async def test_forward_joins_connections_until_interrupted(spawn: Spawn, daemon: RunningDaemon) -> None:
    service = reactor.listenTCP(0, protocol.Factory.forProtocol(Upper), interface="127.0.0.1")
    there = service.getHost().port
    run = spawn("forward", "--json", f"0:{there}", url=daemon.url, token=daemon.token)
    port = await forwarded(run)
    callers = [await call(port) for _ in range(3)]
    for n, caller in enumerate(callers):
        caller.transport.write(f"caller {n}".encode())
    await until(lambda: [c.data for c in callers] == [f"CALLER {n}".encode() for n in range(3)])
    callers[0].transport.write(b"x" * 5_000_000)
    await until(lambda: callers[0].data.count(b"X") == 5_000_000)

    # half-closed: what the service still answers arrives before the end
    callers[1].transport.write(b"last words")
    callers[1].transport.loseWriteConnection()
    await until(lambda: callers[1].lost is not None)
    assert callers[1].data.endswith(b"LAST WORDS")

    run.signal(signal.SIGINT)
    ran = await run.result()
    assert ran.status == 130
    await until(lambda: all(c.lost is not None for c in callers))
    await service.stopListening()


@pytest_twisted.ensureDeferred
async def test_forward_to_where_nothing_listens_resets_and_goes_on(
    spawn: Spawn, daemon: RunningDaemon
) -> None:
    run = spawn("forward", "--json", "0:1", url=daemon.url, token=daemon.token)
    port = await forwarded(run)
    for count in (1, 2):
        caller = await call(port)
        await until(lambda: caller.lost is not None)  # noqa: B023
        await until(lambda: run.err.count(b"4502") == count)  # noqa: B023
    run.signal(signal.SIGTERM)
    assert (await run.result()).status == 143


@pytest_twisted.ensureDeferred
async def test_forward_verified(spawn: Spawn, make_daemon: DaemonFactory, tmp_path: Path) -> None:
    seed, host = bytes([5]) * 32, bytes([6]) * 32
    (tmp_path / "seed").write_bytes(seed)
    (tmp_path / "key").write_text(base64.b64encode(host).decode() + "\n")
    (tmp_path / "wrong").write_bytes(bytes([7]) * 32)
    url = make_daemon().url
    mine = base64.b64encode(public_key(host)).decode()
    words = ("--identity-seed", str(tmp_path / "seed"), "--host-public-key", mine)
    assert (await spawn("bootstrap", *words, url=url, token="t").result()).status == 0

    service = reactor.listenTCP(0, protocol.Factory.forProtocol(Upper), interface="127.0.0.1")
    pinned = ("--verify", base64.b64encode(public_key(seed)).decode())
    good, bad = (
        spawn(
            "forward",
            "--json",
            *pinned,
            "--key-file",
            str(tmp_path / key),
            f"0:{service.getHost().port}",
            url=url,
            token="t",
        )
        for key in ("key", "wrong")
    )
    caller = await call(await forwarded(good))
    caller.transport.write(b"proven")
    await until(lambda: caller.data == b"PROVEN")
    refused = await call(await forwarded(bad))
    await until(lambda: refused.lost is not None)
    await until(lambda: b"4403" in bad.err)
    caller.transport.loseConnection()
    for run in (good, bad):
        run.signal(signal.SIGINT)
        await run.result()
    await service.stopListening()


@pytest_twisted.ensureDeferred
async def test_forward_on_a_port_that_is_taken(ctl: Ctl) -> None:
    taken = reactor.listenTCP(0, protocol.Factory.forProtocol(Upper), interface="127.0.0.1")
    ran = await ctl("forward", f"{taken.getHost().port}:80")
    assert ran.status == 74
    await taken.stopListening()

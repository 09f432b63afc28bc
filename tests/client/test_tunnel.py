"""Tunnels: bytes both ways through a real daemon, held back by the slow end; endings told apart."""

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import protocol, reactor
from twisted.internet.defer import Deferred

from agentd.client import errors, tunnel
from agentd.client.client import Client
from agentd.client.tunnel import TunnelFailed, TunnelRefused, TunnelTruncated, Verify
from agentd.rules.payload import TunnelIdentity
from agentd.rules.tunnel import Verdict
from agentd.tunnel.noise import public_key
from tests.client.conftest import Connect, Serve
from tests.client.support import Cut, Hang, Request, Send, answer, until
from tests.conftest import DaemonFactory, RunningDaemon

MIB = 1024 * 1024
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
HOST, SEED, STRANGER = (bytes([n]) * 32 for n in (1, 2, 3))


class Service(protocol.Protocol):
    """A service in the VM: echoes, unless told otherwise."""

    def connectionMade(self) -> None:
        self.factory.connections.append(self)
        self.received = 0
        self.lost: Any = None
        if self.factory.greeting:
            self.transport.write(self.factory.greeting)
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        self.received += len(data)
        if self.factory.echo:
            self.transport.write(data)

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = reason


@pytest.fixture
def service() -> Iterator[Any]:
    factory: Any = protocol.Factory.forProtocol(Service)
    factory.noisy = False
    factory.connections = []
    factory.echo = True
    factory.greeting = b""
    listening = reactor.listenTCP(0, factory, interface="127.0.0.1")
    factory.port = listening.getHost().port
    yield factory
    pytest_twisted.blockon(Deferred.fromCoroutine(_stop(listening, factory)))


async def _stop(listening: Any, factory: Any) -> None:
    await listening.stopListening()
    for connection in factory.connections:
        connection.transport.abortConnection()


@pytest.fixture
def plain(connect: Connect, daemon: RunningDaemon) -> Client:
    return connect(daemon.url, daemon.token)


async def receive_all(opened: tunnel.Tunnel) -> bytes:
    parts = []
    while data := await opened.receive():
        parts.append(data)
    return b"".join(parts)


@pytest_twisted.ensureDeferred
async def test_bytes_go_there_and_back(plain: Client, service: Any) -> None:
    opened = await plain.tunnel.open(service.port)
    await opened.send(b"hello")
    assert await opened.receive() == b"hello"
    await opened.close()
    assert await opened.receive() == b""
    await opened.close()
    await until(lambda: service.connections[0].lost is not None)


@pytest_twisted.ensureDeferred
async def test_a_service_that_closes_is_the_end_of_the_stream(plain: Client, service: Any) -> None:
    service.greeting = bytes(n % 251 for n in range(3 * MIB))
    opened = await plain.tunnel.open(service.port)
    received = await receive_all(opened)
    assert hashlib.sha256(received).digest() == hashlib.sha256(service.greeting).digest()
    assert opened.verdict is Verdict.CLOSED_UNPROVEN
    with pytest.raises(TunnelTruncated, match="closed"):
        await opened.send(b"x")


@pytest_twisted.ensureDeferred
async def test_much_goes_through_both_ways_at_once(plain: Client, service: Any) -> None:
    opened = await plain.tunnel.open(service.port)
    total = 20 * MIB

    async def send() -> None:
        for _ in range(20):
            await opened.send(bytes(MIB))

    sending = Deferred.fromCoroutine(send())
    received = 0
    while received < total:
        received += len(await opened.receive())
    await sending
    await opened.close()


@pytest_twisted.ensureDeferred
async def test_a_slow_service_holds_the_sender_back(plain: Client, service: Any) -> None:
    service.echo = False
    opened = await plain.tunnel.open(service.port)
    await opened.send(b"x")
    await until(lambda: service.connections and service.connections[0].received)
    service.connections[0].transport.pauseProducing()
    sent = 0

    async def send() -> None:
        nonlocal sent
        for _ in range(200):
            await opened.send(bytes(MIB))
            sent += MIB

    sending = Deferred.fromCoroutine(send())
    seen: list[int] = []

    def settled() -> bool:
        seen.append(sent)
        return len(seen) > 60 and len(set(seen[-40:])) == 1

    await until(settled)
    assert sent < 100 * MIB
    service.connections[0].transport.resumeProducing()
    await sending
    await until(lambda: service.connections[0].received == 200 * MIB + 1)
    await opened.close()


@pytest_twisted.ensureDeferred
async def test_nothing_listens(plain: Client) -> None:
    opened = await plain.tunnel.open(1)
    with pytest.raises(TunnelRefused, match="4502 nothing listens") as refused:
        await opened.receive()
    assert (refused.value.code, refused.value.retryable) == (4502, False)
    with pytest.raises(TunnelRefused):
        await opened.receive()


@pytest_twisted.ensureDeferred
async def test_a_wrong_token_and_a_vm_without_one(
    connect: Connect, daemon: RunningDaemon, closed_daemon: RunningDaemon
) -> None:
    with pytest.raises(errors.CredentialFault):
        await connect(daemon.url, "wrong").tunnel.open(1)
    with pytest.raises(errors.Unavailable):
        await connect(closed_daemon.url, "any").tunnel.open(1)


@pytest_twisted.ensureDeferred
async def test_a_verified_tunnel_wants_a_vm_with_an_identity(plain: Client, service: Any) -> None:
    with pytest.raises(TunnelRefused, match="4401"):
        await plain.tunnel.open(service.port, verify=Verify(HOST, public_key(SEED)))
    assert service.connections == []


@pytest_twisted.ensureDeferred
async def test_keys_that_are_none_are_refused_before_any_call(serve: Serve) -> None:
    script, unused = serve()
    with pytest.raises(ValueError, match="32 bytes"):
        await unused.tunnel.open(1, verify=Verify(b"short", public_key(SEED)))
    assert script.connections == []


@pytest_twisted.ensureDeferred
async def test_a_verified_tunnel_proves_both_ends_and_its_end(
    connect: Connect, make_daemon: DaemonFactory, service: Any
) -> None:
    running = make_daemon()
    made = connect(running.url)
    await made.bootstrap(running.token, None, TunnelIdentity(SEED, public_key(HOST)))
    pinned = Verify(HOST, public_key(SEED))

    opened = await made.tunnel.open(service.port, verify=pinned)
    payload = bytes(n % 251 for n in range(300_000))
    await opened.send(payload)
    received = b""
    while len(received) < len(payload):
        received += await opened.receive()
    assert received == payload
    service.connections[0].transport.loseConnection()
    assert await receive_all(opened) == b""
    assert opened.verdict is Verdict.CLOSED

    opened = await made.tunnel.open(service.port, verify=pinned)
    await opened.send(b"last")
    await opened.receive()
    await opened.close()
    await until(lambda: service.connections[1].lost is not None)
    from twisted.internet.error import ConnectionDone, ConnectionLost

    assert service.connections[1].lost.check(ConnectionDone)  # a promised end arrived: closed in order

    opened = await made.tunnel.open(service.port, verify=pinned)
    await opened.send(b"half")
    await opened.receive()
    opened.abort()
    await until(lambda: service.connections[2].lost is not None)
    assert service.connections[2].lost.check(ConnectionLost)  # none came: reset

    with pytest.raises(TunnelRefused, match="4403"):
        await made.tunnel.open(service.port, verify=Verify(STRANGER, public_key(SEED)))
    with pytest.raises((TunnelRefused, TunnelFailed)):
        await made.tunnel.open(service.port, verify=Verify(HOST, public_key(STRANGER)))
    assert len(service.connections) == 3
    assert repr(HOST) not in repr(pinned)


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Cut()], TunnelFailed),
        (answer(200, b"not a websocket"), TunnelFailed),
        (answer(502, b"<html>"), errors.AnswerError),
        ([Send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")], TunnelFailed),
        ([Send(b"HTTP/1.1 101 X\r\n" + b"X: " + b"y" * 200_000)], TunnelFailed),
    ],
)
@pytest_twisted.ensureDeferred
async def test_what_is_no_websocket(serve: Serve, steps: list[Any], kind: type[Exception]) -> None:
    _, made = serve(steps)
    with pytest.raises(kind) as failed:
        await made.tunnel.open(80)
    assert "s3cret" not in str(failed.value)


def upgraded(data: bytes) -> Any:
    """Answers an upgrade, and then sends these bytes."""

    def reply(request: Request) -> list[Any]:
        key = request.headers["sec-websocket-key"]
        accept = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()
        head = f"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        return [Send(head.encode() + data), *([Cut()] if data.startswith(b"\x88") else [])]

    return reply


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x82\x00", "what is no message"),
        (b"\x82\x05short", "what is no message"),
        (b"\x81\x10" + b"t" * 16, "what is no message"),
        (b"\x82\x7e\xff\xff" + b"x" * 65535, "does not hold the pinned key"),
        (b"\x82\x10" + b"x" * 16, "does not hold the pinned key"),
        (b"\x88\x02\x03\xe8", "closed during the handshake"),
        (b"\x88\x0c\x03\xe9stopping!!", "1001 the daemon is stopping"),
    ],
    ids=["empty", "short", "text", "long", "another", "closed", "stopping"],
)
@pytest_twisted.ensureDeferred
async def test_a_handshake_is_answered_with_something_else(serve: Serve, data: bytes, told: str) -> None:
    _, made = serve(upgraded(data))
    with pytest.raises((TunnelFailed, TunnelRefused), match=told):
        await made.tunnel.open(80, verify=Verify(HOST, public_key(SEED)))


@pytest_twisted.ensureDeferred
async def test_an_upgrade_that_never_comes_is_given_up(serve: Serve) -> None:
    script, made = serve([Hang()])
    with pytest.raises(TunnelFailed):
        await made.tunnel.open(80, timeout=0.3)
    await until(lambda: script.lost == 1)


@pytest_twisted.ensureDeferred
async def test_leaving_during_the_upgrade_drops_the_connection(serve: Serve) -> None:
    script, made = serve([Hang()])
    pending = Deferred.fromCoroutine(made.tunnel.open(80))
    pending.addErrback(lambda _: None)
    await until(lambda: script.requests)
    pending.cancel()
    await until(lambda: script.lost == 1)


@pytest_twisted.ensureDeferred
async def test_the_handshake_is_never_logged(serve: Serve) -> None:
    import txaio
    from twisted.logger import globalLogPublisher

    lines: list[str] = []

    def observe(event: Any) -> None:
        lines.append(repr(event))

    globalLogPublisher.addObserver(observe)
    before = txaio.get_global_log_level()
    txaio.set_global_log_level("trace")
    try:
        _, made = serve([Cut()])
        with pytest.raises(TunnelFailed):
            await made.tunnel.open(80)
    finally:
        txaio.set_global_log_level(before)
        globalLogPublisher.removeObserver(observe)
    assert not any("s3cret" in line for line in lines)


@pytest_twisted.ensureDeferred
async def test_the_far_ends_words_are_one_clean_line() -> None:
    assert str(TunnelRefused(4500, "a\x1b[2J\nb")) == "4500 the connection to the service failed (a [2J b)"
    assert str(TunnelRefused(4999)) == "4999"

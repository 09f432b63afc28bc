"""A slow end stops the other one, and memory stays flat: bytes held, not bytes sent, are bounded."""

import hashlib
import os
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from agentd.tunnel import noise
from tests.tunnel.support import Caller, RawCaller, SealedCaller, World, frame, settled, unsent, until

TOTAL = 80 << 20
"""More than two loopback sockets' kernel buffers hold, by far."""
PIECE = 1 << 16
HELD = 4 * 65536
"""What a direction of a tunnel may hold in user space: a buffer and a read, twice because of joining."""


@implementer(IPushProducer)
class Source:
    """Writes `TOTAL` bytes as fast as its transport takes them, and knows how many it has written."""

    def __init__(self, transport: Any, write: Any, piece: int = PIECE) -> None:
        self.transport, self.write_piece, self.piece = transport, write, piece
        self.written = 0
        self.paused = False
        self.digest = hashlib.sha256()
        transport.registerProducer(self, True)
        self.go()

    def go(self) -> None:
        while not self.paused and self.written < TOTAL:
            data = os.urandom(min(self.piece, TOTAL - self.written))
            self.digest.update(data)
            self.written += len(data)
            self.write_piece(data)
        if self.written == TOTAL and not self.paused:
            self.transport.unregisterProducer()

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False
        self.go()

    def stopProducing(self) -> None:
        self.paused = True


def held(relay: Any) -> tuple[int, int]:
    """Bytes a tunnel holds: towards the guest, towards the caller."""
    up = unsent(relay._guest.transport) + len(relay.data) + len(relay._message)
    return up, unsent(relay.transport)


@pytest.mark.parametrize("sealed", [False, True])
@pytest_twisted.ensureDeferred
async def test_a_stalled_guest_stops_the_caller(world: World, sealed: bool) -> None:
    guest = world.guest(reading=False)
    caller = await world.call(guest.port, identity=sealed)
    connection = await guest.connection()
    if isinstance(caller, SealedCaller):
        await caller.shaken()
        source = Source(caller.transport, caller.seal, noise.MAX_PLAINTEXT_BYTES)
    else:
        source = Source(caller.transport, caller.send)
    relay = world.door.relay
    await until(lambda: relay.held and source.paused, "a caller that is stopped")
    assert source.written < TOTAL
    assert relay._guest.transport.producerPaused
    assert held(relay)[0] <= HELD

    worst = 0
    arrived = hashlib.sha256()
    length = 0

    def drain() -> bool:
        nonlocal worst, length
        if world.door.tunnels and relay._guest is not None:
            worst = max(worst, held(relay)[0])
        arrived.update(connection.received)
        length += len(connection.received)
        connection.received.clear()
        return length == TOTAL

    connection.transport.resumeProducing()
    await until(drain, "all bytes")
    assert arrived.digest() == source.digest.digest()
    assert worst <= HELD
    assert not relay.held


@pytest.mark.parametrize("sealed", [False, True])
@pytest_twisted.ensureDeferred
async def test_a_stalled_caller_stops_the_guest(world: World, sealed: bool) -> None:
    guest = world.guest()
    caller = await world.call(guest.port, identity=sealed)
    connection = await guest.connection()
    if isinstance(caller, SealedCaller):
        await caller.shaken()
    caller.transport.pauseProducing()
    source = Source(connection.transport, connection.transport.write)
    relay = world.door.relay
    await until(lambda: relay.behind and source.paused, "a guest that is stopped")
    assert source.written < TOTAL
    assert held(relay)[1] <= HELD

    worst = 0
    arrived = hashlib.sha256()
    length = 0

    def drain() -> bool:
        nonlocal worst, length
        worst = max(worst, held(relay)[1])
        for piece in caller.frames:
            arrived.update(piece)
            length += len(piece)
        caller.frames.clear()
        return length == TOTAL

    caller.transport.resumeProducing()
    await until(drain, "all bytes")
    assert arrived.digest() == source.digest.digest()
    assert worst <= HELD


@pytest_twisted.ensureDeferred
async def test_one_direction_does_not_stop_the_other(world: World) -> None:
    """A caller that never reads can still upload."""
    guest = world.guest()
    caller: Caller = await world.call(guest.port)
    connection = await guest.connection()
    caller.transport.pauseProducing()
    Source(connection.transport, connection.transport.write)
    await until(lambda: world.door.relay.behind, "a caller that is behind")
    upload = os.urandom(3 << 20)
    caller.send(upload)
    await until(lambda: len(connection.received) == len(upload), "the upload")
    assert bytes(connection.received) == upload


@pytest_twisted.ensureDeferred
async def test_pings_of_a_caller_that_never_reads_fill_nothing(world: World) -> None:
    """Those that come while it is behind are answered once, with the last."""
    guest = world.guest()
    raw: RawCaller = await world.raw(guest.port)
    connection = await guest.connection()
    raw.transport.pauseProducing()
    source = Source(connection.transport, connection.transport.write)
    relay = world.door.relay
    await until(lambda: relay.behind and source.paused, "a caller that is behind")
    await settled(lambda: (source.written, unsent(relay.transport)))
    pings = 6_000
    assert pings * 122 > 2 * HELD
    for number in range(pings):
        raw.write(frame(b"%0120d" % number, 9))
    raw.write(frame(b"marker"))
    await until(lambda: connection.received == b"marker", "the frame behind the pings")
    assert held(relay)[1] <= HELD

    received = bytearray()
    last = b"\x8a\x78" + b"%0120d" % (pings - 1)

    def drain() -> bool:
        received.extend(raw.received)
        raw.received.clear()
        return last in received[-(1 << 20) :]

    raw.transport.resumeProducing()
    await until(drain, "the last pong")
    assert received.count(b"\x8a\x78" + b"0" * 110) < pings // 2


@pytest_twisted.ensureDeferred
async def test_a_ping_is_answered(world: World) -> None:
    caller = await world.call(world.guest().port)
    caller.sendPing(b"are you there")  # type: ignore[no-untyped-call]
    await until(lambda: caller.pongs == [b"are you there"], "a pong")

"""A verified tunnel over real sockets (contract f.2): the handshake, sealing, ends, and what breaks them."""

import os
from collections.abc import Callable

import pytest
import pytest_twisted

from agentd.rules.payload import TunnelIdentity
from agentd.rules.tunnel import Stage
from agentd.tunnel import noise
from agentd.tunnel.limits import TunnelLimits
from tests.tunnel.support import (
    HOST_SECRET,
    KEYS,
    SEED,
    GuestConnection,
    SealedCaller,
    World,
    frame,
    until,
)

STRANGER = bytes(range(200, 232))


async def joined(world: World, offers: bool = True) -> tuple[SealedCaller, GuestConnection]:
    guest = world.guest()
    caller = await world.call(guest.port, identity=True, offers=offers)
    assert isinstance(caller, SealedCaller)
    await caller.shaken()
    return caller, await guest.connection()


@pytest_twisted.ensureDeferred
async def test_bytes_go_both_ways_sealed(world: World) -> None:
    caller, connection = await joined(world)
    assert caller.daemon_offered is True
    up, down = os.urandom(400_000), os.urandom(400_000)
    size = noise.MAX_PLAINTEXT_BYTES
    for start in range(0, len(up), size):
        caller.seal(up[start : start + size])
    connection.transport.write(down)
    await until(
        lambda: len(connection.received) == len(up) and len(caller.received) == len(down), "all bytes"
    )
    assert bytes(connection.received) == up
    assert caller.received == down
    assert max(map(len, caller.frames)) <= 32768


@pytest.mark.parametrize("offers", [True, False])
@pytest_twisted.ensureDeferred
async def test_guest_ends(world: World, offers: bool) -> None:
    """AGENTD-19: the end of stream behind the last byte, then 1000; whatever the caller offered."""
    caller, connection = await joined(world, offers)
    data = os.urandom(300_000)
    connection.transport.write(data)
    connection.transport.loseConnection()
    assert await caller.over() == (1000, None)
    assert caller.received == data
    assert caller.ended


@pytest.mark.parametrize("offers", [True, False])
@pytest_twisted.ensureDeferred
async def test_caller_ends(world: World, offers: bool) -> None:
    """The end of stream, offered or not: every byte, then an end of file."""
    caller, connection = await joined(world, offers)
    data = os.urandom(60_000)
    caller.seal(data)
    caller.seal(b"")
    assert await caller.over() == (1000, None)
    await until(lambda: connection.end, "the guest's end")
    assert connection.end == "eof"
    assert bytes(connection.received) == data
    assert not caller.ended


def close(caller: SealedCaller) -> None:
    caller.sendClose(1000)


def hang_up(caller: SealedCaller) -> None:
    caller.transport.loseConnection()


def abort(caller: SealedCaller) -> None:
    caller.transport.abortConnection()


def text(caller: SealedCaller) -> None:
    assert caller.session is not None
    caller.send(b"text", False)


def garbage(caller: SealedCaller) -> None:
    caller.send(os.urandom(100))


def empty(caller: SealedCaller) -> None:
    caller.send(b"")


def too_long(caller: SealedCaller) -> None:
    caller.send(bytes(65536))


def skipped(caller: SealedCaller) -> None:
    assert caller.session is not None
    caller.session.seal(b"dropped on the way")
    caller.seal(b"next")


def replayed(caller: SealedCaller) -> None:
    assert caller.session is not None
    message = caller.session.seal(b"")[:-1] + b"?"
    caller.send(message)
    caller.send(message)


def not_a_frame(caller: SealedCaller) -> None:
    caller.transport.write(b"\xf2\x80\0\0\0\0")


@pytest.mark.parametrize("offers", [True, False])
@pytest.mark.parametrize(
    "cut", [close, hang_up, abort, text, garbage, empty, too_long, skipped, replayed, not_a_frame]
)
@pytest_twisted.ensureDeferred
async def test_a_cut_upload(world: World, cut: Callable[[SealedCaller], None], offers: bool) -> None:
    """AGENTD-20: a caller that promised an end and goes without it resets the guest; another one closes it.

    A bad frame delivers nothing and ends the tunnel without a close frame.
    """
    caller, connection = await joined(world, offers)
    caller.seal(b"half an upload")
    await until(lambda: connection.received == b"half an upload", "the first half")
    cut(caller)
    await until(lambda: connection.end, "the guest's end")
    assert connection.end == ("reset" if offers else "eof")
    assert bytes(connection.received) == b"half an upload"
    expected = (1000, None) if cut is close else (None, None)
    assert await caller.over() == expected


@pytest_twisted.ensureDeferred
async def test_a_whole_upload_is_never_reset(world: World) -> None:
    """End of stream and hang-up in one breath."""
    caller, connection = await joined(world)
    caller.seal(b"whole")
    caller.seal(b"")
    caller.transport.loseConnection()
    await until(lambda: connection.end, "the guest's end")
    assert (connection.end, bytes(connection.received)) == ("eof", b"whole")


@pytest_twisted.ensureDeferred
async def test_fragments_make_one_message(world: World) -> None:
    """RFC 6455 lets anybody on the way split a message into frames."""
    caller, connection = await joined(world)
    assert caller.session is not None
    message = caller.session.seal(b"in pieces")
    caller.beginMessage(True)
    for start in range(0, len(message), 7):
        caller.sendMessageFrame(b"")
        caller.sendMessageFrame(message[start : start + 7])
    caller.endMessage()
    await until(lambda: connection.received == b"in pieces", "the bytes")


@pytest.mark.parametrize(
    ("secret", "seed"), [(STRANGER, SEED), (HOST_SECRET, STRANGER)], ids=["wrong caller", "wrong pin"]
)
@pytest_twisted.ensureDeferred
async def test_a_refused_caller_never_reaches_the_guest(world: World, secret: bytes, seed: bytes) -> None:
    """AGENTD-17, AGENTD-18."""
    guest = world.guest()
    caller = await world.call(guest.port, identity=True, secret=secret, seed=seed)
    assert await caller.over() == (4403, "handshake refused: it is not the pinned caller's")
    assert guest.connections == []
    assert caller.frames == []


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (frame(b"", 2), "not the pinned caller's"),
        (frame(bytes(48), 2), "not the pinned caller's"),
        (frame(b"GET / HTTP/1.1", 2), "not the pinned caller's"),
        (frame(b"hello", 1), "text"),
        (frame(bytes(65536), 2), "too long"),
        (frame(b"", 2, rsv=4), "not WebSocket frames"),
        (frame(b"\x03\xe8", 8), "left"),
    ],
    ids=["empty", "zeroes", "short", "text", "long", "reserved bit", "close"],
)
@pytest_twisted.ensureDeferred
async def test_a_first_frame_that_is_no_handshake(world: World, first: bytes, why: str) -> None:
    guest = world.guest()
    raw = await world.raw(guest.port, identity=True)
    raw.write(first)
    assert await raw.close_code() == 4403
    assert why in bytes(raw.received).decode("latin-1")
    assert guest.connections == []


@pytest_twisted.ensureDeferred
async def test_no_handshake_in_time(worlds: Callable[..., World]) -> None:
    world = worlds(limits=TunnelLimits(handshake_timeout=0.1))
    guest = world.guest()
    caller = await world.call(guest.port, identity=True, shake=False)
    assert await caller.over() == (4403, "handshake refused: none came within 0.1 s")
    assert guest.connections == []


@pytest_twisted.ensureDeferred
async def test_a_caller_that_leaves_before_the_handshake(world: World) -> None:
    raw = await world.raw(world.guest().port, identity=True)
    raw.transport.loseConnection()
    await until(lambda: not len(world.door.tunnels), "the end of the tunnel")


@pytest_twisted.ensureDeferred
async def test_a_vm_without_a_seed(worlds: Callable[..., World]) -> None:
    """4401 before the port is looked at, and before any handshake."""
    world = worlds(keys=None)
    for port in (world.guest().port, 0):
        caller = await world.call(port, identity=True, shake=False)
        code, reason = await caller.over()
        assert code == 4401
        assert reason is not None
        assert "launched without" in reason
    assert world.guests[0].connections == []


@pytest_twisted.ensureDeferred
async def test_a_plain_tunnel_needs_no_seed(worlds: Callable[..., World]) -> None:
    world = worlds(keys=None)
    guest = world.guest()
    caller = await world.call(guest.port)
    caller.send(b"plain")
    connection = await guest.connection()
    await until(lambda: connection.received == b"plain", "the bytes")


@pytest_twisted.ensureDeferred
async def test_keys_that_are_none(worlds: Callable[..., World]) -> None:
    world = worlds(keys=TunnelIdentity(b"short", KEYS.host_public_key))
    caller = await world.call(world.guest().port, identity=True, shake=False)
    assert await caller.over() == (4500, "the identity of this VM cannot be used")


@pytest.mark.parametrize("port", [0, 1])
@pytest_twisted.ensureDeferred
async def test_the_port_is_looked_at_after_the_handshake(world: World, port: int) -> None:
    caller = await world.call(port, identity=True)
    code, _ = await caller.over()
    assert code == (4400 if port == 0 else 4502)
    assert isinstance(caller, SealedCaller)
    assert caller.daemon_offered is True
    assert not caller.ended, "no end of stream for a failed dial"


@pytest_twisted.ensureDeferred
async def test_guest_breaks(world: World) -> None:
    """4500, and no end of stream: the caller must not take what it has for all there was."""
    caller, connection = await joined(world)
    connection.transport.write(b"some")
    await until(lambda: caller.received == b"some", "the bytes")
    connection.transport.abortConnection()
    assert (await caller.over())[0] == 4500
    assert not caller.ended


@pytest_twisted.ensureDeferred
async def test_an_older_caller(world: World) -> None:
    """An empty handshake payload; unknown flags mean nothing."""
    caller, connection = await joined(world, offers=False)
    caller.sendClose(1000)
    await until(lambda: connection.end, "the guest's end")
    assert connection.end == "eof"


@pytest_twisted.ensureDeferred
async def test_every_tunnel_has_its_own_keys(world: World) -> None:
    """A recording of one tunnel opens in no other."""
    guest = world.guest()
    recorded = await world.call(guest.port, identity=True)
    assert isinstance(recorded, SealedCaller)
    await recorded.shaken()
    assert recorded.session is not None
    replay = recorded.session.seal(b"pay 100")
    victim = await world.call(guest.port, identity=True)
    assert isinstance(victim, SealedCaller)
    await victim.shaken()
    victim.send(replay)
    assert await victim.over() == (None, None)
    await until(lambda: [c.end for c in guest.connections] == [None, "reset"], "the guest's reset")
    assert guest.connections[1].received == b""


@pytest_twisted.ensureDeferred
async def test_nothing_secret_is_shown(world: World) -> None:
    caller, _ = await joined(world)
    relay = world.door.relay
    assert relay.stage is Stage.RELAYING
    shown = repr(relay) + repr(vars(relay))
    for secret in (SEED, HOST_SECRET, KEYS.host_public_key):
        assert repr(secret) not in shown
        assert secret.hex() not in shown
    assert relay._handshake is None, "the handshake's keys are dropped with it"
    assert caller.session is not None

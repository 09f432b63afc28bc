"""Frames no client sends (RFC 6455 5), by hand: the tunnel ends, the guest is told, the daemon goes on."""

import struct
from collections.abc import Callable

import pytest
import pytest_twisted

from agentd.rules.tunnel import Stage
from agentd.tunnel.limits import TunnelLimits
from agentd.tunnel.websocket import STEPS_PER_TURN
from tests.tunnel.support import World, frame, the_reactor, until

VIOLATIONS = {
    "unmasked": frame(b"x", masked=False),
    "reserved bit 1": frame(b"x", rsv=4),
    "reserved bit 3": frame(b"x", rsv=1),
    "reserved data opcode": frame(b"x", 3),
    "reserved control opcode": frame(b"x", 11),
    "oversize ping": frame(bytes(126), 9),
    "oversize close": frame(b"\x03\xe8" + bytes(124), 8),
    "fragmented ping": frame(b"x", 9, fin=False),
    "close with one byte": frame(b"x", 8),
    "continuation of nothing": frame(b"x", 0),
    "message in a message": frame(b"x", 2, fin=False) + frame(b"x", 2),
    "length not minimal, 16 bits": b"\x82\xfe\x00\x05\0\0\0\0hello",
    "length not minimal, 64 bits": b"\x82\xff" + struct.pack("!Q", 5) + b"\0\0\0\0hello",
    "length of 2**63": b"\x82\xff" + struct.pack("!Q", 1 << 63) + b"\0\0\0\0",
}


@pytest.mark.parametrize("name", VIOLATIONS)
@pytest_twisted.ensureDeferred
async def test_a_violation(world: World, name: str) -> None:
    """1002; what came before it arrives, nothing of it or behind it does, and the guest reads an end of file."""
    guest = world.guest()
    raw = await world.raw(guest.port)
    raw.write(frame(b"before ") + VIOLATIONS[name] + frame(b"behind"))
    assert await raw.close_code() == 1002
    connection = await guest.connection()
    await until(lambda: connection.end, "the guest's end")
    assert connection.end == "eof"
    expected = b"before x" if name == "message in a message" else b"before "
    assert bytes(connection.received) == expected
    healthy = await world.call(guest.port)
    assert healthy.opened


@pytest_twisted.ensureDeferred
async def test_after_a_violation_the_caller_is_read_for_a_moment_only(worlds: Callable[..., World]) -> None:
    world = worlds(limits=TunnelLimits(linger=0.1))
    raw = await world.raw(world.guest().port)
    await world.guests[0].connection()
    raw.write(VIOLATIONS["unmasked"])
    assert await raw.close_code() == 1002
    raw.write(bytes(1 << 20))
    await until(lambda: raw.lost, "the end of the connection")
    await until(lambda: not len(world.door.tunnels), "the end of the tunnel")


@pytest.mark.parametrize("text", [b"\xff", b"caf\xc3", b"\xed\xa0\x80"])
@pytest_twisted.ensureDeferred
async def test_text_that_is_not_utf_8(world: World, text: bytes) -> None:
    guest = world.guest()
    raw = await world.raw(guest.port)
    raw.write(frame(text, 1))
    assert await raw.close_code() == 1007
    connection = await guest.connection()
    await until(lambda: connection.end == "eof", "the guest's end")


@pytest_twisted.ensureDeferred
async def test_the_longest_frame_and_one_byte_more(worlds: Callable[..., World]) -> None:
    world = worlds(limits=TunnelLimits(max_frame_bytes=1000, max_message_bytes=2500))
    guest = world.guest()
    raw = await world.raw(guest.port)
    raw.write(frame(bytes(1000)))
    connection = await guest.connection()
    await until(lambda: len(connection.received) == 1000, "the longest frame")
    raw.write(frame(bytes(1001)))
    assert await raw.close_code() == 1009
    assert len(connection.received) == 1000


@pytest_twisted.ensureDeferred
async def test_the_longest_message_and_one_byte_more(worlds: Callable[..., World]) -> None:
    world = worlds(limits=TunnelLimits(max_frame_bytes=1000, max_message_bytes=2500))
    guest = world.guest()
    raw = await world.raw(guest.port)
    pieces = frame(bytes(1000), 2, fin=False) + frame(bytes(1000), 0, fin=False)
    raw.write(pieces + frame(bytes(500), 0))
    connection = await guest.connection()
    await until(lambda: len(connection.received) == 2500, "the longest message")
    raw.write(pieces + frame(bytes(501), 0))
    assert await raw.close_code() == 1009
    assert len(connection.received) == 4500


@pytest_twisted.ensureDeferred
async def test_a_frame_of_many_gigabytes_is_refused_by_its_header(world: World) -> None:
    guest = world.guest()
    raw = await world.raw(guest.port)
    raw.write(b"\x82\xff" + struct.pack("!Q", 1 << 40) + b"\0\0\0\0")
    assert await raw.close_code() == 1009


@pytest_twisted.ensureDeferred
async def test_a_frame_arrives_before_it_is_complete(world: World) -> None:
    """It is relayed as it comes, so its length costs no memory."""
    guest = world.guest()
    raw = await world.raw(guest.port)
    raw.write(b"\x82\xff" + struct.pack("!Q", 16 << 20) + b"\0\0\0\0" + b"first bytes")
    connection = await guest.connection()
    await until(lambda: connection.received == b"first bytes", "the part")


@pytest_twisted.ensureDeferred
async def test_fragments_and_pings_between_them(world: World) -> None:
    guest = world.guest()
    raw = await world.raw(guest.port)
    raw.write(
        frame(b"frag", 2, fin=False)
        + frame(b"p", 9)
        + frame(b"", 0, fin=False)
        + frame(b"ments", 0)
        + frame(b"!", 1)
    )
    connection = await guest.connection()
    await until(lambda: connection.received == b"fragments!", "the bytes")
    await until(lambda: raw.received == b"\x8a\x01p", "the pong")


@pytest_twisted.ensureDeferred
async def test_one_byte_at_a_time(world: World) -> None:
    guest = world.guest()
    raw = await world.raw(guest.port)
    connection = await guest.connection()
    relay = world.door.relay
    for byte in frame(b"slow") + frame(b"\x03\xe8", 8):
        relay.dataReceived(bytes([byte]))
    await until(lambda: connection.end == "eof", "the guest's end")
    assert connection.received == b"slow"
    assert await raw.close_code() == 1000


@pytest_twisted.ensureDeferred
async def test_ten_thousand_frames_in_one_read_leave_others_their_turn(world: World) -> None:
    await world.raw(world.guest().port)
    connection = await world.guests[0].connection()
    relay = world.door.relay
    await until(lambda: relay.stage is Stage.RELAYING, "a relay")
    turns: list[int] = []

    def other_work() -> None:
        turns.append(len(relay.data))
        if relay.data:
            the_reactor().callLater(0, other_work)

    relay.dataReceived(frame(b"x") * 10_000)
    other_work()
    await until(lambda: len(connection.received) == 10_000 and not relay.data, "all bytes")
    frames_a_turn = STEPS_PER_TURN / 2
    assert len(turns) >= 10_000 / frames_a_turn
    assert turns == sorted(turns, reverse=True)


@pytest.mark.parametrize("ending", ["close frame", "hang-up", "violation"])
@pytest_twisted.ensureDeferred
async def test_an_end_behind_many_frames_waits_for_its_turn(world: World, ending: str) -> None:
    raw = await world.raw(world.guest().port)
    raw.write(frame(b"x") * 5_000)
    if ending == "hang-up":
        raw.transport.loseConnection()
    else:
        raw.write(frame(b"\x03\xe8", 8) if ending == "close frame" else VIOLATIONS["unmasked"])
        assert await raw.close_code() == (1000 if ending == "close frame" else 1002)
    connection = await world.guests[0].connection()
    await until(lambda: connection.end == "eof", "the guest's end")
    assert connection.received == b"x" * 5_000


@pytest_twisted.ensureDeferred
async def test_a_connection_lost_between_turns(worlds: Callable[..., World]) -> None:
    world = worlds(limits=TunnelLimits(linger=0.1))
    raw = await world.raw(world.guest().port)
    connection = await world.guests[0].connection()
    relay = world.door.relay
    await until(lambda: relay.stage is Stage.RELAYING, "a relay")
    relay.dataReceived(frame(b"x") * 10_000)
    assert relay.data
    relay.transport.abortConnection()
    await until(lambda: raw.lost and connection.end == "eof", "both ends")
    assert relay._turn is None
    await until(lambda: not len(world.door.tunnels), "the end of the tunnel")


@pytest_twisted.ensureDeferred
async def test_stopped_between_turns(world: World) -> None:
    raw = await world.raw(world.guest().port)
    await world.guests[0].connection()
    relay = world.door.relay
    await until(lambda: relay.stage is Stage.RELAYING, "a relay")
    relay.dataReceived(frame(b"x") * 10_000 + frame(b"\x03\xe8", 8))
    relay.stop()
    assert await raw.close_code() == 1001
    await until(lambda: raw.lost == "ConnectionDone", "the end of the connection")


@pytest_twisted.ensureDeferred
async def test_empty_fragments_of_a_sealed_message_hold_nothing(world: World) -> None:
    raw = await world.raw(world.guest().port, identity=True)
    raw.write(frame(b"", 2, fin=False) + frame(b"", 0, fin=False) * 10_000)
    relay = world.door.relay
    raw.write(frame(b"ping", 9))
    await until(lambda: raw.received.endswith(b"ping"), "the pong")
    assert relay._message == b""

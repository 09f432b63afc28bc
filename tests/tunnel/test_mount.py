"""The hand-over from HTTP: what is refused before it, what the 101 carries, and that no byte is lost in it."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.web.server import NOT_DONE_YET

from agentd.tunnel import mount
from tests.tunnel.support import Door, RawCaller, World, frame, head, until


async def answer(world: World, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer to a request that is refused."""
    raw = await world.connect()
    raw.write(request)
    await until(lambda: b"\r\n\r\n" in raw.received, "an answer")
    answered, _, body = bytes(raw.received).partition(b"\r\n\r\n")
    return answered, body


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"Connection": None}, "Connection"),
        ({"Connection": "keep-alive"}, "Connection"),
        ({"Upgrade": None}, "Upgrade"),
        ({"Upgrade": "h2c"}, "Upgrade"),
        ({"Sec_WebSocket_Version": None}, "Version"),
        ({"Sec_WebSocket_Version": "8"}, "Version"),
        ({"Sec_WebSocket_Version": "13, 8"}, "Version"),
        ({"Sec_WebSocket_Key": None}, "Key"),
        ({"Sec_WebSocket_Key": "dGhlIHNhbXBsZQ=="}, "Key"),
        ({"Sec_WebSocket_Key": "!!!"}, "Key"),
        ({"Content_Length": "3"}, "body"),
        ({"Transfer_Encoding": "chunked"}, "body"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_what_is_no_upgrade_is_refused_in_http(
    world: World, changed: dict[str, str | None], says: str
) -> None:
    request = head(1, **changed)
    if "body" in says:
        request += b"abc" if "Content_Length" in changed else b"0\r\n\r\n"
    answered, body = await answer(world, request)
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert says in body.decode()
    assert not len(world.door.tunnels)


@pytest_twisted.ensureDeferred
async def test_http_1_0_is_refused(world: World) -> None:
    answered, body = await answer(world, head(1).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert b" 400 " in answered
    assert b"HTTP/1.1" in body


@pytest.mark.parametrize(
    "changed",
    [
        {"Connection": "Upgrade"},
        {"Connection": "upgrade, keep-alive"},
        {"Upgrade": "websocket"},
        {"Origin": "https://elsewhere.example"},
        {"Host": "elsewhere:70000"},
        {"Sec_WebSocket_Extensions": "permessage-deflate"},
        {"Content_Length": "0"},
    ],
)
@pytest_twisted.ensureDeferred
async def test_what_is_one_is_accepted(world: World, changed: dict[str, str | None]) -> None:
    guest = world.guest()
    raw = await world.connect()
    raw.write(head(guest.port, **changed))
    await until(lambda: b"\r\n\r\n" in raw.received, "an answer")
    assert raw.received.startswith(b"HTTP/1.1 101 ")
    assert b"extensions" not in raw.received.lower()
    await guest.connection()


@pytest_twisted.ensureDeferred
async def test_the_answer(world: World) -> None:
    """The accept value of RFC 6455 1.3, the caller's headers, and no word about the library."""
    guest = world.guest()
    raw = await world.raw(guest.port)
    lines = raw.head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 101 Switching Protocols"
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
    assert headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert headers["microvms-agentd-version"] == "0.1.0"
    assert set(headers) == {"upgrade", "connection", "sec-websocket-accept", "microvms-agentd-version"}


@pytest.mark.parametrize(
    ("offered", "selected"),
    [
        (None, None),
        (["lambda-microvms"], "lambda-microvms"),
        (
            ["lambda-microvms", "lambda-microvms.authentication.tok", "lambda-microvms.port.9000"],
            "lambda-microvms",
        ),
        (["mine", "lambda-microvms"], "lambda-microvms"),
        (["lambda-microvms.port.9000", "mine"], None),
    ],
)
@pytest_twisted.ensureDeferred
async def test_the_marker_subprotocol(world: World, offered: list[str] | None, selected: str | None) -> None:
    caller = await world.call(world.guest().port, protocols=offered)
    assert caller.opened
    assert caller.response.protocol == selected


@pytest_twisted.ensureDeferred
async def test_no_credential_reaches_the_websocket_library(world: World) -> None:
    await world.raw(world.guest().port)
    seen = world.door.relay.http_request_data
    assert b"never-to-be-logged" not in seen
    assert b"uthorization" not in seen


@pytest.mark.parametrize("size", [1, 3, 20_000, 100_000])
@pytest_twisted.ensureDeferred
async def test_bytes_behind_the_head_are_not_lost(world: World, size: int) -> None:
    """A caller that does not wait for the 101: its frames are the first of the tunnel."""
    guest = world.guest()
    data = bytes(range(256)) * (size // 256 + 1)
    raw = await world.raw(guest.port, extra=frame(data[:size]))
    raw.write(frame(b"then more"))
    connection = await guest.connection()
    await until(lambda: len(connection.received) >= size + 9, "all bytes")
    assert bytes(connection.received) == data[:size] + b"then more"


class SlowDoor(Door):
    """A face that decides when it is told to."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.decided: Deferred[None] = Deferred()
        self.channel: Any = None

    def render_GET(self, request: Any) -> Any:
        self.channel = request.channel
        self.decided.addCallback(lambda _: super(SlowDoor, self).render_GET(request))
        return NOT_DONE_YET


@pytest.mark.parametrize("size", [10, 30_000])
@pytest_twisted.ensureDeferred
async def test_nor_are_those_that_came_while_the_face_was_deciding(
    worlds: Callable[..., World], size: int
) -> None:
    """More than twisted.web takes eagerly, too: it has stopped reading then, and the tunnel must start again."""
    world = worlds()
    door = SlowDoor(world.limits, world.keys)
    world.listener.factory.resource = world.door = door
    guest = world.guest()
    raw: RawCaller = await world.connect()
    data = os.urandom(size)
    raw.write(head(guest.port) + frame(data))
    await until(
        lambda: door.channel and sum(map(len, door.channel._dataBuffer)) >= min(size, 16_385),
        "early bytes at the channel",
    )
    raw.write(frame(b"then more"))
    door.decided.callback(None)
    connection = await guest.connection()
    await until(lambda: len(connection.received) == size + 9, "all bytes")
    assert bytes(connection.received) == data + b"then more"


@pytest_twisted.ensureDeferred
async def test_reading_starts_again_for_a_tunnel_that_waits(worlds: Callable[..., World]) -> None:
    """A verified tunnel stops nothing by itself before the handshake, so nothing else would start it again."""
    world = worlds()
    door = SlowDoor(world.limits, world.keys)
    world.listener.factory.resource = world.door = door
    raw: RawCaller = await world.connect()
    message = frame(bytes(40_000))
    raw.write(head(world.guest().port, True) + message[:20_000])
    await until(
        lambda: door.channel and sum(map(len, door.channel._dataBuffer)) > 16_384,
        "early bytes at the channel",
    )
    door.decided.callback(None)
    raw.write(message[20_000:])
    assert await raw.close_code() == 4403
    assert b"pinned" in raw.received, "the message was read, and not only its deadline passed"


@pytest_twisted.ensureDeferred
async def test_http_hears_of_the_end_last(world: World) -> None:
    """The channel owns the connection to its end: `notifyFinish` fires when the tunnel's connection is gone."""
    guest = world.guest()
    caller = await world.call(guest.port)
    await guest.connection()
    assert world.door.finished == []
    caller.sendClose(1000)
    await caller.over()
    await until(lambda: world.door.finished, "the end of the request")
    assert world.door.finished == ["ConnectionDone"]
    world.guests[0].connections[0].transport.loseConnection()
    await until(lambda: not len(world.door.tunnels), "the end of the tunnel")


@pytest_twisted.ensureDeferred
async def test_the_site_idle_timeout_is_off(worlds: Callable[..., World]) -> None:
    clock = Clock()
    world = worlds(clock=clock)
    guest = world.guest()
    caller = await world.call(guest.port)
    connection = await guest.connection()
    clock.advance(3600)
    caller.send(b"still here")
    await until(lambda: connection.received == b"still here", "the bytes")


@pytest_twisted.ensureDeferred
async def test_stopping_closes_every_tunnel(world: World) -> None:
    guest = world.guest()
    first, second = await world.call(guest.port), await world.call(guest.port)
    await until(lambda: len(guest.connections) == 2, "two guest connections")
    assert len(world.door.tunnels) == 2
    world.door.tunnels.stop()
    assert await first.over() == await second.over() == (1001, "the daemon is stopping")
    await until(lambda: [c.end for c in guest.connections] == ["eof", "eof"], "two ends")
    for connection in guest.connections:
        connection.transport.loseConnection()
    await until(lambda: not len(world.door.tunnels), "the end of both")


def test_refusals_are_one_line() -> None:
    assert str(mount.UpgradeRefused("why")) == "why"

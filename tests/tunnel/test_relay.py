"""A plain tunnel over real sockets (contract f, f.1)."""

import os
import socket
from collections.abc import Callable

import pytest
import pytest_twisted
from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from agentd.rules.tunnel import Stage
from agentd.tunnel import guest as guests
from agentd.tunnel.limits import TunnelLimits
from tests.tunnel.support import (
    Caller,
    GuestConnection,
    GuestServer,
    World,
    frame,
    settled,
    the_reactor,
    unsent,
    until,
)


async def joined(world: World) -> tuple[Caller, GuestConnection]:
    guest = world.guest()
    caller = await world.call(guest.port)
    return caller, await guest.connection()


@pytest_twisted.ensureDeferred
async def test_bytes_go_both_ways(world: World) -> None:
    caller, connection = await joined(world)
    up, down = os.urandom(300_000), os.urandom(300_000)
    caller.send(up)
    connection.transport.write(down)
    await until(
        lambda: len(connection.received) == len(up) and len(caller.received) == len(down), "all bytes"
    )
    assert bytes(connection.received) == up
    assert caller.received == down
    assert max(map(len, caller.frames)) <= 65536


@pytest_twisted.ensureDeferred
async def test_text_frames_are_their_bytes_and_empty_ones_nothing(world: World) -> None:
    caller, connection = await joined(world)
    caller.send(b"")
    caller.send("Grüße ".encode(), False)
    caller.send(b"", False)
    caller.send(b"\xff\x00")
    await until(lambda: len(connection.received) >= 10, "the bytes")
    assert bytes(connection.received) == "Grüße ".encode() + b"\xff\x00"
    assert not caller.closed


@pytest_twisted.ensureDeferred
async def test_both_sockets_send_small_writes_at_once(world: World) -> None:
    await joined(world)
    relay = world.door.relay
    assert relay.transport.getTcpNoDelay()
    assert relay._guest.transport.getTcpNoDelay()
    handle = relay.transport.getHandle()
    assert handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


@pytest_twisted.ensureDeferred
async def test_a_frame_is_as_long_as_the_limit_says(worlds: Callable[..., World]) -> None:
    world = worlds(limits=TunnelLimits(read_bytes=1000, sealed_bytes=600))
    guest = world.guest()
    for identity, longest in ((False, 1000), (True, 600)):
        caller = await world.call(guest.port, identity=identity)
        await until(lambda: len(guest.connections) == len(world.callers), "a guest connection")
        guest.connections[-1].transport.write(bytes(5000))
        await until(lambda: len(caller.received) == 5000, "the bytes")  # noqa: B023
        assert max(map(len, caller.frames)) == longest


@pytest_twisted.ensureDeferred
async def test_nothing_is_left_of_many_tunnels(world: World) -> None:
    """Descriptors and delayed calls are as many as before."""
    guest = world.guest()

    async def one(number: int) -> None:
        caller = await world.call(guest.port)
        await until(lambda: len(guest.connections) == number + 1, "a guest connection")
        caller.sendClose(1000)
        await caller.over()
        await until(lambda: guest.connections[number].end == "eof", "the guest's end")
        guest.connections[number].transport.loseConnection()
        await until(lambda: not len(world.door.tunnels), "the end of the tunnel")

    def census() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(the_reactor().getDelayedCalls())

    await one(0)
    before = census()
    for number in range(1, 30):
        await one(number)
    await until(lambda: all(now <= then for now, then in zip(census(), before, strict=True)), "nothing left")


@pytest_twisted.ensureDeferred
async def test_guest_ends(world: World) -> None:
    """1000 with no reason, behind the last byte."""
    caller, connection = await joined(world)
    data = os.urandom(1_000_000)
    connection.transport.write(data)
    connection.transport.loseConnection()
    assert await caller.over() == (1000, None)
    assert caller.received == data


@pytest_twisted.ensureDeferred
async def test_caller_closes(world: World) -> None:
    """The guest reads every byte, then an end of file, though it is sending itself; the close is answered."""
    caller, connection = await joined(world)
    data = os.urandom(1_000_000)
    connection.transport.write(b"in flight" * 10_000)
    caller.send(data)
    caller.sendClose(1000)
    assert await caller.over() == (1000, None)
    await until(lambda: connection.end, "the guest's end")
    assert connection.end == "eof"
    assert bytes(connection.received) == data


@pytest_twisted.ensureDeferred
async def test_caller_closes_while_the_guest_is_stopped(world: World) -> None:
    """Bytes of the guest that nobody will read do not turn its end of file into a reset."""
    guest = world.guest()
    raw = await world.raw(guest.port)
    connection = await guest.connection()
    raw.transport.pauseProducing()
    connection.transport.write(bytes(32 << 20))
    relay = world.door.relay
    await until(lambda: relay.behind, "a caller that is behind")
    await settled(lambda: unsent(connection.transport))
    assert unsent(connection.transport)
    raw.write(frame(b"last words") + frame(b"\x03\xe8", 8))
    await until(lambda: connection.end, "the guest's end")
    assert connection.end == "eof"
    assert connection.received == b"last words"


@pytest_twisted.ensureDeferred
async def test_caller_closes_with_what_it_likes(world: World) -> None:
    """Any code and reason of the caller's are answered with 1000."""
    caller, connection = await joined(world)
    caller.sendClose(4999, "enough")
    assert await caller.over() == (1000, None)
    await until(lambda: connection.end == "eof", "the guest's end")


@pytest.mark.parametrize("abort", [False, True])
@pytest_twisted.ensureDeferred
async def test_caller_hangs_up(world: World, abort: bool) -> None:
    """Without a close frame, in order or by a reset: a plain caller promised nothing, so the guest is closed."""
    guest = world.guest()
    raw = await world.raw(guest.port)
    connection = await guest.connection()
    raw.write(frame(b"last words"))
    await until(lambda: connection.received == b"last words", "the bytes")
    if abort:
        raw.transport.abortConnection()
    else:
        raw.transport.loseConnection()
    await until(lambda: connection.end, "the guest's end")
    assert connection.end == "eof"


@pytest_twisted.ensureDeferred
async def test_bytes_before_the_dial_is_done_and_a_close_behind_them(world: World) -> None:
    """All in the first segment: nothing overtakes, nothing is dropped."""
    guest = world.guest()
    await world.raw(guest.port, extra=frame(b"one ") + frame(b"two", 1) + frame(b"\x03\xe8", 8))
    connection = await guest.connection()
    await until(lambda: connection.end == "eof", "the guest's end")
    assert bytes(connection.received) == b"one two"


@pytest_twisted.ensureDeferred
async def test_guest_breaks(world: World) -> None:
    caller, connection = await joined(world)
    connection.transport.abortConnection()
    code, reason = await caller.over()
    assert code == 4500
    assert reason is not None
    assert str(world.guests[0].port) in reason


@pytest_twisted.ensureDeferred
async def test_guest_refuses_a_write(world: World) -> None:
    """A guest that is behind and goes away has refused what it did not take: 1000."""
    guest = world.guest(reading=False)
    caller = await world.call(guest.port)
    connection = await guest.connection()
    for _ in range(64):
        caller.send(bytes(1 << 20))
    await until(lambda: world.door.relay.held, "a guest that is behind")
    connection.transport.abortConnection()
    assert await caller.over() == (1000, None)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest_twisted.ensureDeferred
async def test_nothing_listens(world: World) -> None:
    port = unused_port()
    caller = await world.call(port)
    assert await caller.over() == (4502, f"port {port} has no listener")


@pytest_twisted.ensureDeferred
async def test_port_0(world: World) -> None:
    caller = await world.call(0)
    code, reason = await caller.over()
    assert code == 4400
    assert reason is not None
    assert "port 0" in reason


@pytest_twisted.ensureDeferred
async def test_dial_times_out(worlds: Callable[..., World]) -> None:
    """A listener whose queue is full: the kernel lets the dial hang."""
    world = worlds(limits=TunnelLimits(dial_timeout=0.2))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fill = [socket.socket() for _ in range(4)]
        try:
            for queued in fill:
                queued.setblocking(False)
                queued.connect_ex(("127.0.0.1", port))
            caller = await world.call(port)
            assert await caller.over() == (4502, f"port {port} did not accept within 0.2 s")
        finally:
            for queued in fill:
                queued.close()


@pytest.mark.parametrize("close", [True, False])
@pytest_twisted.ensureDeferred
async def test_stopped_while_dialling(worlds: Callable[..., World], close: bool) -> None:
    """The dial is given up, and nothing is left of the tunnel."""
    world = worlds(limits=TunnelLimits(dial_timeout=30))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fill = [socket.socket() for _ in range(4)]
        try:
            for queued in fill:
                queued.setblocking(False)
                queued.connect_ex(("127.0.0.1", port))
            caller = await world.call(port)
            relay = world.door.relay
            assert relay.stage is Stage.DIALING
            assert relay.held
            if close:
                world.door.tunnels.stop()
                assert await caller.over() == (1001, "the daemon is stopping")
            else:
                relay.transport.abortConnection()
                assert await caller.over() == (None, None)
            await until(lambda: not len(world.door.tunnels), "the end of the tunnel")
        finally:
            for queued in fill:
                queued.close()


@pytest_twisted.ensureDeferred
async def test_the_only_address_is_the_loopback(world: World) -> None:
    """A listener on another loopback address is not found."""
    server = GuestServer.__new__(GuestServer)
    server.reading, server.connections = True, []
    server.listener = the_reactor().listenTCP(0, server, interface="127.0.0.2")
    world.guests.append(server)
    caller = await world.call(server.port)
    assert (await caller.over())[0] == 4502
    assert server.connections == []


class Owner:
    """Records what a guest connection says."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.heard.append(name)


@pytest_twisted.ensureDeferred
async def test_a_socket_connected_to_itself_is_nobody() -> None:
    """Dialling a port of the ephemeral range can make the kernel pick that very port for this end."""

    class Mirror:
        """A reactor that always gets that unlucky."""

        def connectTCP(
            self, host: str, port: int, factory: Factory, timeout: float, bindAddress: object
        ) -> object:
            return the_reactor().connectTCP(host, port, factory, timeout=timeout, bindAddress=(host, port))

    owner, failures = Owner(), list[Failure]()
    dialling = guests.dial(owner, unused_port(), TunnelLimits(), Mirror())
    dialling.addErrback(failures.append)
    await until(lambda: failures and "guest_gone" in owner.heard, "a failed dial")
    assert failures[0].getErrorMessage() == "has no listener"
    assert owner.heard == ["guest_gone"]


def test_an_end_is_told_from_a_failure() -> None:
    """By `guest_failed`'s argument the rules know a refused write from a failed read."""
    for behind in (False, True):
        owner = Owner()
        heard: list[bool] = []
        owner.guest_failed = heard.append  # type: ignore[method-assign,assignment]
        guest = guests.Guest(owner, TunnelLimits(), None)
        if behind:
            guest._fell_behind()
        guest.connectionLost(Failure(ConnectionLost()))
        assert heard == [behind]
        assert owner.heard[-1] == "guest_gone"


@pytest_twisted.ensureDeferred
async def test_a_guest_that_goes_on_sending_is_left_after_a_moment(worlds: Callable[..., World]) -> None:
    world = worlds(limits=TunnelLimits(linger=0.1))
    caller, connection = await joined(world)
    caller.send(b"bye")
    caller.sendClose(1000)
    await until(lambda: connection.end == "eof", "the guest's end of file")
    connection.transport.write(b"ignored")
    await until(lambda: not len(world.door.tunnels), "the end of the tunnel")
    assert bytes(connection.received) == b"bye"


@pytest_twisted.ensureDeferred
async def test_a_slow_guest_gets_everything_of_a_caller_that_has_left(world: World) -> None:
    """However long it takes: bounded in bytes, not in time."""
    guest = world.guest(reading=False)
    caller = await world.call(guest.port)
    connection = await guest.connection()
    data = os.urandom(24 << 20)
    for start in range(0, len(data), 1 << 20):
        caller.send(data[start : start + (1 << 20)])
    caller.sendClose(1000)
    await until(lambda: world.door.relay.held, "a guest that is behind")
    connection.transport.resumeProducing()
    await until(lambda: connection.end == "eof", "the guest's end of file")
    assert bytes(connection.received) == data
    assert await caller.over() == (1000, None)


@pytest_twisted.ensureDeferred
async def test_a_caller_that_does_not_answer_the_close(worlds: Callable[..., World]) -> None:
    world = worlds(limits=TunnelLimits(close_timeout=0.1))
    guest = world.guest()
    raw = await world.raw(guest.port)
    connection = await guest.connection()
    connection.transport.write(b"bye")
    connection.transport.loseConnection()
    assert await raw.close_code() == 1000
    await until(lambda: raw.lost, "the end of the connection")
    assert raw.lost == "ConnectionDone"
    assert raw.received.startswith(b"\x82\x03bye\x88")


@pytest_twisted.ensureDeferred
async def test_a_caller_that_does_not_even_read(worlds: Callable[..., World]) -> None:
    world = worlds(limits=TunnelLimits(close_timeout=0.1, linger=0.1))
    guest = world.guest()
    raw = await world.raw(guest.port)
    raw.transport.pauseProducing()
    connection = await guest.connection()
    connection.transport.write(bytes(32 << 20))
    relay = world.door.relay
    await until(lambda: relay.behind, "a caller that is behind")
    await settled(lambda: unsent(relay.transport))
    world.door.tunnels.stop()
    await until(lambda: not len(world.door.tunnels), "the end of the tunnel")

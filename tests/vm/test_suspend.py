"""Both kinds of pause, with a command that ticks and a stream attached. The guest's own log is the oracle."""

import time
from itertools import pairwise
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from agentd.client.execs import Exec
from agentd.client.messages import ExitEvent
from agentd.client.sse import Output
from agentd.guest.clock import THRESHOLD_SECS
from agentd.vm import platform
from tests.vm.conftest import Clone
from tests.vm.support import Guest, pause, read, until

TICKS = 60
TICKER = f"""
import time
log = open("/tmp/log", "w")
for number in range({TICKS}):
    line = "%d %.3f %.3f\\n" % (number, time.monotonic(), time.time())
    log.write(line)
    log.flush()
    print(line, end="", flush=True)
    time.sleep(0.1)
"""
PAUSE = 4.0
"""Seconds. Above the threshold at which the wall clock counts as left behind."""


class Listener:
    """Reads a stream from an offset until it ends or is told to leave."""

    def __init__(self, handle: Exec, offset: int = 0) -> None:
        self.data = b""
        self.offset = offset
        self.end: ExitEvent | None = None
        self._follow = handle.follow(offset)
        self.over: Deferred[None] = Deferred.fromCoroutine(self._read())

    async def _read(self) -> None:
        async with self._follow as events:
            async for event in events:
                if isinstance(event, Output):
                    assert event.offset == self.offset, "a byte was lost or doubled"
                    self.data += event.data
                    self.offset += len(event.data)
                else:
                    assert isinstance(event, ExitEvent), event
                    self.end = event

    async def has(self, lines: int) -> None:
        """Wait for so many lines."""

        async def enough() -> bool:
            return self.data.count(b"\n") >= lines

        await until(enough)

    def leave(self) -> None:
        """Hang up."""
        self.over.addErrback(lambda _: None)
        self.over.cancel()
        self._follow.close()


async def ticking(guest: Guest) -> tuple[Exec, Listener]:
    """A ticking command, and a listener that has heard some."""
    handle = await guest.client.start(["python3", "-c", TICKER])
    listener = Listener(handle)
    await listener.has(5)
    return handle, listener


async def check(guest: Guest, heard: bytes) -> list[list[float]]:
    """Everything was heard, once and in order; the lines as numbers."""
    assert heard.decode() == await guest.sh("cat /tmp/log")
    rows = [[float(word) for word in line.split()] for line in heard.decode().splitlines()]
    assert [int(row[0]) for row in rows] == list(range(TICKS))
    return rows


def longest(rows: list[list[float]], clock: int) -> float:
    """The largest step between two ticks, by one of the clocks."""
    return max(after[clock] - before[clock] for before, after in pairwise(rows))


@pytest_twisted.ensureDeferred
async def test_a_stopped_machine_goes_on_where_it_was(clone: Clone) -> None:
    """QEMU's stop: every clock of the guest stands still, and the resume hook sets the wall clock right."""
    guest = await clone()
    before = (await guest.health())["clock_stepped"]
    _, listener = await ticking(guest)
    sleeper = await guest.client.start(["sleep", "60"], timeout=3.0)
    started = time.monotonic()
    await platform.suspend(reactor, guest.machine)
    assert await guest.machine.status() == "paused"
    await pause(PAUSE)
    await platform.resume(reactor, guest.machine)
    await listener.over
    rows = await check(guest, listener.data)
    assert listener.end is not None
    assert longest(rows, 1) < PAUSE, "the guest's timers saw the pause"
    # The deadline was of the guest's seconds: had its clock jumped, it would have come early.
    late = await sleeper.wait()
    assert late.timed_out
    assert time.monotonic() - started >= 3.0 + PAUSE - 0.5
    health = await guest.health()
    assert [hook["hook"] for hook in health["hooks"]][-2:] == ["suspend", "resume"]
    stepped = health["clock_stepped"]
    assert stepped["count"] == (before["count"] if before else 0) + 1
    # What was too little to be stepped when it was launched comes on top.
    assert PAUSE - 1 < stepped["last_seconds"] < PAUSE + THRESHOLD_SECS + 1
    assert abs(float(await guest.sh("date +%s")) - time.time()) < 2.5


@pytest_twisted.ensureDeferred
async def test_a_stream_that_was_cut_goes_on_at_its_cursor(clone: Clone) -> None:
    """The caller hangs up while the machine is stopped, and attaches again where it was."""
    guest = await clone()
    handle, listener = await ticking(guest)
    await platform.suspend(reactor, guest.machine)
    listener.leave()
    await pause(0.5)
    await platform.resume(reactor, guest.machine)
    rest, _, end = await read(handle, listener.offset)
    assert end is not None
    await check(guest, listener.data + rest)


@pytest_twisted.ensureDeferred
async def test_a_frozen_machine_finds_its_clocks_ahead(clone: Clone) -> None:
    """The whole process stopped: all clocks jump, and deadlines that have passed are kept at once."""
    guest = await clone()
    stepped = (await guest.health())["clock_stepped"]
    _, listener = await ticking(guest)
    sleeper = await guest.client.start(["sleep", "60"], timeout=PAUSE)
    await platform.post(reactor, guest.machine.url, "suspend")
    guest.machine.freeze()
    await pause(PAUSE)
    guest.machine.thaw()
    thawed = time.monotonic()
    await platform.post(reactor, guest.machine.url, "resume")
    assert (await sleeper.wait()).timed_out
    assert time.monotonic() - thawed < PAUSE
    await listener.over
    rows = await check(guest, listener.data)
    assert longest(rows, 1) > PAUSE - 1
    now = (await guest.health())["clock_stepped"]
    assert now == stepped or now["last_seconds"] < PAUSE - 1, "a clock that is right was stepped"


@pytest.mark.parametrize("kind", ["stop", "freeze"])
@pytest_twisted.ensureDeferred
async def test_a_request_made_meanwhile_is_answered_afterwards(clone: Clone, kind: str) -> None:
    """The host's side accepts for a machine that stands still."""
    guest = await clone()
    if kind == "stop":
        await guest.machine.pause()
    else:
        guest.machine.freeze()
    answer: Deferred[Any] = Deferred.fromCoroutine(guest.sh("echo there"))
    await pause(0.5)
    assert not answer.called
    if kind == "stop":
        await guest.machine.go_on()
    else:
        guest.machine.thaw()
    assert await answer == "there\n"

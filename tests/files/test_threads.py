"""The seam to the pool: cancelled results, sliced jobs, and the pump between the reactor and a thread."""

import threading
import time
from collections.abc import Generator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import CancelledError, Deferred, succeed

from agentd.files.pump import BATCH_BYTES, CHUNK_OVERHEAD, HIGH_BYTES, Flow, Pump
from agentd.files.threads import run_sliced, shielded
from tests.files.support import until


def test_a_result_nobody_waits_for_is_disposed_of() -> None:
    running: Deferred[str] = Deferred()
    disposed: list[str] = []
    waiting = shielded(running, disposed.append)
    waiting.addErrback(lambda reason: reason.trap(CancelledError))
    waiting.cancel()
    running.callback("descriptor")
    assert disposed == ["descriptor"]
    assert not disposed[1:]


def test_a_result_that_is_waited_for_is_handed_on() -> None:
    disposed: list[str] = []
    got: list[str] = []
    shielded(succeed("descriptor"), disposed.append).addCallback(got.append)
    assert (got, disposed) == (["descriptor"], [])


@pytest_twisted.ensureDeferred
async def test_a_sliced_job_shares_its_thread(reactor: Any, run_in_thread: Any) -> None:
    """Two threads, three jobs without end: others are still served."""
    closed: list[int] = []

    def endless(number: int) -> Generator[None, None, None]:
        try:
            while True:
                time.sleep(0.001)
                yield
        finally:
            closed.append(number)

    jobs = [run_sliced(run_in_thread, endless(number), slice_seconds=0.005) for number in range(3)]
    for _ in range(20):
        assert await run_in_thread(threading.get_ident) != threading.get_ident()
    for job in jobs:
        job.cancel()
        with pytest.raises(CancelledError):
            await job
    await until(reactor, lambda: sorted(closed) == [0, 1, 2])


@pytest_twisted.ensureDeferred
async def test_a_sliced_job_returns_and_raises(run_in_thread: Any) -> None:
    def counting(fail: bool) -> Generator[None, None, int]:
        for _ in range(5):
            yield
        if fail:
            raise ValueError("on purpose")
        return 5

    assert await run_sliced(run_in_thread, counting(False), slice_seconds=0) == 5
    with pytest.raises(ValueError, match="on purpose"):
        await run_sliced(run_in_thread, counting(True), slice_seconds=0)


@pytest_twisted.ensureDeferred
async def test_a_cancelled_job_that_ends_anyway_is_disposed_of(reactor: Any, run_in_thread: Any) -> None:
    gate = threading.Event()
    disposed: list[str] = []

    def one_step() -> Generator[None, None, str]:
        gate.wait(20)
        return "descriptor"
        yield

    job = run_sliced(run_in_thread, one_step(), disposed.append)
    job.cancel()
    with pytest.raises(CancelledError):
        await job
    gate.set()
    await until(reactor, lambda: disposed == ["descriptor"])


@pytest_twisted.ensureDeferred
async def test_a_pump_keeps_order_in_bounded_batches(run_in_thread: Any) -> None:
    batches: list[list[bytes]] = []

    def consume(batch: list[bytes]) -> list[bytes]:
        batches.append(batch)
        return []

    pump = Pump(run_in_thread, consume, Flow())
    chunks = [b"%08d" % number * 1000 for number in range(500)]
    for chunk in chunks:
        pump.write(chunk)
    await pump.drain()
    assert [chunk for batch in batches for chunk in batch] == chunks
    assert all(sum(map(len, batch)) <= BATCH_BYTES + len(chunks[0]) for batch in batches)
    await pump.drain()


@pytest_twisted.ensureDeferred
async def test_what_could_not_be_taken_is_offered_again_when_ready(run_in_thread: Any) -> None:
    taken: list[bytes] = []
    asked: list[int] = []

    def consume(batch: list[bytes]) -> list[bytes]:
        taken.append(batch[0])
        return batch[1:]

    def ready() -> Deferred[None]:
        asked.append(len(taken))
        return succeed(None)

    pump = Pump(run_in_thread, consume, Flow(), ready)
    gate = threading.Event()
    blockers = [run_in_thread(gate.wait, 20) for _ in range(2)]
    for number in range(5):
        pump.write(b"%d" % number)
    gate.set()
    await pump.drain()
    for blocker in blockers:
        await blocker
    assert taken == [b"0", b"1", b"2", b"3", b"4"]
    assert asked == [2, 3, 4] or asked == [1, 2, 3, 4]


@pytest_twisted.ensureDeferred
async def test_the_first_failure_of_a_pump_is_final(run_in_thread: Any) -> None:
    seen: list[bytes] = []
    told: list[Exception] = []

    def consume(batch: list[bytes]) -> list[bytes]:
        seen.extend(batch)
        raise OSError("on purpose")

    pump = Pump(run_in_thread, consume, Flow(failed=told.append))
    pump.write(b"first")
    for _ in range(2):
        with pytest.raises(OSError, match="on purpose"):
            await pump.drain()
    pump.write(b"second")
    await pump.stop()
    assert seen == [b"first"]
    assert len(told) == 1


@pytest_twisted.ensureDeferred
async def test_stopping_a_pump_drops_what_is_queued(run_in_thread: Any) -> None:
    gate = threading.Event()
    seen: list[bytes] = []

    def consume(batch: list[bytes]) -> list[bytes]:
        gate.wait(20)
        seen.extend(batch)
        return []

    pump = Pump(run_in_thread, consume, Flow())
    pump.write(b"first")
    pump.write(b"second")
    stopping = pump.stop()
    assert not stopping.called
    gate.set()
    await stopping
    assert seen == [b"first"]


def test_small_chunks_are_charged_for_their_objects() -> None:
    paused: list[int] = []
    never: Deferred[Any] = Deferred()
    pump = Pump(lambda *_: never, lambda batch: [], Flow(pause=lambda: paused.append(1)))
    written = 0
    while not paused:
        pump.write(b"x")
        written += 1
    # The first chunk went straight to the thread, and the rest stays queued.
    assert written <= HIGH_BYTES // (1 + CHUNK_OVERHEAD) + 2

"""Inbox and outlet: order kept, producers held back, readers and writers woken."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred

from agentd.client.flow import Inbox, Outlet


class Producer:
    def __init__(self) -> None:
        self.running = True
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        assert self.running
        self.running = False
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        assert not self.running
        self.running = True
        self.calls.append("resume")


def result(coroutine: Any) -> Any:
    """The result of a coroutine that has it at once."""
    found: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(found.append)
    assert found, "not there yet"
    return found[0]


@settings(deadline=None)
@given(st.lists(st.one_of(st.binary(min_size=1, max_size=40), st.just("get")), max_size=60))
def test_order_is_kept_and_the_producer_is_held_back_in_time(script: list[Any]) -> None:
    inbox, producer = Inbox(high_water=64), Producer()
    inbox.attach(producer)
    put, got = b"", b""
    for step in script:
        if step == "get":
            if inbox.held:
                got += result(inbox.get())
        elif producer.running:
            inbox.put(step)
            put += step
        assert inbox.held == len(put) - len(got)
        assert inbox.held < 64 + 40
        assert producer.running == (inbox.held < 64) or inbox.held > 32
    inbox.end()
    while data := result(inbox.get()):
        got += data
    assert got == put


def test_a_paused_producer_goes_on_at_half() -> None:
    inbox, producer = Inbox(high_water=10), Producer()
    inbox.attach(producer)
    for _ in range(5):
        inbox.put(b"ab")
    assert producer.calls == ["pause"]
    result(inbox.get())
    result(inbox.get())
    assert producer.calls == ["pause"]
    result(inbox.get())
    assert producer.calls == ["pause", "resume"]


def test_a_waiting_reader_is_woken_by_bytes_by_the_end_and_by_a_fault() -> None:
    for wake, expected in (
        (lambda box: box.put(b"x"), b"x"),
        (lambda box: box.end(), b""),
    ):
        inbox = Inbox()
        found: list[Any] = []
        Deferred.fromCoroutine(inbox.get()).addBoth(found.append)
        assert found == []
        wake(inbox)
        assert found == [expected]
    inbox = Inbox()
    inbox.put(b"last")
    inbox.end(OSError("cut"))
    assert result(inbox.get()) == b"last"
    assert result(inbox.get()).check(OSError)
    assert result(inbox.get()).check(OSError)


def test_a_reader_may_give_up_and_another_come() -> None:
    inbox = Inbox()
    first = Deferred.fromCoroutine(inbox.get())
    failed: list[Any] = []
    first.addErrback(failed.append)
    first.cancel()
    assert failed[0].check(CancelledError)
    inbox.put(b"x")
    assert result(inbox.get()) == b"x"


def test_what_comes_after_the_reader_left_is_dropped() -> None:
    inbox = Inbox()
    inbox.put(b"x")
    inbox.discard()
    inbox.put(b"y")
    assert inbox.held == 0
    assert result(inbox.get()) == b""


def test_a_writer_waits_while_the_transport_is_full() -> None:
    outlet = Outlet()
    assert result(outlet.ready()) is None
    outlet.pauseProducing()
    found: list[Any] = []
    for _ in range(2):
        Deferred.fromCoroutine(outlet.ready()).addBoth(found.append)
    assert found == []
    outlet.resumeProducing()
    assert found == [None, None]


def test_writers_fail_when_the_transport_is_gone() -> None:
    outlet = Outlet()
    outlet.pauseProducing()
    found: list[Any] = []
    Deferred.fromCoroutine(outlet.ready()).addBoth(found.append)
    outlet.stopProducing()
    assert found[0].check(ConnectionError)
    assert result(outlet.ready()).check(ConnectionError)


def test_a_cancelled_writer_does_not_disturb_the_others() -> None:
    outlet = Outlet()
    outlet.pauseProducing()
    waiting = Deferred.fromCoroutine(outlet.ready())
    waiting.addErrback(lambda reason: reason.trap(CancelledError))
    waiting.cancel()
    outlet.resumeProducing()
    assert result(outlet.ready()) is None


@pytest.mark.parametrize("high_water", [1, 2, 1000])
def test_empty_chunks_are_not_ends(high_water: int) -> None:
    inbox = Inbox(high_water)
    inbox.put(b"")
    inbox.put(b"x")
    assert result(inbox.get()) == b"x"

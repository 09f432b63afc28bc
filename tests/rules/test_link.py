"""The link to an engine: attempts, pauses, and the two things that are final."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules import link
from agentd.rules.link import Do, Event, Link, Phase


def run(*events: Event) -> tuple[Link, list[Do]]:
    state, done = Link(), []
    for event in events:
        state, orders = link.step(state, event)
        done += orders
    return state, done


def test_it_connects_and_comes_back_after_a_pause() -> None:
    state, done = run(Event.START, Event.OPENED, Event.LOST, Event.PAUSE_OVER, Event.OPENED)
    assert state.phase is Phase.OPEN
    assert done == [Do.CONNECT, Do.PAUSE, Do.CONNECT]


def test_an_engine_that_was_never_there_is_complained_of_once() -> None:
    _, done = run(Event.START, Event.LOST, Event.PAUSE_OVER, Event.LOST, Event.PAUSE_OVER, Event.LOST)
    assert done == [Do.CONNECT, Do.COMPLAIN, Do.PAUSE, Do.CONNECT, Do.PAUSE, Do.CONNECT, Do.PAUSE]


def test_one_that_was_there_is_not_complained_of() -> None:
    _, done = run(Event.START, Event.OPENED, Event.LOST, Event.PAUSE_OVER, Event.LOST)
    assert Do.COMPLAIN not in done


@pytest.mark.parametrize(
    "before", [(), (Event.START,), (Event.START, Event.OPENED), (Event.START, Event.LOST)]
)
@pytest.mark.parametrize("end", [Event.STOP, Event.REJECTED])
def test_a_rejection_and_a_stop_are_final(before: tuple[Event, ...], end: Event) -> None:
    state, done = run(*before, end)
    assert state.phase is Phase.OVER
    assert done[-1] is Do.CLOSE
    for event in Event:
        assert link.step(state, event) == (state, ())


@given(st.lists(st.sampled_from(Event)))
def test_it_is_never_connecting_twice_and_never_without_a_next_step(events: list[Event]) -> None:
    """Every pause follows a loss, every attempt but the first a pause, and complaints are not repeated."""
    _, done = run(*events)
    assert done.count(Do.COMPLAIN) <= 1
    moves = [each for each in done if each in (Do.CONNECT, Do.PAUSE)]
    assert all(move is (Do.CONNECT if at % 2 == 0 else Do.PAUSE) for at, move in enumerate(moves))


def test_silence_and_rejections() -> None:
    assert not link.dead(159.9, 100)
    assert link.dead(160, 100)
    assert link.final("WORKER_NAMESPACE_CONFLICT")
    assert link.final("SOMETHING_NEW")
    assert not link.final("FUNCTION_NAMESPACE_CONFLICT")

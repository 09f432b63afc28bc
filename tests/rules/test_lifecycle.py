"""The daemon's own life: serving, draining, stopped."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules import lifecycle as rules
from agentd.rules.lifecycle import Lifecycle, Stage, TerminateMode

SERVING = Lifecycle()
BUSY = Lifecycle(in_flight=2)


def test_it_begins_by_serving() -> None:
    assert Lifecycle(Stage.SERVING, 0) == SERVING
    assert rules.may_start(SERVING)


def test_requests_are_counted() -> None:
    state = rules.request_began(rules.request_began(SERVING))
    assert state == BUSY
    assert rules.request_ended(rules.request_ended(state)) == SERVING


def test_terminate_drains_what_is_in_flight_and_takes_on_nothing() -> None:
    state = rules.terminate(BUSY, TerminateMode.DRAIN)
    assert state == Lifecycle(Stage.DRAINING, 2)
    assert not rules.may_start(state)
    state = rules.request_ended(state)
    assert state.stage is Stage.DRAINING
    assert rules.request_ended(state) == Lifecycle(Stage.STOPPED, 0)


def test_with_nothing_in_flight_it_stops_at_once() -> None:
    assert rules.terminate(SERVING, TerminateMode.DRAIN).stage is Stage.STOPPED


@pytest.mark.parametrize("state", [SERVING, BUSY])
def test_an_acknowledged_terminate_changes_nothing(state: Lifecycle) -> None:
    assert rules.terminate(state, TerminateMode.ACKNOWLEDGE) == state


@pytest.mark.parametrize("state", [SERVING, BUSY])
def test_a_signal_drains_whatever_the_knob_says(state: Lifecycle) -> None:
    assert rules.stop(state) == rules.terminate(state, TerminateMode.DRAIN)


@pytest.mark.parametrize("stage", [Stage.DRAINING, Stage.STOPPED])
@pytest.mark.parametrize("mode", list(TerminateMode))
def test_a_second_terminate_changes_nothing(stage: Stage, mode: TerminateMode) -> None:
    state = Lifecycle(stage, 3)
    assert rules.terminate(state, mode) == state


def test_a_request_that_comes_while_draining_is_waited_for() -> None:
    state = rules.request_began(Lifecycle(Stage.DRAINING, 1))
    state = rules.request_ended(state)
    assert state == Lifecycle(Stage.DRAINING, 1)
    assert rules.request_ended(state).stage is Stage.STOPPED


@pytest.mark.parametrize(
    ("stage", "after"),
    [
        (Stage.SERVING, Stage.SERVING),
        (Stage.DRAINING, Stage.STOPPED),
        (Stage.STOPPED, Stage.STOPPED),
    ],
)
def test_the_drain_deadline_ends_a_drain_and_nothing_else(stage: Stage, after: Stage) -> None:
    assert rules.drain_expired(Lifecycle(stage, 2)) == Lifecycle(after, 2)


events = st.lists(st.sampled_from(["began", "ended", "drain", "acknowledge", "expired"]), max_size=30)


@given(events)
def test_it_never_goes_back_and_stops_only_when_it_may(names: list[str]) -> None:
    order = [Stage.SERVING, Stage.DRAINING, Stage.STOPPED]
    state, asked = SERVING, False
    for name in names:
        before = state
        if name == "began":
            state = rules.request_began(state)
        elif name == "ended":
            if state.in_flight == 0:
                continue
            state = rules.request_ended(state)
        elif name == "expired":
            state = rules.drain_expired(state)
        else:
            asked = asked or name == "drain"
            state = rules.terminate(state, TerminateMode(name))
        assert order.index(state.stage) >= order.index(before.stage)
        assert rules.may_start(state) is (state.stage is Stage.SERVING) is not asked
        if state.stage is Stage.STOPPED is not before.stage:
            assert state.in_flight == 0 or name == "expired"
        assert evolve(state, stage=Stage.SERVING).in_flight >= 0

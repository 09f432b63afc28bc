"""One child from spawn to published result, in every order of events (contract a.7, c.5 to c.7)."""

from collections import deque
from collections.abc import Iterator
from itertools import product

import pytest
from attrs import frozen

from agentd.rules import supervision as rules
from agentd.rules.supervision import Action, Cause, Escalation, Event, Supervision

INITIAL = (Supervision(), Supervision(reap=True))


@frozen
class Edge:
    before: Supervision
    event: Event
    after: Supervision
    actions: tuple[Action, ...]


def reachable() -> Iterator[Edge]:
    """Every edge of the whole graph: `step` is total, so every event is tried in every state there is."""
    seen = set(INITIAL)
    waiting = deque(INITIAL)
    while waiting:
        before = waiting.popleft()
        for event in Event:
            after, actions = rules.step(before, event)
            yield Edge(before, event, after, actions)
            if after not in seen:
                seen.add(after)
                waiting.append(after)


EDGES = tuple(reachable())
STATES = {edge.before for edge in EDGES}


def run(*events: Event, reap: bool = False) -> tuple[Supervision, list[Action]]:
    state, done = Supervision(reap=reap), []
    for event in events:
        state, actions = rules.step(state, event)
        done += actions
    return state, done


# -- laws over every reachable edge ----------------------------------------------------------------------------


def test_the_graph_is_as_large_as_it_was() -> None:
    """Pinned, so that a change of the rules shows: every event in every state."""
    assert len(EDGES) == len(STATES) * len(Event)
    assert len(STATES) == 116


def test_it_publishes_exactly_once_and_says_so() -> None:
    for edge in EDGES:
        assert edge.actions.count(Action.PUBLISH) == (edge.after.published and not edge.before.published)
        assert edge.after.published or not edge.before.published


def test_nothing_is_published_before_the_exit() -> None:
    for edge in EDGES:
        assert edge.after.exited or not edge.after.published


def test_nothing_is_published_while_the_result_waits_for_an_escalation() -> None:
    held = 0
    for edge in EDGES:
        if Action.PUBLISH in edge.actions:
            assert not edge.after.holds_linger
        if edge.after.holds_linger:
            held += 1
            assert edge.after.escalation is Escalation.RUNNING
            assert not edge.after.published
            assert not edge.after.lingering
    assert held


def test_it_publishes_as_soon_as_it_may() -> None:
    """Exited, nothing held, pipes ended or the linger over: there is no such state that is not published."""
    for state in STATES:
        if state.exited and not state.holds_linger and (state.pipes_ended or state.writers_may_be_alive):
            assert state.published


def test_whoever_waits_has_something_to_wait_for() -> None:
    for state in STATES:
        if state.exited and not state.published:
            assert state.holds_linger or (state.lingering and not state.pipes_ended)


def test_the_linger_starts_once_after_exit_and_escalation() -> None:
    for edge in EDGES:
        starts = edge.actions.count(Action.START_LINGER)
        assert starts == (edge.after.lingering and not edge.before.lingering)
        if starts:
            assert edge.after.exited
            assert not edge.after.holds_linger
            assert not edge.after.pipes_ended


def test_writers_may_be_alive_only_when_the_linger_ran_out() -> None:
    for edge in EDGES:
        if edge.after.writers_may_be_alive and not edge.before.writers_may_be_alive:
            assert edge.event is Event.LINGER_EXPIRED
            assert edge.before.lingering
            assert not edge.before.pipes_ended
            assert Action.STOP_READING in edge.actions


def test_timers_are_cancelled_with_the_result_and_reading_stops_only_then() -> None:
    for edge in EDGES:
        assert (Action.CANCEL_TIMERS in edge.actions) == (Action.PUBLISH in edge.actions)
        if Action.STOP_READING in edge.actions:
            assert edge.actions.index(Action.STOP_READING) < edge.actions.index(Action.PUBLISH)


def test_after_the_result_only_a_kill_does_anything() -> None:
    for edge in EDGES:
        if edge.before.published:
            assert edge.after.published
            if edge.event is Event.KILL:
                assert edge.actions in ((Action.ESCALATE,), ())
            else:
                assert edge.actions == ()
            assert rules.cause(edge.after, True, False) is rules.cause(edge.before, True, False)
            assert edge.after.writers_may_be_alive == edge.before.writers_may_be_alive
            assert edge.after.timed_out == edge.before.timed_out


def test_an_escalation_is_started_only_when_none_runs() -> None:
    for edge in EDGES:
        started = Action.ESCALATE in edge.actions
        assert edge.actions.count(Action.ESCALATE) <= 1
        if started:
            assert edge.before.escalation is not Escalation.RUNNING
            assert edge.after.escalation is Escalation.RUNNING
            assert edge.event in (Event.KILL, Event.DEADLINE, Event.EXITED)
        elif edge.after.escalation is Escalation.RUNNING:
            assert edge.before.escalation is Escalation.RUNNING


def test_a_kill_always_finds_an_escalation_to_wait_for() -> None:
    for edge in EDGES:
        if edge.event is Event.KILL:
            assert edge.after.escalation is Escalation.RUNNING


def test_facts_once_known_stay_known() -> None:
    for edge in EDGES:
        for name in ("exited", "pipes_ended", "timed_out", "kill_requested", "published", "reap"):
            assert getattr(edge.after, name) or not getattr(edge.before, name)


@pytest.mark.parametrize(
    ("event", "known"),
    [(Event.EXITED, "exited"), (Event.PIPES_ENDED, "pipes_ended"), (Event.DEADLINE, "timed_out")],
)
def test_what_is_told_again_changes_nothing(event: Event, known: str) -> None:
    for edge in EDGES:
        if edge.event is event and getattr(edge.before, known):
            assert (edge.after, edge.actions) == (edge.before, ())


def test_a_deadline_after_the_exit_changes_nothing() -> None:
    for edge in EDGES:
        if edge.event is Event.DEADLINE and edge.before.exited:
            assert (edge.after, edge.actions) == (edge.before, ())


def test_an_end_of_no_escalation_changes_nothing() -> None:
    for edge in EDGES:
        if edge.event is Event.ESCALATION_ENDED and edge.before.escalation is not Escalation.RUNNING:
            assert (edge.after, edge.actions) == (edge.before, ())


def test_deadline_and_reap_escalate_once_between_them() -> None:
    """In every order, of which only the kill may make another one (contract c.7)."""
    for events in product([event for event in Event if event is not Event.KILL], repeat=6):
        _, actions = run(*events, reap=True)
        assert actions.count(Action.ESCALATE) <= 1


def test_every_complete_life_ends_published() -> None:
    """Whatever the order, once exit, ends of pipes and every escalation's end have come, the result is there."""
    for events in product(list(Event), repeat=5):
        for reap in (False, True):
            state, actions = run(*events, reap=reap)
            for last in (Event.EXITED, Event.ESCALATION_ENDED, Event.PIPES_ENDED, Event.ESCALATION_ENDED):
                state, more = rules.step(state, last)
                actions += more
            assert state.published
            assert actions.count(Action.PUBLISH) == 1


def test_a_writer_that_never_lets_go_ends_published_too() -> None:
    for events in product([event for event in Event if event is not Event.PIPES_ENDED], repeat=5):
        for reap in (False, True):
            state, _ = run(*events, reap=reap)
            for last in (Event.EXITED, Event.ESCALATION_ENDED, Event.LINGER_EXPIRED):
                state, _ = rules.step(state, last)
            assert state.published
            assert state.writers_may_be_alive


# -- the stories the laws are about ----------------------------------------------------------------------------


def test_an_ordinary_life() -> None:
    state, actions = run(Event.PIPES_ENDED, Event.EXITED)
    assert actions == [Action.CANCEL_TIMERS, Action.PUBLISH]
    assert rules.cause(state, False, False) is Cause.EXIT


def test_pipes_that_end_in_the_linger() -> None:
    state, actions = run(Event.EXITED, Event.PIPES_ENDED)
    assert actions == [Action.START_LINGER, Action.CANCEL_TIMERS, Action.PUBLISH]
    assert not state.writers_may_be_alive


def test_a_background_writer() -> None:
    state, actions = run(Event.EXITED, Event.LINGER_EXPIRED)
    assert actions == [
        Action.START_LINGER,
        Action.STOP_READING,
        Action.CANCEL_TIMERS,
        Action.PUBLISH,
    ]
    assert state.writers_may_be_alive


def test_a_deadline_holds_the_linger_until_the_group_is_down() -> None:
    state, actions = run(Event.DEADLINE, Event.EXITED)
    assert actions == [Action.ESCALATE]
    state, more = rules.step(state, Event.ESCALATION_ENDED)
    assert more == (Action.START_LINGER,)
    assert rules.cause(state, True, False) is rules.cause(state, False, False) is Cause.TIMEOUT


def test_reap_brings_the_group_down_before_the_linger() -> None:
    state, actions = run(Event.EXITED, reap=True)
    assert actions == [Action.ESCALATE]
    state, more = rules.step(state, Event.PIPES_ENDED)
    assert more == ()
    state, more = rules.step(state, Event.ESCALATION_ENDED)
    assert more == (Action.CANCEL_TIMERS, Action.PUBLISH)
    assert rules.cause(state, False, False) is Cause.EXIT


def test_reap_after_a_timeout_does_not_escalate_again() -> None:
    _, actions = run(Event.DEADLINE, Event.ESCALATION_ENDED, Event.EXITED, Event.PIPES_ENDED, reap=True)
    assert actions == [Action.ESCALATE, Action.START_LINGER, Action.CANCEL_TIMERS, Action.PUBLISH]


def test_reap_joins_a_kill_that_runs_and_waits_for_it() -> None:
    state, actions = run(Event.KILL, Event.EXITED, Event.PIPES_ENDED, reap=True)
    assert actions == [Action.ESCALATE]
    assert state.holds_linger


def test_a_callers_kill_does_not_hold_the_result() -> None:
    state, actions = run(Event.KILL, Event.PIPES_ENDED, Event.EXITED)
    assert actions == [Action.ESCALATE, Action.CANCEL_TIMERS, Action.PUBLISH]
    assert rules.cause(state, True, False) is Cause.KILLED


def test_a_deadline_during_a_kill_joins_it_and_holds_the_result() -> None:
    state, actions = run(Event.KILL, Event.DEADLINE, Event.EXITED, Event.PIPES_ENDED)
    assert actions == [Action.ESCALATE]
    _, more = rules.step(state, Event.ESCALATION_ENDED)
    assert more == (Action.CANCEL_TIMERS, Action.PUBLISH)


def test_a_kill_may_be_repeated_once_the_first_is_over() -> None:
    _, actions = run(Event.KILL, Event.KILL, Event.ESCALATION_ENDED, Event.KILL)
    assert actions == [Action.ESCALATE, Action.ESCALATE]


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ((Event.EXITED,), Cause.SIGNAL),
        ((Event.KILL, Event.EXITED), Cause.KILLED),
        ((Event.EXITED, Event.KILL), Cause.SIGNAL),  # a kill of what had died already
        ((Event.DEADLINE, Event.EXITED), Cause.TIMEOUT),
        ((Event.DEADLINE, Event.KILL, Event.EXITED), Cause.TIMEOUT),  # whoever asked first
        ((Event.KILL, Event.DEADLINE, Event.EXITED), Cause.KILLED),
        ((Event.EXITED, Event.DEADLINE), Cause.SIGNAL),
    ],
)
def test_the_cause_of_a_death_by_signal(events: tuple[Event, ...], cause: Cause) -> None:
    assert rules.cause(run(*events)[0], True, False) is cause


@pytest.mark.parametrize(
    ("events", "signalled", "cause"),
    [
        ((Event.EXITED,), True, Cause.OUT_OF_MEMORY),
        ((Event.EXITED,), False, Cause.EXIT),  # another process of the machine was meant
        ((Event.KILL, Event.EXITED), True, Cause.OUT_OF_MEMORY),
        ((Event.KILL, Event.EXITED), False, Cause.KILLED),
        ((Event.DEADLINE, Event.EXITED), True, Cause.TIMEOUT),
    ],
)
def test_the_cause_when_the_kernel_killed_for_memory(
    events: tuple[Event, ...], signalled: bool, cause: Cause
) -> None:
    assert rules.cause(run(*events)[0], signalled, True) is cause


@pytest.mark.parametrize("signalled", [False, True])
def test_every_published_state_has_a_cause(signalled: bool) -> None:
    causes = {
        rules.cause(state, signalled, oom) for state in STATES if state.published for oom in (False, True)
    }
    expected = {Cause.TIMEOUT, Cause.KILLED, Cause.SIGNAL if signalled else Cause.EXIT}
    assert causes == expected | ({Cause.OUT_OF_MEMORY} if signalled else set())


# -- looks at a group, deadlines -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alive", "waited", "kill", "finished"),
    [
        (False, 0.0, False, True),
        (False, 99.0, False, True),
        (True, 0.0, False, False),
        (True, 9.999, False, False),
        (True, 10.0, True, True),
        (True, 11.0, True, True),
    ],
)
def test_a_look_at_a_group_that_got_term(alive: bool, waited: float, kill: bool, finished: bool) -> None:
    assert rules.escalate(alive, waited, 10.0) == rules.EscalationStep(kill, finished)


def test_without_grace_the_kill_comes_at_the_first_look() -> None:
    assert rules.escalate(True, 0.0, 0.0) == rules.EscalationStep(send_kill=True, finished=True)


@pytest.mark.parametrize("seconds", [None, 1, 0.001, 5e-324, 9.2e18, 1.8e19, 18446744073709549568.0])
def test_timeouts_that_may_be_asked_for(seconds: float | None) -> None:
    assert rules.valid_timeout(seconds)


@pytest.mark.parametrize(
    "seconds", [0, -0.0, -1, float("nan"), float("inf"), -float("inf"), 2.0**64, 2**64, 1e300, 10**400]
)
def test_timeouts_that_may_not(seconds: float) -> None:
    assert not rules.valid_timeout(seconds)


@pytest.mark.parametrize(
    ("asked", "seconds"), [(None, None), (1, 1), (0.5, 0.5), (9.1e18, 9.1e18), (9.2e18, None), (1.8e19, None)]
)
def test_a_timeout_beyond_any_clock_is_none(asked: float | None, seconds: float | None) -> None:
    assert rules.deadline(asked) == seconds

"""The hook log, and which invocation runs a workload's handler (contract g.3, g.4)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules import hooks
from agentd.rules.bootstrap import RunVerdict
from agentd.rules.hooks import Hook, HookLog, Observation

EMPTY: HookLog[str] = HookLog()
posts = st.lists(st.tuples(st.sampled_from(Hook), st.integers(0, 2**40)), max_size=12)


def test_hooks_are_spelled_as_in_their_routes() -> None:
    assert [hook.value for hook in Hook] == ["ready", "validate", "run", "suspend", "resume", "terminate"]


@given(posts, st.integers(0, 8))
def test_the_first_are_kept_in_order_and_the_rest_are_counted(
    posts: list[tuple[Hook, int]], cap: int
) -> None:
    log = EMPTY
    indices = []
    for hook, fired_at in posts:
        log, index = hooks.record(log, hook, fired_at, cap)
        indices.append(index)
    kept = posts[:cap]
    assert [(entry.hook, entry.fired_at, entry.outcome) for entry in log.entries] == [
        (hook, fired_at, None) for hook, fired_at in kept
    ]
    assert log.dropped == len(posts) - len(kept)
    assert indices == [*range(len(kept)), *[None] * log.dropped]


def test_a_flood_removes_nothing() -> None:
    log, _ = hooks.record(EMPTY, Hook.RUN, 1, 2)
    for _ in range(100):
        log, _ = hooks.record(log, Hook.READY, 2, 2)
    assert log.entries[0] == Observation(Hook.RUN, 1)
    assert log.dropped == 99


def test_an_outcome_goes_on_its_own_entry() -> None:
    log = EMPTY
    for fired_at in range(3):
        log, _ = hooks.record(log, Hook.SUSPEND, fired_at, 3)
    after = hooks.attach_outcome(log, 1, "done")
    assert [entry.outcome for entry in after.entries] == [None, "done", None]
    assert [entry.fired_at for entry in after.entries] == [0, 1, 2]
    assert after.dropped == log.dropped
    assert [entry.outcome for entry in log.entries] == [None, None, None]


@pytest.mark.parametrize(
    ("hook", "index", "verdict"), list(itertools.product(Hook, [None, 0, 3], [None, *RunVerdict]))
)
def test_which_invocation_runs_a_handler(hook: Hook, index: int | None, verdict: RunVerdict | None) -> None:
    with_handler = {Hook.RUN, Hook.SUSPEND, Hook.RESUME, Hook.TERMINATE}
    expected = index is not None and hook in with_handler
    if hook is Hook.RUN:
        expected = expected and verdict is RunVerdict.INSTALLED
    assert hooks.runs_handler(hook, index, verdict) is expected

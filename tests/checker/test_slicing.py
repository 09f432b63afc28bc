"""Leaving out what a property does not depend on decides it alike."""

from hypothesis import HealthCheck, given, settings

from checker import packed
from checker.model import Model
from checker.models import load
from checker.properties import DeadlockFree
from checker.slicing import cut
from checker.table import Table
from tests.checker.systems import models


@given(models())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_slicing_decides_alike(model: Model) -> None:
    whole = packed.search(Table(model))
    decided = {prop.name: len(whole.trace(prop).steps) for prop in whole.hits}
    for prop in model.properties:
        sliced = cut(model, [prop])
        result = packed.search(Table(sliced))
        assert result.states <= whole.states
        assert {found.name for found in result.hits} == decided.keys() & {prop.name}
        for found in result.hits:
            trace = result.trace(found)
            retold = packed.replay(model, [step.event.name for step in trace.steps])
            assert len(retold.steps) == len(trace.steps)
            places = [model.index()[component.name] for component in sliced.components]
            assert tuple(retold.last[place] for place in places) == trace.last
            if not isinstance(prop, DeadlockFree):
                assert len(trace.steps) == decided[found.name]


def test_a_slice_leaves_out_other_execs() -> None:
    model = load("bootstrap_exec:three_ids")
    prop = next(p for p in model.properties if p.name == "output is never released before ack (exec.1)")
    sliced = cut(model, [prop])
    assert [component.name for component in sliced.components] == ["boot", "hooks_seen", "exec.1"]
    assert packed.search(Table(sliced)).states < packed.search(Table(model)).states
    assert not sliced.symmetry


def test_a_slice_narrows_what_events_write() -> None:
    model = load("published:deployment_invariant_held")
    prop = next(p for p in model.properties if p.name == "AGENTD-3 bootstrap is one-shot")
    sliced = cut(model, [prop])
    assert "last" not in {component.name for component in sliced.components}
    assert all("last" not in event.writes for event in sliced.events)

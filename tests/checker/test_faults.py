"""Faults: planted everywhere, removed again, noticed by the properties that name them."""

import pytest

from agentd.rules import bootstrap, execs, processes, stdin
from checker import matrix, models, strict
from checker.faults import Fault, fault, planted, seeded
from checker.faults.explained import EXPLAINED
from checker.matrix import Fate, baseline
from checker.model import ModelError
from checker.mutation import mutants
from checker.properties import Sometimes, SometimesOnEdge


def wrong(name: str) -> Fault:
    return seeded()[name]


def test_a_function_is_replaced_and_put_back() -> None:
    right = execs.busy
    with planted(wrong("no exec is busy")):
        assert not execs.busy(execs.Record())
    assert execs.busy is right
    assert execs.busy(execs.Record())


def test_it_is_put_back_after_an_error() -> None:
    right = execs.busy
    with pytest.raises(RuntimeError), planted(wrong("no exec is busy")):
        raise RuntimeError
    assert execs.busy is right


def test_properties_and_class_methods_are_replaced_too() -> None:
    state = bootstrap.Bootstrap(b"t")
    with planted(wrong("installed is the wrong way round")):
        assert not state.installed
    assert state.installed
    with planted(wrong("every exec has a stdin")):
        assert stdin.Stdin.at_spawn(False).open
    assert not stdin.Stdin.at_spawn(False).open


def test_a_function_is_replaced_where_a_model_holds_it() -> None:
    from checker.models import processes_table

    slots = processes.Slots(1, 1)
    with planted(wrong("a start that fails keeps its slot")):
        assert processes_table.fails(slots) == slots
    assert processes_table.fails(slots) == processes.Slots(1, 0)


def test_a_model_runs_what_is_planted_in_the_rules() -> None:
    from checker.models import bootstrap_exec

    record = execs.Record(execs.Phase.EXITED)
    with planted(wrong("polling takes the output")):
        assert bootstrap_exec.poll(record) != (record, (record.phase, True))
    assert bootstrap_exec.poll(record) == (record, (record.phase, True))


def test_a_name_is_taken_once() -> None:
    wrong("no exec is busy")
    with pytest.raises(ValueError, match="two faults 'no exec is busy'"):
        fault("no exec is busy", "agentd.rules.execs", "busy")(lambda right, record: False)


def test_every_property_names_a_witness_and_known_faults() -> None:
    known = seeded()
    for key in models.every(default_only=False):
        model = models.load(key)
        for prop in model.properties:
            if isinstance(prop, (Sometimes, SometimesOnEdge)) or prop.name in model.violates:
                continue
            assert prop.witness, (key, prop.name)
            assert prop.faults, (key, prop.name)
            assert set(prop.faults) <= known.keys(), (key, prop.name)


def test_there_are_as_many_as_asked_for() -> None:
    properties = {
        (models.load(key).name, prop.name)
        for key in models.every()
        for prop in models.load(key).properties
        if not isinstance(prop, (Sometimes, SometimesOnEdge))
    }
    assert len(properties) >= 60
    assert len(seeded()) >= 150


@pytest.mark.parametrize(
    "key",
    [
        "bootstrap_exec",
        "output",
        "stdin",
        "lifecycle:drain",
        "hooks",
        "processes:slots",
        "processes:polls",
        "processes:stdin",
        "tunnel:handshake",
        "tunnel:plain",
        "product:small",
    ],
)
def test_named_faults_break_the_properties(key: str) -> None:
    assert list(strict.complaints([models.load(key)])) == []


def test_explanations_are_of_faults_there_are() -> None:
    names = {name.partition(":")[0] for name in (one.name for one in mutants())} | seeded().keys()
    assert EXPLAINED.keys() <= names


def test_a_row_of_the_matrix() -> None:
    bases = [baseline("stdin:writes"), baseline("lifecycle:drain")]
    row = matrix.row(wrong("a time-out closes"), bases, everything=True)
    assert row.fate is Fate.KILLED
    assert row.checked == ("stdin:writes",)
    assert ("stdin:writes", "a refused write changes nothing") in row.killers


def test_a_named_fault_is_put_to_those_who_name_it() -> None:
    base = baseline("stdin:writes")
    naming = {"stdin:writes": ["a refused write changes nothing", "stdin never opens again"]}
    row = matrix.named_row(wrong("a time-out closes"), [base, baseline("lifecycle:drain")], naming)
    assert row.fate is Fate.KILLED
    assert row.killers == (("stdin:writes", "a refused write changes nothing"),)
    assert row.checked == ("stdin:writes",)


def test_liveness_is_among_what_a_named_fault_breaks() -> None:
    names = ["every stdin is closed in the end"]
    assert matrix.broken(wrong("publishing leaves stdin open"), baseline("stdin:writes"), names) == names
    assert matrix.broken(wrong("a time-out closes"), baseline("stdin:writes"), names) == []


def test_the_matrix_of_everything_has_more_killers() -> None:
    named = matrix.matrix(["stdin"], automatic=False, jobs=1)
    everything = matrix.matrix(["stdin"], automatic=False, everything=True, jobs=1)
    assert [row.fault for row in named.rows] == [row.fault for row in everything.rows]
    assert everything.unbroken == named.unbroken == ()
    for few, all_of_them in zip(named.rows, everything.rows, strict=True):
        assert set(few.killers) <= set(all_of_them.killers)
    assert sum(len(row.killers) for row in everything.rows) > sum(len(row.killers) for row in named.rows)


def test_a_fault_nobody_can_notice_survives() -> None:
    nothing = Fault("nothing is wrong", "agentd.rules.execs", "busy", lambda right: right)
    row = matrix.row(nothing, [baseline("bootstrap_exec")], everything=True)
    assert (row.fate, row.killers, row.explained) == (Fate.SURVIVED, (), "")


def test_a_fault_that_only_changes_counts_drifts() -> None:
    def uncounted(right: object) -> object:
        def began(state: object) -> object:
            then = right(state)  # type: ignore[operator]
            return then if then.in_flight < 3 else state

        return began

    drift = Fault("the third is not counted", "agentd.rules.lifecycle", "request_began", uncounted)  # type: ignore[arg-type]
    base = baseline("lifecycle:drain")
    killers, drifted = matrix.noticed(drift, base, everything=True)
    assert drifted
    assert killers


def test_the_seeded_matrix_of_a_model() -> None:
    found = matrix.matrix(["output:one_reader"], automatic=False, jobs=2)
    assert {row.fate for row in found.rows} == {Fate.KILLED}
    assert found.unkillable == ()
    assert found.unbroken == ()
    assert found.survivors() == []


def test_the_automatic_matrix_of_a_model() -> None:
    seen: list[tuple[int, int]] = []
    found = matrix.matrix(["stdin"], jobs=1, tell=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(found.rows), len(found.rows))
    assert found.survivors() == []
    assert sum(row.fate is Fate.KILLED for row in found.rows) >= 0.98 * len(found.rows)


def test_a_matrix_needs_a_model_that_is_right() -> None:
    with planted(wrong("a time-out closes")), pytest.raises(ModelError, match="without any fault"):
        matrix.matrix(["stdin"], jobs=1)


def test_strict_complains() -> None:
    from attrs import evolve

    model = models.load("stdin")
    props = list(model.properties)
    props[1] = evolve(props[1], faults=("no such fault", "publishing leaves stdin open"))
    props[2] = evolve(props[2], witness="", faults=())
    told = list(strict.complaints([evolve(model, properties=tuple(props))]))
    assert f"stdin:writes: {props[1].name}: names unknown fault 'no such fault'" in told
    assert f"stdin:writes: {props[1].name}: is not broken by 'publishing leaves stdin open'" in told
    assert f"stdin:writes: {props[2].name}: names no witness of its antecedent" in told
    assert f"stdin:writes: {props[2].name}: names no fault that breaks it" in told

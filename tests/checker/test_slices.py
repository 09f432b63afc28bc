"""Slices of state graphs: what is in them, what is said to be left out, and the command that writes them."""

import json
from collections.abc import Hashable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker import models as known
from checker.check import asked
from checker.cli import main
from checker.model import Component, Event, Model, ModelError, Values, run_event
from checker.naive import explore
from checker.properties import Always, Fair, LeadsTo, OnEdge, Sometimes
from checker.report.slice_data import slice_data
from checker.report.slices import Slice, quotient, take, whole
from checker.slicing import cut
from tests.checker.systems import counter, counters, models, switch

BROKEN = "bootstrap_exec:deployment_invariant_broken"
ATTACKED = "run:attacker never authorized"
ENOUGH = 10_000


def names(part: Slice, node: int) -> list[tuple[str, int | None]]:
    """What is offered in a node, and where it leads."""
    return [(offer.event.name, offer.to) for offer in part.nodes[node].offers]


def follows(part: Slice) -> None:
    """Every offer is what its event does, distances are right, and no arc leads more than one layer down."""
    place = part.model.index()
    for number, node in enumerate(part.nodes):
        offered = {offer.event: offer for offer in node.offers}
        for event in part.model.events:
            ran = run_event(event, tuple(node.values[place[name]] for name in event.reads))
            if ran is None:
                assert event not in offered
                continue
            then = list(node.values)
            for name, value in zip(event.writes, ran[0], strict=True):
                then[place[name]] = value
            offer = offered[event]
            assert offer.response == ran[1]
            if offer.to is None:
                assert tuple(then) not in [other.values for other in part.nodes]
            else:
                assert part.nodes[offer.to].values == tuple(then)
                assert part.nodes[offer.to].depth <= node.depth + 1
        parent = part.nodes[node.parent]
        if number == 0:
            assert (node.parent, node.depth) == (0, 0)
        else:
            assert node.depth == parent.depth + 1
            assert number in {offer.to for offer in parent.offers}


@given(models())
def test_the_whole_graph_is_the_graph(model: Model) -> None:
    part = take(model, "all", ENOUGH)
    assert part.complete
    assert part.note == ""
    assert part.nodes[0].values == model.initial
    assert len({node.values for node in part.nodes}) == len(part.nodes) == explore(model).states
    follows(part)


@given(models(), st.integers(1, 8))
def test_a_bound_keeps_the_nearest_states_and_says_so(model: Model, most: int) -> None:
    part, full = whole(model, most), whole(model, ENOUGH)
    assert [node.values for node in part.nodes] == [node.values for node in full.nodes][:most]
    assert part.complete == (len(full.nodes) <= most)
    assert ("Only" in part.note) == (not part.complete)
    follows(part)


@given(models())
def test_a_slice_for_a_property_is_the_graph_of_what_it_depends_on(model: Model) -> None:
    full = whole(model, ENOUGH)
    for prop in model.properties:
        part = take(model, f"property:{prop.name}", ENOUGH)
        kept = [model.index()[component.name] for component in part.components]
        assert set(prop.reads) <= {component.name for component in part.components}
        assert {node.values for node in part.nodes} == {
            tuple(node.values[place] for place in kept) for node in full.nodes
        }
        follows(part)


@given(models(), st.data())
def test_a_quotient_has_a_node_for_each_class_and_an_arc_for_each_way(
    model: Model, data: st.DataObject
) -> None:
    every = [component.name for component in model.components]
    shown = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    part, full = take(model, f"components:{','.join(shown)}", ENOUGH), whole(model, ENOUGH)
    places = [model.index()[name] for name in shown]

    def seen(values: Values) -> Values:
        return tuple(values[place] for place in places)

    ways: set[tuple[Values, str, Hashable, Values]] = set()
    for node in full.nodes:
        for offer in node.offers:
            assert offer.to is not None
            then = seen(full.nodes[offer.to].values)
            if then != seen(node.values):
                ways.add((seen(node.values), offer.event.name, offer.response, then))
    drawn = [
        (node.values, offer.event.name, offer.response, part.nodes[offer.to].values)
        for node in part.nodes
        for offer in node.offers
        if offer.to is not None
    ]
    assert part.complete
    assert [component.name for component in part.components] == shown
    assert sorted(map(repr, drawn)) == sorted(map(repr, ways))
    assert {node.values for node in part.nodes} == {seen(node.values) for node in full.nodes}
    assert len({node.values for node in part.nodes}) == len(part.nodes)


def test_a_quotient_that_is_too_large_says_what_is_left_out() -> None:
    part = quotient(counters(2, 3), ["n0"], 2)
    assert [node.values for node in part.nodes] == [(0,), (1,)]
    assert names(part, 1) == [("up n0", None)]
    assert not part.complete
    assert part.note.endswith("2 of 4 nodes are left out.")
    assert part.note.startswith("A node stands for all states that agree")


def test_a_component_named_twice_is_shown_once() -> None:
    part = take(counters(2, 1), "components: n1 , n0,n1", 10)
    assert [component.name for component in part.components] == ["n1", "n0"]


def test_a_quotient_of_more_states_than_are_searched_is_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checker.report.slices.SEARCHED", 6)
    part = quotient(counters(2, 3), ["n0", "n1"], 100)
    assert len(part.nodes) == 6
    assert not part.complete
    assert part.note.endswith("Made of the 6 states nearest to the first.")
    # The ways to classes that nobody has seen are there, and lead out.
    assert None in {offer.to for node in part.nodes for offer in node.offers}


def test_the_run_of_a_counterexample() -> None:
    part = take(known.load(BROKEN), ATTACKED, 100)
    assert part.title == f"{BROKEN}: attacker never authorized: violated"
    assert part.note.startswith("No control request that bears the attacker's token is served (j.1).")
    assert part.run is not None
    taken = [part.nodes[node].offers[offer] for node, offer in part.run]
    assert [offer.event.name for offer in taken] == [
        "attacker posts the run hook",
        "somebody presents 'Bearer A'",
    ]
    assert part.run[1][0] == taken[0].to == taken[1].to
    assert part.complete
    # One step off the run, and no further.
    path = {0, taken[0].to}
    beside = {offer.to for node in path if node is not None for offer in part.nodes[node].offers}
    assert path | beside == set(range(len(part.nodes)))
    follows(part)


def test_a_run_is_whole_however_few_states_there_may_be() -> None:
    model = counter(5, (Always(name="p", reads=("n",), holds=lambda n: n < 3),))
    part = take(model, "run:p", 1)
    assert [node.values for node in part.nodes] == [(0,), (1,), (2,), (3,)]
    assert part.run == ((0, 0), (1, 0), (2, 0))
    assert not part.complete
    assert part.note.endswith("Some of those are left out: only 4 states are here.")
    assert take(model, "run:p", 5).complete


def test_a_witness_is_a_run() -> None:
    part = take(counter(5, (Sometimes(name="p", reads=("n",), holds=lambda n: n == 2),)), "run:p", 10)
    assert part.title == "counter:one: p: witnessed"
    assert part.run == ((0, 0), (1, 0))


def test_a_property_that_the_first_state_decides_has_a_run_without_steps() -> None:
    part = take(counter(2, (Always(name="p", reads=("n",), holds=lambda n: n > 0),)), "run:p", 10)
    assert part.run == ()
    assert len(part.nodes) == 2


def test_an_edge_that_changes_nothing_is_a_step_of_the_run() -> None:
    ask = Event("ask", "ask", "somebody", ("n",), (), lambda n: ((), "no"), lambda n: n == 1)
    base = counter(2)
    prop = OnEdge(name="p", kinds=frozenset({"ask"}), holds=lambda edge: edge.response == "yes")
    part = take(Model("m", "one", base.components, (*base.events, ask), (prop,)), "run:p", 10)
    assert part.run == ((0, 0), (1, 1))
    assert part.nodes[1].offers[1].to == 1


def test_a_lasso_is_a_run_that_goes_on() -> None:
    fair = (Fair(frozenset({"round"})),)
    never = LeadsTo(name="p", reads=("node",), when=lambda n: n == 0, then=lambda n: n == 9, fair=fair)
    part = take(switch({"round": ((0, 1), (1, 2), (2, 1))}, (never,)), "run:p", 10)
    assert part.run is not None
    assert part.loop is not None
    node, offer = part.run[-1]
    assert part.nodes[node].offers[offer].to == part.run[part.loop][0]


def fail(n: int) -> NoReturn:
    raise RuntimeError("out of order")


def test_a_rule_that_does_not_return_is_in_the_slice_and_has_a_run() -> None:
    base = counter(2)
    broken = Event("break", "break", "somebody", ("n",), ("n",), fail, lambda n: n == 1)
    model = Model("m", "one", base.components, (*base.events, broken))
    part = take(model, "run:every rule returns", 10)
    assert part.run == ((0, 0), (1, 1))
    offer = part.nodes[1].offers[1]
    assert (offer.to, offer.error) == (1, "RuntimeError: out of order")
    with pytest.raises(
        ModelError, match="counter:one: every rule returns: holds, so there is no run to show"
    ):
        take(base, "run:every rule returns", 10)


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("", "no slice '': all, property:NAME, components:A,B or run:PROPERTY"),
        ("everything", "no slice 'everything': all, "),
        ("run:", "no slice 'run:'"),
        ("property:nope", "counter:one has no property 'nope'"),
        ("run:nope", "counter:one has no property 'nope'"),
        ("run:p", "counter:one: p: holds, so there is no run to show"),
        ("run:q", "counter:one: q: unwitnessed, so there is no run to show"),
        ("components:n,m", "counter:one has no component 'm'; it has n"),
        ("components:n,", "counter:one has no component ''; it has n"),
    ],
)
def test_what_there_is_not(what: str, complaint: str) -> None:
    props = (
        Always(name="p", reads=("n",), holds=lambda n: True),
        Sometimes(name="q", reads=("n",), holds=lambda n: False),
    )
    with pytest.raises(ModelError) as told:
        take(counter(1, props), what, 10)
    assert str(told.value).startswith(complaint)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("key", list(known.every()))
def test_every_model_has_slices(key: str) -> None:
    model = known.load(key)
    part = take(model, "all", 40)
    assert part.nodes[0].values == model.initial
    first = take(model, f"property:{model.properties[0].name}", 40)
    assert first.components == cut(model, asked(model, [model.properties[0].name]).properties).components
    assert take(model, f"components:{model.components[0].name}", 40).nodes


def test_data_of_a_slice() -> None:
    told = json.loads(json.dumps(slice_data(take(known.load(BROKEN), ATTACKED, 100))))
    assert (told["model"], told["digest"]) == (BROKEN, known.load(BROKEN).digest())
    assert told["complete"] is True
    assert told["loop"] is None
    assert [component["name"] for component in told["components"]] == [
        "boot",
        "hooks_seen",
        "exec.0",
        "exec.1",
    ]
    first = told["nodes"][0]
    assert first["state"] == ["(Bootstrap(token=none), nobody)", "0", "none", "none"]
    offer = first["offers"][told["run"][0]["offer"]]
    assert offer["event"] == "attacker posts the run hook"
    assert (offer["actor"], offer["response"], offer["error"]) == ("attacker", "installed", None)
    assert offer["changes"] == {"boot": "token=none -> set, nobody -> attacker", "hooks_seen": "0 -> 1"}
    assert told["nodes"][offer["to"]]["parent"] == 0
    assert slice_data(take(counter(1), "all", 1))["run"] is None
    assert slice_data(take(counter(1), "all", 1))["nodes"][0]["offers"][0] == {
        "event": "up",
        "kind": "up",
        "actor": "clock",
        "response": "1",
        "error": None,
        "to": None,
        "changes": {},
    }


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(("slice", *arguments))
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.parametrize(
    ("how", "begins"), [("svg", "<svg "), ("dot", "digraph "), ("html", "<!doctype html>"), ("json", "{\n")]
)
def test_the_command_writes_each_format(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, how: str, begins: str
) -> None:
    file = tmp_path / "slice"
    assert run(capsys, BROKEN, ATTACKED, "--format", how, "--output", str(file)) == (0, "", "")
    text = file.read_text("utf-8")
    assert text.startswith(begins)
    assert "attacker posts the run hook" in text
    assert run(capsys, BROKEN, ATTACKED, "--format", how) == (0, text, "")


def test_the_command_draws_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "stdin", "all")
    assert (code, err) == (0, "")
    assert out.startswith("<svg ")


def test_a_slice_that_lacks_something_is_written_and_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "output", "all", "--most", "5", "--format", "json")
    assert code == 3
    assert len(json.loads(out)["nodes"]) == 5
    assert err == "checker: incomplete: Only the 5 states nearest to the first are here.\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nope", "all"), "checker: no model 'nope'; there are bootstrap_exec"),
        (("stdin:nope", "all"), "checker: model 'stdin' has no configuration 'nope'; it has writes\n"),
        (("stdin", "nope"), "checker: no slice 'nope': all, property:NAME, components:A,B or run:PROPERTY\n"),
        (("stdin", "run:nope"), "checker: stdin:writes has no property 'nope'\n"),
        (("stdin", "property:nope"), "checker: stdin:writes has no property 'nope'\n"),
        (("stdin", "run:stdin never opens again"), "never opens again: holds, so there is no run to show\n"),
        (("stdin", "components:nope"), "checker: stdin:writes has no component 'nope'; it has stdin\n"),
        (("stdin",), "the following arguments are required: WHAT\n"),
        (("stdin", "all", "--most", "0"), "argument --most: invalid positive integer value: '0'\n"),
        (("stdin", "all", "--most", "x"), "argument --most: invalid positive integer value: 'x'\n"),
        (("stdin", "all", "--format", "pdf"), "argument --format: invalid choice: 'pdf'"),
        (
            ("stdin", "all", "--output", "/nonexistent/file"),
            "No such file or directory: '/nonexistent/file'\n",
        ),
    ],
)
def test_bad_usage_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


def test_a_component_without_events_is_a_graph_of_one_state() -> None:
    part = take(Model("m", "one", (Component("n", 0),), ()), "all", 10)
    assert [(node.values, node.offers) for node in part.nodes] == [((0,), ())]
    assert part.complete

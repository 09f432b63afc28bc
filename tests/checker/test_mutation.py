"""Automatic faults: each operator applies where it should, and what it makes runs."""

from collections.abc import Callable

import pytest

from checker.faults import Fault, planted
from checker.mutation import changes, functions, mutants, mutated
from tests.checker import sample_rules
from tests.checker.sample_rules import Light, Pair, decide, flag


def told(name: str) -> list[str]:
    function = dict(functions(sample_rules))[name]
    return [f"{change.operator}: {change.told}" for change in changes(function, sample_rules)]


def versions(name: str) -> list[Callable[..., object]]:
    function = dict(functions(sample_rules))[name]
    return [mutated(sample_rules, name, change) for change in changes(function, sample_rules)]


@pytest.mark.parametrize(
    "line",
    [
        "negate: if light is Light.GREEN and pair.left <= 3  →  if not (light is Light.GREEN and pair.left <= 3)",
        "negate: light is Light.GREEN  →  light is not Light.GREEN",
        "bound: pair.left <= 3  →  pair.left < 3",
        "negate: pair.left <= 3  →  not pair.left <= 3",
        "number: 3  →  4",
        "connect: light is Light.GREEN and pair.left <= 3  →  light is Light.GREEN or pair.left <= 3",
        "connect: light is Light.GREEN and pair.left <= 3  →  pair.left <= 3",
        "connect: light is Light.GREEN and pair.left <= 3  →  light is Light.GREEN",
        "member: Light.GREEN  →  Light.RED",
        "member: Light.RED  →  Light.AMBER",
        "number: pair.left + 1  →  pair.left - 1",
        "number: min(pair.right, 7)  →  max(pair.right, 7)",
        "update: evolve(pair, right=0)  →  evolve(pair)",
        "connect: light is Light.RED or not pair.low  →  light is Light.RED and (not pair.low)",
    ],
)
def test_an_operator_applies(line: str) -> None:
    assert line in told("decide")


def test_every_version_runs_and_most_differ() -> None:
    inputs = [(Pair(left, right), light) for left in range(6) for right in (0, 5, 9) for light in Light]
    right = [decide(*given) for given in inputs]
    found = versions("decide")
    assert len(found) > 20
    differing = [one for one in found if [one(*given) for given in inputs] != right]
    assert len(differing) >= len(found) - 1


def test_flags_and_methods() -> None:
    assert told("flag") == ["flag: True  →  False"]
    assert [version() for version in versions("flag")] == [False]
    assert flag()
    assert "bound: self.left < 3  →  self.left <= 3" in told("Pair.low")
    assert versions("Pair.low")[0](Pair(3))


def test_docstrings_are_left_alone() -> None:
    assert not any("place for every" in line for line in told("decide"))


def test_names_are_unique_and_stable() -> None:
    names = [one.name for one in mutants()]
    assert len(names) == len(set(names))
    assert names == [one.name for one in mutants()]
    assert len(names) >= 150


def test_every_automatic_fault_can_be_planted() -> None:
    for one in mutants(("execs", "bootstrap", "stdin")):
        with planted(one):
            pass


def test_a_planted_version_is_what_runs() -> None:
    one = next(fault for fault in mutants(("execs",)) if fault.name.startswith("execs.busy negate 1"))
    assert isinstance(one, Fault)
    from agentd.rules import execs

    with planted(one):
        assert not execs.busy(execs.Record())
    assert execs.busy(execs.Record())

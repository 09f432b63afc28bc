"""Events that depend on more than their footprint are caught, and not by wrong counts."""

from collections.abc import Hashable
from itertools import count

import pytest

from checker import footprints
from checker.model import Component, Event, Model
from checker.models import every, load
from tests.checker.systems import counters


def model(effect: object, guard: object = None, reads: tuple[str, ...] = ("n",)) -> Model:
    event = Event("bad", "bad", "a", reads, ("n",), effect, guard)  # type: ignore[arg-type]
    up = Event("up m", "up", "a", ("m",), ("m",), lambda m: ((m + 1,), None), lambda m: m < 3)
    return Model("m", "c", (Component("n", 0), Component("m", 0)), (event, up))


@pytest.mark.parametrize("key", list(every()))
def test_the_models_have_true_footprints(key: str) -> None:
    found = footprints.check(load(key))
    assert found.wrong == ()
    assert found.tried > 0


def test_an_effect_that_remembers() -> None:
    calls = count()
    found = footprints.check(model(lambda n: ((min(n + 1, 2) if next(calls) % 2 else n,), None)))
    assert any("writes by something outside of its footprint" in line for line in found.wrong)


def test_an_answer_that_remembers() -> None:
    calls = count()
    found = footprints.check(model(lambda n: ((0,), next(calls))))
    assert found.wrong == ("event 'bad' answers by something outside of its footprint",)


def test_a_guard_that_remembers() -> None:
    calls = count()
    found = footprints.check(model(lambda n: ((0,), None), lambda n: next(calls) % 2 == 0))
    assert found.wrong == ("event 'bad' is enabled by something outside of its footprint",)


def test_an_effect_that_fails_only_sometimes() -> None:
    calls = count()

    def effect(n: int) -> tuple[tuple[int], None]:
        if next(calls) > 1:
            raise KeyError(n)
        return (0,), None

    found = footprints.check(model(effect))
    assert found.wrong == ("event 'bad' raised KeyError where it did not before",)


class Cell:
    """A value that can be changed, which no value of a component may be."""

    def __init__(self) -> None:
        self.content = 0

    def __hash__(self) -> int:
        return self.content

    def __eq__(self, other: object) -> bool:
        return self is other


def test_a_value_that_is_changed() -> None:
    cell = Cell()

    def effect(c: Cell) -> tuple[tuple[Hashable], None]:
        c.content += 1
        return (c,), None

    event = Event("bad", "bad", "a", ("c",), ("c",), effect)
    other = Event("up", "up", "a", ("m",), ("m",), lambda m: ((m + 1,), None), lambda m: m < 1)
    with_cell = Model("m", "c", (Component("c", cell), Component("m", 0)), (event, other))
    assert "event 'bad' changed a value it was given" in footprints.check(with_cell).wrong


def test_a_read_without_effect_is_told() -> None:
    found = footprints.check(model(lambda n, m: ((min(n + 1, 2),), None), reads=("n", "m")))
    assert found.wrong == ()
    assert found.idle_reads == (("bad", "m"),)


def test_the_same_seed_tries_the_same() -> None:
    assert footprints.check(counters(2, 3), seed=5) == footprints.check(counters(2, 3), seed=5)

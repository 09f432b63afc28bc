"""Trying orders: all with few deviations from the usual one, then random ones.

Theory of operation
-------------------
A schedule is a list of choices, one for each step: which of the enabled actions is done. Nothing else is left open, so
a list of choices and a scenario are a run, byte for byte, and a run is made anew for each list: a daemon in memory
costs less than a millisecond, which is less than undoing anything would.

The choice 0 is what a reactor without anything in its way would do. The search goes over every schedule in which at
most `bound` choices are others: most errors of order need few (context bounding: Musuvathi and Qadeer 2007), and the
number of schedules with at most `n` deviations is polynomial in their length. Behind the bound schedules are drawn at
random, from a seed.
"""

import random
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any, Final

from attrs import frozen
from twisted.logger import LogLevel, formatEvent, globalLogPublisher

from checker.model import ModelError
from checker.schedules.scenarios import Scenario
from checker.schedules.verdict import complaints

MOST_STEPS: Final = 400
"""Steps of a schedule, beyond which a scenario does not end."""

Choices = tuple[int, ...]


@frozen
class Ran:
    """One schedule, and what came of it."""

    scenario: str
    choices: Choices
    """Without the zeros at the end."""
    offered: tuple[int, ...]
    """How many actions were enabled at each step."""
    transcript: tuple[str, ...]
    wrong: tuple[str, ...]


@frozen
class Searched:
    """What a search of one scenario came to."""

    scenario: str
    schedules: int
    steps: int
    deviations: int
    """Up to how many deviations everything was tried."""
    exhausted: bool
    """Whether there are none with more deviations."""
    sampled: int
    """How many of the schedules were drawn at random."""
    complete: bool
    """Whether there was time for all that was asked for."""
    failed: Ran | None = None


class _Log:
    """What is logged as an error meanwhile."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, event: Any) -> None:
        if event.get("log_level", LogLevel.debug) >= LogLevel.error:
            failure = event.get("log_failure")
            self.lines.append(str(failure.type.__name__) if failure is not None else formatEvent(event))


def run(scenario: Scenario, choices: Sequence[int], pick: random.Random | None = None) -> Ran:
    """Run one schedule: these choices, and from then on the usual one, or one that is picked.

    Raises ModelError when a choice is not offered.
    """
    log: Any = _Log()
    globalLogPublisher.addObserver(log)
    try:
        stage = scenario.make()
        taken: list[int] = []
        offered: list[int] = []
        while actions := stage.enabled():
            if len(taken) >= MOST_STEPS:
                raise RuntimeError(f"{scenario.name}: {MOST_STEPS} steps, and still something can happen")
            choice = (
                choices[len(taken)]
                if len(taken) < len(choices)
                else pick.randrange(len(actions))
                if pick
                else 0
            )
            if not 0 <= choice < len(actions):
                raise ModelError(
                    f"{scenario.name}: at step {len(taken) + 1} there are {len(actions)} actions, and no {choice}"
                )
            taken.append(choice)
            offered.append(len(actions))
            stage.do(actions[choice])
        if len(taken) < len(choices):
            raise ModelError(f"{scenario.name}: over after {len(taken)} steps, and {len(choices)} are given")
        left = stage.finish()
    finally:
        globalLogPublisher.removeObserver(log)
    wrong = tuple(complaints(stage, log.lines, left))
    return Ran(scenario.name, _trimmed(taken), tuple(offered), tuple(stage.transcript), wrong)


def search(scenario: Scenario, bound: int, samples: int, seed: int, limit: float | None = None) -> Searched:
    """Try every schedule with at most `bound` deviations, then `samples` random ones; up to the first that is wrong, or
    for `limit` seconds."""
    over = None if limit is None else monotonic() + limit
    schedules = steps = drawn = 0
    exhausted = False
    for ran, deviations in _all(scenario, bound, samples, seed):
        if ran is None:
            exhausted = True
            break
        schedules += 1
        steps += len(ran.offered)
        drawn += deviations is None
        if ran.wrong:
            short = shortened(scenario, ran)
            return Searched(scenario.name, schedules, steps, bound, exhausted, drawn, True, short)
        if over is not None and monotonic() > over:
            return Searched(scenario.name, schedules, steps, bound, exhausted, drawn, False)
    return Searched(scenario.name, schedules, steps, bound, exhausted, drawn, True)


def _all(scenario: Scenario, bound: int, samples: int, seed: int) -> Iterator[tuple[Ran | None, int | None]]:
    """Schedules with how many deviations were allowed, then random ones; None once there are no others."""
    level: list[Choices] = [()]
    for deviations in range(bound + 1):
        following: list[Choices] = []
        for prefix in level:
            ran = run(scenario, prefix)
            yield ran, deviations
            # The next deviation comes behind the last one, so that no schedule is tried twice.
            for step in range(len(prefix), len(ran.offered)):
                usual = (*prefix, *(0 for _ in range(step - len(prefix))))
                following += [(*usual, other) for other in range(1, ran.offered[step])]
        level = following
        if not level:
            yield None, deviations
            return
    for number in range(samples):
        yield run(scenario, (), random.Random(f"{scenario.name}/{seed}/{number}")), None


def shortened(scenario: Scenario, found: Ran) -> Ran:
    """A schedule that is wrong in the same way, with fewer deviations and smaller ones."""

    def wrong(choices: Sequence[int]) -> Ran | None:
        try:
            ran = run(scenario, choices)
        except ModelError:
            return None
        return ran if ran.wrong and _kind(ran) == _kind(found) else None

    best = found
    improved = True
    while improved:
        improved = False
        for place, choice in enumerate(best.choices):
            for smaller in range(choice):
                candidate = (*best.choices[:place], smaller, *best.choices[place + 1 :])
                ran = wrong(candidate)
                if ran is not None and _weight(ran) < _weight(best):
                    best, improved = ran, True
                    break
            if improved:
                break
    return best


def _weight(ran: Ran) -> tuple[int, int, int]:
    return sum(choice > 0 for choice in ran.choices), sum(ran.choices), len(ran.choices)


def _kind(ran: Ran) -> str:
    """What is wrong, without the numbers."""
    return "".join(c for c in ran.wrong[0] if not c.isdigit())


def _trimmed(choices: Sequence[int]) -> Choices:
    last = max((place for place, choice in enumerate(choices) if choice), default=-1)
    return tuple(choices[: last + 1])


def as_text(choices: Sequence[int]) -> str:
    """A schedule as it is given on the command line."""
    return ".".join(map(str, choices)) or "0"


def parse(text: str) -> Choices:
    """The same back. Raises ModelError."""
    try:
        found = tuple(int(part) for part in text.split("."))
    except ValueError:
        raise ModelError(f"{text!r} is no schedule: numbers with dots between them") from None
    if any(choice < 0 for choice in found):
        raise ModelError(f"{text!r} is no schedule: numbers with dots between them")
    return _trimmed(found)

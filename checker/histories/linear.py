"""Whether a history of one exec is linearizable: whether the operations can be put in one order that explains it.

Theory of operation
-------------------
The order must keep real time (what was answered before something else was asked for comes first), and the sequential
specification, taken through it, must give every answer that a caller saw. The search is Wing and Gong's (1993): it
takes one operation after the other of those that may come next, and goes back where none fits. What was taken, as a
set, and the state it led to are all that what follows depends on, so that no pair of them is tried twice (Lowe 2017).
Deciding it is NP-complete, so the search has a budget, and one that is used up says *unknown*, never *yes*.

An operation without an answer may be taken at any time after it was asked for, with whatever answer, or never.
"""

from collections.abc import Sequence
from enum import Enum, unique
from math import inf
from typing import Final

from attrs import evolve, frozen

from checker.histories.history import Op, Operation
from checker.histories.specification import State, apply, silently

BUDGET: Final = 1_000_000
"""Pairs of a set of operations and a state that are looked at, for one exec."""


@unique
class Verdict(Enum):
    """What is known of a history."""

    LINEARIZABLE = "linearizable"
    NOT = "not linearizable"
    UNKNOWN = "unknown"
    """The budget was used up."""


@frozen
class Judged:
    """One exec's history, judged."""

    verdict: Verdict
    looked_at: int
    """Pairs of a set of operations and a state."""
    order: tuple[int, ...] = ()
    """Operations by number: an order that explains them all, or as many of them as any does."""
    state: State = State()
    """What that order leads to."""


def judge(operations: Sequence[Operation], ttl: float | None = None, budget: int = BUDGET) -> Judged:
    """Judge the history of one exec, which begins with an id that is not known."""
    begin = State()
    done = sum(1 << number for number, one in enumerate(operations) if not one.pending)
    best: tuple[int, ...] = ()
    best_state = begin
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[int, State, tuple[int, ...]]] = [(0, begin, ())]
    while stack:
        taken, state, order = stack.pop()
        if (taken, state) in seen:
            continue
        if len(seen) >= budget:
            return Judged(Verdict.UNKNOWN, len(seen), best, best_state)
        seen.add((taken, state))
        if len(order) > len(best):
            best, best_state = order, state
        if taken & done == done:
            return Judged(Verdict.LINEARIZABLE, len(seen), order, state)
        following = []
        for number in _next(operations, taken):
            operation = operations[number]
            at = inf if operation.responded is None else operation.responded
            for silent in silently(state, at, ttl):
                then, answers = apply(silent, operation)
                if operation.pending or any(answer.explains(operation) for answer in answers):
                    following.append((taken | 1 << number, then, (*order, number)))
        # The one that was asked for first is tried first.
        stack += reversed(following)
    return Judged(Verdict.NOT, len(seen), best, best_state)


def _next(operations: Sequence[Operation], taken: int) -> list[int]:
    """The operations that may be next: of those not taken, no other was answered before they were asked for."""
    left = [number for number in range(len(operations)) if not taken >> number & 1]
    first = min(
        (one.responded for one in map(operations.__getitem__, left) if one.responded is not None), default=inf
    )
    return [number for number in left if operations[number].invoked <= first]


def shortened(
    operations: Sequence[Operation], ttl: float | None = None, budget: int = BUDGET
) -> tuple[Operation, ...]:
    """Of a history that is not linearizable, a part that is not either.

    First the shortest beginning, up to an answer: what was asked for and not answered by then is pending. Then without
    polls that are not needed: they change nothing, so that leaving one out cannot make a history wrong. (A start that
    is left out can, which is why not more is.)
    """

    def wrong(part: Sequence[Operation]) -> bool:
        return judge(part, ttl, budget).verdict is Verdict.NOT

    ends = sorted(one.responded for one in operations if one.responded is not None)
    low, high = 0, len(ends) - 1
    while (
        low < high
    ):  # a beginning of a linearizable history is linearizable, so bisection finds the shortest
        middle = (low + high) // 2
        if wrong(_until(operations, ends[middle])):
            high = middle
        else:
            low = middle + 1
    part = list(_until(operations, ends[low]))
    for one in [one for one in part if one.op is Op.POLL]:
        rest = [other for other in part if other is not one]
        if wrong(rest):
            part = rest
    return tuple(part)


def _until(operations: Sequence[Operation], end: float) -> tuple[Operation, ...]:
    """What was known of a history at a time."""
    return tuple(
        one
        if one.responded is not None and one.responded <= end
        else evolve(one, responded=None, status=None, error=None, phase=None, outcome=False)
        for one in operations
        if one.invoked <= end
    )

"""What was found of a history, for a person to read."""

from collections.abc import Iterator, Sequence

from checker.histories.history import History, Operation
from checker.histories.linear import BUDGET, Judged, Verdict, judge, shortened
from checker.report.words import say


def judge_all(recorded: History, budget: int = BUDGET) -> dict[str, Judged]:
    """Each exec's history, judged."""
    return {name: judge(operations, recorded.ttl, budget) for name, operations in recorded.by_exec().items()}


def worst(judged: dict[str, Judged]) -> Verdict:
    """What the whole comes to."""
    found = {one.verdict for one in judged.values()}
    return next(
        (verdict for verdict in (Verdict.NOT, Verdict.UNKNOWN) if verdict in found), Verdict.LINEARIZABLE
    )


def report(recorded: History, judged: dict[str, Judged], budget: int = BUDGET) -> Iterator[str]:
    """A line of numbers, and for each exec that is not explained the operations that show it."""
    operations = recorded.operations
    pending = sum(one.pending for one in operations)
    overlapping = sum(map(_overlaps, recorded.by_exec().values()))
    looked_at = sum(one.looked_at for one in judged.values())
    yield (
        f"{len(operations):,} operations of {len({one.client for one in operations})} clients on {len(judged)} execs, "
        f"{overlapping:,} at the same time as another, {pending} without an answer; {looked_at:,} states looked at: "
        f"{worst(judged).value}"
    )
    for name, one in judged.items():
        if one.verdict is Verdict.UNKNOWN:
            yield f"  {name}: unknown: the budget of {budget:,} is used up"
        elif one.verdict is Verdict.NOT:
            yield from _not_explained(name, recorded, budget)


def _overlaps(operations: Sequence[Operation]) -> int:
    """How many operations on one exec begin while another is under way."""
    count, latest = 0, float("-inf")
    for one in operations:
        count += one.invoked <= latest
        latest = max(latest, one.invoked if one.responded is None else one.responded)
    return count


def _not_explained(name: str, recorded: History, budget: int) -> Iterator[str]:
    part = shortened(recorded.by_exec()[name], recorded.ttl, budget)
    judged = judge(part, recorded.ttl, budget)
    begin = part[0].invoked
    yield f"  {name}: NOT LINEARIZABLE: no order of these explains every answer"
    for number, one in enumerate(part):
        end = "     ?" if one.responded is None else f"{(one.responded - begin) * 1000:6.1f}"
        place = judged.order.index(number) + 1 if number in judged.order else "-"
        yield (
            f"    {place:>3}  {(one.invoked - begin) * 1000:6.1f} to {end} ms  client {one.client}: "
            f"{one.op.value}  =>  {_answer(one)}"
        )
    yield f"    In the order numbered the exec is then {say(judged.state.record)}, and none of the others fits."


def _answer(one: Operation) -> str:
    if one.pending:
        return "no answer"
    parts = [str(one.status), one.error, one.phase, "with the outcome" if one.outcome else None]
    return " ".join(part for part in parts if part)

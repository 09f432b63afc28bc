"""Are the footprints true? Runs each event amid components outside of its footprint, and with values swapped.

Theory of operation
-------------------
Engines answer an occurrence of an event from what it did on the same footprint before. That is right only if
the event is a function of the footprint: no module variable, no cache that shows, no attribute changed in a
value that is shared. So for each footprint found in a search, the event is run again for states that agree with
it on the footprint and differ elsewhere, with other events run in between, and every run has to

* answer and write what the remembered entry says;
* leave the values it was given as they were (their hashes are compared);
* write hashable values, as many as it declares.

A component that an event reads without its outcome ever depending on it is reported as well: nothing is wrong
with the counts then, but more footprints are told apart than there are.
"""

import random
from collections import defaultdict
from collections.abc import Hashable

from attrs import frozen

from checker.layout import FieldOverflowError
from checker.limits import Limits, Watch
from checker.model import Model, ModelError, Values, run_event
from checker.packed import Packed
from checker.table import Table

SURROUNDINGS = 3
"""States each footprint is tried in."""
STATES = 3_000
"""States that surroundings are taken from."""


@frozen
class Findings:
    """What was found wrong, and what only is a pity."""

    wrong: tuple[str, ...]
    idle_reads: tuple[tuple[str, str], ...]
    """Event and component: read, and without influence on what the event does in any state tried."""
    tried: int
    """Runs of events."""


def check(model: Model, seed: int = 0, states: int = STATES) -> Findings:
    """Try the events of a model in up to `states` of its states."""
    table = Table(model)
    found = _states(table, states)
    shuffle = random.Random(seed)
    wrong: dict[str, None] = {}
    idle: list[tuple[str, str]] = []
    trials: list[tuple[int, Values]] = []
    for number, event in enumerate(model.events):
        places = table.reads[number]
        surroundings: dict[Values, int] = defaultdict(int)
        for state in found:
            reads = tuple(state[place] for place in places)
            if surroundings[reads] < SURROUNDINGS:
                surroundings[reads] += 1
                trials.append((number, reads))
        idle += [(event.name, name) for name in _idle(table, number, list(surroundings))]
    # Runs of one footprint are spread over the whole: whatever is remembered elsewhere has been overwritten.
    shuffle.shuffle(trials)
    for number, reads in trials:
        complaint = _try(table, number, reads)
        if complaint:
            wrong[f"event {model.events[number].name!r} {complaint}"] = None
    return Findings(tuple(wrong), tuple(idle), len(trials))


def _states(table: Table, bound: int) -> list[Values]:
    """Some reachable states, as values: breadth first, so that they are varied."""
    space = Packed(table, judging=False)
    while True:
        try:
            seen = {space.initial: None}
            queue = [space.initial]
            watch = Watch(Limits(states=bound))
            for state in queue:
                for _, successor in space.expand(state)[2]:
                    if successor not in seen:
                        seen[successor] = None
                        queue.append(successor)
                if watch.exhausted(len(queue)):
                    break
            return [table.decode(space.layout.unpack(state)) for state in queue]
        except FieldOverflowError:
            space.reset()


def _try(table: Table, number: int, reads: Values) -> str | None:
    """Run an event and compare with what is remembered of it; what is wrong, or None."""
    event = table.model.events[number]
    numbers = tuple(table.number(p, v) for p, v in zip(table.reads[number], reads, strict=True))
    entry = table.entry(number, numbers)
    before = [hash(value) for value in reads]
    try:
        outcome = run_event(event, reads)
    except ModelError as error:
        return str(error)
    except Exception as error:
        same = entry is not None and bool(entry.raised)
        return None if same else f"raised {type(error).__name__} where it did not before"
    try:
        if [hash(value) for value in reads] != before:
            return "changed a value it was given"
        told = None if outcome is None else (tuple(map(hash, outcome[0])), outcome[1])
    except TypeError as error:
        return f"handed out a value that cannot be hashed ({error})"
    if (told is None) != (entry is None):
        return "is enabled by something outside of its footprint"
    if outcome is None or entry is None:
        return None
    written: tuple[Hashable, ...] = tuple(
        table.value(place, value) for place, value in zip(table.writes[number], entry.writes, strict=True)
    )
    if outcome[0] != written:
        return "writes by something outside of its footprint"
    if outcome[1] != entry.response:
        return "answers by something outside of its footprint"
    return None


def _idle(table: Table, number: int, footprints: list[Values]) -> list[str]:
    """The components read whose value never makes a difference: apart from them footprints agree in effect.

    A component whose own value is written back changed counts as making a difference.
    """
    event = table.model.events[number]
    found = []
    for column, name in enumerate(event.reads):
        if name in event.writes:
            continue
        outcomes: dict[Values, object] = {}
        values = {reads[column] for reads in footprints}
        for reads in footprints:
            rest = reads[:column] + reads[column + 1 :]
            numbers = tuple(table.number(p, v) for p, v in zip(table.reads[number], reads, strict=True))
            outcome = table.entry(number, numbers)
            if outcomes.setdefault(rest, outcome) != outcome:
                break
        else:
            if len(values) > 1:
                found.append(name)
    return found

"""A model as tables of small numbers, from which another checker can search it.

Theory of operation
-------------------
An event is a finite function of the few components it reads, so it can be written down: for each combination of their
values that is ever met, what it does. That takes the rules out of the question, and leaves what an oracle is to judge:
the *search*. What our engines do with these tables (packing, deltas, arrays, symmetry) is left to another program,
which has to find as many states, and the same violations.

A combination that our search never met is in no table. If another search meets it, one of them is wrong, so a miss is
an error there.
"""

from collections.abc import Iterator, Sequence

from attrs import frozen

from checker.model import Event, Model
from checker.properties import Always, OnEdge
from checker.report.states import after, pick
from checker.result import Result
from checker.table import Numbers, Table


@frozen
class Row:
    """What an event does on one combination of what it reads."""

    reads: Numbers
    writes: Numbers
    """The new numbers; empty when it is disabled, or its rule did not return."""
    enabled: bool


@frozen(eq=False)
class EventTable:
    """One event."""

    event: Event
    reads: Numbers
    """Places of components."""
    writes: Numbers
    rows: tuple[Row, ...]
    watch: Numbers
    """What the properties of its edges depend on."""
    bad: tuple[Numbers, ...]
    """Combinations of the watch on which it violates a property."""


@frozen(eq=False)
class StateTable:
    """A property of states, by the combinations it does not hold of."""

    prop: Always
    places: Numbers
    bad: tuple[Numbers, ...]


@frozen(eq=False)
class Tables:
    """A whole model."""

    model: Model
    initial: Numbers
    sizes: Numbers
    """Component to how many values it takes."""
    events: tuple[EventTable, ...]
    properties: tuple[StateTable, ...]
    states: int
    """Unique states, as our search has them."""
    complete: bool

    @property
    def rows(self) -> int:
        """How many combinations there are in all tables."""
        return sum(len(table.rows) for table in self.events)

    @property
    def violated(self) -> bool:
        """Whether some property of states or edges does not hold."""
        return any(table.bad for table in self.events) or any(table.bad for table in self.properties)


def tables(model: Model, most: int = 200_000) -> Tables:
    """The tables of a model, at most `most` states of it."""
    table = Table(model)
    edges = [prop for prop in model.properties if isinstance(prop, OnEdge)]
    open_ = set(edges)
    rows: list[dict[Numbers, Row]] = [{} for _ in model.events]
    bad: list[dict[Numbers, None]] = [{} for _ in model.events]
    judged: list[set[Numbers]] = [set() for _ in model.events]
    states = [table.initial]
    known = {table.initial}
    complete = True
    for state in states:  # which grows meanwhile
        for event in range(len(model.events)):
            row = _row(table, event, state, rows[event])
            if not row.enabled:
                continue
            entry = table.entry(event, row.reads)
            assert entry is not None
            watch = pick(state, table.watch[event])
            if watch not in judged[event]:
                judged[event].add(watch)
                if entry.raised or table.decides(event, watch, entry, open_):
                    bad[event][watch] = None
            then = after(table, event, entry, state)
            if then not in known:
                if len(states) >= most:
                    complete = False
                    continue
                known.add(then)
                states.append(then)
    return Tables(
        model,
        table.initial,
        tuple(table.size(place) for place in range(len(model.components))),
        tuple(
            EventTable(
                event,
                table.reads[number],
                table.writes[number],
                tuple(sorted(rows[number].values(), key=lambda row: row.reads)),
                table.watch[number],
                tuple(sorted(bad[number])),
            )
            for number, event in enumerate(model.events)
        ),
        tuple(_of_states(table, prop, states) for prop in model.properties if isinstance(prop, Always)),
        len(states),
        complete,
    )


def _row(table: Table, event: int, state: Numbers, rows: dict[Numbers, Row]) -> Row:
    reads = pick(state, table.reads[event])
    row = rows.get(reads)
    if row is None:
        gate = table.gates[event]
        offered = gate is None or table.offered(event, pick(state, gate))
        entry = table.entry(event, reads) if offered else None
        writes = () if entry is None or entry.raised else entry.writes
        row = rows[reads] = Row(reads, writes, entry is not None)
    return row


def _of_states(table: Table, prop: Always, states: Sequence[Numbers]) -> StateTable:
    places = tuple(table.place[name] for name in prop.reads)
    footprints = dict.fromkeys(pick(state, places) for state in states)
    return StateTable(
        prop, places, tuple(sorted(one for one in footprints if table.decided(prop, places, one)))
    )


def violations(result: Result) -> Iterator[str]:
    """The properties of a result that tables can show to be violated."""
    for prop in result.violations():
        if isinstance(prop, (Always, OnEdge)):
            yield prop.name


def plain(text: str) -> str:
    """What may stand in a comment, of C or of TLA+."""
    return "".join(c if " " <= c <= "~" else "?" for c in text).replace("*/", "* /")

"""A model in TLA+, for TLC (Lamport, "Specifying Systems", 2002).

Components are variables, an event is a set of tuples (what it reads, then what it writes) and the action that takes
one of them, and a property of states is an invariant: its variables are not a tuple that violates it. A property of
edges is an invariant too, of the states in which an edge would violate it. TLC's *distinct states* is the number of
unique states; a deadlock is none of its business, which ``-deadlock`` tells it.
"""

from collections.abc import Iterable, Iterator, Sequence

from checker.oracle.tables import EventTable, Tables, plain
from checker.table import Numbers

HEAD = r"""\* {key}, written for TLC. {states:,} states, as our own search has them{some}.
\*
\*   java -cp tla2tools.jar tlc2.TLC -deadlock -config {name}.cfg {name}.tla
\*
\* "distinct states found" has to be {states} when nothing is violated, and {violated} is violated.
"""


def tla(tables: Tables, name: str) -> dict[str, str]:
    """The module and its configuration, by file name."""
    module = "\n".join(_module(tables, name)) + "\n"
    config = ["INIT Init", "NEXT Next", *(f"INVARIANT {each}" for each in invariants(tables))]
    return {f"{name}.tla": module, f"{name}.cfg": "\n".join(config) + "\n"}


def invariants(tables: Tables) -> list[str]:
    """The names of the invariants."""
    found = [f"Right{number}" for number, table in enumerate(tables.events) if table.bad]
    return found + [f"Holds{number}" for number in range(len(tables.properties))]


def _module(tables: Tables, name: str) -> Iterator[str]:
    yield HEAD.format(
        key=tables.model.key,
        name=name,
        states=tables.states,
        some="" if tables.complete else ", which were cut off: the numbers will differ",
        violated="something" if tables.violated else "nothing",
    ).rstrip()
    yield f"---- MODULE {name} ----"
    yield "EXTENDS Integers"
    for place, part in enumerate(tables.model.components):
        yield rf"\* v{place}: {plain(part.name)}"
    count = len(tables.sizes)
    yield f"VARIABLES {', '.join(f'v{place}' for place in range(count))}"
    yield "Init ==" + "".join(rf" /\ v{place} = {number}" for place, number in enumerate(tables.initial))
    for number, table in enumerate(tables.events):
        yield from _event(number, table, count)
    for number, state in enumerate(tables.properties):
        yield rf"\* {plain(state.prop.name)}"
        yield f"Holds{number} == {_tuple(state.places)} \\notin {_set(state.bad)}"
    yield "Next ==" + "".join(rf" \/ Event{number}" for number in range(len(tables.events)))
    yield "===="


def _event(number: int, table: EventTable, count: int) -> Iterator[str]:
    yield rf"\* {plain(table.event.name)}"
    rows = [(*row.reads, *(row.writes or _same(table, row.reads))) for row in table.rows if row.enabled]
    writes = _written(table)
    yield f"Table{number} == {_set(rows)}"
    parts = [f"v{place} = t[{index + 1}]" for index, place in enumerate(table.reads)]
    parts += [f"v{place}' = t[{len(table.reads) + index + 1}]" for index, place in enumerate(writes)]
    rest = [f"v{place}" for place in range(count) if place not in writes]
    if rest:
        parts.append(f"UNCHANGED <<{', '.join(rest)}>>")
    yield rf"Event{number} == \E t \in Table{number} : " + r" /\ ".join(parts)
    if table.bad:
        yield f"Right{number} == {_tuple(table.watch)} \\notin {_set(table.bad)}"


def _written(table: EventTable) -> Numbers:
    """The places that a row has new numbers for: none when no row is of an event that returns."""
    return table.writes if any(row.writes for row in table.rows) else ()


def _same(table: EventTable, reads: Numbers) -> Numbers:
    """What a row writes that changes nothing: a rule that did not return."""
    now = dict(zip(table.reads, reads, strict=True))
    return tuple(now[place] for place in _written(table))


def _set(rows: Iterable[Sequence[int]]) -> str:
    return "{" + ", ".join(f"<<{', '.join(map(str, row))}>>" for row in rows) + "}"


def _tuple(places: Iterable[int]) -> str:
    return f"<<{', '.join(f'v{place}' for place in places)}>>"

"""The reachable states of a model for reports: every occurrence in each, those that change nothing included.

An engine counts occurrences and forgets them; a report wants to name them. So this is a plain breadth-first
search over tuples of numbers (`checker.table`), with a bound on the states it keeps, and nothing to make it fast
beyond what the table remembers.
"""

from collections.abc import Iterator, Sequence

from attrs import frozen

from checker.table import Entry, Numbers, Table


def occurrences(table: Table, state: Numbers) -> Iterator[tuple[int, Entry]]:
    """The events that are enabled in a state, by number, with what each does there."""
    for event, reads in enumerate(table.reads):
        gate = table.gates[event]
        if gate is not None and not table.offered(event, pick(state, gate)):
            continue
        entry = table.entry(event, pick(state, reads))
        if entry is not None:
            yield event, entry


def after(table: Table, event: int, entry: Entry, state: Numbers) -> Numbers:
    """The state an occurrence leads to; the same one when its rule did not return."""
    if entry.raised or not entry.writes:
        return state
    then = list(state)
    for place, number in zip(table.writes[event], entry.writes, strict=True):
        then[place] = number
    return tuple(then)


def pick(state: Numbers, places: Sequence[int]) -> Numbers:
    """The numbers of some components of a state."""
    return tuple([state[place] for place in places])


@frozen(eq=False)
class Reached:
    """States in breadth-first order, from the initial one."""

    table: Table
    states: Sequence[Numbers]
    complete: bool
    """Whether these are all of them; otherwise those nearest to the initial one."""


def reached(table: Table, most: int) -> Reached:
    """The states of a model, at most `most` of them."""
    states = [table.initial]
    known = {table.initial}
    for state in states:  # which grows meanwhile
        for event, entry in occurrences(table, state):
            then = after(table, event, entry, state)
            if then in known:
                continue
            if len(states) >= most:
                return Reached(table, states, False)
            known.add(then)
            states.append(then)
    return Reached(table, states, True)

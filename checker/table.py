"""The memory between a model and the engines: values as small numbers, rule calls as table entries.

Theory of operation
-------------------
An engine never sees a component's value. `Table` numbers the values of each domain in the order they turn up,
and runs an event's real function once for each combination of numbers it reads; every later state with that
combination is answered from the entry. 507 calls of rule functions covered 34 million transitions of the
prototype of this design.

An event's **watch** is what an engine looks an occurrence up by: the components the event reads, and those
that the properties speaking of it read. A property of edges then is a function of the watch as well, and is
judged when the entry is first needed, not on each occurrence. (A component that is only written stays out of
the watch, where it would but multiply the entries: the published encoding's `last` is one.)

Because numbers depend on the order of discovery alone, the journal of calls is enough to rebuild a table in
another process, which is how a checkpoint stores values it does not know how to write down.
"""

from collections.abc import Container, Hashable, Iterable, Sequence
from itertools import chain
from typing import Any

from attrs import frozen

from checker.model import Edge, Model, ModelError, Values, run_event
from checker.properties import Always, OnEdge, Property, Sometimes, SometimesOnEdge

RULES_RETURN = OnEdge(
    name="every rule returns",
    holds=lambda edge: True,
    meaning="No call of a rule raises: rules are total on what the daemon can hand them.",
)
"""Holds of every model without being listed in it. It needs no witness, and any fault may break it."""

Numbers = tuple[int, ...]


@frozen
class Entry:
    """What an event does on one combination of the values it reads."""

    writes: Numbers
    """The numbers of the new values, in the order of the event's `writes`."""
    response: Hashable
    raised: str = ""
    """The error of a rule that did not return; such an occurrence leads nowhere."""


UNKNOWN = Entry((), None, "not run yet")


class Table:
    """One model, compiled: numbering, effects, and the judgement of properties on footprints."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.place = model.index()
        self.calls = 0
        """How often an event's real function ran."""
        self.journal: list[tuple[int, Numbers]] = []
        """Those runs in order: event, and the numbers it read."""
        domains: dict[str, int] = {}
        self.domain = [domains.setdefault(c.domain or c.name, len(domains)) for c in model.components]
        """Component to domain."""
        self.values: list[list[Hashable]] = [[] for _ in domains]
        """Domain to its values, by number."""
        self._numbers: list[dict[Hashable, int]] = [{} for _ in domains]
        self.initial = tuple(self.number(place, value) for place, value in enumerate(model.initial))
        self.reads = [self._places(event.reads) for event in model.events]
        self.writes = [self._places(event.writes) for event in model.events]
        self._read_values = [[self.values[self.domain[place]] for place in reads] for reads in self.reads]
        self.gates = [None if event.when is None else self._places(event.when) for event in model.events]
        """Event to the components its guard takes, where those are fewer than it reads."""
        self._gates: list[dict[Numbers, bool]] = [{} for _ in model.events]
        self.judges: list[list[OnEdge | SometimesOnEdge]] = [
            [p for p in model.properties if isinstance(p, (OnEdge, SometimesOnEdge)) and p.about(event)]
            for event in model.events
        ]
        """Event to the properties that speak of it."""
        self.watch = [self._watch(number) for number in range(len(model.events))]
        names = [component.name for component in model.components]
        self._watched = [[(names[p], self.values[self.domain[p]]) for p in watch] for watch in self.watch]
        self._written = [[(names[p], self.values[self.domain[p]]) for p in writes] for writes in self.writes]
        self.states: list[tuple[Always | Sometimes, Numbers]] = [
            (p, self._places(p.reads)) for p in model.properties if isinstance(p, (Always, Sometimes))
        ]
        """The properties of states, with the components they read."""
        self._memo: list[dict[Numbers, Entry | None]] = [{} for _ in model.events]
        self.searched: object = None
        """What a complete search of the packed engine leaves for those who go over the same states again."""

    def number(self, place: int, value: Hashable) -> int:
        """The number of a value of the component at `place`, given out on first sight."""
        numbers = self._numbers[self.domain[place]]
        found = numbers.get(value)
        if found is None:
            found = numbers[value] = len(numbers)
            self.values[self.domain[place]].append(value)
        return found

    def value(self, place: int, number: int) -> Hashable:
        """The value of the component at `place` that has this number."""
        return self.values[self.domain[place]][number]

    def size(self, place: int) -> int:
        """How many values the component at `place` can have been seen with so far."""
        return len(self.values[self.domain[place]])

    def decode(self, state: Sequence[int]) -> Values:
        """A state of numbers as a state of values."""
        return tuple(self.value(place, number) for place, number in enumerate(state))

    def entry(self, event: int, reads: Numbers) -> Entry | None:
        """What the event does when the components it reads have these numbers; None when it is disabled."""
        memo = self._memo[event]
        entry = memo.get(reads, UNKNOWN)
        if entry is not UNKNOWN:
            return entry
        self.calls += 1
        self.journal.append((event, reads))
        memo[reads] = entry = self._run(event, reads)
        return entry

    def offered(self, event: int, gate: Numbers) -> bool:
        """What the guard of an event with a gate says to these numbers of the gate's components."""
        memo = self._gates[event]
        answer = memo.get(gate)
        if answer is None:
            guard, places = self.model.events[event].guard, self.gates[event]
            assert places is not None
            self.calls += 1
            answer = memo[gate] = guard is None or guard(*map(self.value, places, gate))
        return answer

    def _run(self, event: int, reads: Numbers) -> Entry | None:
        values = tuple([known[number] for known, number in zip(self._read_values[event], reads, strict=True)])
        try:
            outcome = run_event(self.model.events[event], values)
        except ModelError:
            raise
        except Exception as error:
            return Entry((), None, f"{type(error).__name__}: {error}")
        if outcome is None:
            return None
        written, response = outcome
        numbers = [
            self.number(place, value) for place, value in zip(self.writes[event], written, strict=True)
        ]
        return Entry(tuple(numbers), response)

    def coverage(self) -> dict[str, dict[Hashable, int]]:
        """Event name to response to the number of distinct footprints that gave it."""
        told: dict[str, dict[Hashable, int]] = {}
        for event, memo in zip(self.model.events, self._memo, strict=True):
            responses = told.setdefault(event.name, {})
            for entry in memo.values():
                if entry is not None and not entry.raised:
                    responses[entry.response] = responses.get(entry.response, 0) + 1
        return told

    def replay(self, journal: Iterable[tuple[int, Numbers]]) -> None:
        """Rebuild the numbering of another process from its journal.

        Raises ModelError when a number is not known by the time it is read: the rules have changed since.
        """
        for event, reads in journal:
            try:
                self.entry(event, tuple(reads))
            except IndexError:
                raise ModelError(f"{self.model.key}: the rules changed since this checkpoint") from None

    def edge(self, event: int, watch: Numbers, entry: Entry) -> Edge:
        """The occurrence a property judges."""
        before = {
            name: known[number] for (name, known), number in zip(self._watched[event], watch, strict=True)
        }
        after = dict(before)
        for (name, known), number in zip(self._written[event], entry.writes, strict=True):
            after[name] = known[number]
        return Edge(self.model.events[event], before, after, entry.response)

    def decides(self, event: int, watch: Numbers, entry: Entry, open_: Container[Property]) -> list[Property]:
        """Those of the properties speaking of this event that this occurrence decides.

        A property of all edges is decided by an occurrence it does not hold of, a `SometimesOnEdge` by one it
        does. Properties not in `open_` are not asked.
        """
        if entry.raised:
            return [RULES_RETURN] if RULES_RETURN in open_ else []
        asked = [prop for prop in self.judges[event] if prop in open_]
        if not asked:
            return []
        edge = self.edge(event, watch, entry)
        return [prop for prop in asked if _holds(prop, edge) is isinstance(prop, SometimesOnEdge)]

    def decided(self, prop: Always | Sometimes, places: Numbers, numbers: Numbers) -> bool:
        """Whether a state with these numbers at `places` decides a property of states (see `decides`)."""
        return _holds(prop, *map(self.value, places, numbers)) is isinstance(prop, Sometimes)

    def _places(self, names: Iterable[str]) -> Numbers:
        return tuple(self.place[name] for name in names)

    def _watch(self, event: int) -> Numbers:
        reads = self.reads[event]
        asked = self._places(chain.from_iterable(prop.reads for prop in self.judges[event]))
        return tuple(sorted({*reads, *asked}))


def _holds(prop: Always | Sometimes | OnEdge | SometimesOnEdge, *footprint: Any) -> bool:
    """A predicate that cannot cope with a value says no: a rule handed out something nobody expects."""
    try:
        return bool(prop.holds(*footprint))
    except (TypeError, AttributeError, ValueError, LookupError):
        return False

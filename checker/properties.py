"""What can be asked of a model: safety on states and edges, reachability, and liveness under fairness.

Theory of operation
-------------------
=================  ==========================================================  =========================
property           holds when                                                  counterexample
=================  ==========================================================  =========================
`Always`           its predicate holds in every reachable state                shortest path to a state
`OnEdge`           its predicate holds of every occurrence of its events       shortest path, last step
`Sometimes`        some reachable state satisfies it                           none (the space, exhausted)
`SometimesOnEdge`  some occurrence of its events satisfies it                  none
`LeadsTo`          every fair run from a `when` state reaches a `then` state   a lasso
`DeadlockFree`     every state without an enabled event is `final`             shortest path to a state
=================  ==========================================================  =========================

`unchanged_by`, `response_table` and `eventually` are common shapes of those.

A property reads a footprint, as events do, and its predicate is a pure function of the values in it: engines
evaluate it once per footprint. A property can hold for an uninteresting reason, because what it speaks of is
never reached or because nothing could break it. So each one that is not itself a `Sometimes` names a `witness`,
the `Sometimes` that shows its antecedent reached, and `faults`, seeded faults of the rules that must break it
(`checker.faults`); the absence of either is a finding of its own.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum, unique
from typing import Any

from attrs import field, frozen

from checker.model import Edge, Event

StatePredicate = Callable[..., bool]
"""Takes the values of the property's `reads`."""

EdgePredicate = Callable[[Edge], bool]


@frozen(eq=False, kw_only=True)
class Property:
    """What every property has."""

    name: str
    reads: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()
    """The kinds of events it speaks of; empty means every event, for a property of edges."""
    witness: str = ""
    faults: tuple[str, ...] = ()
    meaning: str = ""
    """One sentence for a reader, with the section of the contract."""


@frozen(eq=False, kw_only=True)
class Always(Property):
    """An invariant of states."""

    holds: StatePredicate


@frozen(eq=False, kw_only=True)
class OnEdge(Property):
    """An invariant of edges: `holds` gets an `Edge` with the property's and the event's footprints."""

    holds: EdgePredicate

    def about(self, event: Event) -> bool:
        """Whether it speaks of this event."""
        return not self.kinds or event.kind in self.kinds


@frozen(eq=False, kw_only=True)
class Sometimes(Property):
    """Some reachable state satisfies `holds`."""

    holds: StatePredicate


@frozen(eq=False, kw_only=True)
class SometimesOnEdge(Property):
    """Some occurrence of one of its events satisfies `holds`."""

    holds: EdgePredicate

    def about(self, event: Event) -> bool:
        """Whether it speaks of this event."""
        return not self.kinds or event.kind in self.kinds


@unique
class Strength(Enum):
    """What fairness promises about an event that could happen."""

    WEAK = "weak"
    """It happens eventually if it stays possible from some point on."""
    STRONG = "strong"
    """It happens eventually if it is possible again and again."""


@frozen
class Fair:
    """A promise about every single one of some events: each happens if it can, in the sense of `strength`.

    An occurrence that changes nothing is no occurrence, so that a run may always stutter unless an event
    promised to happen would change something.
    """

    kinds: frozenset[str]
    strength: Strength = Strength.WEAK
    about: Mapping[str, Hashable] = field(factory=dict)
    """Arguments its events must have: ``{"id": 0}`` promises nothing about other ids."""

    def covers(self, event: Event) -> bool:
        """Whether the promise is about this event."""
        return event.kind in self.kinds and self.about.items() <= event.args.items()


@frozen(eq=False, kw_only=True)
class LeadsTo(Property):
    """In every run that keeps the promises, a state satisfying `when` is followed by one satisfying `then`.

    Both take the values of `reads`; the same state may satisfy both.
    """

    when: StatePredicate
    then: StatePredicate
    fair: tuple[Fair, ...] = ()


@frozen(eq=False, kw_only=True)
class DeadlockFree(Property):
    """A state in which no event changes anything satisfies `final`, a predicate of `reads`."""

    final: StatePredicate


def eventually(
    name: str,
    reads: tuple[str, ...],
    then: StatePredicate,
    *,
    fair: tuple[Fair, ...],
    witness: str,
    faults: tuple[str, ...],
    meaning: str = "",
) -> LeadsTo:
    """Every run that keeps the promises reaches a state satisfying `then`."""
    return LeadsTo(
        name=name,
        reads=reads,
        when=_anywhere,
        then=then,
        fair=fair,
        witness=witness,
        faults=faults,
        meaning=meaning,
    )


def unchanged_by(
    name: str,
    kinds: Iterable[str],
    components: tuple[str, ...] | None = None,
    *,
    unless: EdgePredicate | None = None,
    witness: str,
    faults: tuple[str, ...],
    meaning: str = "",
) -> OnEdge:
    """Occurrences of events of `kinds` leave `components` as they were, except where `unless` says so.

    Without `components`, whatever the event could write is meant; it then has to read that as well.
    """

    def holds(edge: Edge) -> bool:
        if unless is not None and unless(edge):
            return True
        named = edge.event.writes if components is None else components
        return all(edge.before[name] == edge.after[name] for name in named)

    return OnEdge(
        name=name,
        reads=components or (),
        kinds=frozenset(kinds),
        holds=holds,
        witness=witness,
        faults=faults,
        meaning=meaning,
    )


def response_table(
    name: str,
    kinds: Iterable[str],
    reads: tuple[str, ...] = (),
    *,
    case: Callable[[Edge], Hashable],
    table: Mapping[Any, Hashable],
    spares: tuple[Hashable, ...] = (),
    witness: str,
    faults: tuple[str, ...],
    meaning: str = "",
) -> OnEdge:
    """Each occurrence falls in one case, and the table has the one response of that case.

    A case that is not in the table is a violation, as the table is the whole specification, unless it is one of
    those the property `spares`.
    """

    def holds(edge: Edge) -> bool:
        which = case(edge)
        return which in spares or (which in table and table[which] == edge.response)

    return OnEdge(
        name=name,
        reads=reads,
        kinds=frozenset(kinds),
        holds=holds,
        witness=witness,
        faults=faults,
        meaning=meaning,
    )


def _anywhere(*_values: Hashable) -> bool:
    return True

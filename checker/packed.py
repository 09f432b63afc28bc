"""States as single integers: the plain-Python engine, quick to start and shortest in its counterexamples.

Theory of operation
-------------------
Each component's number has a field of bits, and a state is the integer of its fields. For an event, three
integers are prepared: the mask of its watch, the mask of what it leaves alone, and for every value of the
masked state ever met the bits it puts in place of the rest. A successor then is

    state & keep | bits[state & watch]

and no function of the model runs, which makes half a million to a million transitions a second. A value that
does not fit its field makes the fields wider and the search start over; what the rules answered is kept.

With `symmetric`, a state is replaced by the least of those that exchanging interchangeable members makes of
it, so that one state of each orbit is searched. A trace is then put back in terms of the real members from
its end, where the property was decided, to its beginning, which every exchange maps to itself.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import permutations, product

from attrs import define, field

from checker.limits import Watch
from checker.model import Model, ModelError
from checker.properties import DeadlockFree, Property, Sometimes, SometimesOnEdge
from checker.result import Hit, Result, Step, Trace
from checker.table import RULES_RETURN, Entry, Numbers, Table

DISABLED = -1
FIRST_WIDTH = 5
"""Bits of a field before anything is known about it."""

Successor = tuple[int, int]
"""Event, and the packed state it leads to."""


class FieldOverflowError(Exception):
    """A component took more values than its field holds."""


class Layout:
    """Where each component's number sits in a packed state. No field crosses a multiple of WORD bits, so that
    a state can be cut into machine words."""

    WORD = 62

    def __init__(self, widths: Iterable[int]) -> None:
        self.widths = tuple(widths)
        shifts, end = [], 0
        for width in self.widths:
            if end // self.WORD != (end + width - 1) // self.WORD:
                end = (end // self.WORD + 1) * self.WORD
            shifts.append(end)
            end += width
        self.shifts = tuple(shifts)
        self.bits = end

    def pack(self, numbers: Iterable[int]) -> int:
        """A state of numbers as one integer. Raises FieldOverflowError when one does not fit."""
        state = 0
        for number, width, shift in zip(numbers, self.widths, self.shifts, strict=True):
            if number >> width:
                raise FieldOverflowError
            state |= number << shift
        return state

    def unpack(self, state: int) -> Numbers:
        """The numbers of a packed state."""
        return tuple(state >> s & (1 << w) - 1 for w, s in zip(self.widths, self.shifts, strict=True))

    def mask(self, places: Iterable[int]) -> int:
        """The bits of some components."""
        return sum((1 << self.widths[place]) - 1 << self.shifts[place] for place in set(places))

    def read(self, state: int, places: Iterable[int]) -> Numbers:
        """The numbers of some components."""
        return tuple(state >> self.shifts[p] & (1 << self.widths[p]) - 1 for p in places)

    def put(self, places: Iterable[int], numbers: Iterable[int]) -> int:
        """The bits of some components holding these numbers. Raises FieldOverflowError."""
        bits = 0
        for place, number in zip(places, numbers, strict=True):
            if number >> self.widths[place]:
                raise FieldOverflowError
            bits |= number << self.shifts[place]
        return bits


def roomy(table: Table, least: int = FIRST_WIDTH) -> Layout:
    """Fields for twice the values that the table has numbered."""
    places = range(len(table.model.components))
    return Layout(max(least, (2 * table.size(place) - 1).bit_length()) for place in places)


class Orbits:
    """The exchanges of interchangeable members, on packed states."""

    def __init__(self, model: Model, layout: Layout) -> None:
        place = model.index()
        self.layout = layout
        self.groups = [
            [tuple(place[name] for name in member) for member in group] for group in model.symmetry
        ]
        self._masks = [layout.mask(p for member in group for p in member) for group in self.groups]
        self._memo: list[dict[int, int]] = [{} for _ in self.groups]

    def least(self, state: int) -> int:
        """The representative of a state's orbit."""
        for group, mask, memo in zip(self.groups, self._masks, self._memo, strict=True):
            bits = memo.get(state & mask)
            if bits is None:
                members = sorted(self.layout.read(state, member) for member in group)
                bits = memo[state & mask] = self._put(group, members)
            state = state & ~mask | bits
        return state

    def orbit(self, state: int) -> Iterator[int]:
        """Every state that exchanges make of this one, itself first."""
        choices = []
        rest = state
        for group, mask in zip(self.groups, self._masks, strict=True):
            members = [self.layout.read(state, member) for member in group]
            choices.append([self._put(group, order) for order in permutations(members)])
            rest &= ~mask
        for bits in product(*choices):
            yield rest | sum(bits)

    def _put(self, group: list[Numbers], members: Iterable[Numbers]) -> int:
        return sum(self.layout.put(places, numbers) for places, numbers in zip(group, members, strict=True))


@define(eq=False)
class Packed:
    """A model on packed states: successors, judgements and traces, for any order of search."""

    table: Table
    symmetric: bool = False
    layout: Layout = field(init=False)
    orbits: Orbits | None = field(init=False, default=None)
    hits: dict[Property, Hit] = field(init=False, factory=dict)
    undecided: set[Property] = field(init=False, factory=set)
    rows: list[tuple[int, int, dict[int, int], int]] = field(init=False, factory=list)
    """For each event: watch mask, keep mask, bits by masked state, number of the event."""
    depth: int = field(init=False, default=0)
    """Steps to the states being expanded, for the hits found meanwhile."""
    _checks: list[tuple[int, set[int], list[tuple[Property, Numbers]]]] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        """Lay the fields out for what the table knows."""
        self.reset()

    @property
    def initial(self) -> int:
        """The packed initial state."""
        return self.layout.pack(self.table.initial)

    def reset(self, layout: Layout | None = None) -> None:
        """Forget every state and hit, keeping what the rules answered, with fields of a fitting width."""
        table = self.table
        layout = self.layout = layout or roomy(table)
        self.orbits = Orbits(table.model, layout) if self.symmetric and table.model.symmetry else None
        self.hits = {}
        self.undecided = {*table.model.properties, RULES_RETURN}
        whole = (1 << layout.bits) - 1
        self.rows = [
            (layout.mask(table.watch[event]), whole & ~layout.mask(table.writes[event]), {}, event)
            for event in range(len(table.model.events))
        ]
        by_mask: dict[int, list[tuple[Property, Numbers]]] = {}
        for prop, places in table.states:
            by_mask.setdefault(layout.mask(places), []).append((prop, places))
        self._checks = [(mask, set(), props) for mask, props in by_mask.items()]

    def fill(self, event: int, state: int) -> int:
        """Learn what an event does at a state, and judge the edge; its bits, or DISABLED."""
        mask, _, memo, _ = self.rows[event]
        table, layout = self.table, self.layout
        entry = table.entry(event, layout.read(state, table.reads[event]))
        bits = DISABLED
        if entry is not None:
            self._judge(event, state, entry)
            if not entry.raised:
                bits = layout.put(table.writes[event], entry.writes)
        memo[state & mask] = bits
        return bits

    def _judge(self, event: int, state: int, entry: Entry) -> None:
        watch = self.layout.read(state, self.table.watch[event])
        for prop in self.table.decides(event, watch, entry, self.undecided):
            self.undecided.discard(prop)
            self.hits[prop] = Hit(state, event, self.depth)

    def judge_states(self, states: list[int], depth: int) -> None:
        """Judge the properties of states on states met for the first time, `depth` steps from the start."""
        for mask, known, props in self._checks:
            for footprint in {state & mask for state in states} - known:
                known.add(footprint)
                for prop, places in props:
                    if prop in self.undecided and self.table.decided(
                        prop,  # type: ignore[arg-type]
                        places,
                        self.layout.read(footprint, places),
                    ):
                        state = next(state for state in states if state & mask == footprint)
                        self.undecided.discard(prop)
                        self.hits[prop] = Hit(state, None, depth)

    def judge_quiet(self, state: int) -> None:
        """Judge freedom from deadlock on a state in which no event changes anything."""
        for prop in self.table.model.properties:
            if isinstance(prop, DeadlockFree) and prop in self.undecided:
                places = [self.table.place[name] for name in prop.reads]
                values = map(self.table.value, places, self.layout.read(state, places))
                if not prop.final(*values):
                    self.undecided.discard(prop)
                    self.hits[prop] = Hit(state, None, self.depth)

    def successors(self, state: int) -> Iterator[Successor]:
        """Every enabled event with the state it leads to, which may be the same state."""
        for mask, keep, memo, event in self.rows:
            bits = memo.get(state & mask)
            if bits is None:
                bits = self.fill(event, state)
            if bits >= 0:
                yield event, state & keep | bits

    def step(self, event: int, state: int) -> Step:
        """One occurrence, in values."""
        table, layout = self.table, self.layout
        entry = table.entry(event, layout.read(state, table.reads[event]))
        if entry is None:
            raise ModelError(f"{table.model.events[event].name!r} cannot happen here")
        before = table.decode(layout.unpack(state))
        if entry.raised:
            return Step(table.model.events[event], None, before, before, entry.raised)
        after = table.decode(layout.unpack(self.after(event, state)))
        return Step(table.model.events[event], entry.response, before, after)

    def after(self, event: int, state: int) -> int:
        """The packed state an enabled event leads to."""
        mask, keep, memo, _ = self.rows[event]
        bits = memo.get(state & mask)
        return state & keep | (self.fill(event, state) if bits is None else bits)

    def trace(self, hit: Hit, path: list[int]) -> Trace:
        """The run along `path`, packed states from the initial one to `hit.state`, and over its edge."""
        steps = []
        if hit.event is not None:
            steps.append(self.step(hit.event, hit.state))
        then = path[-1]
        for state in reversed(path[:-1]):
            event, then = self._link(state, then)
            steps.append(self.step(event, then))
        return Trace(self.table.model, tuple(reversed(steps)))

    def _link(self, state: int, then: int) -> tuple[int, int]:
        """The event that leads to `then` from `state` or from one of its orbit, and from which one."""
        for concrete in self.orbits.orbit(state) if self.orbits else (state,):
            for event, successor in self.successors(concrete):
                if successor == then:
                    return event, concrete
        raise LookupError(f"no event leads from {state:#x} to {then:#x}")


def replay(model: Model, names: Iterable[str], loop: int | None = None) -> Trace:
    """The run of these events, by name, from the initial state; `loop` is as for `Trace`.

    Raises ModelError when there is no such event, or it cannot happen where the run is by then.
    """
    place = {event.name: number for number, event in enumerate(model.events)}
    events = list(names)
    for name in events:
        if name not in place:
            raise ModelError(f"{model.key} has no event {name!r}")
    space = Packed(Table(model))
    while True:
        try:
            state, steps = space.initial, []
            for name in events:
                step = space.step(place[name], state)
                steps.append(step)
                if not step.note:
                    state = space.after(place[name], state)
            return Trace(model, tuple(steps), loop)
        except FieldOverflowError:
            space.reset()


def search(table: Table, watch: Watch | None = None, *, symmetric: bool = False, stop_at: int = 0) -> Result:
    """Breadth-first search of a model: exact counts, and a shortest run to everything decided.

    Stops early once `stop_at` properties are violated, if that is not 0; the result is then incomplete.
    """
    space = Packed(table, symmetric)
    watch = watch or Watch()
    while True:
        try:
            return _breadth_first(space, watch, stop_at)
        except FieldOverflowError:
            space.reset()


def _breadth_first(space: Packed, watch: Watch, stop_at: int) -> Result:
    start = space.initial
    parents: dict[int, int] = {start: start}
    level, levels = [start], [1]
    transitions = stutters = depth = 0
    limit: str | None = None
    rows = space.rows
    least: Callable[[int], int] | None = space.orbits.least if space.orbits else None
    space.judge_states(level, 0)
    while True:
        fresh: list[int] = []
        space.depth = depth
        for count, state in enumerate(level):
            if not count & 2047:
                watch.tell(len(parents), transitions, depth, len(level) - count + len(fresh))
                limit = limit or watch.exhausted(len(parents))
                if limit:
                    break
            still = transitions - stutters
            for mask, keep, memo, event in rows:
                bits = memo.get(state & mask)
                if bits is None:
                    bits = space.fill(event, state)
                if bits < 0:
                    continue
                transitions += 1
                successor = state & keep | bits
                if successor in parents:
                    stutters += successor == state
                    continue
                if least is not None:
                    successor = least(successor)
                    if successor in parents:
                        continue
                parents[successor] = state
                fresh.append(successor)
            if transitions - stutters == still:
                space.judge_quiet(state)
        if fresh:
            depth += 1
            levels.append(len(fresh))
            space.judge_states(fresh, depth)
        violated = [prop for prop in space.hits if not isinstance(prop, (Sometimes, SometimesOnEdge))]
        if stop_at and len(violated) >= stop_at:
            limit = limit or f"the first {stop_at} violations"
        if limit or not fresh:
            break
        limit = watch.exceeded(len(parents), depth)
        if limit:
            break
        level = fresh
    watch.done()

    def locate(hit: Hit) -> Trace:
        path = [hit.state]
        while path[-1] != start:
            path.append(parents[path[-1]])
        return space.trace(hit, path[::-1])

    return Result(
        space.table.model,
        "packed",
        len(parents),
        transitions,
        stutters,
        depth,
        limit,
        watch.seconds,
        space.table.calls,
        space.hits,
        locate,
        space.table.coverage(),
        tuple(levels),
    )

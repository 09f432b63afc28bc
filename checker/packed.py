"""States as single integers: the plain-Python engine, quick to start and shortest in its counterexamples.

Theory of operation
-------------------
Each component's number has a field of bits, and a state is the integer of its fields. What an event does at a
state is two integers, the mask of what it leaves alone and the bits it puts in place of the rest, and a function
of the bits of its watch. Events with one watch form a group; for each value of the masked
state that was ever met, the group remembers the moves of all its events. A state's successors then are

    state & keep | bits        for keep, bits in moves[state & watch], for each group

and no function of the model runs. Events that are disabled there, or change nothing, cost nothing. A value that
does not fit its field makes the fields wider and the search start over; what the rules answered is kept.

With `symmetric`, one state of each orbit is searched (`checker.layout.Orbits`). A trace is then put back in terms
of the real members from its end, where the property was decided, to its beginning, which every exchange maps to
itself.
"""

from collections.abc import Callable, Iterable

from attrs import define, field, frozen

from checker.layout import FieldOverflowError, Layout, Orbits, roomy
from checker.limits import Watch
from checker.model import Model, ModelError
from checker.properties import DeadlockFree, Property, Sometimes, SometimesOnEdge
from checker.result import Hit, Result, Step, Trace
from checker.table import RULES_RETURN, Entry, Numbers, Table

DISABLED = -1
SPARE = 6
"""Spare bits of each field, where width costs nothing."""

Successor = tuple[int, int]
"""Event, and the packed state it leads to."""

Move = tuple[int, int, int]
"""The mask of what stays, the bits of what does not, and the event."""

Row = tuple[int, int, tuple[Move, ...]]
"""Occurrences of events, those of them that change nothing, and the moves of the others."""


@frozen
class Known:
    """What is known of one event."""

    mask: int
    """Of its watch."""
    keep: int
    """Of what it does not write."""
    bits: dict[int, int]
    """By masked state: what it puts in place of what it writes, or DISABLED."""
    seen: bool
    """Whether it writes within its watch only, so that the bits tell whether anything changes."""
    gate: int
    """Mask of what its guard takes; 0 when that is all it reads."""
    open: dict[int, bool]
    """By gate: whether the guard offers it."""


@define(eq=False)
class Packed:
    """A model on packed states: successors, judgements and traces, for any order of search."""

    table: Table
    symmetric: bool = False
    spare: int = SPARE
    judging: bool = True
    """Whether properties are judged on the way."""
    layout: Layout = field(init=False)
    orbits: Orbits | None = field(init=False, default=None)
    hits: dict[Property, Hit] = field(init=False, factory=dict)
    undecided: set[Property] = field(init=False, factory=set)
    groups: list[tuple[int, dict[int, Row], list[int]]] = field(init=False, factory=list)
    """Watch mask, row by masked state, and events."""
    _events: list[Known] = field(init=False, factory=list)
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
        layout = self.layout = layout or roomy(table, self.spare)
        self.orbits = Orbits(table.model, layout) if self.symmetric and table.model.symmetry else None
        self.hits = {}
        self.undecided = {*table.model.properties, RULES_RETURN} if self.judging else set()
        whole = (1 << layout.bits) - 1
        self._events = []
        by_watch: dict[int, list[int]] = {}
        for event, (watch, writes) in enumerate(zip(table.watch, table.writes, strict=True)):
            mask, written = layout.mask(watch), layout.mask(writes)
            gate = layout.mask(table.gates[event] or ())
            self._events.append(Known(mask, whole & ~written, {}, not written & ~mask, gate, {}))
            by_watch.setdefault(mask, []).append(event)
        self.groups = [(mask, {}, events) for mask, events in by_watch.items()]
        by_mask: dict[int, list[tuple[Property, Numbers]]] = {}
        for prop, places in table.states:
            by_mask.setdefault(layout.mask(places), []).append((prop, places))
        self._checks = [(mask, set(), props) for mask, props in by_mask.items()]

    def move(self, event: int, state: int) -> Move | None:
        """What an event does at a state; None when it is disabled there. Learned and judged on first sight."""
        known = self._events[event]
        if known.gate:
            offered = known.open.get(state & known.gate)
            if offered is None:
                gate = self.table.gates[event] or ()
                offered = self.table.offered(event, self.layout.read(state, gate))
                known.open[state & known.gate] = offered
            if not offered:
                return None
        bits = known.bits.get(state & known.mask)
        if bits is None:
            layout = self.layout
            entry = self.table.entry(event, layout.read(state, self.table.reads[event]))
            bits = DISABLED
            if entry is not None:
                self._judge(event, state, entry)
                if not entry.raised:
                    bits = layout.put(self.table.writes[event], entry.writes)
            known.bits[state & known.mask] = bits
        return None if bits < 0 else (known.keep, bits, event)

    def row(self, group: int, state: int) -> Row:
        """Learn what a group does at a state."""
        mask, memo, events = self.groups[group]
        occurrences = stutters = 0
        moves = []
        for event in events:
            move = self.move(event, state)
            if move is None:
                continue
            occurrences += 1
            if self._events[event].seen and state & ~move[0] == move[1]:
                stutters += 1
            else:
                moves.append(move)
        memo[state & mask] = row = occurrences, stutters, tuple(moves)
        return row

    def _judge(self, event: int, state: int, entry: Entry) -> None:
        if not self.undecided:
            return
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

    def expand(self, state: int) -> tuple[int, int, list[Successor]]:
        """Occurrences of events at a state, those that change nothing, and where the others lead."""
        occurrences = stutters = 0
        found = []
        for group, (mask, memo, _) in enumerate(self.groups):
            row = memo.get(state & mask) or self.row(group, state)
            occurrences += row[0]
            stutters += row[1]
            for keep, bits, event in row[2]:
                successor = state & keep | bits
                if successor == state:
                    stutters += 1
                else:
                    found.append((event, successor))
        return occurrences, stutters, found

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
        move = self.move(event, state)
        if move is None:
            raise ModelError(f"{self.table.model.events[event].name!r} cannot happen here")
        return state & move[0] | move[1]

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
            for event, successor in self.expand(concrete)[2]:
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
    space = Packed(Table(model), judging=False)
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
            result = _breadth_first(space, watch, stop_at)
            if result.complete and not symmetric:
                table.searched = space
            return result
        except FieldOverflowError:
            space.reset()


def _breadth_first(space: Packed, watch: Watch, stop_at: int) -> Result:
    start = space.initial
    parents: dict[int, int] = {start: start}
    level, levels = [start], [1]
    transitions = stutters = depth = 0
    limit: str | None = None
    groups = space.groups
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
            quiet = True
            for group, (mask, memo, _) in enumerate(groups):
                row = memo.get(state & mask) or space.row(group, state)
                occurrences, still, moves = row
                transitions += occurrences
                stutters += still
                for keep, bits, _ in moves:
                    successor = state & keep | bits
                    if successor in parents:
                        if successor == state:
                            stutters += 1
                        else:
                            quiet = False
                        continue
                    quiet = False
                    if least is not None:
                        successor = least(successor)
                        if successor in parents:
                            continue
                    parents[successor] = state
                    fresh.append(successor)
            if quiet:
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

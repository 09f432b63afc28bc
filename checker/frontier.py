"""Frontiers as numpy arrays: the engine for large spaces.

Theory of operation
-------------------
A breadth-first search expands a whole level at once, in chunks that fit the processor's cache, by the clusters
of `checker.clusters`. Successors go through a direct-mapped cache of states seen lately, which drops most
duplicates without a search; the rest is sorted, and what the visited set (`checker.runs`) does not hold is the
next level.

The levels are kept (in files, when spilling), and are all that is needed for a shortest run: a predecessor is
found by expanding the level before once more. They are also what a checkpoint consists of.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from attrs import frozen

from checker import packed
from checker.checkpoint import Checkpoint, Saved
from checker.clusters import Bits, Codec, Exchange, Word, Words, clusters
from checker.layout import FieldOverflowError
from checker.limits import Limits, Watch
from checker.packed import Packed
from checker.properties import DeadlockFree, Sometimes, SometimesOnEdge
from checker.result import Hit, Result, Trace
from checker.runs import Keys, Run, Store, Visited, distinct
from checker.table import Numbers, Table

CHUNK = 1 << 15
"""States expanded at a time."""
PENDING = 1 << 22
"""Successors gathered before they are sorted."""
LATELY = 20
"""Bits of the number of states that the cache of duplicates holds."""
PILOT = 2_000
"""States searched by the packed engine first, to learn how many values each component takes."""
SPARE = 1
"""Spare bits of each field after that."""


@frozen
class Disk:
    """What a search may put on disk."""

    spill: Path | None = None
    """Where runs that no longer fit in `budget` go: a fresh directory below it, removed afterwards."""
    budget: int = 1 << 30
    """Bytes of visited states kept in memory before they are spilled."""
    checkpoint: Path | None = None
    """Directory of a checkpoint, written after each level."""
    resume: bool = False
    """Whether to go on from the checkpoint that is there."""


NO_DISK = Disk()


class Lately:
    """A direct-mapped cache of states already met: says of some of them that they are duplicates."""

    def __init__(self, words: int) -> None:
        self._slots = [np.full(1 << LATELY, -1, np.int64) for _ in range(words)]

    def fresh(self, words: Words) -> Words:
        """Drop states that are certainly duplicates, and remember the others."""
        mixed = words[0] if len(words) == 1 else words[0] ^ words[1] << 1
        slots = (mixed * np.int64(-7046029254386353131)).view(np.uint64) >> np.uint64(64 - LATELY)
        known = self._slots[0][slots] == words[0]
        for cache, word in zip(self._slots[1:], words[1:], strict=True):
            known &= cache[slots] == word
        left = np.flatnonzero(~known)
        words = [word[left] for word in words]
        slots = slots[left]
        for cache, word in zip(self._slots, words, strict=True):
            cache[slots] = word
        return words


class Once:
    """Picks out the states whose footprint on some components was not met before."""

    def __init__(self, space: Packed, codec: Codec, places: Numbers) -> None:
        self._bits = Bits(space.layout, places)
        self._codec = codec
        self._known: Word = np.zeros(0, np.int64)

    def fresh(self, words: Words) -> list[int]:
        """One packed state for each new footprint."""
        footprints, where = np.unique(self._bits.gather(words), return_index=True)
        fresh = np.isin(footprints, self._known, assume_unique=True, invert=True)
        if not fresh.any():
            return []
        self._known = np.union1d(self._known, footprints[fresh])
        return [self._codec.one(words, int(place)) for place in where[fresh]]


class Frontier:
    """One search."""

    def __init__(self, space: Packed, watch: Watch, disk: Disk, files: Path | None) -> None:
        table = space.table
        self.space = space
        self.watch = watch
        self.codec = codec = Codec(space.layout)
        self.clusters = clusters(space, codec)
        self.exchange = Exchange(space, codec) if space.orbits else None
        self.once = [
            Once(space, codec, places) for places in {tuple(sorted(set(p))) for _, p in table.states}
        ]
        ends = [prop for prop in table.model.properties if isinstance(prop, DeadlockFree)]
        asked = {table.place[name] for prop in ends for name in prop.reads}
        self.quiet = Once(space, codec, tuple(sorted(asked))) if ends else None
        self.store = Store(codec.dtype, files, disk.budget)
        self.visited = Visited(self.store)
        self.lately = Lately(codec.words)
        self.checkpoint = Checkpoint(disk.checkpoint, space) if disk.checkpoint else None
        self.levels: list[Run] = []
        self.transitions = self.stutters = 0
        self.limit: str | None = None

    @property
    def depth(self) -> int:
        """Steps to the deepest level so far."""
        return len(self.levels) - 1

    def start(self, saved: Saved | None) -> None:
        """Enter the initial state, or the levels of a checkpoint."""
        if saved is None:
            self._enter(self.store.keep(self.codec.keys(self.codec.single(self.space.initial))))
            return
        self.transitions, self.stutters = saved.transitions, saved.stutters
        for level in saved.levels(self.codec.dtype):
            fits = self.store.fits(len(level)) and len(level) > 0
            kept = self.store.keep(np.concatenate(list(level.blocks()))) if fits else level
            self.levels.append(kept)
            self.visited.add(kept.shared())
        if self.checkpoint is not None:
            self.checkpoint.resumed(len(self.levels))

    def run(self, stop_at: int) -> None:
        """Search until nothing is new or a limit is reached."""
        while len(self.levels[-1]):
            self.limit = self.limit or self.watch.exceeded(len(self.visited), self.depth)
            if self.limit is not None:
                return
            self._enter(self._next_level())
            violated = [p for p in self.space.hits if not isinstance(p, (Sometimes, SometimesOnEdge))]
            if stop_at and len(violated) >= stop_at:
                self.limit = self.limit or f"the first {stop_at} violations"
            if self.checkpoint is not None and self.limit is None:
                self.checkpoint.save(self.levels, self.transitions, self.stutters)
        self.levels.pop()

    def _enter(self, level: Run) -> None:
        """Make `level` the deepest: judge its states, and count them as visited."""
        self.levels.append(level)
        for block in level.blocks():
            words = self.codec.split(block)
            for once in self.once:
                fresh = once.fresh(words)
                if fresh:
                    self.space.judge_states(fresh, self.depth)
        if len(level):
            self.visited.add(level.shared())

    def _next_level(self) -> Run:
        self.space.depth = self.depth
        parts: list[Run] = []
        pending: list[Keys] = []
        gathered = 0
        for words in self._chunks(self.levels[-1]):
            for successors in self._expand(words):
                gathered += len(successors[0])
                pending.append(self.codec.keys(successors))
            if gathered >= PENDING:
                parts.append(self._sift(pending))
                pending, gathered = [], 0
            found = len(self.visited) + sum(map(len, parts))
            self.watch.tell(found, self.transitions, self.depth, len(self.levels[-1]))
            self.limit = self.watch.exhausted(found)
            if self.limit is not None:
                break
        parts.append(self._sift(pending))
        return parts[0] if len(parts) == 1 else self.store.union(parts)

    def _sift(self, pending: list[Keys]) -> Run:
        """What is new among some successors."""
        keys = np.concatenate(pending) if pending else np.zeros(0, self.codec.dtype)
        return self.store.keep(self.visited.minus(distinct(keys)))

    def _chunks(self, level: Run) -> Iterator[Words]:
        for block in level.blocks():
            for start in range(0, len(block), CHUNK):
                yield self.codec.split(block[start : start + CHUNK])

    def _expand(self, words: Words) -> Iterator[Words]:
        """The successors of some states, most duplicates left out; counts transitions, judges what is new."""
        moved = np.zeros(len(words[0]), np.bool_) if self.quiet is not None else None
        for cluster in self.clusters:
            ranks = cluster.rank(words)
            self.transitions += int(cluster.occurrences[ranks].sum())
            self.stutters += int(cluster.stutters[ranks].sum())
            successors, sources = cluster.expand(words, ranks)
            if cluster.blind:
                moves = np.zeros(len(sources), np.bool_)
                for word, after in zip(words, successors, strict=True):
                    moves |= word[sources] != after
                self.stutters += len(moves) - int(np.count_nonzero(moves))
                successors, sources = [after[moves] for after in successors], sources[moves]
            if moved is not None:
                moved[sources] = True
            if self.exchange is not None:
                successors = self.exchange.least(successors)
            yield self.lately.fresh(successors)
        if moved is not None and self.quiet is not None and not moved.all():
            for state in self.quiet.fresh([word[~moved] for word in words]):
                self.space.judge_quiet(state)

    def trace(self, hit: Hit) -> Trace:
        """The shortest run to where a property was decided."""
        path = [hit.state]
        for depth in range(hit.depth - 1, -1, -1):
            path.append(self._source(depth, path[-1]))
        return self.space.trace(hit, path[::-1])

    def _source(self, depth: int, target: int) -> int:
        """A state of the level at `depth` that has `target` as a successor."""
        wanted = self.codec.cut(target)
        for words in self._chunks(self.levels[depth]):
            for cluster in self.clusters:
                successors, sources = cluster.expand(words, cluster.rank(words))
                if self.exchange is not None:
                    successors = self.exchange.least(successors)
                same = np.ones(len(sources), np.bool_)
                for after, part in zip(successors, wanted, strict=True):
                    same &= after == part
                if same.any():
                    return self.codec.one(words, int(sources[same.argmax()]))
        raise LookupError(f"no state at depth {depth} leads to {target:#x}")


def search(
    table: Table,
    watch: Watch | None = None,
    *,
    symmetric: bool = False,
    stop_at: int = 0,
    disk: Disk = NO_DISK,
) -> Result:
    """Breadth-first search of a model, as `packed.search`, for spaces of many states.

    Raises ModelError for a checkpoint that cannot be resumed, and OSError when the disk fails.
    """
    watch = watch or Watch()
    saved = Saved(disk.checkpoint, table, symmetric) if disk.resume and disk.checkpoint else None
    if saved is None:
        packed.search(table, Watch(Limits(states=PILOT)), symmetric=symmetric)
    space = Packed(table, symmetric, SPARE)
    with ExitStack() as stack:
        files = None
        if disk.spill is not None:
            disk.spill.mkdir(parents=True, exist_ok=True)
            files = stack.enter_context(tempfile.TemporaryDirectory(prefix="checker-", dir=disk.spill))
        while True:
            if saved is not None:
                space.reset(saved.layout)
                space.hits = dict(saved.hits)
                space.undecided -= saved.hits.keys()
            frontier = Frontier(space, watch, disk, Path(files) if files else None)
            frontier.start(saved)
            try:
                frontier.run(stop_at)
                break
            except FieldOverflowError:
                saved = None
                space.reset()
        watch.done()
        # Traces are made while the files still exist.
        traces = {hit: frontier.trace(hit) for hit in space.hits.values()}
    return Result(
        table.model,
        "frontier",
        sum(map(len, frontier.levels)),
        frontier.transitions,
        frontier.stutters,
        frontier.depth,
        frontier.limit,
        watch.seconds,
        table.calls,
        space.hits,
        traces.__getitem__,
        table.coverage(),
        tuple(map(len, frontier.levels)),
    )

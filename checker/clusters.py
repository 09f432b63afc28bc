"""Many states at once: words of packed states, and events in clusters that expand arrays of them.

Theory of operation
-------------------
Events are put into **clusters** whose watches together are few bits; what all events of a cluster do is a
function of those bits, its footprint. For each footprint ever met, a cluster keeps the list of successors that
differ from their source, as a number to add to it, and the number of occurrences. To expand an array of states
it looks up one number for each state, repeats each state as often as it has successors, and adds. No event is
looked at one by one, and events that change nothing cost nothing.

    states ──bits of the watch──► rank ──► occurrences, first and number of entries ──repeat, add──► successors

Events that write a component outside of the cluster's bits cannot be an addition; their entries carry the mask
of what they keep.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from checker.layout import Layout
from checker.model import ModelError
from checker.packed import Packed
from checker.runs import Keys
from checker.table import Numbers

Word = NDArray[np.int64]
"""One machine word of each of some states."""
Words = list[Word]

CLUSTER_BITS = 12
"""Watches are united while together they are no wider than this."""
DENSE_BITS = 22
"""Footprints up to this width are ranked by a table, wider ones by binary search."""


class Codec:
    """Between words of states and the keys that sort like them."""

    def __init__(self, layout: Layout) -> None:
        self.words = max(1, -(-layout.bits // Layout.WORD))
        if self.words > 2:
            raise ModelError(f"a state of {layout.bits} bits is too wide for the frontier engine")
        self.dtype: np.dtype[Any] = np.dtype(np.int64 if self.words == 1 else "S16")

    def keys(self, words: Words) -> Keys:
        """The keys of some states."""
        if self.words == 1:
            return words[0]
        pair = np.stack([words[1], words[0]], axis=1).astype(">i8")
        return pair.view("S16").ravel()

    def split(self, keys: Keys) -> Words:
        """The words of some states."""
        if self.words == 1:
            return [keys]
        pair = np.ascontiguousarray(keys).view(">i8").reshape(-1, 2)
        return [pair[:, 1].astype(np.int64), pair[:, 0].astype(np.int64)]

    def cut(self, state: int) -> list[int]:
        """The words of one packed state."""
        low = (1 << Layout.WORD) - 1
        return [state >> Layout.WORD * word & low for word in range(self.words)]

    def single(self, state: int) -> Words:
        """One packed state, as an array of one."""
        return [np.array([part], np.int64) for part in self.cut(state)]

    def one(self, words: Words, place: int) -> int:
        """One of the states, packed."""
        return sum(int(word[place]) << Layout.WORD * number for number, word in enumerate(words))


class Bits:
    """Gathers the bits of some components of each state into one small number."""

    def __init__(self, layout: Layout, places: Numbers) -> None:
        self.bits = sum(layout.widths[place] for place in places)
        self._moves: list[tuple[int, int, int, int]] = []
        """Word, shift right, mask, shift left; fields that are neighbours move together."""
        out, end = 0, -1
        for place in sorted(places, key=lambda place: layout.shifts[place]):
            word, shift = divmod(layout.shifts[place], Layout.WORD)
            width = layout.widths[place]
            if layout.shifts[place] == end and shift:
                _, first, mask, left = self._moves[-1]
                self._moves[-1] = (word, first, mask << width | (1 << width) - 1, left)
            else:
                self._moves.append((word, shift, (1 << width) - 1, out))
            out += width
            end = layout.shifts[place] + width

    def gather(self, words: Words) -> Word:
        """The number of each state."""
        gathered: Word | None = None
        for word, right, mask, left in self._moves:
            part = words[word] >> right if right else words[word]
            part = part & mask
            if left:
                part <<= left
            gathered = part if gathered is None else gathered.__ior__(part)
        return np.zeros(len(words[0]), np.int64) if gathered is None else gathered


class Ranks:
    """Numbers footprints in the order they are met."""

    def __init__(self, bits: int) -> None:
        self.count = 0
        self._dense = np.full(1 << bits, -1, np.int32) if bits <= DENSE_BITS else None
        self._keys: Word = np.zeros(0, np.int64)
        self._ranks = np.zeros(0, np.int32)

    def of(self, footprints: Word) -> NDArray[np.int32]:
        """The rank of each footprint, -1 where it is new."""
        if self._dense is not None:
            return self._dense[footprints]
        if not len(self._keys):
            return np.full(len(footprints), -1, np.int32)
        places = np.minimum(np.searchsorted(self._keys, footprints), len(self._keys) - 1)
        return np.where(self._keys[places] == footprints, self._ranks[places], np.int32(-1))

    def add(self, footprints: Word) -> None:
        """Give ranks to footprints that have none, in order."""
        ranks = np.arange(self.count, self.count + len(footprints), dtype=np.int32)
        self.count += len(footprints)
        if self._dense is not None:
            self._dense[footprints] = ranks
            return
        keys = np.concatenate([self._keys, footprints])
        order = np.argsort(keys)
        self._keys, self._ranks = keys[order], np.concatenate([self._ranks, ranks])[order]


class Cluster:
    """Some events, and what they do together on each footprint (compressed rows: see the module)."""

    def __init__(self, space: Packed, codec: Codec, events: list[int], places: Numbers) -> None:
        self.space = space
        self.codec = codec
        self.events = events
        self.bits = Bits(space.layout, places)
        self.ranks = Ranks(self.bits.bits)
        self.blind = any(not set(space.table.writes[event]) <= set(places) for event in events)
        self._first = [0]
        self._occurrences: list[int] = []
        self._stutters: list[int] = []
        self._adds: list[list[int]] = [[] for _ in range(codec.words)]
        self._keeps: list[list[int]] = [[] for _ in range(codec.words)]
        self._freeze()

    def rank(self, words: Words) -> NDArray[np.int32]:
        """The rank of each state's footprint; footprints met for the first time are learned."""
        footprints = self.bits.gather(words)
        ranks = self.ranks.of(footprints)
        if len(ranks) and ranks.min() < 0:
            unknown = np.flatnonzero(ranks < 0)
            fresh, where = np.unique(footprints[unknown], return_index=True)
            for place in unknown[where]:
                self._learn(self.codec.one(words, int(place)))
            self.ranks.add(fresh)
            self._freeze()
            ranks = self.ranks.of(footprints)
        return ranks

    def _learn(self, state: int) -> None:
        occurrences = stutters = 0
        whole = self.codec.cut((1 << self.space.layout.bits) - 1)
        for event in self.events:
            move = self.space.move(event, state)
            if move is None:
                continue
            keep, bits, _ = move
            occurrences += 1
            if self.blind:
                adds, keeps = self.codec.cut(bits), self.codec.cut(keep)
            elif state & ~keep == bits:
                stutters += 1
                continue
            else:
                after = self.codec.cut(state & keep | bits)
                adds, keeps = [b - a for a, b in zip(self.codec.cut(state), after, strict=True)], whole
            for word in range(self.codec.words):
                self._adds[word].append(adds[word])
                self._keeps[word].append(keeps[word])
        self._first.append(len(self._adds[0]))
        self._occurrences.append(occurrences)
        self._stutters.append(stutters)

    def _freeze(self) -> None:
        self.first = np.array(self._first, np.int64)
        self.count = np.diff(self.first)
        self.occurrences = np.array(self._occurrences, np.int64)
        self.stutters = np.array(self._stutters, np.int64)
        self.adds = [np.array(adds, np.int64) for adds in self._adds]
        self.keeps = [np.array(keeps, np.int64) for keeps in self._keeps]

    def expand(self, words: Words, ranks: NDArray[np.int32]) -> tuple[Words, Word]:
        """The successors that may differ from their source, and the place of each one's source."""
        counts = self.count[ranks]
        total = int(counts.sum())
        sources = np.repeat(np.arange(len(ranks)), counts)
        ends = np.cumsum(counts)
        entries = np.repeat(self.first[ranks] - ends + counts, counts)
        entries += np.arange(total)
        after = []
        for word, adds, keeps in zip(words, self.adds, self.keeps, strict=True):
            successors = word[sources]
            if self.blind:
                successors &= keeps[entries]
            successors += adds[entries]
            after.append(successors)
        return after, sources


def clusters(space: Packed, codec: Codec) -> list[Cluster]:
    """Put events whose watches fit together into clusters, the widest watches first."""
    table, widths = space.table, space.layout.widths

    def bits(places: set[int]) -> int:
        return sum(widths[place] for place in places)

    groups: list[tuple[list[int], set[int]]] = []
    for event in sorted(range(len(table.watch)), key=lambda event: -bits(set(table.watch[event]))):
        own = set(table.watch[event])
        for events, places in groups:
            if bits(places | own) <= max(bits(places), CLUSTER_BITS):
                places |= own
                events.append(event)
                break
        else:
            groups.append(([event], own))
    return [Cluster(space, codec, sorted(events), tuple(sorted(places))) for events, places in groups]


class Exchange:
    """The least state of each orbit, as `packed.Orbits` has it, on arrays."""

    def __init__(self, space: Packed, codec: Codec) -> None:
        self.groups = space.orbits.groups if space.orbits else []
        self.layout = space.layout

    def least(self, words: Words) -> Words:
        """Replace each state by its representative."""
        for group in self.groups:
            members = np.stack([self._read(words, member) for member in group])
            members.sort(axis=0)
            words = [word.copy() for word in words]
            for member, numbers in zip(group, members, strict=True):
                self._write(words, member, numbers)
        return words

    def _read(self, words: Words, member: Numbers) -> Word:
        """A member's numbers as one, comparing like the tuple of them."""
        key = np.zeros(len(words[0]), np.int64)
        for place in member:
            word, shift = divmod(self.layout.shifts[place], Layout.WORD)
            width = self.layout.widths[place]
            key = key << width | words[word] >> shift & (1 << width) - 1
        return key

    def _write(self, words: Words, member: Numbers, numbers: Word) -> None:
        for place in reversed(member):
            word, shift = divmod(self.layout.shifts[place], Layout.WORD)
            mask = (1 << self.layout.widths[place]) - 1
            words[word] &= ~(mask << shift)
            words[word] |= (numbers & mask) << shift
            numbers = numbers >> self.layout.widths[place]

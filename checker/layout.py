"""Where a component's number sits in a packed state, and which states are the same but for names.

Theory of operation
-------------------
A packed state is one integer with a field of bits for each component. Exchanging interchangeable members of a
model (`Model.symmetry`) permutes the contents of their fields; the states that such exchanges make of one state
are its *orbit*. What an exchange maps onto itself (the initial state, the events, the properties) cannot tell
the states of an orbit apart, so that it is enough to search the least of each.
"""

from collections.abc import Iterable, Iterator
from itertools import permutations, product

from checker.model import Model
from checker.table import Numbers, Table


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
        self._fields = [(shift, (1 << width) - 1) for shift, width in zip(shifts, self.widths, strict=True)]
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
        fields = self._fields
        return tuple([state >> fields[place][0] & fields[place][1] for place in places])

    def put(self, places: Iterable[int], numbers: Iterable[int]) -> int:
        """The bits of some components holding these numbers. Raises FieldOverflowError."""
        bits = 0
        for place, number in zip(places, numbers, strict=True):
            if number >> self.widths[place]:
                raise FieldOverflowError
            bits |= number << self.shifts[place]
        return bits


def roomy(table: Table, spare: int) -> Layout:
    """Fields for every value the table has numbered, with some spare bits for those to come."""
    places = range(len(table.model.components))
    return Layout((table.size(place) - 1).bit_length() + spare for place in places)


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

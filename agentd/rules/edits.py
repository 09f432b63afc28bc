"""Batched edits of one text: what the line operations mean together, and what is shown of them (reference B4).

Theory of operation
-------------------
Line operations all speak of the lines as they were before any of them. So they must not touch the same lines, and
then their order does not matter: the new text is made in one pass over the old one. `replace` operations come after,
in the order given, each on what the one before has left.

What a caller is shown of each operation (an *echo*) are lines of the final text. Each operation therefore leaves the
*region* of the text that it made, a pair of byte offsets, and every later one moves the regions before it along
(`Replacing`). The echoes are cut out at the end.

A text is bytes with LF line ends. A final LF belongs to the text and ends the last line; it is there afterwards
exactly if it was before.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final

from attrs import frozen

CONTEXT_LINES: Final = 2
MAX_ECHO_LINES: Final = 20
KEPT_LINES: Final = 8
"""Of the beginning and of the end of an echo that is longer."""
MAX_SITES: Final = 5
ECHO_BUDGET_BYTES: Final = 4096
ECHO_COST_BYTES: Final = 64
"""What an echo counts beside its lines, each of which counts one more than its bytes."""


class BadEdit(ValueError):
    """An operation cannot mean anything; the text names it by its index and may be shown to the caller."""


@frozen
class LineEdit:
    """Lines `first` to `last`, 1-based and inclusive, become `content`; `last` = `first` - 1 inserts before `first`."""

    index: int
    first: int
    last: int
    content: bytes = b""

    @property
    def touched(self) -> tuple[int, int]:
        """The lines that no other edit may touch; an insertion occupies the one it names."""
        return self.first, max(self.first, self.last)


@frozen
class Region:
    """What operation `index` made: bytes `begin` to `end` of a text."""

    index: int
    begin: int
    end: int
    sites: int | None = None
    """How many there are of the operation; None for a line operation."""


@frozen
class Echo:
    """Lines of the final text that show what operation `index` made."""

    index: int
    from_line: int
    lines: tuple[bytes, ...]
    elided: int | None = None
    sites: int | None = None

    @property
    def cost(self) -> int:
        """What it takes of the budget."""
        return ECHO_COST_BYTES + sum(len(line) + 1 for line in self.lines)


# -- lines -------------------------------------------------------------------------------------------------------


def split_lines(text: bytes) -> list[bytes]:
    """The lines of a text, without their ends."""
    if not text:
        return []
    return text.removesuffix(b"\n").split(b"\n")


def check(edits: Iterable[LineEdit], lines: int) -> list[LineEdit]:
    """The edits of a text of so many lines, from the top down. Raises `BadEdit`."""
    ordered = []
    for edit in edits:
        inserts = edit.last < edit.first
        if inserts and not 1 <= edit.first <= lines + 1:
            raise BadEdit(
                f"op {edit.index}: at_line {edit.first} is not within 1..{lines + 1}: the file has {lines} lines"
            )
        if not inserts and not (1 <= edit.first <= edit.last <= lines):
            raise BadEdit(
                f"op {edit.index}: lines {edit.first}..{edit.last} are not within 1..{lines}, in that order"
            )
        ordered.append(edit)
    ordered.sort(key=lambda edit: edit.touched)
    for before, after in pairwise(ordered):
        if after.touched[0] <= before.touched[1]:
            first, second = sorted((before.index, after.index))
            raise BadEdit(
                f"ops {first} and {second} touch the same line {after.touched[0]}: line numbers are those of the "
                "file as it is, so merge them into one op"
            )
    return ordered


def apply_lines(text: bytes, edits: Sequence[LineEdit]) -> tuple[bytes, list[Region]]:
    """The text after edits that `check` has ordered, and the regions they made."""
    if not edits:
        return text, []
    old = split_lines(text)
    new: list[bytes] = []
    made: list[tuple[int, int, int]] = []
    at = 0
    for edit in edits:
        new += old[at : edit.first - 1]
        begin = len(new)
        new += split_lines(edit.content)
        made.append((edit.index, begin, len(new)))
        at = max(edit.first - 1, edit.last)
    new += old[at:]
    starts = [0, *accumulate(len(line) + 1 for line in new)]
    changed = b"\n".join(new)
    if new and text.endswith(b"\n"):
        changed += b"\n"
    # The last line may have no end to count.
    regions = [
        Region(index, min(starts[begin], len(changed)), min(starts[end], len(changed)))
        for index, begin, end in made
    ]
    return changed, regions


# -- replacements ------------------------------------------------------------------------------------------------


class Replacing:
    """One replacing operation under way: told of each site in order, it moves the regions that were there before.

    Holds no more than the regions, however many sites there are.
    """

    def __init__(self, index: int, before: Iterable[Region]) -> None:
        self.count = 0
        """Sites so far."""
        self._index = index
        self._before = tuple(before)
        self._begins = sorted((region.begin, place) for place, region in enumerate(self._before))
        self._ends = sorted((region.end, place) for place, region in enumerate(self._before))
        self._begin_at: dict[int, int] = {}
        self._end_at: dict[int, int] = {}
        self._next_begin = self._next_end = 0
        self._site = (-1, -1, 0)
        """Begin and end of the last site in the text before, and its length in the text after."""
        self._shift = self._shift_before = 0
        """By how much text moves behind the last site, and before it."""
        self._first: list[tuple[int, int]] = []

    def site(self, begin: int, end: int, length: int) -> None:
        """Bytes `begin` to `end` of the text before become `length` bytes."""
        self._pass(begin)
        self.count += 1
        if self.count <= MAX_SITES:
            self._first.append((begin + self._shift, begin + self._shift + length))
        self._site = (begin, end, length)
        self._shift_before = self._shift
        self._shift += length - (end - begin)

    def _pass(self, begin: int | None) -> None:
        """Place what the sites so far decide, when the next one begins at `begin`; None if there is none."""
        while self._next_begin < len(self._begins):
            offset, place = self._begins[self._next_begin]
            if begin is not None and offset >= begin:
                break
            self._begin_at[place] = self._placed(offset, False)
            self._next_begin += 1
        while self._next_end < len(self._ends):
            offset, place = self._ends[self._next_end]
            if begin is not None and offset > begin:
                break
            self._end_at[place] = self._placed(offset, True)
            self._next_end += 1

    def _placed(self, offset: int, end: bool) -> int:
        """Where an offset is now. One within what was replaced takes in all that came in its place."""
        begin, stop, length = self._site
        if begin >= 0 and (begin < offset < stop or (offset == begin and not end)):
            return begin + self._shift_before + (length if end else 0)
        return offset + self._shift

    def done(self) -> list[Region]:
        """The regions of the operations before, and of this one's first sites, in the text after it."""
        self._pass(None)
        moved = [
            Region(
                region.index,
                self._begin_at[place],
                max(self._begin_at[place], self._end_at[place]),
                region.sites,
            )
            for place, region in enumerate(self._before)
        ]
        return moved + [Region(self._index, begin, end, self.count) for begin, end in self._first]


# -- echoes ------------------------------------------------------------------------------------------------------


def echoes(text: bytes, regions: Iterable[Region]) -> tuple[list[Echo], bool]:
    """What is shown of the regions of the final text, in order of their operations; whether that is not all."""
    lines = split_lines(text)
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    shown: list[Echo] = []
    spent = 0
    for region in sorted(regions, key=lambda region: (region.index, region.begin)):
        echo = _site(region, lines, starts) if region.sites is not None else _lines(region, lines, starts)
        spent += echo.cost
        if shown and spent > ECHO_BUDGET_BYTES:
            return shown, True
        shown.append(echo)
    return shown, False


def _span(region: Region, lines: Sequence[bytes], starts: Sequence[int]) -> tuple[int, int]:
    """The first line of a region, counted from 0, and the one after its last."""
    first = min(bisect_right(starts, region.begin) - 1, len(lines))
    if region.end <= region.begin:
        return first, first
    return first, min(bisect_right(starts, region.end - 1), len(lines))


def _lines(region: Region, lines: Sequence[bytes], starts: Sequence[int]) -> Echo:
    first, stop = _span(region, lines, starts)
    begin, end = max(first - CONTEXT_LINES, 0), min(stop + CONTEXT_LINES, len(lines))
    if end - begin <= MAX_ECHO_LINES:
        return Echo(region.index, begin + 1, tuple(lines[begin:end]))
    kept = (*lines[begin : begin + KEPT_LINES], *lines[end - KEPT_LINES : end])
    return Echo(region.index, begin + 1, kept, end - begin - len(kept))


def _site(region: Region, lines: Sequence[bytes], starts: Sequence[int]) -> Echo:
    first, stop = _span(region, lines, starts)
    stop = min(max(stop, first + 1), len(lines))
    elided = stop - first - 2
    if elided <= 0:
        return Echo(region.index, first + 1, tuple(lines[first:stop]), None, region.sites)
    return Echo(region.index, first + 1, (lines[first], lines[stop - 1]), elided, region.sites)

"""Where the nodes of a drawing go: layers from top to bottom.

Theory of operation
-------------------
The method is Sugiyama's (Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
structures", 1981), of which a state graph needs the simpler half. Its layers are given, as the distances from the
initial state, and an arc leads at most one layer down, so that none has to be led past the nodes of a layer between.
What is left:

* the order within a layer, by sweeps that sort each layer by the mean place of its neighbours in the one
  before, keeping the order with the fewest crossings that turned up;
* the place along the layer: each node wants to be at the mean of its neighbours, and the nearest places that
  keep the order and the distances are an isotonic regression, which pooling adjacent violators solves exactly
  (Barlow and others, "Statistical inference under order restrictions", 1972).
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from attrs import frozen

SWEEPS = 8


@frozen
class Size:
    """Of a box, in pixels."""

    width: float
    height: float


@frozen
class Place:
    """Of the centre of a box."""

    x: float
    y: float


def places(
    sizes: Sequence[Size],
    layers: Sequence[int],
    arcs: Iterable[tuple[int, int]],
    *,
    gap: float = 36.0,
    between: float = 76.0,
) -> list[Place]:
    """The centres of boxes, given the layer of each, `gap` apart within a layer and layers `between` apart."""
    down = [(source, target) for source, target in arcs if layers[target] == layers[source] + 1]
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for source, target in down:
        below.setdefault(source, []).append(target)
        above.setdefault(target, []).append(source)
    rows: list[list[int]] = [[] for _ in range(max(layers, default=0) + 1)]
    for node, layer in enumerate(layers):
        rows[layer].append(node)
    rows = _ordered(rows, above, below)
    across = _across(rows, sizes, above, below, gap)
    found: dict[int, Place] = {}
    top = 0.0
    for row in rows:
        height = max((sizes[node].height for node in row), default=0.0)
        for node in row:
            found[node] = Place(across[node], top + height / 2)
        top += height + between
    return [found[node] for node in range(len(sizes))]


def crossings(rows: Sequence[Sequence[int]], below: Mapping[int, Sequence[int]]) -> int:
    """How many pairs of arcs between neighbouring layers cross: inversions, counted by insertion."""
    count = 0
    for upper, lower in pairwise(rows):
        place = {node: number for number, node in enumerate(lower)}
        ends: list[int] = []
        for node in upper:
            mine = [place[then] for then in below.get(node, ())]
            count += sum(len(ends) - bisect_right(ends, end) for end in mine)
            for end in mine:
                insort(ends, end)
    return count


def _ordered(
    rows: list[list[int]], above: Mapping[int, list[int]], below: Mapping[int, list[int]]
) -> list[list[int]]:
    best, fewest = rows, crossings(rows, below)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        rows = [list(row) for row in rows]
        neighbours = above if sweep % 2 == 0 else below
        order = range(1, len(rows)) if sweep % 2 == 0 else range(len(rows) - 2, -1, -1)
        for number in order:
            beside = rows[number - 1 if sweep % 2 == 0 else number + 1]
            place = {node: float(where) for where, node in enumerate(beside)}
            own = {node: float(where) for where, node in enumerate(rows[number])}
            means = {node: _mean([place[n] for n in neighbours.get(node, ())], own[node]) for node in own}
            rows[number].sort(key=means.__getitem__)
        count = crossings(rows, below)
        if count < fewest:
            best, fewest = rows, count
    return best


def _across(
    rows: Sequence[Sequence[int]],
    sizes: Sequence[Size],
    above: Mapping[int, list[int]],
    below: Mapping[int, list[int]],
    gap: float,
) -> dict[int, float]:
    across: dict[int, float] = {}
    for row in rows:
        x = 0.0
        for node in row:
            across[node] = x + sizes[node].width / 2
            x += sizes[node].width + gap
        for node in row:
            across[node] -= (x - gap) / 2
    for sweep in range(SWEEPS):
        neighbours = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_mean([across[n] for n in neighbours.get(node, ())], across[node]) for node in row]
            widths = [sizes[node].width for node in row]
            across.update(zip(row, spread(wanted, widths, gap), strict=True))
    left = min((across[node] - sizes[node].width / 2 for row in rows for node in row), default=0.0)
    return {node: x - left for node, x in across.items()}


def spread(wanted: Sequence[float], widths: Sequence[float], gap: float) -> list[float]:
    """The places nearest to those wanted, in least squares, that keep the order and leave gaps."""
    offsets = [0.0]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + (left + right) / 2 + gap)
    blocks: list[tuple[float, int]] = []
    """Mean and length of each pool of boxes that touch."""
    for want, offset in zip(wanted, offsets, strict=False):
        mean, length = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean = (other * count + mean * length) / (count + length)
            length += count
        blocks.append((mean, length))
    means = [mean for mean, length in blocks for _ in range(length)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise

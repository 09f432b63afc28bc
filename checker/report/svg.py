"""A slice as a picture: SVG 1.1, one file, drawn without any other program.

Graphviz would draw more kinds of graphs, and large ones better; `checker.report.dot` is for it. A picture in a
report should not ask whoever runs the checker to install a program, though, and a state graph is the easy case of
layered drawing (`checker.report.layered`): what goes a layer down is led from box to box, what stays in its layer
hangs below it, and what goes back bulges to the right of both. A cubic curve stays within the hull of its four points,
so the picture is as large as those.
"""

from textwrap import wrap
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from attrs import frozen

from checker.report.drawing import Arc, arcs, columns, label, plain
from checker.report.layered import Place, Size, places
from checker.report.slices import Slice
from checker.report.words import say

NAMESPACE = "http://www.w3.org/2000/svg"
CHARACTER, LINE, PADDING, MARGIN = 6.7, 15.0, 8.0, 24.0
"""Pixels: a character of the labels and a line of them, around the text of a box, around everything."""
ARC_CHARACTER, CAPTION_CHARACTER, CAPTION_LINE = 6.0, 7.0, 18.0
CAPTION_COLUMNS = 70
"""A caption is broken into lines of at least this."""
LABELLED = 80
"""Up to so many arcs have their label on them; of more, one has to ask by pointing."""
ALONG = (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8)
"""Where on its arc a label may be, what is preferred first."""

STYLE = """
.paper { fill: #ffffff }
text { font: 11px ui-monospace, monospace; fill: #1a1a1a }
.node rect { fill: #f6f8fa; stroke: #57606a }
.node.first rect { stroke: #1a1a1a; stroke-width: 2.5 }
.node.end rect { stroke-dasharray: 5 3 }
.node .number { font-weight: bold }
.arc path { fill: none; stroke: #57606a; stroke-width: 1.2 }
.arc.back path { stroke: #8a5a00; stroke-dasharray: 4 3 }
.arc.failed path { stroke: #8250df }
.arc.taken path { stroke: #b3261e; stroke-width: 2.6; stroke-dasharray: none }
.arc text { font: 10px ui-sans-serif, sans-serif; fill: #24292f; stroke: #fff; stroke-width: 3px; paint-order: stroke }
.arc:hover path { stroke: #0550ae; stroke-width: 3 }
.head.down { fill: #57606a }
.head.back { fill: #8a5a00 }
.head.failed { fill: #8250df }
.head.taken { fill: #b3261e }
.note { font: 12px ui-sans-serif, sans-serif }
"""


Curve = tuple[Place, Place, Place, Place]
"""The points of a cubic Bézier curve."""


@frozen
class Box:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around(cls, centre: Place, size: Size) -> "Box":
        """A box by its centre."""
        x, y = size.width / 2, size.height / 2
        return cls(centre.x - x, centre.y - y, centre.x + x, centre.y + y)

    @property
    def middle(self) -> Place:
        """Its centre."""
        return Place((self.left + self.right) / 2, (self.top + self.bottom) / 2)

    def covers(self, other: "Box") -> float:
        """The area they have in common."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(across, 0.0) * max(down, 0.0)


def svg(part: Slice) -> str:
    """The picture: boxes for nodes, with what changes on the way there; the full state when pointed at."""
    root = tree(part)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def tree(part: Slice, *, alone: bool = True) -> Element:
    """The picture as a tree, for those who put it into a page. One that is not alone has no style and no caption."""
    labels = [label(part, number) for number in range(len(part.nodes))]
    sizes = [
        Size(max(map(columns, lines)) * CHARACTER + 2 * PADDING, len(lines) * LINE + PADDING)
        for lines in labels
    ]
    ways = arcs(part)
    depths = [node.depth for node in part.nodes]
    centres = places(sizes, depths, [(arc.source, arc.target) for arc in ways])
    boxes = [Box.around(centre, size) for centre, size in zip(centres, sizes, strict=True)]
    curves = [_curve(arc, boxes, depths) for arc in ways]
    names = _labels(ways, curves, boxes) if len(ways) <= LABELLED else [None] * len(ways)
    graph = _around([*boxes, *map(_hull, curves), *filter(None, names)])
    room = max(CAPTION_COLUMNS, int((graph.right - graph.left) / CAPTION_CHARACTER))
    caption = [plain(part.title), *wrap(plain(part.note), room)] if alone else []
    page = Box(
        graph.left - MARGIN,
        graph.top - MARGIN - len(caption) * CAPTION_LINE,
        max(graph.right, graph.left + max(map(columns, caption), default=0) * CAPTION_CHARACTER) + MARGIN,
        graph.bottom + MARGIN,
    )
    root = _paper(part, page, len(ways), alone)
    for number, line in enumerate(caption):
        _text(root, line, graph.left, page.top + MARGIN + number * CAPTION_LINE, "note")
    for arc, curve, name in zip(ways, curves, names, strict=True):
        _arc(root, arc, curve, name, depths)
    for number, lines in enumerate(labels):
        _node(root, part, number, lines, boxes[number])
    return root


def _curve(arc: Arc, boxes: list[Box], depths: list[int]) -> Curve:
    source, target = boxes[arc.source], boxes[arc.target]
    one, other = source.middle, target.middle
    if depths[arc.target] == depths[arc.source] + 1:
        bend = (target.top - source.bottom) / 2
        return (
            Place(one.x, source.bottom),
            Place(one.x, source.bottom + bend),
            Place(other.x, target.top - bend),
            Place(other.x, target.top),
        )
    if depths[arc.source] == depths[arc.target]:
        leave, come = one.x, other.x
        if arc.source == arc.target:
            width = source.right - source.left
            leave, come = one.x + width / 4 - min(18, width / 5), one.x + width / 4 + min(18, width / 5)
        below = max(source.bottom, target.bottom) + 30
        return (
            Place(leave, source.bottom),
            Place(leave, below),
            Place(come, below),
            Place(come, target.bottom),
        )
    out = max(source.right, target.right) + 24 + 6 * (depths[arc.source] - depths[arc.target])
    return (
        Place(source.right, one.y),
        Place(out, one.y),
        Place(out, other.y),
        Place(target.right, other.y),
    )


def _point(curve: Curve, at: float) -> Place:
    """The point of the curve at a parameter from 0 to 1 (Bernstein's form)."""
    weights = ((1 - at) ** 3, 3 * at * (1 - at) ** 2, 3 * at**2 * (1 - at), at**3)
    return Place(
        sum(weight * point.x for weight, point in zip(weights, curve, strict=True)),
        sum(weight * point.y for weight, point in zip(weights, curve, strict=True)),
    )


def _labels(ways: list[Arc], curves: list[Curve], boxes: list[Box]) -> list[Box | None]:
    """Where the labels go: each on its arc, where it covers least of the boxes and of the labels before it."""
    found: list[Box | None] = []
    taken = [*boxes]
    for arc, curve in zip(ways, curves, strict=True):
        size = Size(columns(arc.short) * ARC_CHARACTER, LINE)
        tried = [Box.around(_point(curve, at), size) for at in ALONG]
        best = min(tried, key=lambda box: sum(map(box.covers, taken)))
        taken.append(best)
        found.append(best)
    return found


def _hull(curve: Curve) -> Box:
    xs, ys = [point.x for point in curve], [point.y for point in curve]
    return Box(min(xs), min(ys), max(xs), max(ys))


def _around(boxes: list[Box]) -> Box:
    return Box(
        min(box.left for box in boxes),
        min(box.top for box in boxes),
        max(box.right for box in boxes),
        max(box.bottom for box in boxes),
    )


def _paper(part: Slice, page: Box, ways: int, alone: bool) -> Element:
    size = {"width": f"{page.right - page.left:.1f}", "height": f"{page.bottom - page.top:.1f}"}
    corner = {"x": f"{page.left:.1f}", "y": f"{page.top:.1f}"}
    root = Element(
        "svg",
        {
            "xmlns": NAMESPACE,
            "viewBox": " ".join([*corner.values(), *size.values()]),
            **size,
            "role": "img",
            "aria-labelledby": "graph-title graph-description",
        },
    )
    SubElement(root, "title", {"id": "graph-title"}).text = plain(part.title)
    told = f"{len(part.nodes)} states, {ways} ways between them. {plain(part.note)}".strip()
    SubElement(root, "desc", {"id": "graph-description"}).text = told
    if alone:
        SubElement(root, "style").text = STYLE
    definitions = SubElement(root, "defs")
    for name in ("down", "back", "failed", "taken"):
        marker = SubElement(
            definitions,
            "marker",
            {
                "id": f"arrow-{name}",
                "viewBox": "0 0 8 8",
                "refX": "8",
                "refY": "4",
                "markerWidth": "8",
                "markerHeight": "8",
                "markerUnits": "userSpaceOnUse",
                "orient": "auto",
            },
        )
        SubElement(marker, "path", {"d": "M0 0L8 4L0 8z", "class": f"head {name}"})
    SubElement(root, "rect", {**corner, **size, "class": "paper"})
    return root


def _arc(root: Element, arc: Arc, curve: Curve, name: Box | None, depths: list[int]) -> None:
    sorts = ["down" if depths[arc.target] == depths[arc.source] + 1 else "back"]
    sorts += [*(["failed"] if arc.failed else []), *(["taken"] if arc.steps else [])]
    ends = {"data-from": str(arc.source), "data-to": str(arc.target)}
    group = SubElement(root, "g", {"class": f"arc {' '.join(sorts)}", **ends})
    SubElement(group, "title").text = "\n".join(map(plain, arc.events))
    start, bend, then, end = (f"{point.x:.1f} {point.y:.1f}" for point in curve)
    SubElement(
        group, "path", {"d": f"M{start}C{bend} {then} {end}", "marker-end": f"url(#arrow-{sorts[-1]})"}
    )
    if name is not None:
        _text(group, arc.short, name.middle.x, name.middle.y + 3.5, "label", "middle")


def _node(root: Element, part: Slice, number: int, lines: list[str], box: Box) -> None:
    node = part.nodes[number]
    on = any(offer.to != number for offer in node.offers)
    classes = "node" + (" first" if number == 0 else "") + ("" if on else " end")
    group = SubElement(root, "g", {"class": classes, "data-node": str(number)})
    state = (plain(f"{c.name}: {say(value)}") for c, value in zip(part.components, node.values, strict=True))
    SubElement(group, "title").text = "\n".join(state)
    SubElement(
        group,
        "rect",
        {
            "x": f"{box.left:.1f}",
            "y": f"{box.top:.1f}",
            "width": f"{box.right - box.left:.1f}",
            "height": f"{box.bottom - box.top:.1f}",
            "rx": "4",
        },
    )
    for line, told in enumerate(lines):
        sort = "line" if line else "number"
        _text(group, told, box.left + PADDING, box.top + PADDING + 6 + line * LINE, sort)


def _text(parent: Element, text: str, x: float, y: float, sort: str, anchor: str = "start") -> None:
    attributes = {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": sort, "text-anchor": anchor}
    SubElement(parent, "text", attributes).text = text

"""Pictures of slices: DOT that parses, SVG in which everything is drawn once and within the page, and the layout."""

import math
import re
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker import models as known
from checker.model import Component, Event, Model
from checker.properties import Always, Fair, LeadsTo
from checker.report.dot import dot
from checker.report.drawing import ARC_WIDTH, WIDTH, arcs, columns, label, plain, shortened
from checker.report.layered import Size, crossings, places, spread
from checker.report.slices import Slice, take, whole
from checker.report.svg import ARC_CHARACTER, CHARACTER, LINE, NAMESPACE, PADDING, svg, tree
from tests.checker.systems import counter, models, switch

BROKEN = "bootstrap_exec:deployment_invariant_broken"
NASTY = '</script><b>&amp;"\\l\'\\"]]>\x00\x1b\x85\ufffe\n\t漢字 ⇒ {{data}}'
"""What breaks a format that forgets to escape something."""


def named(name: str, values: Sequence[str]) -> Model:
    """A row of states with these values, led through by events of this name."""

    def event(number: int) -> Event:
        return Event(
            f"{name} {number}",
            "step",
            "somebody",
            ("place", name),
            ("place", name),
            lambda place, _: ((place + 1, values[number]), values[number]),
            lambda place, _: place == number,
        )

    events = tuple(event(number) for number in range(len(values)))
    return Model(name, name, (Component("place", 0), Component(name, "")), events)


def fail(n: int) -> NoReturn:
    raise RuntimeError("out of order")


def failing() -> Model:
    base = counter(2)
    broken = Event("break", "break", "somebody", ("n",), ("n",), fail, lambda n: n == 1)
    return Model("m", "one", base.components, (*base.events, broken))


def going_round() -> Model:
    fair = (Fair(frozenset({"round"})),)
    never = LeadsTo(name="p", reads=("node",), when=lambda n: n == 0, then=lambda n: n == 9, fair=fair)
    return switch({"round": ((0, 1), (1, 2), (2, 1)), "off": ((0, 2), (2, 0))}, (never,))


SLICES = {
    "run": lambda: take(known.load(BROKEN), "run:attacker never authorized", 30),
    "witness": lambda: take(known.load("stdin"), "run:a result is published", 30),
    "lasso": lambda: take(going_round(), "run:p", 30),
    "whole": lambda: take(known.load("lifecycle:drain"), "all", 100),
    "many arcs": lambda: take(known.load("processes:polls"), "all", 120),
    "quotient": lambda: take(known.load("output"), "components:reader.0,span", 40),
    "property": lambda: take(
        known.load("product"), f"property:{known.load('product').properties[0].name}", 60
    ),
    "failing": lambda: take(failing(), "run:every rule returns", 10),
    "nasty": lambda: whole(named(NASTY, [NASTY, "x" * 200, NASTY * 3, "\ud800"]), 10),
    "one state": lambda: whole(counter(3), 1),
}


@pytest.fixture(params=SLICES)
def part(request: pytest.FixtureRequest) -> Slice:
    found: Slice = SLICES[request.param]()
    return found


# ---- What a drawing says


def test_arcs_take_events_with_one_pair_of_ends_together() -> None:
    part = take(known.load(BROKEN), "run:attacker never authorized", 30)
    found = {(arc.source, arc.target): arc for arc in arcs(part)}
    assert part.run is not None
    assert found[0, 1].events == ("attacker posts the run hook ⇒ installed",)
    assert found[0, 1].steps == (1,)
    assert found[1, 1].events == ("somebody presents 'Bearer A' ⇒ granted",)
    assert found[1, 1].short == "2. somebody presents 'Bearer A' ⇒ grant…"
    both = found[1, 3]
    assert both.events == ("platform posts the run hook ⇒ conflict", "attacker posts the run hook ⇒ replayed")
    assert both.short.endswith(" (+1)")
    assert both.steps == ()


def test_the_event_that_the_run_takes_names_its_arc() -> None:
    def jump(name: str) -> Event:
        return Event(name, "jump", "somebody", ("n",), ("n",), lambda n: ((1,), name), lambda n: n == 0)

    prop = Always(name="p", reads=("n",), holds=lambda n: n == 0)
    model = Model("m", "one", (Component("n", 0),), (jump("left"), jump("right")), (prop,))
    part = take(model, "run:p", 10)
    assert part.run is not None
    ((_, offer),) = part.run
    (arc,) = arcs(part)
    assert arc.events[0].startswith(part.nodes[0].offers[offer].event.name)
    assert len(arc.events) == 2


def test_a_failure_is_drawn_although_it_leads_nowhere() -> None:
    part = whole(failing(), 10)
    (arc,) = [arc for arc in arcs(part) if arc.failed]
    assert (arc.source, arc.target) == (1, 1)
    assert arc.events == ("break !! RuntimeError: out of order",)


def test_labels_say_what_differs_and_of_a_quotient_everything() -> None:
    part = take(known.load("lifecycle:drain"), "all", 100)
    assert label(part, 0) == ["0", "life: Lifecycle(stage=serving, in_flight=0)", "mode: drain"]
    assert label(part, 2) == ["2", "life: in_flight=0 -> 1"]
    quotient = take(known.load("lifecycle:drain"), "components:life", 100)
    assert label(quotient, 2) == ["2", "life: Lifecycle(stage=serving, in_flight=1)"]
    many = whole(Model("m", "one", tuple(Component(f"c{n}", n) for n in range(9)), ()), 1)
    assert label(many, 0)[-2:] == ["c5: 5", "and 3 more"]


@given(st.text(), st.integers(1, 60))
def test_shortened_text_is_short(text: str, width: int) -> None:
    short = shortened(text, width)
    assert columns(short) <= width
    assert short == plain(text) or short.endswith("…")
    assert "\n" not in short


@given(st.text(st.characters(), max_size=60))
def test_plain_text_is_what_xml_can_write(text: str) -> None:
    element = Element("t")
    element.text = plain(text)
    assert ElementTree.fromstring(ElementTree.tostring(element)).text == (plain(text) or None)


def test_wide_characters_take_two_columns() -> None:
    assert columns("ab漢字") == 6
    assert shortened("漢字漢字", 6) == "漢字…"


# ---- DOT

TOKEN = re.compile(
    r'\s*(?:("(?:[^"\\]|\\.)*")|([A-Za-z_][A-Za-z_0-9]*|\d+(?:\.\d+)?)|(->|[{}\[\];,=]))', re.DOTALL
)


def tokens(text: str) -> list[str]:
    """The lexical elements of DOT that we write: quoted strings, names, numbers and punctuation."""
    found, place = [], 0
    while text[place:].strip():
        match = TOKEN.match(text, place)
        assert match, text[place : place + 40]
        found.append(match[0].strip())
        place = match.end()
    return found


def parse(text: str) -> tuple[dict[str, dict[str, str]], list[tuple[str, str, dict[str, str]]]]:
    """Nodes and arcs with their attributes, by Graphviz's grammar of a directed graph without subgraphs."""
    rest = tokens(text)

    def expect(*wanted: str) -> None:
        for one in wanted:
            assert rest.pop(0) == one

    def name() -> str:
        found = rest.pop(0)
        assert found not in ("{", "}", "[", "]", ";", ",", "=", "->")
        return found

    def attributes() -> dict[str, str]:
        found = {}
        expect("[")
        while rest[0] != "]":
            key = name()
            expect("=")
            assert key not in found
            found[key] = name()
            if rest[0] == ",":
                expect(",")
        expect("]")
        return found

    nodes: dict[str, dict[str, str]] = {}
    ways = []
    expect("digraph")
    name()
    expect("{")
    while rest[0] != "}":
        one = name()
        if rest[0] == "=":
            expect("=")
            name()
        elif rest[0] == "->":
            expect("->")
            ways.append((one, name(), attributes()))
        else:
            assert one not in nodes
            nodes[one] = attributes()
        expect(";")
    expect("}")
    assert rest == []
    del nodes["node"], nodes["edge"]
    return nodes, ways


def read(quoted: str) -> list[str]:
    """The lines of a label as Graphviz shows them."""
    assert quoted[0] == quoted[-1] == '"'
    lines = [""]
    for one in re.findall(r"\\.|&\w+;|.", quoted[1:-1], re.DOTALL):
        if one == "\\l":
            lines.append("")
        else:
            lines[-1] += {"\\\\": "\\", '\\"': '"', "&amp;": "&"}.get(one, one)
    return lines[:-1] if len(lines) > 1 else lines


def test_dot_has_every_node_and_arc_once(part: Slice) -> None:
    nodes, ways = parse(dot(part))
    assert {node: read(given["label"]) for node, given in nodes.items()} == {
        f"n{number}": label(part, number) for number in range(len(part.nodes))
    }
    assert [(source, target, read(given["label"])) for source, target, given in ways] == [
        (f"n{arc.source}", f"n{arc.target}", [arc.short]) for arc in arcs(part)
    ]
    assert [source for source, _, given in ways if given.get("penwidth") == "2.5"] == [
        f"n{arc.source}" for arc in arcs(part) if arc.steps
    ]


@pytest.mark.program("dot", "graphviz")
def test_graphviz_shows_it(part: Slice) -> None:
    """Graphviz itself, drawing: every node with its lines, and every arc with its own."""
    ran = subprocess.run(
        ["dot", "-Tsvg"], input=dot(part).encode(), capture_output=True, timeout=60, check=True
    )
    assert ran.stderr == b""
    found: dict[str, list[tuple[str, list[str]]]] = {"node": [], "edge": []}
    for group in inside(ElementTree.fromstring(ran.stdout), "g"):
        if group.get("class") in found:
            title = "".join(inside_text(group, "title"))
            # It puts a space that does not break in place of each.
            lines = [line.replace("\xa0", " ") for line in inside_text(group, "text")]
            found[group.get("class", "")].append((title, lines))
    assert sorted(found["node"]) == sorted(
        (f"n{number}", label(part, number)) for number in range(len(part.nodes))
    )
    assert sorted(found["edge"]) == sorted(
        (f"n{arc.source}->n{arc.target}", [arc.short]) for arc in arcs(part)
    )


def test_dot_says_what_the_picture_lacks() -> None:
    assert 'label="Only the 2 states nearest to the first are here.";' in dot(whole(counter(9), 2))
    assert "label=" not in dot(whole(counter(1), 2)).split("n0", maxsplit=1)[0]


@given(models())
def test_dot_of_any_model_parses(model: Model) -> None:
    part = whole(model, 30)
    nodes, ways = parse(dot(part))
    assert len(nodes) == len(part.nodes)
    assert len({(source, target) for source, target, _ in ways}) == len(ways) == len(arcs(part))


# ---- SVG


def inside_text(root: Element, tag: str) -> list[str]:
    """The texts of the elements of a kind."""
    return ["".join(element.itertext()) for element in inside(root, tag)]


def inside(root: Element, tag: str, sort: str = "") -> Iterator[Element]:
    for element in root.iter(f"{{{NAMESPACE}}}{tag}"):
        if not sort or sort in element.get("class", "").split():
            yield element


def numbers(text: str | None) -> list[float]:
    assert text is not None
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def extents(root: Element) -> Iterator[tuple[float, float, float, float]]:
    """Left, top, right, bottom of whatever is drawn."""
    for rect in inside(root, "rect"):
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        yield x, y, x + width, y + height
    for arc in inside(root, "g", "arc"):
        for path in inside(arc, "path"):
            points = numbers(path.get("d"))
            yield min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])
    for text in inside(root, "text"):
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        sort = text.get("class")
        width = columns(text.text or "") * {"label": ARC_CHARACTER, "note": 7.0}.get(sort or "", CHARACTER)
        left = x - width / 2 if text.get("text-anchor") == "middle" else x
        yield left, y - LINE / 2, left + width, y + 3


def well_drawn(part: Slice, text: str) -> Element:
    root = ElementTree.fromstring(text)
    assert root.tag == f"{{{NAMESPACE}}}svg"
    assert [node.get("data-node") for node in inside(root, "g", "node")] == [
        str(number) for number in range(len(part.nodes))
    ]
    drawn = [(arc.get("data-from"), arc.get("data-to")) for arc in inside(root, "g", "arc")]
    assert drawn == [(str(arc.source), str(arc.target)) for arc in arcs(part)]
    assert len(set(drawn)) == len(drawn)
    left, top, width, height = numbers(root.get("viewBox"))
    assert (f"{width:.1f}", f"{height:.1f}") == (root.get("width"), root.get("height"))
    for x, y, right, bottom in extents(root):
        assert left - 0.2 <= x <= right <= left + width + 0.2
        assert top - 0.2 <= y <= bottom <= top + height + 0.2
    return root


def test_svg_has_everything_once_and_on_the_page(part: Slice) -> None:
    root = well_drawn(part, svg(part))
    for number, group in enumerate(inside(root, "g", "node")):
        assert [text.text for text in inside(group, "text")] == label(part, number)
    for arc, group in zip(arcs(part), inside(root, "g", "arc"), strict=True):
        (title,) = inside(group, "title")
        assert title.text == "\n".join(map(plain, arc.events))
        assert [text.text for text in inside(group, "text")] in ([], [arc.short])
        assert ("taken" in group.attrib["class"].split()) == bool(arc.steps)
        assert ("failed" in group.attrib["class"].split()) == arc.failed


def test_boxes_hold_their_text_and_do_not_overlap(part: Slice) -> None:
    root = ElementTree.fromstring(svg(part))
    boxes = []
    for group in inside(root, "g", "node"):
        (rect,) = inside(group, "rect")
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        boxes.append((x, y, x + width, y + height))
        for text in inside(group, "text"):
            assert float(text.attrib["x"]) + columns(text.text or "") * CHARACTER <= x + width - PADDING + 0.2
            assert y < float(text.attrib["y"]) < y + height
    for number, (left, top, right, bottom) in enumerate(boxes):
        for left2, top2, right2, bottom2 in boxes[:number]:
            assert right < left2 or right2 < left or bottom < top2 or bottom2 < top


@given(models())
def test_svg_of_any_model_is_well_drawn(model: Model) -> None:
    part = whole(model, 25)
    well_drawn(part, svg(part))


def test_svg_asks_for_nothing_and_can_be_read_out() -> None:
    part = take(known.load("lifecycle:drain"), "all", 100)
    root = ElementTree.fromstring(svg(part))
    assert root.get("role") == "img"
    told = {element.get("id"): element.text for element in root.iter() if element.get("id")}
    assert [told[name] for name in root.attrib["aria-labelledby"].split()] == [
        "lifecycle:drain",
        f"11 states, {len(arcs(part))} ways between them.",
    ]
    links = [value for element in root.iter() for value in element.attrib.values() if ":" in value]
    assert links == []
    assert "http" not in svg(part).replace(NAMESPACE, "")
    assert {element.tag.split("}")[1] for element in root.iter()} == {
        *("svg", "title", "desc", "style", "defs", "marker", "path", "rect", "text", "g"),
    }


def test_the_pointer_gets_the_whole_state() -> None:
    part = whole(named("word", ["x" * 200]), 10)
    titles = [
        title.text for group in inside(ElementTree.fromstring(svg(part)), "g", "node") for title in group
    ]
    assert f"place: 1\nword: {'x' * 200}" in titles
    assert all(columns(line) <= WIDTH for number in range(2) for line in label(part, number))
    assert all(columns(arc.short) <= ARC_WIDTH for arc in arcs(part))


def test_a_long_note_is_broken_into_lines() -> None:
    part = take(known.load(BROKEN), "run:attacker never authorized", 3)
    notes = [text.text or "" for text in inside(ElementTree.fromstring(svg(part)), "text", "note")]
    assert notes[0] == part.title
    assert len(notes) > 2
    assert " ".join(notes[1:]) == part.note
    assert not list(
        inside(ElementTree.fromstring(ElementTree.tostring(tree(part, alone=False))), "text", "note")
    )


# ---- Layout

REALS = st.floats(-1000, 1000)


@given(st.lists(st.tuples(REALS, st.floats(1, 200)), min_size=1, max_size=8), st.floats(0, 50))
def test_spread_keeps_the_order_and_the_gaps(boxes: list[tuple[float, float]], gap: float) -> None:
    wanted, widths = [want for want, _ in boxes], [width for _, width in boxes]
    got = spread(wanted, widths, gap)
    for number in range(len(got) - 1):
        least = (widths[number] + widths[number + 1]) / 2 + gap
        assert got[number + 1] - got[number] >= least - 1e-6
    apart = [(widths[n] + widths[n + 1]) / 2 + gap for n in range(len(widths) - 1)]
    if all(wanted[n + 1] - wanted[n] >= apart[n] for n in range(len(apart))):
        assert got == pytest.approx(wanted)


@given(
    st.lists(st.tuples(REALS, st.floats(1, 200)), min_size=1, max_size=6),
    st.lists(st.floats(-50, 50), min_size=6, max_size=6),
)
def test_spread_is_nearest(boxes: list[tuple[float, float]], moves: list[float]) -> None:
    """The places are the least squares of a convex set: nothing within it, reached along a line, is nearer."""
    wanted, widths = [want for want, _ in boxes], [width for _, width in boxes]
    got = spread(wanted, widths, 10)
    other = spread([place + move for place, move in zip(got, moves, strict=False)], widths, 10)

    def far(places: Sequence[float]) -> float:
        return math.fsum((place - want) ** 2 for place, want in zip(places, wanted, strict=True))

    for share in (0.01, 0.5, 1.0):
        between = [place + share * (then - place) for place, then in zip(got, other, strict=True)]
        assert far(got) <= far(between) + 1e-6


def test_crossings_are_counted() -> None:
    assert crossings([[0, 1], [2, 3]], {0: [2], 1: [3]}) == 0
    assert crossings([[0, 1], [2, 3]], {0: [3], 1: [2]}) == 1
    assert crossings([[0, 1], [2, 3]], {0: [2, 3], 1: [2, 3]}) == 1
    assert crossings([[0, 1, 2], [3, 4, 5]], {0: [5], 1: [4], 2: [3]}) == 3


def test_layers_are_ordered_so_that_arcs_do_not_cross_for_nothing() -> None:
    size = Size(10, 10)
    got: Any = places([size] * 5, [0, 1, 1, 2, 2], [(0, 1), (0, 2), (1, 4), (2, 3)])
    assert (got[1].x < got[2].x) == (got[4].x < got[3].x)
    assert [place.y for place in got] == sorted(place.y for place in got)
    assert got[0].x == pytest.approx((got[1].x + got[2].x) / 2)
    assert min(place.x - 5 for place in got) == pytest.approx(0)

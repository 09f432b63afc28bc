"""The explorer in a real browser: stepping, walking off, finding, and what it must never do.

A page is opened as a file, the way a reader does, and is given keys and clicks. Whatever it requested beyond itself,
and whatever the console shows, fails the test that opened it.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from checker import models as known
from checker.model import Model
from checker.properties import Always, Fair, LeadsTo
from checker.report.explorer import page
from checker.report.slice_data import slice_data
from checker.report.slices import Slice, take, whole
from checker.report.svg import svg
from tests.checker.browser import Browser, Tab, chromium
from tests.checker.systems import counter, switch
from tests.checker.test_drawings import NASTY, SLICES, named

in_chromium = pytest.mark.program("chromium", "chromium")
BROKEN = "bootstrap_exec:deployment_invariant_broken"


def attacked() -> Slice:
    return take(known.load(BROKEN), "run:attacker never authorized", 30)


def drained() -> Slice:
    return take(known.load("lifecycle:drain"), "all", 100)


def going_round() -> Slice:
    fair = (Fair(frozenset({"round"})),)
    never = LeadsTo(name="p", reads=("node",), when=lambda n: n == 0, then=lambda n: n == 9, fair=fair)
    return take(switch({"round": ((0, 1), (1, 2), (2, 1))}, (never,)), "run:p", 10)


def stuck() -> Slice:
    never = LeadsTo(name="p", reads=("n",), when=lambda n: n == 1, then=lambda n: n == 9)
    return take(counter(2, (never,)), "run:p", 10)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running


Opener = Callable[..., Tab]


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Opens the explorer of a slice; in the end, no page may have complained, or asked for anything but itself."""
    tabs: list[tuple[Tab, str]] = []

    def open_page(part: Slice, fragment: str = "") -> Tab:
        file = tmp_path / f"{len(tabs)} of these.html"
        file.write_text(page(part), "utf-8")
        tab = browser.tab()
        tabs.append((tab, file.as_uri()))
        tab.open(file.as_uri() + fragment)
        return tab

    yield open_page
    for tab, address in tabs:
        assert tab.complaints() == []
        # By the protocol the fragment is beside the address.
        assert tab.requested() == {address}
        tab.close()


def fragment(tab: Tab) -> str:
    found = tab.ask("location.hash")
    assert isinstance(found, str)
    return found


def current(tab: Tab) -> str:
    """The node that the graph shows as the present one."""
    (found,) = tab.ask("[...document.querySelectorAll('.node.current')].map((e) => e.dataset.node)")
    assert tab.ask("document.querySelector('.node[aria-current]').dataset.node") == found
    return str(found)


def changed(tab: Tab) -> dict[str, str]:
    """Component to what is highlighted of it."""
    return dict(zip(tab.texts("#state tr.changed th"), tab.texts("#state tr.changed .change"), strict=True))


# ---- What is in the file


class Parts(HTMLParser):
    """Elements with what they say, for a look without a browser."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.found.append((f"/{tag}", {}, ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = tag, attributes, text + data


@pytest.mark.parametrize("name", SLICES)
def test_the_data_is_in_the_page_and_cannot_leave_its_block(name: str) -> None:
    part = SLICES[name]()
    text = page(part)
    scripts = [(given, said) for tag, given, said in Parts(text).found if tag == "script"]
    (given, data), (plain, script) = scripts
    assert given == {"type": "application/json", "id": "data"}
    assert json.loads(data) == json.loads(json.dumps(slice_data(part)))
    assert "<" not in data
    assert plain == {}
    policy = next(given["content"] for tag, given, _ in Parts(text).found if "http-equiv" in given)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in policy


def test_the_page_names_nothing_outside_of_itself() -> None:
    found = Parts(page(drained())).found
    sources = [
        value
        for _, given, _ in found
        for name, value in given.items()
        if name in ("src", "href", "srcset", "data", "action", "xlink:href")
    ]
    assert sources == ["data:,"]
    assert re.findall(r"url\((?!#)|@import", page(drained())) == []


# ---- In the browser


@in_chromium
def test_stepping_through_a_run(opened: Opener) -> None:
    tab = opened(attacked())
    assert tab.text("h1") == f"{BROKEN}: attacker never authorized: violated"
    assert tab.text("#status") == "Step 0 of 2: the first state"
    assert (current(tab), changed(tab)) == ("0", {})
    assert tab.text("#offers .next").startswith("attacker posts the run hook ⇒ installed")

    tab.press("ArrowRight")
    assert tab.text("#status") == "Step 1 of 2: attacker posts the run hook ⇒ installed"
    assert fragment(tab) == "#step=1"
    assert current(tab) == "1"
    assert tab.text("#state-heading") == "State 1, after step 1"
    assert changed(tab) == {
        "boot": "changed: token=none -> set, nobody -> attacker",
        "hooks_seen": "changed: 0 -> 1",
    }
    assert tab.texts("#state th") == ["boot", "hooks_seen", "exec.0", "exec.1"]
    assert tab.text("#state td").startswith("(Bootstrap(token=set), attacker)")
    arc = tab.ask("[...document.querySelectorAll('.arc.current')].map((e) => [e.dataset.from, e.dataset.to])")
    assert arc == [["0", "1"]]

    tab.click("#forward")
    assert tab.text("#status") == "Step 2 of 2: somebody presents 'Bearer A' ⇒ granted"
    assert (current(tab), changed(tab)) == ("1", {})
    assert tab.text("[aria-current='step']") == "somebody presents 'Bearer A' ⇒ granted"
    assert tab.ask("document.getElementById('forward').getAttribute('aria-disabled')") == "true"
    tab.click("#forward")
    tab.press("ArrowRight")
    assert fragment(tab) == "#step=2"

    tab.press("Home")
    assert fragment(tab) == "#step=0"
    tab.press("ArrowLeft")
    assert fragment(tab) == "#step=0"
    tab.press("End")
    tab.click("#back")
    assert fragment(tab) == "#step=1"
    tab.click("#first")
    assert fragment(tab) == "#step=0"
    tab.click("#last")
    assert fragment(tab) == "#step=2"
    tab.click("#walk button", "attacker posts")
    assert fragment(tab) == "#step=1"
    assert tab.ask("document.activeElement.dataset.step") == "1"


@in_chromium
def test_the_fragment_says_where_to_begin(opened: Opener) -> None:
    tab = opened(attacked(), "#step=1")
    assert tab.text("#status").startswith("Step 1 of 2: ")
    tab.ask("location.hash = '#step=2'")
    tab.until("document.getElementById('status').textContent.startsWith('Step 2 of 2: ')")
    for wrong in ("#step=3", "#step=-1", "#step=x", "#walk=99&step=1", "#walk=&step=0", "#walk=1.1.1&step=4"):
        tab.ask(f"location.hash = {wrong!r}")
        told = f"There is no {wrong} here; this is the first state."
        tab.until(f"document.getElementById('status').textContent === {json.dumps(told)}")
        assert current(tab) == "0"
        assert fragment(tab) == "#step=0"


@in_chromium
def test_walking_off_the_run_and_back_to_it(opened: Opener) -> None:
    tab = opened(attacked())
    assert tab.ask("document.getElementById('return').hidden") is True
    tab.press("ArrowRight")
    tab.click("#offers button", "attacker starts exec 0")
    assert tab.text("#status") == "Step 2 of 2: attacker starts exec 0 ⇒ spawn"
    assert list(changed(tab)) == ["exec.0"]
    assert tab.ask("document.activeElement.id") == "state-heading"
    where = fragment(tab)
    assert re.fullmatch(r"#walk=\d+\.\d+&step=2", where)
    tab.press("ArrowLeft")
    assert current(tab) == "1"
    assert tab.text("#offers .next").startswith("attacker starts exec 0")

    # The address is enough for somebody else to be there too.
    other = opened(attacked(), where)
    assert other.text("#status") == "Step 2 of 2: attacker starts exec 0 ⇒ spawn"
    assert list(changed(other)) == ["exec.0"]
    # From there, this slice knows of no way on: what leads out of it is shown and leads nowhere.
    before = fragment(other)
    other.click("#offers button", "leads out of this slice")
    assert fragment(other) == before

    tab.click("#return")
    assert fragment(tab) == "#step=0"
    assert tab.texts("#walk button")[2] == "somebody presents 'Bearer A' ⇒ granted"
    assert tab.ask("document.getElementById('return').hidden") is True


@in_chromium
def test_walking_in_a_graph_without_a_run(opened: Opener) -> None:
    part = drained()
    tab = opened(part)
    assert tab.text("#status") == "Step 0 of 0: the first state"
    here = 0
    for number in range(3):
        events = [(offer.event.name, offer.to) for offer in part.nodes[here].offers]
        then = next(to for name, to in events if name == "a request begins")
        tab.click("#offers button", "a request begins")
        assert current(tab) == str(then)
        assert changed(tab) == {"life": f"changed: in_flight={number} -> {number + 1}"}
        assert then is not None
        here = then
    assert tab.text("#status").startswith("Step 3 of 3: a request begins")
    # Going back and another way replaces what was ahead.
    tab.press("Home")
    tab.click("#offers button", "the terminate hook was answered")
    assert tab.text("#status").startswith("Step 1 of 1: the terminate hook was answered")


@in_chromium
def test_a_state_of_the_graph_can_be_gone_to(opened: Opener) -> None:
    part = drained()
    tab = opened(part)
    tab.click(".node[data-node='10'] rect")
    assert current(tab) == "10"
    assert tab.text("#status").startswith(f"Step {part.nodes[10].depth} of {part.nodes[10].depth}: ")
    names = tab.texts("#walk button")
    assert len(names) == part.nodes[10].depth + 1
    tab.press("Home")
    tab.ask("document.querySelector('.node[data-node=\"7\"]').focus()")
    tab.press("Enter")
    assert current(tab) == "7"


@in_chromium
def test_finding_states(opened: Opener) -> None:
    part = drained()
    tab = opened(part)
    tab.press("/")
    assert tab.ask("document.activeElement.id") == "search"
    tab.write("life: DRAINING, in_flight=2")
    draining = [
        number
        for number, node in enumerate(slice_data(part)["nodes"])
        if "draining" in node["state"][0] and "in_flight=2" in node["state"][0]
    ]
    assert draining
    assert tab.text("#found") == f"{len(draining)} of 11 states"
    assert tab.texts("#matches button") == [
        f"State {node}: life: Lifecycle(stage=draining, in_flight=2)" for node in draining
    ]
    assert (
        tab.ask("[...document.querySelectorAll('.node.found')].map((e) => Number(e.dataset.node))")
        == draining
    )
    dimmed = "Number(getComputedStyle(document.querySelector('.node:not(.found)')).opacity)"
    assert tab.ask(dimmed) < 1
    # In the field, arrows are the field's.
    tab.press("ArrowLeft")
    assert fragment(tab) == "#step=0"
    tab.press("Enter")
    assert current(tab) == str(draining[0])
    tab.press("Escape")
    assert tab.ask("document.getElementById('matches').hidden") is True
    assert tab.ask("getComputedStyle(document.querySelector('.node')).opacity") == "1"
    tab.write("8")
    assert tab.texts("#matches button")[0].startswith("State 8: ")
    tab.click("#matches button")
    assert current(tab) == "8"
    tab.press("/")
    tab.press("Escape")
    tab.write("nothing says this")
    assert tab.text("#found") == "0 of 11 states"
    assert tab.texts("#matches li") == []
    tab.press("Enter")
    assert current(tab) == "8"


@in_chromium
def test_what_repeats_for_ever_is_gone_round(opened: Opener) -> None:
    part = going_round()
    assert part.run is not None
    assert part.loop is not None
    tab = opened(part, f"#step={len(part.run)}")
    assert tab.text("#loop") == f"Steps {part.loop + 1} to {len(part.run)} repeat for ever."
    tab.press("ArrowRight")
    assert fragment(tab) == f"#step={part.loop + 1}"
    end = opened(stuck(), "#step=1")
    assert end.text("#loop") == "And then nothing more happens, for ever."


@in_chromium
def test_a_run_without_steps(opened: Opener) -> None:
    part = take(counter(2, (Always(name="p", reads=("n",), holds=lambda n: n > 0),)), "run:p", 10)
    tab = opened(part)
    assert tab.text("#status") == "Step 0 of 0: the first state"
    tab.press("ArrowRight")
    assert fragment(tab) == "#step=0"
    tab.click("#offers button", "up")
    assert tab.ask("document.getElementById('return').hidden") is False


CONTRAST = """((ink, paper) => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/\\d+/g).map((c) => c / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
})"""


@in_chromium
def test_light_and_dark_can_both_be_read(opened: Opener) -> None:
    """Text has a contrast of 4.5 to 1, what is drawn of 3 to 1 (WCAG 2.2, 1.4.3 and 1.4.11)."""
    tab = opened(attacked(), "#step=1")
    tab.press("/")
    tab.press("Escape")

    def style(selector: str, name: str) -> str:
        found = tab.ask(f"getComputedStyle(document.querySelector({json.dumps(selector)})).{name}")
        assert isinstance(found, str)
        return found

    papers = []
    for scheme in ("light", "dark"):
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        body = style("body", "backgroundColor")
        papers.append(body)
        for ink, paper, least in (
            (style("body", "color"), body, 4.5),
            (style("#note", "color"), body, 4.5),
            (style(".kept", "color"), style("#offers button", "backgroundColor"), 4.5),
            (style(".quiet", "color"), style("#offers button", "backgroundColor"), 4.5),
            (style("tr.changed td", "color"), style("tr.changed", "backgroundColor"), 4.5),
            (style("[aria-current='step']", "color"), style("[aria-current='step']", "backgroundColor"), 4.5),
            (style(".node text", "fill"), style(".node:not(.current) rect", "fill"), 4.5),
            (style(".node.current text", "fill"), style(".node.current rect", "fill"), 4.5),
            (style(".arc text", "fill"), style(".paper", "fill"), 4.5),
            (style(".arc.taken path", "stroke"), style(".paper", "fill"), 3),
            (style(".arc.down:not(.taken) path", "stroke"), style(".paper", "fill"), 3),
            (style(".node.current rect", "stroke"), style(".paper", "fill"), 3),
        ):
            assert tab.ask(f"{CONTRAST}({json.dumps(ink)}, {json.dumps(paper)})") >= least, (
                scheme,
                ink,
                paper,
            )
    assert papers[0] != papers[1]


@in_chromium
def test_everything_that_can_be_used_has_a_name(opened: Opener) -> None:
    tab = opened(attacked(), "#step=1")
    tab.call("Accessibility.enable")
    tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    tab.call("Accessibility.disable")
    found: dict[str, list[str]] = {}
    for node in tree:
        if not node["ignored"]:
            role = str(node["role"]["value"])
            found.setdefault(role, []).append(str(node.get("name", {}).get("value", "")))
    for role in ("button", "searchbox", "table", "region", "list", "columnheader", "rowheader", "navigation"):
        assert found[role], role
        assert all(found[role]), (role, found[role])
    assert len(found["main"]) == 1
    assert found["searchbox"] == ["Find states"]
    assert found["columnheader"] == ["Component", "Value"]
    assert "State 1: boot: token=none -> set, nobody -> attacker; hooks_seen: 0 -> 1" in found["button"]
    assert {"Smaller picture", "Larger picture", "First", "← Back", "Forward →", "Last"} <= set(
        found["button"]
    )
    assert found["status"]


@in_chromium
def test_the_picture_can_be_made_larger_and_smaller(opened: Opener) -> None:
    tab = opened(attacked())
    width = "document.querySelector('svg').getBoundingClientRect().width"
    before = tab.ask(width)
    tab.click("#larger")
    assert tab.ask(width) == pytest.approx(before * 1.25, rel=0.001)
    tab.click("#smaller")
    tab.click("#smaller")
    assert tab.ask(width) == pytest.approx(before / 1.25, rel=0.001)


@in_chromium
def test_the_present_state_is_kept_in_view(opened: Opener) -> None:
    tab = opened(take(known.load("processes:polls"), "all", 120))
    for node in (119, 60, 0):
        tab.ask(
            f"document.querySelector('.node[data-node=\"{node}\"]').dispatchEvent(new MouseEvent('click'))"
        )
        assert current(tab) == str(node)
        inside = """(() => {
          const outer = document.getElementById('graph').getBoundingClientRect();
          const inner = document.querySelector('.node.current').getBoundingClientRect();
          return inner.left >= outer.left && inner.right <= outer.right
            && inner.top >= outer.top && inner.bottom <= outer.bottom;
        })()"""
        assert tab.ask(inside) is True


@in_chromium
def test_whatever_a_model_says_is_text(opened: Opener) -> None:
    hostile = '</script></style></title><img src="http://a.test/x" onerror="taken=1"><script>taken=1</script>'
    model: Model = named(hostile, [hostile, NASTY])
    tab = opened(whole(model, 10), "#walk=0.0&step=2")
    assert tab.text("h1") == model.key
    assert tab.text("#status").startswith(f"Step 2 of 2: {hostile} 1")
    assert hostile in tab.texts("#state .change")[1]
    assert tab.ask("window.taken") is None
    assert tab.ask("document.querySelectorAll('img, script').length") == 2


@in_chromium
def test_the_policy_stops_what_is_not_ours(browser: Browser, tmp_path: Path) -> None:
    """Not by `opened`: here the console has to complain."""
    file = tmp_path / "page.html"
    file.write_text(page(attacked()), "utf-8")
    tab = browser.tab()
    tab.open(file.as_uri())
    tab.ask(
        """{
          const script = document.createElement("script");
          script.textContent = "window.taken = 1";
          document.body.append(script);
          const image = document.createElement("img");
          image.src = "http://a.test/x";
          document.body.append(image);
        }"""
    )
    tab.until("document.querySelector('img').complete")
    assert tab.ask("window.taken") is None
    assert len([told for told in tab.complaints() if "Content Security Policy" in told]) == 2
    tab.close()


@in_chromium
@pytest.mark.parametrize("name", SLICES)
def test_what_the_browser_draws_is_on_the_page(browser: Browser, tmp_path: Path, name: str) -> None:
    """By the widths that text really has."""
    file = tmp_path / "picture.svg"
    file.write_text(svg(SLICES[name]()), "utf-8")
    tab = browser.tab()
    tab.open(file.as_uri())
    outside: Any = tab.ask(
        """(() => {
          const page = document.documentElement.viewBox.baseVal;
          return [...document.querySelectorAll(".node, .arc, .note")]
            .filter((element) => {
              const box = element.getBBox();
              return box.x < page.x || box.y < page.y
                || box.x + box.width > page.x + page.width || box.y + box.height > page.y + page.height;
            })
            .map((element) => element.textContent);
        })()"""
    )
    assert outside == []
    wide: Any = tab.ask(
        """[...document.querySelectorAll(".node")].filter((node) => {
          const box = node.querySelector("rect").getBBox();
          return [...node.querySelectorAll("text")].some((text) => {
            const inner = text.getBBox();
            return inner.x < box.x || inner.x + inner.width > box.x + box.width;
          });
        }).map((element) => element.textContent)"""
    )
    assert wide == []
    assert tab.complaints() == []
    tab.close()

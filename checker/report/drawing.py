"""What a drawing of a slice says, whoever draws it: labels of nodes, and arcs with one pair of ends taken together."""

import re
from unicodedata import east_asian_width

from attrs import frozen

from checker.report.slices import Offer, Slice
from checker.report.words import say, say_change

WIDTH = 46
"""Columns of a line of a label."""
ARC_WIDTH = 40
"""Columns of the label of an arc."""
LINES = 7
"""Lines of a label below its first."""

_UNWRITABLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to write (its production Char), and the controls it discourages."""
_SPACES = str.maketrans("\t\n\r", "   ")


@frozen
class Arc:
    """Every event that leads from one node to another."""

    source: int
    target: int
    events: tuple[str, ...]
    """Each with its response; first those that the run of the slice takes."""
    steps: tuple[int, ...]
    """The steps of the run that go this way, from 1."""
    failed: bool
    """Whether one of the events is a rule that did not return."""

    @property
    def short(self) -> str:
        """The first of the events, how many others there are, and which steps these are."""
        steps = f"{', '.join(map(str, self.steps))}. " if self.steps else ""
        more = f" (+{len(self.events) - 1})" if len(self.events) > 1 else ""
        return shortened(steps + self.events[0], ARC_WIDTH) + more


def arcs(part: Slice) -> list[Arc]:
    """The arcs between different nodes. What leads nowhere has one where it is worth a look: on a run, or a failure."""
    steps: dict[tuple[int, int], list[int]] = {}
    for number, taken in enumerate(part.run or ()):
        steps.setdefault(taken, []).append(number + 1)
    found: dict[tuple[int, int], list[tuple[list[int], Offer]]] = {}
    for number, node in enumerate(part.nodes):
        for place, offer in enumerate(node.offers):
            mine = steps.get((number, place), [])
            if offer.to is not None and (offer.to != number or mine or offer.error):
                found.setdefault((number, offer.to), []).append((mine, offer))
    return [_arc(*ends, offers) for ends, offers in found.items()]


def _arc(source: int, target: int, offers: list[tuple[list[int], Offer]]) -> Arc:
    offers.sort(key=lambda one: not one[0])
    return Arc(
        source,
        target,
        tuple(occurrence(offer) for _, offer in offers),
        tuple(sorted(step for steps, _ in offers for step in steps)),
        any(offer.error for _, offer in offers),
    )


def occurrence(offer: Offer) -> str:
    """An event and what it answers."""
    if offer.error:
        return f"{offer.event.name} !! {offer.error}"
    return offer.event.name + ("" if offer.response is None else f" ⇒ {say(offer.response)}")


def label(part: Slice, number: int) -> list[str]:
    """The lines of a node: its number, and what differs from the node before it; of a quotient, everything."""
    node, before = part.nodes[number], part.nodes[part.nodes[number].parent]
    every = number == 0 or len(part.components) < len(part.model.components)
    lines = []
    for component, old, new in zip(part.components, before.values, node.values, strict=True):
        if every:
            lines.append(shortened(f"{component.name}: {say(new)}"))
        elif old != new:
            lines.append(shortened(f"{component.name}: {say_change(old, new)}"))
    if len(lines) > LINES:
        lines[LINES - 1 :] = [f"and {len(lines) - LINES + 1} more"]
    return [f"{number}", *lines]


def plain(text: str) -> str:
    """One line of text, with a mark in place of each character that XML has no way to write."""
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text).translate(_SPACES)


def columns(text: str) -> int:
    """How wide a text is in a font whose characters are of one width, or of two (Unicode Annex 11)."""
    return len(text) + sum(east_asian_width(c) in "WF" for c in text)


def shortened(text: str, width: int = WIDTH) -> str:
    """A text of at most `width` columns."""
    text = plain(text)
    if columns(text) <= width:
        return text
    text = text[: width - 1]
    while columns(text) > width - 1:
        text = text[:-1]
    return text + "…"

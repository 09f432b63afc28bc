"""A slice as data: for machines, and for the explorer, which has to know every state and every way on."""

from typing import Any

from checker.report.slices import Node, Offer, Slice
from checker.report.words import say, say_change


def slice_data(part: Slice) -> dict[str, Any]:
    """A slice as values of JSON. Nodes and offers are named by their places; values are in words."""
    return {
        "model": part.model.key,
        "digest": part.model.digest(),
        "title": part.title,
        "note": part.note,
        "complete": part.complete,
        "components": [{"name": c.name, "meaning": c.meaning} for c in part.components],
        "nodes": [_node(part, node) for node in part.nodes],
        "run": None if part.run is None else [{"node": node, "offer": offer} for node, offer in part.run],
        "loop": part.loop,
    }


def _node(part: Slice, node: Node) -> dict[str, Any]:
    return {
        "depth": node.depth,
        "parent": node.parent,
        "state": [say(value) for value in node.values],
        "offers": [_offer(part, node, offer) for offer in node.offers],
    }


def _offer(part: Slice, node: Node, offer: Offer) -> dict[str, Any]:
    then = node if offer.to is None else part.nodes[offer.to]
    return {
        "event": offer.event.name,
        "kind": offer.event.kind,
        "actor": offer.event.actor,
        "response": None if offer.response is None else say(offer.response),
        "error": offer.error or None,
        "to": offer.to,
        "changes": {
            c.name: say_change(old, new)
            for c, old, new in zip(part.components, node.values, then.values, strict=True)
            if old != new
        },
    }

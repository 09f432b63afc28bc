"""Our schema document against the published one: nothing is missing, nothing was narrowed (contract h.2).

``published-v1.json`` holds the published document's facts without its prose: routes, statuses, events, the types of
every field, limits. The rule of compatibility: no route, status or event disappears; a request field never becomes
required and never takes less; a response field never vanishes, never becomes optional, never gives what a client of
the published document would not read. What is beyond it is free.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from agentd.config import Config
from agentd.http.document import schema_document
from agentd.microvm.routes import HOOK_PREFIX, ROUTES
from agentd.microvm.schema import TITLE, limits

PUBLISHED: dict[str, Any] = json.loads((Path(__file__).parent / "published-v1.json").read_text())
OURS = schema_document(ROUTES, limits(Config()), HOOK_PREFIX, TITLE)
KEYS = [(route["method"], route["path"]) for route in PUBLISHED["routes"]]


def row(document: dict[str, Any], key: tuple[str, str]) -> dict[str, Any]:
    """One route of a document."""
    found = [route for route in document["routes"] if (route["method"], route["path"]) == key]
    assert len(found) == 1, f"{key} is there {len(found)} times"
    return found[0]


def kinds(node: dict[str, Any]) -> set[str]:
    """The JSON types that one of our schemas admits; a reference as ``#Name``."""
    if "$ref" in node:
        return {f"#{node['$ref'].rsplit('/', 1)[1]}"}
    found: set[str] = set()
    if "type" in node:
        found |= set(node["type"]) if isinstance(node["type"], list) else {node["type"]}
    elif "enum" in node:
        found |= {"string" if isinstance(value, str) else "other" for value in node["enum"]}
    for inner in node.get("anyOf", ()):
        found |= kinds(inner)
    return found


def reach(names: set[str]) -> set[str]:
    """Those published definitions, and all that their fields refer to."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            definition = PUBLISHED["defs"][name]
            for types in [*definition.get("properties", {}).values(), *definition.get("items", {}).values()]:
                names |= {kind[1:] for kind in types if kind.startswith("#")}
    return found


def used(*places: str) -> set[str]:
    """The definitions that published routes use in these places."""
    direct = {
        route[place]["type"]
        for route in PUBLISHED["routes"]
        for place in places
        if route.get(place, {}).get("type")
    }
    if "response" in places:
        direct |= {name for route in PUBLISHED["routes"] for name in route.get("events", {}).values()}
    return reach(direct)


REQUESTS, RESPONSES = used("request", "query"), used("response")
FIELDS = [(name, field) for name, entry in PUBLISHED["defs"].items() for field in entry.get("properties", {})]


def test_the_document_has_every_published_key() -> None:
    """And says the same where the value is part of the protocol."""
    assert set(PUBLISHED["keys"]) <= set(OURS)
    assert OURS["protocol_version"] == PUBLISHED["protocol_version"]
    assert OURS["version_header"] == PUBLISHED["version_header"]
    assert OURS["hook_prefix"] == PUBLISHED["hook_prefix"]
    assert OURS["unmatched_path"]["code"] == PUBLISHED["unmatched"]
    assert {key: OURS["auth"][key] for key in PUBLISHED["auth"]} == PUBLISHED["auth"]
    assert set(OURS["auth"]["bootstrap"]) >= {"before_bootstrap", "how", "note", "wrong_token"}
    assert OURS["definition_collisions"] == []
    assert OURS["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_limits_are_the_published_ones() -> None:
    """Names, defaults, and seconds as decimals."""
    assert OURS["limits"] == PUBLISHED["limits"]
    assert {name: type(value) for name, value in OURS["limits"].items()} == {
        name: type(value) for name, value in PUBLISHED["limits"].items()
    }


def test_there_is_no_route_beside_the_published_ones() -> None:
    """Twenty pairs, no others (contract a.0)."""
    assert {(route["method"], route["path"]) for route in OURS["routes"]} == set(KEYS)
    assert len(KEYS) == 20


@pytest.mark.parametrize("key", KEYS, ids=" ".join)
def test_a_route_keeps_its_promises(key: tuple[str, str]) -> None:
    """Who may call it, every status with its slug, every event, its media types and shapes."""
    ours, published = row(OURS, key), row(PUBLISHED, key)
    assert ours["auth"] == published["auth"]
    statuses = {(status["code"], status["error"]) for status in ours["statuses"]}
    assert {(code, slug) for code, slug in published["statuses"]} <= statuses
    assert all(status["meaning"] for status in ours["statuses"])
    assert ours["summary"]
    events = {
        event["event"]: event["schema"]["$ref"].rsplit("/", 1)[1] for event in ours.get("sse_events", ())
    }
    assert published.get("events", {}).items() <= events.items()
    for place in ("query", "request", "response"):
        if place in published:
            assert ours[place] is not None, place
            # The schema document says octets of itself, and is served as JSON (contract a.11).
            if key != ("GET", "/v1/schema"):
                assert ours[place]["media_type"] == published[place]["media_type"]
            if "type" in published[place]:
                assert ours[place]["schema"]["$ref"].rsplit("/", 1)[1] == published[place]["type"]
            else:
                assert ours[place]["note"]
        elif place != "query":
            assert ours[place] is None, place


@pytest.mark.parametrize("name", PUBLISHED["defs"])
def test_a_definition_is_there(name: str) -> None:
    """Under its name, of its kind, with its values."""
    ours, published = OURS["$defs"][name], PUBLISHED["defs"][name]
    assert kinds(ours) == set(published["types"])
    if "values" in published:
        assert set(ours["enum"]) == set(published["values"])
    if "properties" in published:
        assert set(published["properties"]) <= set(ours["properties"])


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=".".join)
def test_a_field_is_compatible(name: str, field: str) -> None:
    """A request takes all that was published and requires no more; a response gives only that, and always."""
    ours, published = OURS["$defs"][name], PUBLISHED["defs"][name]
    mine, theirs = kinds(ours["properties"][field]), set(published["properties"][field])
    required = field in ours.get("required", ())
    if name in REQUESTS:
        assert theirs <= mine
        assert not required or field in published["required"]
    if name in RESPONSES:
        assert mine <= theirs
        assert required or field not in published["required"]
    assert name in REQUESTS | RESPONSES


@pytest.mark.parametrize("name", sorted(REQUESTS & set(OURS["$defs"])))
def test_no_request_field_of_ours_is_newly_required(name: str) -> None:
    """Additive fields have defaults."""
    assert set(OURS["$defs"][name].get("required", ())) <= set(PUBLISHED["defs"][name].get("required", ()))


@pytest.mark.parametrize(
    ("name", "field"),
    [(name, field) for name, entry in PUBLISHED["defs"].items() for field in entry.get("items", {})],
    ids=".".join,
)
def test_a_list_holds_what_was_published(name: str, field: str) -> None:
    """Of the same kind."""
    assert kinds(OURS["$defs"][name]["properties"][field]["items"]) == set(
        PUBLISHED["defs"][name]["items"][field]
    )

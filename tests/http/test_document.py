"""The schema document and OpenAPI: made from a route list, closed under reference, and in step with the wire."""

import json
from typing import Annotated, Any

import jsonschema
import msgspec
import pytest
from msgspec import UNSET, Meta, Struct, UnsetType
from openapi_spec_validator import OpenAPIV31SpecValidator

from agentd._version import VERSION
from agentd.http.document import definitions, markdown, openapi_document, schema_document
from agentd.http.routes import FORM, Auth, Event, Route, Shape, Status
from agentd.microvm.routes import HOOK_PREFIX, ROUTES

Named = Annotated[int | str, Meta(extra_json_schema={"x-shared-name": "Named"}, description="Either.")]


class Query(Struct):
    """A query."""

    needed: str
    optional: int | None = None
    flag: bool = False


class Inner(Struct):
    """A part."""

    value: int


class Thing(Struct):
    """A whole."""

    name: Named
    inner: Inner
    other: Named | None = None
    maybe: int | UnsetType = UNSET


LIST = (
    Route(
        "GET",
        "/things/{id}",
        Auth.BEARER,
        "A thing.",
        (
            Status(200, "", "found"),
            Status(404, "unknown", "not found"),
            Status(404, "gone", "no more"),
            Status(401, "", "no"),
        ),
        query=Shape(FORM, Query),
        response=Shape("application/json", Thing),
        events=(Event("part", Inner, "a part"),),
        tags=("things",),
    ),
    Route(
        "PUT",
        "/things/{id}",
        Auth.NONE,
        "Bytes.",
        (Status(204, "", "stored"),),
        request=Shape("application/octet-stream", note="Any bytes."),
    ),
    Route(
        "POST",
        "/hook",
        Auth.PLATFORM,
        "A hook.",
        (Status(200, "", "done"),),
        request=Shape("application/json", Thing),
    ),
)


@pytest.fixture
def document() -> dict[str, Any]:
    return schema_document(LIST, {"cap": 5, "wait_secs": 1.0}, "/hooks", "A title")


def references(node: Any) -> set[str]:
    """Every ``$ref`` below."""
    if isinstance(node, list):
        return set().union(*map(references, node), set())
    if isinstance(node, dict):
        below = set().union(*map(references, node.values()), set())
        return below | ({node["$ref"]} if isinstance(node.get("$ref"), str) else set())
    return set()


def test_a_row_says_what_the_route_says(document: dict[str, Any]) -> None:
    """Field by field (contract h.2)."""
    first, second, third = document["routes"]
    assert (first["method"], first["path"], first["auth"], first["summary"]) == (
        "GET",
        "/things/{id}",
        "bearer",
        "A thing.",
    )
    assert first["statuses"][1] == {"code": 404, "error": "unknown", "meaning": "not found"}
    assert first["statuses"][0] == {"code": 200, "error": "", "meaning": "found"}
    assert first["query"] == {"media_type": FORM, "schema": {"$ref": "#/$defs/Query"}}
    assert first["request"] is None
    assert first["response"] == {"media_type": "application/json", "schema": {"$ref": "#/$defs/Thing"}}
    assert first["sse_events"] == [
        {"event": "part", "meaning": "a part", "schema": {"$ref": "#/$defs/Inner"}}
    ]
    assert second["request"] == {"media_type": "application/octet-stream", "note": "Any bytes."}
    assert second["auth"] == "none"
    assert "query" not in second
    assert "sse_events" not in second
    assert third["auth"] == "none (platform hook)"
    assert document["limits"] == {"cap": 5, "wait_secs": 1.0}
    assert document["hook_prefix"] == "/hooks"
    assert document["title"] == "A title"
    assert document["daemon_version"] == VERSION


def test_a_shared_union_is_a_definition_of_its_own(document: dict[str, Any]) -> None:
    """Named as published, referred to wherever it is used, also where it may be null."""
    named = document["$defs"]["Named"]
    assert {kind["type"] for kind in named["anyOf"]} == {"integer", "string"}
    properties = document["$defs"]["Thing"]["properties"]
    assert properties["name"] == {"$ref": "#/$defs/Named"}
    assert "x-shared-name" not in json.dumps(document)
    assert "Named" in json.dumps(properties["other"]) or "anyOf" in properties["other"]


@pytest.mark.parametrize("routes", [LIST, ROUTES], ids=["list", "protocol v1"])
def test_every_reference_is_defined_and_every_definition_referred_to(routes: tuple[Route, ...]) -> None:
    """In both notations."""
    document = schema_document(routes, {}, HOOK_PREFIX, "t")
    defined = {f"#/$defs/{name}" for name in document["$defs"]}
    assert references(document) <= defined
    spec = openapi_document(routes, "t")
    assert references(spec) <= {f"#/components/schemas/{name}" for name in spec["components"]["schemas"]}
    assert set(spec["components"]["schemas"]) == set(document["$defs"])


@pytest.mark.parametrize("routes", [LIST, ROUTES], ids=["list", "protocol v1"])
def test_openapi_is_valid(routes: tuple[Route, ...]) -> None:
    """By the specification's own schema, with operation ids that are unique."""
    spec = openapi_document(routes, "t")
    OpenAPIV31SpecValidator(spec).validate()
    ids = [operation["operationId"] for path in spec["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids)) == len(routes)


def test_openapi_says_who_may_call() -> None:
    """Bearer routes and no others."""
    paths = openapi_document(ROUTES, "t")["paths"]
    for route in ROUTES:
        operation = paths[route.path][route.method.lower()]
        assert bool(operation["security"]) == (route.auth is Auth.BEARER)


def test_openapi_lists_every_status_once() -> None:
    """Several slugs of a status share its row; every route has a 405."""
    operation = openapi_document(LIST, "t")["paths"]["/things/{id}"]["get"]
    assert set(operation["responses"]) >= {"200", "401", "404", "405"}
    description = operation["responses"]["404"]["description"]
    assert "unknown: not found" in description
    assert "gone: no more" in description
    assert "application/json" in operation["responses"]["404"]["content"]
    assert "content" not in operation["responses"]["401"]


def test_openapi_parameters() -> None:
    """A path's are required; a query has no null, so what may be absent is not required."""
    operation = openapi_document(LIST, "t")["paths"]["/things/{id}"]["get"]
    parameters = {parameter["name"]: parameter for parameter in operation["parameters"]}
    assert (parameters["id"]["in"], parameters["id"]["required"]) == ("path", True)
    assert (parameters["needed"]["in"], parameters["needed"]["required"]) == ("query", True)
    assert parameters["optional"]["required"] is False
    assert parameters["optional"]["schema"]["type"] == "integer"
    assert "null" not in json.dumps(parameters["optional"])
    assert parameters["flag"]["schema"]["type"] == "boolean"


@pytest.mark.parametrize(
    "shape",
    dict.fromkeys(s.type for r in ROUTES for s in (r.request, r.response) if s is not None and s.type),
)
def test_definitions_are_json_schemas(shape: Any) -> None:
    """Each by the dialect that the document names."""
    schemas, named = definitions(ROUTES, "#/$defs/{name}")
    schema = {**schemas[shape], "$defs": named}
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ({"name": 1, "inner": {"value": 1}}, True),
        ({"name": "x", "inner": {"value": 1}, "other": None, "maybe": 3, "unknown": 1}, True),
        ({"name": None, "inner": {"value": 1}}, False),
        ({"name": "x"}, False),
        ({"name": "x", "inner": {"value": "1"}}, False),
        ({"name": "x", "inner": {"value": 1}, "maybe": None}, False),
    ],
)
def test_a_definition_accepts_what_the_decoder_does(value: Any, valid: bool) -> None:
    """They come from one type."""
    schemas, named = definitions(LIST, "#/$defs/{name}")
    validator = jsonschema.Draft202012Validator({**schemas[Thing], "$defs": named})
    assert validator.is_valid(value) is valid
    try:
        msgspec.json.decode(json.dumps(value).encode(), type=Thing)
    except msgspec.ValidationError:
        assert not valid
    else:
        assert valid


def test_the_tables_name_every_route_and_status() -> None:
    """Those of ``docs/``."""
    text = markdown(LIST)
    assert "### `GET /things/{id}`" in text
    assert "| 404 | `unknown` | not found |" in text
    assert "| 401 |  | no |" in text
    assert "event `part` (`Inner`): a part" in text
    assert "Any bytes." in text

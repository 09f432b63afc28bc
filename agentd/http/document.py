"""The machine-readable contract of a route list: the schema document, and OpenAPI 3.1.

Both are made from the same rows that the router serves, so they cannot drift from it. Shapes describe themselves
(`msgspec.json.schema_components`); a union that has a published name of its own is marked with ``x-shared-name``
in its metadata and becomes a definition here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

import msgspec

from agentd._version import PROTOCOL_VERSION, VERSION
from agentd.http.request import VERSION_HEADER
from agentd.http.routes import Auth, Route, Shape

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SHARED: Final = "x-shared-name"
WITH_CONTENT: Final = (101, 200, 201, 206)
"""The statuses that a route's response shape is the content of; of a 101, of each message after it."""
_PROBLEM: Final = {
    "type": "object",
    "required": ["error", "detail"],
    "properties": {"error": {"type": "string"}, "detail": {"type": "string"}},
}

Json = dict[str, Any]


def _types(routes: Iterable[Route]) -> list[Any]:
    found: list[Any] = []
    for route in routes:
        shapes = [route.query, route.request, route.response]
        found += [shape.type for shape in shapes if shape is not None and shape.type is not None]
        found += [route.problem] if route.problem is not None else []
        found += [event.type for event in route.events]
    return list(dict.fromkeys(found))


def definitions(routes: Iterable[Route], template: str) -> tuple[dict[Any, Json], Json]:
    """The schema of each type on the list, by type, and all named definitions; `template` makes references."""
    types = _types(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template=template)
    shared: Json = {}

    def hoist(node: Any) -> Any:
        if isinstance(node, list):
            return [hoist(item) for item in node]
        if not isinstance(node, dict):
            return node
        node = {key: hoist(value) for key, value in node.items()}
        name = node.pop(_SHARED, None)
        if name is None:
            return node
        default = {"default": node.pop("default")} if "default" in node else {}
        shared[name] = node
        return {"$ref": template.format(name=name), **default}

    components = hoist(dict(components))
    by_type = dict(zip(types, (hoist(schema) for schema in schemas), strict=True))
    return by_type, dict(sorted({**components, **shared}.items()))


def schema_document(
    routes: tuple[Route, ...], limits: Mapping[str, float], hook_prefix: str, title: str
) -> Json:
    """``GET /v1/schema`` (contract h.2). `limits` are those in force."""
    schemas, named = definitions(routes, "#/$defs/{name}")

    def described(shape: Shape | None) -> Json | None:
        if shape is None:
            return None
        if shape.type is None:
            return {"media_type": shape.media_type, "note": shape.note}
        return {"media_type": shape.media_type, "schema": schemas[shape.type]}

    def row(route: Route) -> Json:
        entry: Json = {
            "method": route.method,
            "path": route.path,
            "auth": route.auth.value,
            "summary": route.summary,
            "request": described(route.request),
            "response": described(route.response),
            "statuses": [
                {"code": status.code, "error": status.slug, "meaning": status.meaning}
                for status in route.statuses
            ],
        }
        if route.query is not None:
            entry["query"] = described(route.query)
        if route.events:
            entry["sse_events"] = [
                {"event": event.name, "meaning": event.meaning, "schema": schemas[event.type]}
                for event in route.events
            ]
        return entry

    return {
        "$schema": DIALECT,
        "title": title,
        "generated_from": "the route list and the wire types that the daemon itself decodes with",
        "protocol_version": PROTOCOL_VERSION,
        "daemon_version": VERSION,
        "version_header": VERSION_HEADER.decode(),
        "hook_prefix": hook_prefix,
        "auth": {
            "header": "authorization",
            "scheme": "bearer",
            "bootstrap": {
                "how": "the platform posts the token to the run hook",
                "before_bootstrap": "503 on every bearer route",
                "wrong_token": "401",
                "note": "tokens are compared as raw bytes in constant time",
            },
        },
        "limits": dict(limits),
        "unmatched_path": {"code": 404, "meaning": "no such route, whoever asks; the body is empty"},
        "definition_collisions": [],
        "routes": [row(route) for route in routes],
        "$defs": named,
    }


def openapi_document(routes: tuple[Route, ...], title: str) -> Json:
    """The OpenAPI 3.1 document of a route list."""
    schemas, named = definitions(routes, "#/components/schemas/{name}")
    paths: Json = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, named)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": VERSION, "license": {"name": "Apache-2.0"}},
        "jsonSchemaDialect": DIALECT,
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": named,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: Mapping[Any, Json], named: Json) -> Json:
    words = route.path.replace("{", "").replace("}", "").strip("/").split("/")
    operation: Json = {
        "operationId": "_".join([route.method.lower(), *(word.replace("-", "_") for word in words)]),
        "summary": route.summary,
        "tags": list(route.tags),
        "security": [{"token": []}] if route.auth is Auth.BEARER else [],
        "parameters": [
            *(
                {
                    "name": word[1:-1],
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string", "minLength": 1},
                }
                for word in route.path.split("/")
                if word.startswith("{")
            ),
            *_query_parameters(route, schemas, named),
        ],
        "responses": _responses(route, schemas),
    }
    if route.request is not None:
        schema = schemas[route.request.type] if route.request.type is not None else {}
        operation["requestBody"] = {
            "required": route.request.type is not None,
            "content": {route.request.media_type: {"schema": schema}},
        }
    return operation


def _query_parameters(route: Route, schemas: Mapping[Any, Json], named: Json) -> list[Json]:
    if route.query is None:
        return []
    shape = named[schemas[route.query.type]["$ref"].rsplit("/", 1)[1]]
    parameters = []
    for name, schema in shape["properties"].items():
        # A query has no null: an optional parameter is one that is left out.
        schema = dict(schema)
        kinds = [kind for kind in schema.pop("anyOf", []) if kind.get("type") != "null"]
        if kinds:
            schema.update(kinds[0])
        if schema.get("default", 0) is None:
            del schema["default"]
        parameters.append(
            {"name": name, "in": "query", "required": name in shape.get("required", []), "schema": schema}
        )
    return parameters


def _responses(route: Route, schemas: Mapping[Any, Json]) -> Json:
    responses: Json = {}
    for status in route.statuses:
        text = f"{status.slug}: {status.meaning}" if status.slug else status.meaning
        known = responses.setdefault(str(status.code), {"description": ""})
        known["description"] = "; or ".join(filter(None, [known["description"], text]))
        if status.code in WITH_CONTENT and route.response is not None:
            schema = schemas[route.response.type] if route.response.type is not None else {}
            known["content"] = {route.response.media_type: {"schema": schema}}
        elif status.slug:
            problem = _PROBLEM if route.problem is None else schemas[route.problem]
            known["content"] = {"application/json": {"schema": problem}}
    responses.setdefault("405", {"description": "the path has no such method"})
    return responses


def _named(kind: Any) -> str:
    """A shape by name; of a union, the names of all."""
    kinds = get_args(kind) or (kind,)
    return " or ".join(f"`{each.__name__}`" for each in kinds)


def markdown(routes: Iterable[Route]) -> str:
    """The tables of ``docs/``: a section a route, a row a status."""
    parts: list[str] = []
    for route in routes:
        parts.append(f"### `{route.method} {route.path}`\n\n{route.summary}\n\nAuth: {route.auth.value}.")
        shapes = (("Query", route.query), ("Request", route.request), ("Response", route.response))
        for title, shape in shapes:
            if shape is not None:
                named = shape.note if shape.type is None else _named(shape.type)
                parts[-1] += f"\n{title}: `{shape.media_type}`, {named}"
        parts += [
            f"- event `{event.name}` (`{event.type.__name__}`): {event.meaning}" for event in route.events
        ]
        parts.append("| Status | Slug | Meaning |\n| --- | --- | --- |")
        parts[-1] += "".join(
            f"\n| {status.code} | {f'`{status.slug}`' if status.slug else ''} | {status.meaning} |"
            for status in route.statuses
        )
    return "\n\n".join(parts) + "\n"

"""The documents as a daemon serves them, and every answer against them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_twisted
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from agentd.config import Config
from agentd.http.document import openapi_document, schema_document
from agentd.microvm.routes import HOOK_PREFIX, ROUTES
from agentd.microvm.schema import TITLE, limits
from tests.conftest import RunningDaemon, start_daemon
from tests.wire.support import Api


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A bootstrapped daemon with the limits that tests have."""
    running = start_daemon(tmp_path_factory.mktemp("daemon"))
    running.bootstrap()
    yield running
    running.stop()


@pytest.fixture
def api(daemon: RunningDaemon) -> Api:
    return Api(daemon.url, daemon.token)


@pytest_twisted.ensureDeferred
async def test_the_schema_document_is_that_of_the_route_list(api: Api) -> None:
    """Served as JSON to anybody, with the limits in force."""
    reply = await api.get("/v1/schema", token=False)
    config = Config(kill_grace_secs=1.0, output_linger_secs=1.0, stdin_write_timeout_secs=1.0)
    expected = schema_document(ROUTES, limits(config), HOOK_PREFIX, TITLE)
    assert reply.json == json.loads(json.dumps(expected))
    assert reply.json["limits"]["kill_grace_secs"] == 1.0
    assert b'"kill_grace_secs":1.0' in reply.body
    assert (await api.get("/v1/schema", token=False)).body == reply.body


@pytest_twisted.ensureDeferred
async def test_the_openapi_document_is_valid(api: Api) -> None:
    """By the specification's own schema; and it holds protocol v1 as its route list has it."""
    document = (await api.get("/v1/schema?format=openapi", token=False)).json
    OpenAPIV31SpecValidator(document).validate()
    expected = json.loads(json.dumps(openapi_document(ROUTES, TITLE)))
    assert expected["paths"].items() <= document["paths"].items()
    assert expected["components"]["schemas"].items() <= document["components"]["schemas"].items()


@pytest_twisted.ensureDeferred
async def test_an_answer_is_what_its_definition_says(api: Api) -> None:
    """Every JSON shape and every event, as they come; with our additions declared too."""
    document = (await api.get("/v1/schema")).json

    def check(name: str, value: Any) -> None:
        closed = json.loads(json.dumps(document["$defs"]))
        for definition in closed.values():
            if "properties" in definition:
                definition["additionalProperties"] = False
        Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": closed}).validate(value)

    started = await api.post(
        "/v1/exec/start",
        json={
            "exec_id": "shape",
            "command": ["read x; echo out; exit 3"],
            "shell": True,
            "stdin": True,
            "digest": True,
        },
    )
    check("StartResponse", started.json)
    check("PollResponse", await api.poll("shape"))
    check("ProcsResponse", (await api.get("/v1/procs")).json)
    check("StdinResponse", (await api.stdin("shape", b"x\n", "eof")).json)
    check("PollResponse", await api.wait("shape"))
    for event in await api.stream("shape"):
        check({"output": "OutputEvent", "gap": "GapEvent", "exit": "ExitEvent"}[event.name], event.data)
    check("PollResponse", (await api.post("/v1/exec/shape/ack")).json)
    check("PollResponse", await api.poll("shape"))
    check("KillResponse", (await api.post("/v1/exec/shape/kill")).json)
    check("Health", await api.health())

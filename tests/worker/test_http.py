"""The functions over HTTP: the list, calls, both shapes of failures, and callers who leave."""

import json
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import pytest_twisted
from attrs import define
from openapi_spec_validator import OpenAPIV31SpecValidator
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory

from agentd.config import Config
from agentd.environments.routes import ROUTES as ENVIRONMENTS
from agentd.http.document import markdown, openapi_document
from agentd.http.router import Router
from agentd.http.site import AgentSite
from agentd.microvm.routes import ROUTES as V1
from agentd.rules.bootstrap import Access
from agentd.worker.http import MAX_BODY_BYTES, ROUTES
from tests.environments.wire import Answer, Connection
from tests.process.support import reactor, until
from tests.worker.conftest import Working
from tests.worker.engine import TestEngine
from tests.worker.support import PUBLISHED, RunningWorker, valid

KEY = "a-key"


@define(eq=False)
class Server:
    """The face, listening."""

    site: AgentSite
    port: Any
    worker: RunningWorker

    async def connect(self) -> Connection:
        factory = Factory.forProtocol(Connection)
        factory.noisy = False
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port.getHost().port)
        found: Connection = await endpoint.connect(factory)  # type: ignore[assignment]
        return found

    async def ask(
        self, method: str, path: str, body: bytes = b"", *, key: str | None = KEY, length: int | None = None
    ) -> Answer:
        connection = await self.connect()
        fields = {"Host": "x", "Content-Length": str(len(body) if length is None else length)}
        if key is not None:
            fields["Authorization"] = f"Bearer {key}"
        head = f"{method} /v1/functions{path} HTTP/1.1\r\n" + "".join(
            f"{k}: {v}\r\n" for k, v in fields.items()
        )
        connection.send(head.encode() + b"\r\n" + body)
        answer = await connection.answer(method)
        connection.close()
        return answer

    async def call(self, id: str, arguments: Any) -> Any:
        """A valid result."""
        answer = await self.ask("POST", f"/{id}", json.dumps(arguments).encode())
        assert answer.status == 200, answer
        return valid(id, answer.json)

    async def fails(self, id: str, body: bytes, status: int = 422) -> tuple[str, str]:
        """Code and message of a failure."""
        answer = await self.ask("POST", f"/{id}", body)
        assert answer.status == status, answer
        assert set(answer.json) == {"code", "message"}
        return answer.json["code"], answer.json["message"]


Serving = Callable[..., Awaitable[Server]]


@pytest.fixture
def serving(working: Working) -> Iterator[Serving]:
    """`await serving()`: the face of a worker without an engine, unless it is given a `url`."""
    servers: list[Server] = []

    async def start(access: dict[bytes | None, Access] | None = None, **options: Any) -> Server:
        worker = await working(ready=False, **{"url": None, **options})
        gate = {KEY.encode(): Access.GRANTED} if access is None else access
        router = Router([worker.worker.face()], lambda token: gate.get(token, Access.UNAUTHORIZED), 512 << 20)
        site = AgentSite(router, Config(), reactor)
        server = Server(site, reactor.listenTCP(0, site, interface="127.0.0.1"), worker)
        servers.append(server)
        return server

    yield start

    async def stop() -> None:
        for server in servers:
            await maybeDeferred(server.port.stopListening)
            await server.site.close()

    pytest_twisted.blockon(Deferred.fromCoroutine(stop()))


@pytest_twisted.ensureDeferred
async def test_the_list_has_everything_that_is_published(serving: Serving) -> None:
    server = await serving()
    answer = await server.ask("GET", "")
    assert answer.status == 200
    functions = {entry.pop("name"): entry for entry in answer.json["functions"]}
    assert set(functions) == server.worker.served <= set(PUBLISHED)
    for name, entry in functions.items():
        assert entry == PUBLISHED[name]
        jsonschema.Draft7Validator.check_schema(entry["request_schema"])


@pytest_twisted.ensureDeferred
async def test_a_call_takes_arguments_and_gives_the_result(serving: Serving) -> None:
    server = await serving()
    result = await server.call("shell::exec", {"command": "echo", "args": ["hi"]})
    assert result["stdout"] == "hi\n"
    started = await server.call("shell::exec_bg", {"command": "true"})
    while (await server.call("shell::status", {"job_id": started["job_id"]}))["job"]["status"] == "running":
        pass
    assert (await server.call("shell::list", {}))["count"] == 1
    assert (await server.call("shell::config-status", {}))["last_outcome"] == "applied"
    # Arguments may be left out where there are none.
    assert (await server.ask("POST", "/shell::list")).status == 200


@pytest_twisted.ensureDeferred
async def test_failures_have_the_shapes_of_the_engine(serving: Serving) -> None:
    server = await serving()
    assert await server.fails("shell::status", b'{"job_id":"x"}') == ("S211", "no such job: x")
    code, text = await server.fails("shell::exec", b'{"command":["x"]}')
    assert code == "invocation_failed"
    assert text.startswith("serialization error: ")
    assert (await server.fails("shell::nothing", b"{}", 404))[0] == "function_not_found"
    assert (await server.fails("shell::exec", b"{not json", 400))[0] == "invalid_request"
    assert (await server.fails("shell::exec", b"\xff", 400))[0] == "invalid_request"
    assert (await server.fails("shell::exec", b"[" * 100_000, 400))[0] == "invalid_request"
    assert (await server.fails("shell::exec", b"7"))[0] == "invocation_failed"
    code, text = await server.fails("shell::on-config-change", b"{}")
    assert code == "S216"
    assert "no engine" in text


@pytest_twisted.ensureDeferred
async def test_what_is_refused_before_a_function_is_asked(serving: Serving) -> None:
    server = await serving()
    for key, status in ((None, 401), ("wrong", 401)):
        answer = await server.ask("POST", "/shell::exec", b'{"command":"true"}', key=key)
        assert (answer.status, answer.json["code"]) == (status, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    wrong = await server.ask("DELETE", "")
    assert (wrong.status, wrong.json["code"], wrong.headers["allow"]) == (
        405,
        "method_not_allowed",
        "GET, HEAD",
    )
    assert (await server.ask("GET", "/shell::exec")).status == 405
    assert (await server.ask("POST", "/a/b", b"{}")).json["code"] == "function_not_found"
    assert (await server.ask("POST", "/%FF", b"{}")).json["code"] == "function_not_found"
    large = await server.ask("POST", "/shell::exec", length=MAX_BODY_BYTES + 1)
    assert (large.status, large.json["code"]) == (413, "payload_too_large")


@pytest_twisted.ensureDeferred
async def test_without_a_token_installed_it_is_unavailable(serving: Serving) -> None:
    server = await serving({None: Access.UNAVAILABLE, KEY.encode(): Access.UNAVAILABLE})
    answer = await server.ask("GET", "")
    assert (answer.status, answer.json["code"]) == (503, "unavailable")


@pytest_twisted.ensureDeferred
async def test_a_caller_who_leaves_ends_the_command(serving: Serving, tmp_path: Path) -> None:
    server = await serving()
    marker = tmp_path / "pid"
    script = f"echo $$ > {marker}.t; mv {marker}.t {marker}; sleep 50"
    body = json.dumps({"command": "sh", "args": ["-c", script]}).encode()
    connection = await server.connect()
    head = f"POST /v1/functions/shell::exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    connection.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await until(marker.exists, "the command")
    pid = int(marker.read_text())
    connection.close()
    await until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the command")


@pytest_twisted.ensureDeferred
async def test_it_serves_while_no_engine_is_there(serving: Serving, engine: TestEngine) -> None:
    await engine.stop()
    server = await serving(url=engine.url)
    assert (await server.call("shell::exec", {"command": "echo here"}))["stdout"] == "here\n"


@pytest_twisted.ensureDeferred
async def test_the_configuration_of_the_engine_holds_here_too(
    serving: Serving, engine: TestEngine, tmp_path: Path
) -> None:
    engine.values["shell"] = {"fs": {"host_roots": [str(tmp_path)]}, "env": {"inherit": True}}
    server = await serving(url=engine.url)
    await server.worker.ready()
    code, _ = await server.fails("shell::exec", b'{"command":"pwd","cwd":"/"}')
    assert code == "S215"


@pytest_twisted.ensureDeferred
async def test_a_result_that_is_not_json_is_a_failure(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serving()
    await server.call("shell::list", {})
    assert server.worker.worker.service is not None
    monkeypatch.setattr("agentd.worker.registry.MAX_MESSAGE_BYTES", 10)
    code, text = await server.fails("shell::list", b"{}")
    assert code == "S216"
    assert "larger than 10 bytes" in text


def test_the_route_tables_are_those_of_the_code() -> None:
    """`python -m agentd.worker.http` made them."""
    document = Path(__file__).resolve().parents[2] / "docs/worker.md"
    assert document.read_text().endswith(markdown(ROUTES))


def test_the_openapi_document_with_these_routes_is_valid() -> None:
    document = openapi_document((*V1, *ENVIRONMENTS, *ROUTES), "agentd")
    OpenAPIV31SpecValidator(document).validate()
    assert {"/v1/functions", "/v1/functions/{id}"} <= set(document["paths"])

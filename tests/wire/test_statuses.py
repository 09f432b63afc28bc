"""Every status and slug on the route list, produced by a real daemon.

The route list is the table of cases: a row that documents an answer without a producer here fails, and so does a
producer of an answer that is not documented. The file and tunnel routes have tests of their own.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_twisted

from agentd.http.routes import Auth
from agentd.microvm.routes import EXEC, HOOK_PREFIX, HOOKS, OPEN
from tests.conftest import RunningDaemon, start_daemon
from tests.wire.conftest import Connect
from tests.wire.support import Api, Raw, Reply, as_json, connect, new_id, request

ROUTES = (*HOOKS, *EXEC, *OPEN)
CAP = 200_000
STDIN_CAP = 1000

Case = tuple[str, str, int, str]
"""Method, path, status, slug."""


class Daemons:
    """What producers work with: a bootstrapped daemon, one that is closed, and one that is leaving."""

    def __init__(self, open_: RunningDaemon, closed: RunningDaemon, leaving: Raw, leaving_token: str) -> None:
        self.api = Api(open_.url, open_.token)
        self.daemon = open_
        self.closed = Api(closed.url, "any-token")
        self.leaving, self.leaving_token = leaving, leaving_token


Producer = Callable[[Daemons], Awaitable[Reply]]
PRODUCERS: dict[Case, Producer] = {}


def produces(method: str, path: str, status: int, slug: str = "") -> Callable[[Producer], Producer]:
    """Register what brings about one documented answer."""

    def register(producer: Producer) -> Producer:
        assert PRODUCERS.setdefault((method, path, status, slug), producer) is producer, "registered twice"
        return producer

    return register


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """Three daemons with small caps. The third has been asked to leave, and an exec keeps one request in flight."""
    env = {"AGENTD_MAX_BODY_BYTES": str(CAP), "AGENTD_MAX_STDIN_WRITE_BYTES": str(STDIN_CAP)}
    program = ("-m", "tests.wire.faulty", "-n", "--pidfile=", "agentd")
    env |= {"AGENTD_DRAIN_TIMEOUT_SECS": "600", "AGENTD_MAX_WAIT_SECS": "600"}
    running = [start_daemon(tmp_path_factory.mktemp("d"), program=program, env=env) for _ in range(3)]
    open_, closed, leaving = running
    open_.bootstrap()
    leaving.bootstrap()
    sockets = [connect(leaving) for _ in range(3)]
    holder, poster, kept = sockets
    body = {"exec_id": "held", "command": ["sleep", "300"]}
    holder.send(as_json("POST", "/v1/exec/start", body, "Prefer: wait=600", token=leaving.token))
    while (held := kept.send(request("GET", "/v1/exec/held", token=leaving.token)).reply()).status != 200:
        assert held.status == 404
    assert poster.send(request("POST", f"{HOOK_PREFIX}/terminate", body=b"")).reply().status == 200
    yield Daemons(open_, closed, kept, leaving.token)
    kept.send(request("POST", "/v1/exec/held/kill", token=leaving.token)).reply()
    for each in sockets:
        each.close()
    for daemon in running:
        daemon.stop()


def documented() -> list[Case]:
    """Every answer on the route list."""
    return [
        (route.method, route.path, status.code, status.slug) for route in ROUTES for status in route.statuses
    ]


def test_every_documented_answer_has_a_producer_and_no_other() -> None:
    """What the list promises is shown; what is shown, the list promises."""
    assert set(documented()) == set(PRODUCERS)
    assert len(documented()) == len(set(documented()))


@pytest.mark.parametrize("case", documented(), ids=lambda case: "-".join(map(str, case)))
@pytest_twisted.ensureDeferred
async def test_a_documented_answer_is_given(daemons: Daemons, case: Case) -> None:
    """With its slug where it has one, an empty body where the contract says so, and the version everywhere."""
    producer = PRODUCERS.get(case)
    assert producer is not None, f"nothing produces {case}"
    reply = await producer(daemons)
    _, _, status, slug = case
    assert reply.key == (status, slug), reply.body
    if status in (401, 503) and not slug:
        assert reply.body == b""
        assert "www-authenticate" not in reply.headers


# -- the same on every bearer route ------------------------------------------------------------------------


def concrete(path: str) -> str:
    """A path with its parameters filled in."""
    return path.replace("{id}", "nobody")


def _register_denials() -> None:
    for route in EXEC:
        if route.auth is not Auth.BEARER:
            continue

        async def unauthorized(daemons: Daemons, route: Any = route) -> Reply:
            path = concrete(route.path)
            wrong = await daemons.api.call(route.method, path, token="wrong")
            assert wrong.key == (401, "")
            return await daemons.api.call(route.method, path, token=False)

        async def unavailable(daemons: Daemons, route: Any = route) -> Reply:
            path = concrete(route.path)
            without = await daemons.closed.call(route.method, path, token=False)
            assert without.key == (503, "")
            return await daemons.closed.call(route.method, path)

        produces(route.method, route.path, 401)(unauthorized)
        produces(route.method, route.path, 503)(unavailable)
        if "{id}" in route.path:

            async def unknown(daemons: Daemons, route: Any = route) -> Reply:
                body = {"json": {}} if route.path.endswith("/stdin") else {}
                reply = await daemons.api.call(route.method, concrete(route.path), **body)
                assert reply.json["detail"] == "nobody"
                return reply

            produces(route.method, route.path, 404, "unknown_exec")(unknown)


_register_denials()


# -- hooks -------------------------------------------------------------------------------------------------


def _register_acknowledgements() -> None:
    for name in ("ready", "validate", "suspend", "resume"):

        async def acknowledged(daemons: Daemons, name: str = name) -> Reply:
            # Also with a body that means nothing, and before bootstrap.
            assert (await daemons.closed.hook(name)).key == (200, "")
            reply = await daemons.api.hook(name, data=b"\xff not json")
            assert reply.body == b""
            return reply

        produces("POST", f"{HOOK_PREFIX}/{name}", 200)(acknowledged)


_register_acknowledgements()


@produces("POST", f"{HOOK_PREFIX}/terminate", 200)
async def _(daemons: Daemons) -> Reply:
    # A daemon that is on its way out acknowledges again.
    return daemons.leaving.send(request("POST", f"{HOOK_PREFIX}/terminate", body=b"")).reply()


@produces("POST", f"{HOOK_PREFIX}/run", 200)
async def _(daemons: Daemons) -> Reply:
    reply = await daemons.api.run_hook({"agent_token": daemons.daemon.token})
    assert reply.body == b""
    return reply


@produces("POST", f"{HOOK_PREFIX}/run", 400)
async def _(daemons: Daemons) -> Reply:
    return await daemons.api.run_hook({"agent_token": ""})


@produces("POST", f"{HOOK_PREFIX}/run", 409)
async def _(daemons: Daemons) -> Reply:
    reply = await daemons.api.run_hook({"agent_token": "another"})
    assert reply.body == b""
    return reply


# -- start -------------------------------------------------------------------------------------------------


async def start(daemons: Daemons, **fields: Any) -> Reply:
    """A start request as it comes, which must leave nothing behind unless it succeeds."""
    body = {"exec_id": new_id(), "command": ["true"], **fields}
    reply = await daemons.api.post("/v1/exec/start", json=body)
    if reply.status != 200 and body["exec_id"]:
        assert (await daemons.api.get(f"/v1/exec/{body['exec_id']}")).key == (404, "unknown_exec")
    return reply


@produces("POST", "/v1/exec/start", 200)
async def _(daemons: Daemons) -> Reply:
    reply = await start(daemons)
    assert set(reply.json) == {"exec_id", "phase"}
    return reply


@produces("POST", "/v1/exec/start", 400, "malformed_request")
async def _(daemons: Daemons) -> Reply:
    return await start(daemons, exec_id="")


@produces("POST", "/v1/exec/start", 400, "unknown_user")
async def _(daemons: Daemons) -> Reply:
    reply = await start(daemons, user="no-such-user")
    assert "no-such-user" in reply.json["detail"]
    return reply


@produces("POST", "/v1/exec/start", 400, "unknown_group")
async def _(daemons: Daemons) -> Reply:
    reply = await start(daemons, group="no-such-group")
    assert "no-such-group" in reply.json["detail"]
    return reply


@produces("POST", "/v1/exec/start", 400, "unknown_shell")
async def _(daemons: Daemons) -> Reply:
    reply = await start(daemons, shell="no-such-shell")
    assert "no-such-shell" in reply.json["detail"]
    return reply


@produces("POST", "/v1/exec/start", 503, "shutting_down")
async def _(daemons: Daemons) -> Reply:
    body = {"exec_id": "too-late", "command": ["true"]}
    return daemons.leaving.send(as_json("POST", "/v1/exec/start", body, token=daemons.leaving_token)).reply()


@produces("POST", "/v1/exec/start", 413)
async def _(daemons: Daemons) -> Reply:
    reply = await start(daemons, command=["x" * CAP])
    assert reply.body == b"length limit exceeded"
    return reply


@produces("POST", "/v1/exec/start", 500, "spawn_failed")
async def _(daemons: Daemons) -> Reply:
    return await start(daemons, command=["/no/such/program"])


# -- the rest of an exec's life ------------------------------------------------------------------------------


@produces("GET", "/v1/exec/{id}", 200)
async def _(daemons: Daemons) -> Reply:
    exec_id = await daemons.api.start("true")
    return await daemons.api.get(f"/v1/exec/{exec_id}")


@produces("GET", "/v1/exec/{id}/stream", 200)
async def _(daemons: Daemons) -> Reply:
    exec_id = await daemons.api.start("true")
    return await daemons.api.get(f"/v1/exec/{exec_id}/stream")


@produces("GET", "/v1/exec/{id}/stream", 400, "malformed_request")
async def _(daemons: Daemons) -> Reply:
    return await daemons.api.get("/v1/exec/nobody/stream?offset=-1")


async def reader(daemons: Daemons) -> str:
    """An exec with a stdin that nobody reads."""
    return await daemons.api.start(["sleep", "300"], stdin=True)


@produces("POST", "/v1/exec/{id}/stdin", 200)
async def _(daemons: Daemons) -> Reply:
    exec_id = await daemons.api.start(["cat"], stdin=True)
    reply = await daemons.api.stdin(exec_id, b"hello", "eof")
    assert reply.json == {"exec_id": exec_id, "written": 5, "eof": True}
    return reply


@produces("POST", "/v1/exec/{id}/stdin", 400, "malformed_request")
async def _(daemons: Daemons) -> Reply:
    exec_id = await reader(daemons)
    reply = await daemons.api.post(f"/v1/exec/{exec_id}/stdin", json={"data_b64": "not base64"})
    await daemons.api.post(f"/v1/exec/{exec_id}/kill")
    return reply


@produces("POST", "/v1/exec/{id}/stdin", 408, "stdin_write_timeout")
async def _(daemons: Daemons) -> Reply:
    exec_id = await reader(daemons)
    reply = await daemons.api.stdin(exec_id, b"x" * STDIN_CAP)
    while reply.status == 200:
        reply = await daemons.api.stdin(exec_id, b"x" * STDIN_CAP)
    await daemons.api.post(f"/v1/exec/{exec_id}/kill")
    return reply


@produces("POST", "/v1/exec/{id}/stdin", 409, "stdin_not_requested")
async def _(daemons: Daemons) -> Reply:
    return await daemons.api.stdin(await daemons.api.start("true"), b"x")


@produces("POST", "/v1/exec/{id}/stdin", 410, "stdin_closed")
async def _(daemons: Daemons) -> Reply:
    exec_id = await daemons.api.start(["cat"], stdin=True)
    assert (await daemons.api.stdin(exec_id, signal="eof")).status == 200
    return await daemons.api.stdin(exec_id, b"x")


@produces("POST", "/v1/exec/{id}/stdin", 413, "stdin_write_too_large")
async def _(daemons: Daemons) -> Reply:
    exec_id = await reader(daemons)
    reply = await daemons.api.stdin(exec_id, b"x" * (STDIN_CAP + 1))
    await daemons.api.post(f"/v1/exec/{exec_id}/kill")
    return reply


@produces("POST", "/v1/exec/{id}/stdin", 413)
async def _(daemons: Daemons) -> Reply:
    reply = await daemons.api.stdin("nobody", b"x" * CAP)
    assert reply.body == b"length limit exceeded"
    return reply


@produces("POST", "/v1/exec/{id}/stdin", 500, "stdin_write_failed")
async def _(daemons: Daemons) -> Reply:
    exec_id = await reader(daemons)
    reply = await daemons.api.stdin(exec_id, b"FAULT")
    await daemons.api.post(f"/v1/exec/{exec_id}/kill")
    return reply


@produces("POST", "/v1/exec/{id}/ack", 200)
async def _(daemons: Daemons) -> Reply:
    exec_id = await daemons.api.start("echo out")
    await daemons.api.wait(exec_id)
    reply = await daemons.api.post(f"/v1/exec/{exec_id}/ack")
    assert (reply.json["phase"], reply.json["stdout"]) == ("acked", "out\n")
    return reply


@produces("POST", "/v1/exec/{id}/ack", 409, "still_running")
async def _(daemons: Daemons) -> Reply:
    exec_id = await reader(daemons)
    reply = await daemons.api.post(f"/v1/exec/{exec_id}/ack")
    await daemons.api.post(f"/v1/exec/{exec_id}/kill")
    return reply


@produces("POST", "/v1/exec/{id}/ack", 409, "already_acked")
async def _(daemons: Daemons) -> Reply:
    exec_id = await daemons.api.start("true")
    await daemons.api.wait(exec_id)
    assert (await daemons.api.post(f"/v1/exec/{exec_id}/ack")).status == 200
    return await daemons.api.post(f"/v1/exec/{exec_id}/ack")


@produces("POST", "/v1/exec/{id}/kill", 200)
async def _(daemons: Daemons) -> Reply:
    exec_id = await reader(daemons)
    reply = await daemons.api.post(f"/v1/exec/{exec_id}/kill")
    assert reply.json == {"exec_id": exec_id, "killed": True}
    return reply


@produces("GET", "/v1/procs", 200)
async def _(daemons: Daemons) -> Reply:
    return await daemons.api.get("/v1/procs")


# -- open routes ---------------------------------------------------------------------------------------------


@produces("GET", "/v1/health", 200)
async def _(daemons: Daemons) -> Reply:
    assert (await daemons.closed.get("/v1/health", token=False)).key == (200, "")
    return await daemons.api.get("/v1/health", token=False)


@produces("GET", "/v1/schema", 200)
async def _(daemons: Daemons) -> Reply:
    closed = await daemons.closed.get("/v1/schema", token=False)
    opened = await daemons.api.get("/v1/schema", token=False)
    assert closed.body == opened.body, "the document must not tell whether a token is installed"
    return opened


@produces("GET", "/v1/schema", 400, "malformed_request")
async def _(daemons: Daemons) -> Reply:
    return await daemons.api.get("/v1/schema?format=wsdl", token=False)


# -- what every route answers, listed or not -----------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_a_wrong_method_is_405_with_what_is_allowed(daemons: Daemons) -> None:
    """After the token on bearer paths (contract a.0)."""
    for route in ROUTES:
        path = concrete(route.path)
        allowed = sorted({r.method for r in ROUTES if r.path == route.path})
        reply = await daemons.api.call("DELETE", path)
        assert reply.key == (405, "")
        assert sorted(set(reply.headers["allow"].split(", ")) - {"HEAD"}) == allowed
        assert ("HEAD" in reply.headers["allow"]) == ("GET" in allowed)
        denied = (await daemons.api.call("DELETE", path, token=False)).status
        before = (await daemons.closed.call("DELETE", path)).status
        assert (denied, before) == ((401, 503) if route.auth is Auth.BEARER else (405, 405))


@pytest_twisted.ensureDeferred
async def test_an_unmatched_path_is_404_for_anyone(daemons: Daemons) -> None:
    """Empty, and never 401."""
    for api in (daemons.api, daemons.closed):
        for path in (
            "/",
            "/v1",
            "/v1/",
            "/v2/health",
            "/v1/exec",
            "/v1/exec/",
            "/v1/exec/x/y",
            "/v1/health/",
            "/metrics",
        ):
            for token in (True, False):
                reply = await api.get(path, token=token)
                assert (reply.status, reply.body) == (404, b"")


@pytest_twisted.ensureDeferred
async def test_head_is_get_without_the_body(daemons: Daemons, raw: Connect) -> None:
    """On every route that has a GET, over one connection."""
    exec_id = await daemons.api.start("echo hi")
    await daemons.api.wait(exec_id)
    connection = raw(daemons.daemon)
    for route in ROUTES:
        if route.method == "GET":
            path = route.path.replace("{id}", exec_id)
            head = connection.send(request("HEAD", path, token=daemons.daemon.token)).reply(head=True)
            full = await daemons.api.get(path)
            assert head.status == 200
            assert head.headers["content-type"] == full.headers["content-type"]
            if not path.endswith("/stream"):
                assert int(head.headers["content-length"]) == len(full.body)


@pytest_twisted.ensureDeferred
async def test_an_exec_named_start_can_be_started_and_not_polled(daemons: Daemons) -> None:
    """Its path is taken (contract a.0)."""
    assert (await start(daemons, exec_id="start")).status == 200
    assert (await daemons.api.get("/v1/exec/start")).headers["allow"] == "POST"
    assert (await daemons.api.post("/v1/exec/start/kill")).status == 200


def test_an_unhandled_exception_is_500_and_the_connection_and_the_state_survive(
    daemons: Daemons, raw: Connect
) -> None:
    """Contract a.0; no traceback in the answer, and the log says where without saying what was sent."""
    daemon = daemons.daemon
    connection = raw(daemon)
    exec_id = f"fault-{new_id()}-s3cr3t"
    started = as_json("POST", "/v1/exec/start", {"exec_id": exec_id, "command": ["true"]}, token=daemon.token)
    assert connection.send(started).reply().status == 200
    for _ in range(2):
        reply = connection.send(request("POST", f"/v1/exec/{exec_id}/ack", token=daemon.token)).reply()
        assert (reply.status, reply.body) == (500, b"internal error")
    assert connection.send(request("GET", f"/v1/exec/{exec_id}", token=daemon.token)).reply().status == 200
    assert connection.send(request("GET", "/v1/procs", token="wrong")).reply().status == 401
    found = [entry for entry in list(daemon.log) if entry.get("kind") == "RuntimeError"]
    assert found
    assert any("faulty.py" in frame for frame in found[0]["where"])  # type: ignore[attr-defined]
    assert "s3cr3t" not in json.dumps(found)

"""Producers of what every bearer route answers, and of the answers of hooks, execs and the open routes."""

from typing import Any

from agentd.http.routes import Auth
from agentd.microvm.routes import HOOK_PREFIX, ROUTES
from tests.wire.producers import CAP, STDIN_CAP, Daemons, concrete, produces
from tests.wire.support import Reply, as_json, new_id, request

# -- the same on every bearer route ------------------------------------------------------------------------


def _register_denials() -> None:
    for route in ROUTES:
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

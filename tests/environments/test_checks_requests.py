"""Checks 31 to 44 of the contract's list: variables, and the shape of requests."""

import json
import os
from typing import Any

import pytest
import pytest_twisted

from agentd.environments.routes import ROUTES
from tests.environments.conftest import Serve
from tests.environments.support import KEY, Home, Server
from tests.environments.wire import checks


async def variables(server: Server, **fields: Any) -> dict[str, str]:
    """What ``env`` shows."""
    result = await server.exec("/usr/bin/env", "-0", **fields)
    pairs = [entry.split("=", 1) for entry in result["stdout"].split("\0")[:-1]]
    found = dict(pairs)
    assert len(found) == len(pairs), "a variable is there twice"
    return found


@checks(31, 37)
@pytest_twisted.ensureDeferred
async def test_the_base_and_the_request(serving: Serve, home: Home) -> None:
    server = await serving()
    base = {
        "HOME": str(home.home),
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    assert await variables(server) == base
    assert await variables(server, env={"FOO": "1", "LANG": "C"}) == {**base, "FOO": "1", "LANG": "C"}
    result = await server.exec("sh", "-c", "echo $HOME; pwd", env={"HOME": "/tmp"})
    assert result["stdout"] == f"/tmp\n{home.home}\n"
    fine = {"_": "1", "a9": "2", "EMPTY": "", "UNI": "é\n=x"}
    assert await variables(server, env=fine) == {**base, **fine}


@checks(32, 34)
@pytest_twisted.ensureDeferred
async def test_files_win_over_the_request_and_the_platform_over_the_package(
    serving: Serve, home: Home
) -> None:
    server = await serving()
    package, platform = home.place / "package.env", home.place / "platform.env"
    package.write_bytes(b"A=package\nB=package\nE=\n")
    platform.write_bytes(b"# comment\n\nexport B='plat form'\r\nC=\"q\"\nD='x\nbad line\n1X=y\nC=last\n")
    if os.geteuid() == 0:
        platform.chmod(0o600)  # the agent user need not be able to read it
    given = {"A": "request", "B": "request", "C": "request", "E": "request", "F": "request"}
    found = await variables(server, env=given)
    assert {name: found[name] for name in "ABCDEF"} == {
        "A": "package",
        "B": "plat form",
        "C": "last",
        "D": "'x",
        "E": "",
        "F": "request",
    }
    assert "1X" not in found
    package.write_bytes(b"A=edited\n")
    platform.unlink()
    found = await variables(server, env=given)
    assert {name: found[name] for name in "ABCDEF" if name in found} == {
        "A": "edited",
        "B": "request",
        "C": "request",
        "E": "request",
        "F": "request",
    }


@checks(33)
@pytest_twisted.ensureDeferred
async def test_files_win_for_background_processes_too(serving: Serve, home: Home) -> None:
    (home.place / "package.env").write_text("A=package\nB=package\n")
    (home.place / "platform.env").write_text("B=platform\n")
    server = await serving()
    pid = await server.spawn(["sh", "-c", "echo $A $B $C"], env={"A": "x", "B": "x", "C": "x"})
    assert [chunk["data"] for chunk in await server.everything(pid)] == ["package platform x\n"]


@checks(36)
@pytest_twisted.ensureDeferred
async def test_a_bare_name_is_looked_up_in_the_path_of_the_command(serving: Serve, home: Home) -> None:
    home.make("bin/thing", b"#!/bin/sh\necho mine\n", 0o755)
    server = await serving()
    assert (await server.try_exec(argv=["thing"])).fault == (503, "exec_failed")
    path = f"{home.home}/bin"
    assert (await server.exec("thing", env={"PATH": path}))["stdout"] == "mine\n"
    assert (await server.try_exec(argv=["ls"], env={"PATH": "/x"})).fault == (503, "exec_failed")
    # The shell of a command line is not to be replaced.
    home.make("bin/bash", b"#!/bin/sh\necho replaced\n", 0o755)
    assert (await server.sh("echo real", env={"PATH": path}))["stdout"] == "real\n"


@checks(38, 39, 40, 41)
@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        (None, b'{"argv":["true"]}', 415),
        ("text/plain", b'{"argv":["true"]}', 415),
        ("text/json", b'{"argv":["true"]}', 415),
        ("application/x-www-form-urlencoded", b"argv=true", 415),
        ("application/json+x", b'{"argv":["true"]}', 415),
        ("application/json", b'{"argv":["true"]}', 200),
        ("application/json;charset=utf-8", b'{"argv":["true"]}', 200),
        ("Application/JSON; charset=utf-8", b'{"argv":["true"]}', 200),
        ("text/plain", b"{", 415),
        ("application/json", b"", 400),
        ("application/json", b"{", 400),
        ("application/json", b'{"argv":5,', 400),
        ("application/json", b'{"argv":["true"]} x', 400),
        ("application/json", b'{"argv":["\xff"]}', 400),
        ("application/json", b'{"argv":["\\ud800"]}', 400),
        ("application/json", b'\xef\xbb\xbf{"argv":["true"]}', 400),
        ("application/json", b'{"argv":' + b"[" * 128 + b"]" * 128 + b"}", 400),
        ("application/json", b'{"argv":' + b"[" * 127 + b"]" * 127 + b"}", 422),
        ("application/json", b"[" * 100_000, 400),
        ("application/json", b'{"timeout_secs":' + b"9" * 6000, 400),
        ("application/json", b"[]", 422),
        ("application/json", b"null", 422),
        ("application/json", b'"x"', 422),
        ("application/json", b'{"argv":["true"],"x":1}', 422),
        ("application/json", b'{"argv":["true"],"command":"x","y":1}', 422),
        ("application/json", b'{"argv":["true"],"argv":["true"]}', 422),
        ("application/json", b'{"argv":["true"],"env":{"A":"1","A":"1"}}', 422),
        ("application/json", b'{"argv":["true"],"env":{"A":1}}', 422),
        ("application/json", b'{"argv":["true"],"env":[]}', 422),
        ("application/json", b'{"argv":"true"}', 422),
        ("application/json", b'{"argv":["true",null]}', 422),
        ("application/json", b'{"argv":["true"],"stdin":true}', 422),
        ("application/json", b'{"argv":["true"],"timeout_secs":"5"}', 422),
        ("application/json", b'{"argv":["true"],"timeout_secs":1.5}', 422),
        ("application/json", b'{"argv":["true"],"timeout_secs":60.0}', 422),
        ("application/json", b'{"argv":["true"],"timeout_secs":6e1}', 422),
        ("application/json", b'{"argv":["true"],"timeout_secs":-1}', 422),
        ("application/json", b'{"argv":["true"],"timeout_secs":true}', 422),
        ("application/json", b'{"argv":["true"],"timeout_secs":9223372036854775808}', 422),
        ("application/json", b'{"argv":["true"],"timeout_secs":' + b"9" * 6000 + b"}", 422),
        ("application/json", b'{"argv":["true"],"timeout_secs":9223372036854775807}', 400),
    ],
)
@pytest_twisted.ensureDeferred
async def test_the_layers_of_a_body(
    serving: Serve, content_type: str | None, body: bytes, status: int
) -> None:
    """Type, syntax, shape and values, each with its status, the first fault deciding."""
    server = await serving()
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = await server.ask("POST", "/exec", body, headers=headers)
    slugs = {400: "invalid_request", 415: "unsupported_media_type", 422: "invalid_body"}
    assert answer.status == status, answer
    if status != 200:
        assert answer.slug == slugs[status]


@checks(35, 40)
@pytest_twisted.ensureDeferred
async def test_where_a_spawn_request_differs(serving: Serve) -> None:
    server = await serving()
    for fields, status in [
        ({"argv": ["true"], "timeout_secs": 0}, 201),
        ({"argv": ["true"], "timeout_secs": 31_536_000}, 201),
        ({"argv": ["true"], "timeout_secs": 31_536_001}, 400),
        ({"argv": ["true"], "stdin": False}, 201),
        ({"argv": ["true"], "stdin": "x"}, 422),
        ({"argv": ["true"], "env": {"1A": "x"}}, 400),
        ({"argv": ["true"], "env": {"A": 1}}, 422),
        ({"argv": []}, 400),
    ]:
        assert (await server.post("/processes", fields)).status == status, fields


@pytest_twisted.ensureDeferred
async def test_the_size_of_a_json_body(serving: Serve) -> None:
    """Exactly the limit is fine; one more is 413, declared or counted; before the syntax is looked at."""
    server = await serving(json=1000)
    body = json.dumps({"argv": ["true"]}).encode()
    fine = body + b" " * (1000 - len(body))
    assert (await server.post("/exec", fine)).status == 200
    assert (await server.post("/exec", fine + b"x")).fault == (413, "payload_too_large")
    chunked = b"3e9\r\n" + fine + b"x\r\n0\r\n\r\n"
    answer = await server.post("/exec", chunked, headers={"Transfer-Encoding": "chunked"})
    assert answer.fault == (413, "payload_too_large")
    assert answer.json["message"] == "body is larger than 1000 bytes"


PID = "none-1"


def every_route() -> list[tuple[str, str]]:
    return [(route.method, route.path.removeprefix("/v1/environments/{id}")) for route in ROUTES]


@checks(42, 43)
@pytest.mark.parametrize(("method", "path"), every_route())
@pytest_twisted.ensureDeferred
async def test_the_first_checks_of_every_route(serving: Serve, method: str, path: str) -> None:
    """Key, method, environment, in this order, each in the one shape of errors."""
    server = await serving()
    path = path.replace("{pid}", PID)
    other = "PATCH"
    for key in (None, "wrong", "é"):
        answer = await server.ask(method, path, key=key)
        assert answer.fault == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json["message"] == "missing or invalid key"
        assert (await server.ask(other, path, key=key)).status == 401
    answer = await server.ask(other, path, prefix="/v1/environments/elsewhere")
    assert answer.fault == (405, "method_not_allowed")
    assert method in answer.headers["allow"].split(", ")
    for name in ("elsewhere", "LOCAL", "local%20", "%ff", "local%00", "%6cocal2"):
        answer = await server.ask(method, path, prefix=f"/v1/environments/{name}")
        assert answer.fault == (404, "not_found"), name
        assert answer.json["message"] == "no such resource"
    # The key is never taken from the query.
    assert (await server.ask(method, f"{path}?key={KEY}&access_token={KEY}", key=None)).status == 401


@checks(42)
@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "",
        "/",
        "/exec/",
        "//exec",
        "/files/",
        "/files/list/x",
        "/processes/a/b",
        "/processes//output",
    ],
)
@pytest_twisted.ensureDeferred
async def test_paths_that_are_no_route(serving: Serve, path: str) -> None:
    server = await serving()
    for key in (KEY, None):
        answer = await server.get(path, key=key)
        assert answer.fault == (404, "not_found")
        assert answer.json["message"] == "no such route"
    assert (await server.ask("GET", "/nothing", prefix="/v1")).status == 404


@checks(44)
@pytest.mark.parametrize(
    "pid", ["!!", "..%2f", "..%2Fx", "%ff", "%00", "a%20b", "..", ".", "é".encode().hex(), "x" * 3000]
)
@pytest_twisted.ensureDeferred
async def test_odd_process_ids_are_unknown_ones(serving: Serve, pid: str) -> None:
    """404 whatever they are, and whatever the query is."""
    server = await serving()
    for method in ("GET", "DELETE"):
        answer = await server.ask(method, f"/processes/{pid}?x=%ff&x=1&since=-1")
        assert answer.fault == (404, "not_found")
    assert (await server.get("/processes?a=%ff&a=b")).status == 200


@checks(46, 69, 70)
@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/files", "path is missing"),
        ("/files?path", "must not be empty"),
        ("/files?path=", "must not be empty"),
        ("/files?path=a%00b", "must not contain NUL"),
        ("/files?path=%ff", "is not UTF-8"),
        ("/files?path=a&path=b", "given twice"),
        ("/files/list?path=%c3", "is not UTF-8"),
        ("/processes/{pid}/output?since=-1", "since must be"),
        ("/processes/{pid}/output?since=x", "since must be"),
        ("/processes/{pid}/output?since=", "since must be"),
        ("/processes/{pid}/output?since=1.0", "since must be"),
        ("/processes/{pid}/output?since=%d9%a3", "since must be"),
        ("/processes/{pid}/output?since=9223372036854775808", "since must be"),
        ("/processes/{pid}/output?since=" + "9" * 5000, "since must be"),
        ("/processes/{pid}/output?since=1", "beyond the end"),
        ("/processes/{pid}/output?since=9223372036854775807", "beyond the end"),
        ("/processes/{pid}/output?wait_secs=-1", "wait_secs must be"),
        ("/processes/{pid}/output?wait_secs=1&wait_secs=1", "given twice"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_queries_that_cannot_be(serving: Serve, path: str, detail: str) -> None:
    server = await serving()
    pid = await server.spawn(["true"])
    await server.exited(pid)
    answer = await server.get(path.replace("{pid}", pid))
    assert answer.fault == (400, "invalid_request")
    assert detail in answer.json["message"]


@pytest_twisted.ensureDeferred
async def test_flags_are_true_or_false(serving: Serve) -> None:
    server = await serving()
    for value in ("1", "yes", "TRUE", "", "true "):
        assert (await server.put("a/b", mkdir=value)).fault == (400, "invalid_request")
        assert (await server.remove("a", recursive=value)).fault == (400, "invalid_request")
    assert (await server.put("a/b", mkdir="false")).status == 404
    assert (await server.put("a/b", mkdir="true")).status == 201


@pytest_twisted.ensureDeferred
async def test_the_query_is_judged_before_the_process_and_the_body_before_it_too(serving: Serve) -> None:
    """Points 6, 7, 8 and 9 of the order."""
    server = await serving()
    assert (await server.get("/processes/none/output?since=x")).status == 400
    assert (await server.get("/processes/none/attach?since=x")).status == 400
    answer = await server.get("/processes/none/attach")
    assert answer.fault == (400, "invalid_request")
    assert answer.json["message"] == "a WebSocket upgrade is required"
    assert (await server.post("/processes/none/signal", {"signal": "X"})).status == 422
    assert (await server.post("/processes/none/signal", {"signal": "TERM"})).status == 404

"""Starting an exec through a socket: checks, names, environment, ids (contract a.2, c)."""

import json
import os
import pwd
from itertools import combinations
from typing import Any
from urllib.parse import quote

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred, gatherResults

from tests.conftest import RunningDaemon
from tests.wire.support import Api, new_id, pause

# -- start: order of checks ------------------------------------------------------------------------------------

FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("malformed_request", {"exec_id": ""}),
    ("malformed_request", {"timeout_sec": -1}),
    ("unknown_user", {"user": "no-such-user"}),
    ("unknown_group", {"group": "no-such-group"}),
    ("unknown_shell", {"shell": "no-such-shell"}),
    ("spawn_failed", {"cwd": "/no/such/dir"}),
]
"""Faults of a start, in the order in which they answer (contract a.2)."""


@pytest.mark.parametrize("pair", list(combinations(range(len(FAULTS)), 2)))
@pytest_twisted.ensureDeferred
async def test_the_first_fault_answers(api: Api, pair: tuple[int, int]) -> None:
    """Of any two, the one that the contract names first; and nothing is registered."""
    first, second = (FAULTS[index] for index in pair)
    body = {"exec_id": new_id(), "command": ["true"], **second[1], **first[1]}
    reply = await api.post("/v1/exec/start", json=body)
    assert reply.slug == first[0], reply.body
    if body["exec_id"]:
        assert (await api.get(f"/v1/exec/{body['exec_id']}")).key == (404, "unknown_exec")


@pytest_twisted.ensureDeferred
async def test_a_retry_is_checked_before_it_is_known(api: Api) -> None:
    """Contract a.2: what is invalid is refused even for a known id; what is valid need not repeat the request."""
    exec_id = await api.start("echo once; sleep 0.2")
    for slug, fault in FAULTS[1:5]:
        reply = await api.post("/v1/exec/start", json={"exec_id": exec_id, "command": ["true"], **fault})
        assert (reply.status, reply.slug) == (400, slug)
    empty = await api.post("/v1/exec/start", json={"exec_id": exec_id, "command": []})
    assert empty.slug == "malformed_request"
    # What would only show at the spawn is no fault of a retry, which spawns nothing.
    for other in ({"command": ["no-such-program"]}, {"command": ["true"], "cwd": "/no/such/dir"}):
        reply = await api.post("/v1/exec/start", json={"exec_id": exec_id, **other})
        assert reply.status == 200
    assert (await api.wait(exec_id))["stdout"] == "once\n"


@pytest_twisted.ensureDeferred
async def test_a_retried_start_answers_the_actual_phase(api: Api) -> None:
    """And spawns nothing in any."""
    exec_id = await api.start("echo ran; read line", stdin=True)
    body = {"exec_id": exec_id, "command": ["echo again"], "shell": True}
    phases = []
    for step in ("running", "exited", "acked"):
        reply = await api.post("/v1/exec/start", json=body)
        phases.append(reply.json)
        if step == "running":
            await api.stdin(exec_id, signal="eof")
            await api.wait(exec_id)
        elif step == "exited":
            assert (await api.post(f"/v1/exec/{exec_id}/ack")).json["stdout"] == "ran\n"
    assert phases == [{"exec_id": exec_id, "phase": phase} for phase in ("running", "exited", "acked")]


@pytest_twisted.ensureDeferred
async def test_concurrent_starts_of_one_id_spawn_once(api: Api, tmp_path: Any) -> None:
    """However they race, also when names have to be looked up."""
    log, exec_id = tmp_path / "log", new_id()
    log.write_text("")
    log.chmod(0o666)
    body = {"exec_id": exec_id, "command": [f"echo $$ >> {log}"], "shell": "sh"}
    replies = await gatherResults(
        [Deferred.fromCoroutine(api.post("/v1/exec/start", json=body)) for _ in range(10)]
    )
    assert {reply.status for reply in replies} == {200}
    await api.wait(exec_id)
    assert len(log.read_text().splitlines()) == 1


@pytest_twisted.ensureDeferred
async def test_an_id_that_failed_to_spawn_is_free(api: Api) -> None:
    """Contract a.2: the same id may be tried again."""
    exec_id = new_id()
    bad = await api.post("/v1/exec/start", json={"exec_id": exec_id, "command": ["no-such-program"]})
    assert bad.key == (500, "spawn_failed")
    assert (await api.run(["true"], exec_id=exec_id))["exit_code"] == 0


# -- start: bad bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"null", "application/json"),
        (b'{"exec_id":"m","command":["true"]}', None),
        (b'{"exec_id":"m","command":["true"]}', "text/plain"),
        (b'{"exec_id":"m","command":["true"]}', "application/x-www-form-urlencoded"),
        (b'{"command":["true"]}', "application/json"),
        (b'{"exec_id":"m"}', "application/json"),
        (b'{"exec_id":"m","command":[]}', "application/json"),
        (b'{"exec_id":"m","command":[],"shell":""}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"shell":""}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"shell":null}', "application/json"),
        (b'{"exec_id":"m","command":"true"}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"env":null}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"env":{"A":1}}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"user":-1}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"user":1.5}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"user":4294967296}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"timeout_sec":0}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"timeout_sec":-0.0}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"timeout_sec":-1}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"timeout_sec":1e999}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"timeout_sec":18446744073709551616}', "application/json"),
        (b'{"exec_id":"m","command":["true"],"timeout_sec":1e300}', "application/json"),
        (b'{"exec_id":"m","exec_id":"m","command":["true"]}', "application/json"),
        (b'{"exec_id":"\xff","command":["true"]}', "application/json"),
        (b'{"exec_id":"\\ud800","command":["true"]}', "application/json"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_malformed_start_spawns_and_registers_nothing(
    api: Api, body: bytes, content_type: str | None
) -> None:
    """400 ``malformed_request``, each time."""
    before = (await api.health())["execs"]
    headers = {} if content_type is None else {"Content-Type": content_type}
    reply = await api.post("/v1/exec/start", data=body, headers=headers)
    assert reply.key == (400, "malformed_request")
    assert (await api.get("/v1/exec/m")).status == 404
    assert (await api.health())["execs"] == before


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ["no-such-program"]},
        {"command": ["/"]},
        {"command": ["/etc/passwd"]},
        {"command": [""]},
        {"command": ["a\0b"]},
        {"command": ["true", "a\0b"]},
        {"command": ["true"], "cwd": "/no/such/dir"},
        {"command": ["true"], "cwd": "/etc/passwd"},
        {"command": ["true"], "cwd": ""},
        {"command": ["true"], "cwd": "a\0b"},
        {"command": ["true"], "env": {"A": "a\0b"}},
        {"command": ["true"], "env": {"A\0B": "x"}},
        {"command": ["true"], "user": 4294967295},
        {"command": ["true", "x" * 200_000]},
    ],
    ids=lambda fields: json.dumps(fields)[:60],
)
@pytest_twisted.ensureDeferred
async def test_what_cannot_be_spawned_is_500_and_leaves_the_id_free(api: Api, fields: dict[str, Any]) -> None:
    """Never 404, never a traceback, never a running exec (contract a.2)."""
    exec_id = new_id()
    reply = await api.post("/v1/exec/start", json={"exec_id": exec_id, **fields})
    assert reply.key == (500, "spawn_failed"), reply.body
    assert "Traceback" not in reply.json["detail"]
    assert (await api.get(f"/v1/exec/{exec_id}")).key == (404, "unknown_exec")


@pytest.mark.parametrize("name", ["A=B", "", "=", "A B", "1", "é", "A\nB"])
@pytest_twisted.ensureDeferred
async def test_an_odd_variable_name_is_refused_or_passed_on(api: Api, name: str) -> None:
    """Never a 500 without a slug."""
    reply = await api.post(
        "/v1/exec/start", json={"exec_id": new_id(), "command": ["env", "-0"], "env": {name: "v"}}
    )
    assert reply.key in ((200, ""), (500, "spawn_failed")), reply.body
    if reply.status == 200:
        assert f"{name}=v\0" in (await api.wait(reply.json["exec_id"]))["stdout"]


@pytest.mark.parametrize(
    "exec_id",
    [
        "a/b",
        "..",
        ".",
        "%2F",
        "a b",
        "é\N{PILE OF POO}",
        "a?b#c",
        "\n",
        "\0",
        "a" * 4000,
        "//",
        " ",
        "{id}",
        "|",
        "<x>",
    ],
    ids=ascii,
)
@pytest_twisted.ensureDeferred
async def test_any_text_is_an_id(api: Api, exec_id: str) -> None:
    """One percent-decoded segment (contract a.0)."""
    path = f"/v1/exec/{quote(exec_id, safe='')}"
    assert (
        await api.run("echo hi", exec_id=exec_id) if exec_id.isalnum() else await _run(api, exec_id, path)
    )["stdout"] == "hi\n"
    assert (await api.get(path)).json["exec_id"] == exec_id
    assert (await api.get(f"{path}/stream")).status == 200
    assert (await api.post(f"{path}/ack")).json["exec_id"] == exec_id
    assert (await api.post(f"{path}/ack")).slug == "already_acked"


async def _run(api: Api, exec_id: str, path: str) -> Any:
    await api.start("echo hi", exec_id=exec_id)
    while (found := (await api.get(path)).json)["phase"] == "running":
        await pause()
    return found


# -- environment and users -----------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_the_environment_is_launch_and_request_exactly(make_daemon: Any) -> None:
    """Nothing of the daemon's, above all not its token (contract c.2)."""
    daemon: RunningDaemon = make_daemon(env={"IMAGE_VARIABLE": "from the image"})
    daemon.bootstrap(env={"LAUNCH": "from launch", "BOTH": "launch", "EMPTY": ""})
    api = Api(daemon.url, daemon.token)

    async def environment(**fields: Any) -> dict[str, str]:
        printed = (await api.run(["/usr/bin/env", "-0"], **fields))["stdout"]
        return dict(entry.split("=", 1) for entry in printed.split("\0")[:-1])

    assert await environment(env={"BOTH": "request", "LINES": "a\nb"}) == {
        "LAUNCH": "from launch",
        "BOTH": "request",
        "EMPTY": "",
        "LINES": "a\nb",
    }
    inherited = await environment(inherit_image_env=True)
    assert inherited["IMAGE_VARIABLE"] == "from the image"
    assert inherited["PATH"] == os.environ["PATH"]
    assert [key for key in inherited if key.startswith("AGENTD_")] == []
    assert daemon.token not in inherited.values()
    assert len(inherited) - 3 <= (await api.health())["image_env_keys"]


@pytest_twisted.ensureDeferred
async def test_no_cwd_is_the_daemons(api: Api, daemon: RunningDaemon) -> None:
    """Contract c.4."""
    assert (await api.run("pwd -P"))["stdout"].rstrip("\n") == os.readlink(f"/proc/{daemon.pid}/cwd")
    assert (await api.run("pwd -P", cwd="/tmp/.."))["stdout"] == "/\n"


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_a_user_by_name_by_digits_and_by_id(api: Api) -> None:
    """Contract c.3."""
    script = "id -u; id -g; echo $HOME:$USER:$LOGNAME"
    row = pwd.getpwnam("nobody")
    named = (await api.run(script, user="nobody"))["stdout"]
    assert named == f"{row.pw_uid}\n{row.pw_gid}\n{row.pw_dir}:nobody:nobody\n"
    for user in (row.pw_uid, str(row.pw_uid)):
        by_id = (await api.run(script, user=user))["stdout"]
        assert by_id == f"{row.pw_uid}\n0\n{row.pw_dir}:nobody:nobody\n"
    stranger = (await api.run(script, user=54321, group="nogroup"))["stdout"]
    assert stranger == "54321\n65534\n::\n"
    override = (await api.run("echo $HOME:$USER", user="nobody", env={"HOME": "/over"}))["stdout"]
    assert override == "/over:nobody\n"


@pytest_twisted.ensureDeferred
async def test_shells(api: Api) -> None:
    """Lines are joined; ``$0`` is the shell; an empty script is a script (contract c.3)."""
    assert (await api.run(["echo $0", "echo two"], shell=True))["stdout"] == "/bin/sh\ntwo\n"
    assert (await api.run(["echo $0"], shell="bash"))["stdout"].endswith("/bash\n")
    assert (await api.run(["echo $0"], shell="/bin/bash"))["stdout"] == "/bin/bash\n"
    assert (await api.run([], shell=True))["exit_code"] == 0
    for shell in ("bin/sh", "./sh", "/no/sh", "/etc/passwd", "/bin"):
        reply = await api.post(
            "/v1/exec/start", json={"exec_id": new_id(), "command": ["true"], "shell": shell}
        )
        assert reply.key == (400, "unknown_shell"), shell

"""``Prefer: wait=N`` on start and poll: one round trip, and nothing else changed (RFC 7240)."""

import json
import time

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from tests.conftest import RunningDaemon
from tests.wire.conftest import Connect
from tests.wire.support import Api, as_json, new_id, pause, request


@pytest_twisted.ensureDeferred
async def test_a_start_that_waits_answers_the_outcome(api: Api) -> None:
    """In the poll shape; the acknowledgement stays a request of its own."""
    exec_id = new_id()
    body = {"exec_id": exec_id, "command": ["sleep 0.2; echo out; exit 3"], "shell": True}
    reply = await api.post("/v1/exec/start", json=body, headers={"Prefer": "wait=15"})
    assert reply.headers["preference-applied"] == "wait=15"
    assert (reply.json["phase"], reply.json["exit_code"], reply.json["stdout"]) == ("exited", 3, "out\n")
    assert await api.poll(exec_id) == reply.json
    retry = await api.post("/v1/exec/start", json=body, headers={"Prefer": "wait=15"})
    assert retry.json == reply.json
    assert (await api.post(f"/v1/exec/{exec_id}/ack")).status == 200
    acked = await api.post("/v1/exec/start", json=body, headers={"Prefer": "wait=15"})
    assert acked.json == {"exec_id": exec_id, "phase": "acked"}


@pytest_twisted.ensureDeferred
async def test_a_wait_that_ends_first_answers_the_phase(api: Api) -> None:
    """And the exec goes on."""
    exec_id = new_id()
    body = {"exec_id": exec_id, "command": ["sleep", "300"]}
    for wait in ("0", "1"):
        began = time.monotonic()
        reply = await api.post("/v1/exec/start", json=body, headers={"Prefer": f"wait={wait}"})
        assert reply.json == {"exec_id": exec_id, "phase": "running"}
        assert reply.headers["preference-applied"] == f"wait={wait}"
        assert int(wait) <= time.monotonic() - began + 0.05 < int(wait) + 10
    waiting = Deferred.fromCoroutine(api.get(f"/v1/exec/{exec_id}", headers={"Prefer": "wait=20"}))
    await api.post(f"/v1/exec/{exec_id}/kill")
    reply = await waiting
    assert (reply.json["phase"], reply.json["cause"]) == ("exited", "killed")


@pytest_twisted.ensureDeferred
async def test_without_the_header_nothing_differs(api: Api) -> None:
    """The start answers at once with its own shape, and no preference is said to be applied."""
    exec_id = new_id()
    body = {"exec_id": exec_id, "command": ["read go"], "shell": True, "stdin": True}
    for headers in ({}, {"Prefer": "respond-async"}, {"Prefer": "wait=soon"}, {"Prefer": "wait=-1"}):
        started = await api.post("/v1/exec/start", json=body, headers=headers)
        assert started.json == {"exec_id": exec_id, "phase": "running"}
        polled = await api.get(f"/v1/exec/{exec_id}", headers=headers)
        assert polled.json == {"exec_id": exec_id, "phase": "running"}
        assert "preference-applied" not in {**started.headers, **polled.headers}
    await api.stdin(exec_id, signal="eof")


@pytest_twisted.ensureDeferred
async def test_a_long_wait_is_cut_and_said(make_daemon: object) -> None:
    """To the daemon's own limit."""
    daemon: RunningDaemon = make_daemon(env={"AGENTD_MAX_WAIT_SECS": "1"})  # type: ignore[operator]
    daemon.bootstrap()
    api = Api(daemon.url, daemon.token)
    exec_id = await api.start(["sleep", "300"])
    began = time.monotonic()
    for wait in ("2", "3600", "9" * 100):
        reply = await api.get(f"/v1/exec/{exec_id}", headers={"Prefer": f"wait={wait}"})
        assert (reply.json["phase"], reply.headers["preference-applied"]) == ("running", "wait=1")
    assert 2.9 < time.monotonic() - began < 15


@pytest.mark.parametrize("slug", ["unknown_exec", "spawn_failed", "malformed_request"])
@pytest_twisted.ensureDeferred
async def test_a_refusal_is_not_held(api: Api, slug: str) -> None:
    """There is nothing to wait for."""
    began = time.monotonic()
    headers = {"Prefer": "wait=20"}
    if slug == "unknown_exec":
        reply = await api.get("/v1/exec/nobody", headers=headers)
    else:
        command = ["no-such-program"] if slug == "spawn_failed" else []
        reply = await api.post(
            "/v1/exec/start", json={"exec_id": new_id(), "command": command}, headers=headers
        )
    assert reply.slug == slug
    assert "preference-applied" not in reply.headers
    assert time.monotonic() - began < 10


@pytest_twisted.ensureDeferred
async def test_a_caller_that_leaves_while_waiting_affects_nobody(
    api: Api, daemon: RunningDaemon, raw: Connect
) -> None:
    """Neither the exec nor others who wait for it."""
    exec_id = await api.start("read go; echo done", stdin=True)
    leaving = raw(daemon)
    leaving.send(request("GET", f"/v1/exec/{exec_id}", "Prefer: wait=20", token=daemon.token))
    staying = Deferred.fromCoroutine(api.get(f"/v1/exec/{exec_id}", headers={"Prefer": "wait=20"}))
    await pause(0.1)
    leaving.close()
    await pause(0.1)
    await api.stdin(exec_id, b"go\n", "eof")
    assert (await staying).json["stdout"] == "done\n"


def test_start_wait_ack_over_one_connection(daemon: RunningDaemon, raw: Connect) -> None:
    """Two round trips an exec, many execs a connection."""
    connection = raw(daemon)
    for number in range(20):
        body = {"exec_id": f"loop-{number}", "command": ["echo", str(number)]}
        started = as_json("POST", "/v1/exec/start", body, "Prefer: wait=15", token=daemon.token)
        assert json.loads(connection.send(started).reply().body)["stdout"] == f"{number}\n"
        ack = request("POST", f"/v1/exec/loop-{number}/ack", token=daemon.token)
        assert connection.send(ack).reply().status == 200

"""Every status and slug on the route list, produced by a real daemon.

The route list is the table of cases: a row that documents an answer without a producer here fails, and so does a
producer of an answer that is not documented.
"""

import json
from collections.abc import Iterator

import pytest
import pytest_twisted

from agentd.http.routes import Auth
from agentd.microvm.routes import HOOK_PREFIX, ROUTES
from tests.conftest import start_daemon
from tests.wire import exec_producers, file_producers
from tests.wire.conftest import Connect
from tests.wire.file_producers import FILE, TAR, TCP, at
from tests.wire.producers import CAP, MEMBERS_CAP, PRODUCERS, STDIN_CAP, Case, Daemons, concrete
from tests.wire.support import as_json, connect, new_id, request

FILLED = (exec_producers, file_producers)
"""What has filled the register by being imported."""


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """Four daemons with small caps, the second not bootstrapped, the last without room on its disk.

    The third has been asked to leave, and an exec keeps one request in flight.
    """
    env = {"AGENTD_MAX_BODY_BYTES": str(CAP), "AGENTD_MAX_STDIN_WRITE_BYTES": str(STDIN_CAP)}
    program = ("-m", "tests.wire.faulty", "-n", "--pidfile=", "agentd")
    env |= {"AGENTD_DRAIN_TIMEOUT_SECS": "600", "AGENTD_MAX_WAIT_SECS": "600"}
    env |= {"AGENTD_MAX_TAR_MEMBERS": str(MEMBERS_CAP)}
    reserves = ("0", "0", "0", "9" * 18)
    running = [
        start_daemon(
            tmp_path_factory.mktemp("d"), program=program, env={**env, "AGENTD_DISK_RESERVE_BYTES": reserve}
        )
        for reserve in reserves
    ]
    open_, closed, leaving, full = running
    for daemon in (open_, leaving, full):
        daemon.bootstrap()
    sockets = [connect(leaving) for _ in range(3)]
    holder, poster, kept = sockets
    body = {"exec_id": "held", "command": ["sleep", "300"]}
    holder.send(as_json("POST", "/v1/exec/start", body, "Prefer: wait=600", token=leaving.token))
    while (held := kept.send(request("GET", "/v1/exec/held", token=leaving.token)).reply()).status != 200:
        assert held.status == 404
    assert poster.send(request("POST", f"{HOOK_PREFIX}/terminate", body=b"")).reply().status == 200
    yield Daemons(open_, closed, kept, leaving.token, full, tmp_path_factory.mktemp("home"))
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
    tree = daemons.new_path()
    tree.mkdir()
    paths = {TAR: at(TAR, tree), FILE: at(FILE, __file__)}
    for route in ROUTES:
        if route.method == "GET" and route.path != TCP:  # an upgrade is not a document
            path = paths.get(route.path) or route.path.replace("{id}", exec_id)
            head = connection.send(request("HEAD", path, token=daemons.daemon.token)).reply(head=True)
            full = await daemons.api.get(path)
            assert head.status == 200
            assert head.headers["content-type"] == full.headers["content-type"]
            if not path.endswith("/stream"):
                assert int(head.headers["content-length"]) == len(full.body)


@pytest_twisted.ensureDeferred
async def test_an_exec_named_start_can_be_started_and_not_polled(daemons: Daemons) -> None:
    """Its path is taken (contract a.0)."""
    assert (await exec_producers.start(daemons, exec_id="start")).status == 200
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

"""The way out: terminate and SIGTERM drain, finish what is in flight, and end the commands (contract a.1, i.7)."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from agentd.microvm.routes import HOOK_PREFIX
from tests.conftest import RunningDaemon
from tests.procs import alive
from tests.wire.conftest import Connect
from tests.wire.support import DEADLINE, TWISTD, Api, Raw, as_json, pause, request, until

Make = Callable[..., RunningDaemon]
PROGRAMS = [pytest.param(TWISTD, id="twistd"), pytest.param(("-m", "agentd"), id="python -m agentd")]
TERMINATE = request("POST", f"{HOOK_PREFIX}/terminate", body=b"")


def ended(daemon: RunningDaemon, seconds: float = DEADLINE) -> int:
    """Wait for its end; returns the exit status."""
    return daemon.process.wait(seconds)


def start(
    connection: Raw, daemon: RunningDaemon, exec_id: str, *command: str, headers: tuple[str, ...] = ()
) -> None:
    """Send a start of an argv."""
    body = {"exec_id": exec_id, "command": list(command)}
    connection.send(as_json("POST", "/v1/exec/start", body, *headers, token=daemon.token))


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_idle_daemon_leaves_at_once_after_terminate(
    make_daemon: Make, raw: Connect, program: tuple[str, ...]
) -> None:
    """200 first, then exit status 0."""
    daemon = make_daemon(program=program)
    connection = raw(daemon)
    assert connection.send(TERMINATE).reply().status == 200
    assert connection.until_closed() == b""
    assert ended(daemon) == 0
    events = [entry.get("event") for entry in daemon.log]
    assert events.index("listening") < events.index("stopping") < events.index("stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_does_what_terminate_does(make_daemon: Make, raw: Connect, number: signal.Signals) -> None:
    """In-flight requests finish, whatever the terminate knob says."""
    daemon = make_daemon(program=("-m", "agentd"), env={"AGENTD_TERMINATE": "acknowledge"})
    daemon.bootstrap()
    held = raw(daemon)
    start(held, daemon, "held", "sleep", "1", headers=("Prefer: wait=20",))
    time_in_flight(daemon, raw)
    daemon.process.send_signal(number)
    outcome = json.loads(held.reply().body)
    assert (outcome["phase"], outcome["exit_code"]) == ("exited", 0)
    assert ended(daemon) == 0


def time_in_flight(daemon: RunningDaemon, raw: Connect, exec_id: str = "held") -> None:
    """Wait until the held exec is known."""
    look = raw(daemon)
    limit = time.monotonic() + DEADLINE
    while look.send(request("GET", f"/v1/exec/{exec_id}", token=daemon.token)).reply().status != 200:
        assert time.monotonic() < limit
    look.close()


def test_a_drain_serves_who_is_there_and_takes_on_nothing_new(make_daemon: Make, raw: Connect) -> None:
    """Connections that exist poll, stream, write, kill and ack; new execs are 503; nobody new connects."""
    daemon = make_daemon()
    daemon.bootstrap()
    held, kept, stream = raw(daemon), raw(daemon), raw(daemon)
    start(held, daemon, "held", "sleep", "300", headers=("Prefer: wait=20",))
    time_in_flight(daemon, raw)
    start(kept, daemon, "other", "sh", "-c", "echo out; exec sleep 300")
    kept.reply()
    stream.send(request("GET", "/v1/exec/other/stream", token=daemon.token))
    stream.until(b"event: output\n")
    poster = raw(daemon)
    assert poster.send(TERMINATE).reply().status == 200
    kept.send(request("GET", "/v1/exec/other", token=daemon.token))
    assert json.loads(kept.reply().body)["phase"] == "running"
    start(kept, daemon, "new", "true")
    refused = kept.reply()
    assert (refused.status, refused.slug) == (503, "shutting_down")
    start(kept, daemon, "other", "true")
    assert kept.reply().status == 200, "a retry of a known start is no new exec"
    assert kept.send(request("GET", "/v1/exec/new", token=daemon.token)).reply().status == 404
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((daemon.host, daemon.port), timeout=DEADLINE)
    assert kept.send(request("GET", "/v1/health")).reply().status == 200
    assert kept.send(request("POST", "/v1/exec/other/kill", token=daemon.token)).reply().status == 200
    assert b"event: exit" in stream.until(b"\r\n0\r\n\r\n")
    assert kept.send(request("POST", "/v1/exec/other/ack", token=daemon.token)).reply().status == 200
    assert daemon.process.poll() is None
    assert kept.send(request("POST", "/v1/exec/held/kill", token=daemon.token)).reply().status == 200
    assert json.loads(held.reply().body)["phase"] == "exited"
    assert ended(daemon) == 0


def test_a_drain_has_a_deadline_and_ends_the_commands(make_daemon: Make, raw: Connect) -> None:
    """A request that does not finish is not waited for for ever; TERM, then KILL, and no command outlives it."""
    daemon = make_daemon(env={"AGENTD_DRAIN_TIMEOUT_SECS": "0.5"})
    daemon.bootstrap()
    held, kept = raw(daemon), raw(daemon)
    start(kept, daemon, "stubborn", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 986; done")
    kept.reply()
    held.send(request("GET", "/v1/exec/stubborn/stream", token=daemon.token))
    held.until(b"event: output\n")
    procs = json.loads(kept.send(request("GET", "/v1/procs", token=daemon.token)).reply().body)["procs"]
    (pids,) = (group["pids"] for group in procs)
    assert len(pids) == 2
    began = time.monotonic()
    assert kept.send(TERMINATE).reply().status == 200
    assert ended(daemon) == 0
    assert time.monotonic() - began < 15
    for pid in pids:
        assert not alive(pid)


def test_idle_connections_do_not_hold_a_drain_up(make_daemon: Make, raw: Connect) -> None:
    """Nor half a request, nor what lingers after nonsense or a refusal; and the end is a proper one."""
    daemon = make_daemon()
    idle, half, garbage, refused = (raw(daemon) for _ in range(4))
    half.send(b"GET /v1/health HTTP/1.1\r\nX")
    garbage.send(b"nonsense\r\n\r\n").until_closed()
    refused.send(request("POST", "/v1/exec/start", "Content-Length: 90000")).until_closed()
    assert idle.send(request("GET", "/v1/health")).reply().status == 200
    began = time.monotonic()
    assert idle.send(TERMINATE).reply().status == 200
    assert ended(daemon) == 0
    assert time.monotonic() - began < 10
    assert [entry for entry in daemon.log if entry["level"] in ("error", "critical")] == []


def test_terminate_may_only_acknowledge(make_daemon: Make, raw: Connect) -> None:
    """With the knob: any process in the VM can post it, so this daemon goes on."""
    daemon = make_daemon(env={"AGENTD_TERMINATE": "acknowledge"})
    daemon.bootstrap()
    connection = raw(daemon)
    for number in range(3):
        assert connection.send(TERMINATE).reply().status == 200
        start(connection, daemon, f"after-{number}", "true", headers=("Prefer: wait=20",))
        assert json.loads(connection.reply().body)["exit_code"] == 0
    hooks = json.loads(connection.send(request("GET", "/v1/health")).reply().body)["hooks"]
    assert [entry["hook"] for entry in hooks] == ["run", "terminate", "terminate", "terminate"]
    assert daemon.process.poll() is None


@pytest_twisted.ensureDeferred
async def test_terminate_runs_its_handler_before_it_leaves(make_daemon: Make) -> None:
    """The answer, and the way out, wait for it."""
    daemon = make_daemon()
    daemon.bootstrap()
    directory = os.readlink(f"/proc/{daemon.pid}/cwd") + "/hooks.d"
    os.mkdir(directory)
    with open(f"{directory}/terminate", "w") as script:
        script.write(
            f"#!/bin/sh\nwhile [ ! -e {directory}/go ]; do sleep 0.05; done; echo end > {directory}/ran\n"
        )
    os.chmod(f"{directory}/terminate", 0o755)
    api = Api(daemon.url, daemon.token)
    answer = Deferred.fromCoroutine(api.hook("terminate"))
    await pause(0.2)
    assert (await api.run(["true"]))["exit_code"] == 0, "it serves until its handler is done"
    with open(f"{directory}/go", "w"):
        pass
    assert (await answer).status == 200
    await until(lambda: daemon.process.poll() is not None)
    assert daemon.process.poll() == 0
    assert os.path.exists(f"{directory}/ran")


def test_terminate_twice_is_once(make_daemon: Make, raw: Connect) -> None:
    """Both are answered."""
    daemon = make_daemon()
    first, second = raw(daemon), raw(daemon)
    second.send(b"POST ")
    first.send(TERMINATE)
    second.send(TERMINATE[len(b"POST ") :])
    assert first.reply().status == 200
    assert second.until_closed()[:15] in (b"", b"HTTP/1.1 200 OK")
    assert ended(daemon) == 0


def test_hang_up_is_no_reason_to_stop(make_daemon: Make, raw: Connect) -> None:
    """SIGHUP is ignored under either program."""
    for program in (TWISTD, ("-m", "agentd")):
        daemon = make_daemon(program=program)
        connection = raw(daemon)
        assert connection.send(request("GET", "/v1/health")).reply().status == 200
        daemon.process.send_signal(signal.SIGHUP)
        assert connection.send(request("GET", "/v1/health")).reply().status == 200
        daemon.stop()

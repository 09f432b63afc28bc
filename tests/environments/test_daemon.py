"""The face in a daemon of its own: when it is on, what its log says, what its children inherit, and its end."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.conftest import REPOSITORY, DaemonFactory, RunningDaemon
from tests.environments.support import Home
from tests.process.support import signals_of
from tests.procs import alive


def call(
    daemon: RunningDaemon, method: str, path: str, value: Any = None, key: str | None = None
) -> tuple[int, Any]:
    """Status and JSON of one request."""
    request = urllib.request.Request(
        f"{daemon.url}/v1/environments/{path}",
        method=method,
        data=None if value is None else json.dumps(value).encode(),
        headers={"Authorization": f"Bearer {key or daemon.token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=40) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        body = json.loads(refused.read())
        assert set(body) == {"error", "message"}
        return refused.code, body


def settings(home: Home, **more: str) -> dict[str, str]:
    return {"AGENTD_PASSWD_FILE": str(home.passwd), "AGENTD_GROUP_FILE": str(home.group), **more}


def logged(daemon: RunningDaemon, event: str) -> list[dict[str, object]]:
    return [entry for entry in daemon.log if entry.get("event") == event]


def wait_for(condition: Any, what: str) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def test_without_an_agent_user_the_face_is_off_and_says_so_once(
    make_daemon: DaemonFactory, home: Home
) -> None:
    rows = home.passwd.read_text()
    home.passwd.write_text("root:x:0:0::/root:/bin/sh\n")
    daemon = make_daemon(env=settings(home))
    daemon.bootstrap()
    wait_for(lambda: logged(daemon, "environment_off"), "the log says so")
    for method, path, value in [
        ("GET", "local/processes", None),
        ("POST", "local/exec", {"argv": ["true"]}),
        ("GET", "local/files?path=x", None),
    ]:
        status, body = call(daemon, method, path, value)
        assert (status, body["error"]) == (503, "environment_not_running")
        assert body["message"] == "the environment is not running: there is no user 'agent'"
    assert len(logged(daemon, "environment_off")) == 1
    assert call(daemon, "GET", "local/processes", key="wrong")[0] == 401
    assert call(daemon, "GET", "other/processes")[0] == 404
    # The account appears, and the face is on.
    home.passwd.write_text(rows)
    assert call(daemon, "GET", "local/processes") == (200, {"processes": []})


def test_before_bootstrap_every_route_is_503(make_daemon: DaemonFactory, home: Home) -> None:
    daemon = make_daemon(env=settings(home))
    for method, path in [("GET", "local/processes"), ("POST", "local/exec"), ("GET", "other/files")]:
        status, body = call(daemon, method, path)
        assert (status, body["error"]) == (503, "environment_not_running")
    assert call(daemon, "GET", "local/nothing")[0] == 404
    daemon.bootstrap()
    assert call(daemon, "GET", "local/processes")[0] == 200
    assert logged(daemon, "environment_off") == []


def test_a_home_that_is_missing_fails_the_environment_until_it_is_there(
    make_daemon: DaemonFactory, home: Home
) -> None:
    home.home.rename(home.place / "away")
    daemon = make_daemon(env=settings(home, AGENTD_ENVIRONMENT_ID="vm-7"))
    daemon.bootstrap()
    status, body = call(daemon, "GET", "vm-7/processes")
    assert (status, body["error"]) == (409, "environment_failed")
    assert body["message"] == "the environment has failed: the home of user 'agent' is no directory"
    (home.place / "away").rename(home.home)
    assert call(daemon, "GET", "vm-7/processes")[0] == 200
    assert call(daemon, "GET", "local/processes")[0] == 404


@pytest.mark.parametrize(
    ("state", "slug"), [("failed", "environment_failed"), ("limit_exceeded", "limit_exceeded")]
)
def test_the_operators_switch(make_daemon: DaemonFactory, home: Home, state: str, slug: str) -> None:
    daemon = make_daemon(env=settings(home), options=("--environment-state", state))
    daemon.bootstrap()
    for method, path in [("GET", "local/processes"), ("DELETE", "local/files?path=x")]:
        status, body = call(daemon, method, path)
        assert (status, body["error"]) == (409, slug)
    assert call(daemon, "GET", "other/processes")[0] == 404


def test_bad_settings_stop_the_start() -> None:
    for option, value in [
        ("--environment-id", "a b"),
        ("--environment-id", "x" * 65),
        ("--environment-state", "maybe"),
    ]:
        run = subprocess.run(
            [sys.executable, "-m", "agentd", option, value],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.returncode == 2
        assert option in run.stderr


def test_children_of_a_daemon_that_ignores_signals_ignore_none(
    make_daemon: DaemonFactory, home: Home
) -> None:
    """However the daemon was started: ``nohup``, in the background of a shell, with its own secrets around it."""
    ignoring = ("sh", "-c", 'trap "" HUP INT QUIT USR1 PIPE; exec "$@"', "sh")
    env = settings(home, SECRET_OF_THE_DAEMON="x", AGENTD_ENVIRONMENT_ID="local")
    daemon = make_daemon(env=env, wrap=ignoring)
    daemon.bootstrap()
    status, result = call(daemon, "POST", "local/exec", {"argv": ["cat", "/proc/self/status"]})
    assert status == 200
    fields = dict(line.split(":\t", 1) for line in result["stdout"].splitlines())
    assert signals_of(fields["SigIgn"]) == signals_of(fields["SigBlk"]) == 0
    _, result = call(daemon, "POST", "local/exec", {"argv": ["/usr/bin/env"]})
    assert "AGENTD" not in result["stdout"]
    assert "SECRET" not in result["stdout"]
    _, process = call(daemon, "POST", "local/processes", {"argv": ["sleep", "100"]})
    assert call(daemon, "POST", f"local/processes/{process['pid']}/signal", {"signal": "HUP"})[0] == 204
    wait_for(lambda: not alive(process["os_pid"]), "the hang-up")


def test_a_stopped_daemon_leaves_no_child_behind(make_daemon: DaemonFactory, home: Home) -> None:
    daemon = make_daemon(env=settings(home))
    daemon.bootstrap()
    numbers = []
    for command in ("sleep 300 & sleep 300", "trap '' TERM; sleep 300"):
        status, process = call(daemon, "POST", "local/processes", {"command": command})
        assert status == 201
        numbers.append(process["os_pid"])
    began = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(30) == 0
    assert time.monotonic() - began < 10
    for number in numbers:
        wait_for(lambda number=number: not alive(number), "the end of a child")
    assert not [entry for entry in daemon.log if entry.get("level") in ("error", "critical")]


def test_the_openapi_document_covers_the_face(make_daemon: DaemonFactory, home: Home) -> None:
    daemon = make_daemon(env=settings(home))
    with urllib.request.urlopen(f"{daemon.url}/v1/schema?format=openapi", timeout=30) as answer:
        document = json.loads(answer.read())
    paths = [path for path in document["paths"] if path.startswith("/v1/environments/{id}")]
    assert len(paths) == 8
    assert sum(len(document["paths"][path]) for path in paths) == 12
    assert {"ExecRequest", "Process", "AttachedMessage", "AttachClientMessage", "Error"} <= set(
        document["components"]["schemas"]
    )
    with urllib.request.urlopen(f"{daemon.url}/v1/schema", timeout=30) as answer:
        published = json.loads(answer.read())
    assert not [row for row in published["routes"] if "environments" in row["path"]]
    assert os.fspath(home.home) not in json.dumps(document)


def test_the_face_costs_a_start_nothing_but_its_route_list() -> None:
    """Its handlers, and what they bring, are imported with the first request."""
    late = ["handlers", "exec", "files", "processes", "attach", "start", "reading"]
    code = (
        "import sys, agentd.tap\n"
        f"print([name for name in {late!r} if f'agentd.environments.{{name}}' in sys.modules])\n"
        "print([name for name in ('autobahn', 'agentd.files') if name in sys.modules])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=True
    )
    assert run.stdout.split("\n")[:2] == ["[]", "[]"]

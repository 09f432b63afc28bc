"""A whole daemon with the worker: options, its start without an engine, its end, and a start that fails."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.threads import deferToThread

from tests.conftest import REPOSITORY, RunningDaemon, start_daemon
from tests.process.support import soon, until
from tests.worker.engine import TestEngine
from tests.worker.support import PUBLISHED, UNJAILED, valid

Daemons = Callable[..., RunningDaemon]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    """`daemons(*options, **environ)`: a daemon in a directory of its own."""
    running: list[RunningDaemon] = []

    def start(*options: str, **environ: str) -> RunningDaemon:
        running.append(start_daemon(tmp_path, options=options, env=environ))
        return running[-1]

    yield start
    for daemon in running:
        daemon.stop()


def said(daemon: RunningDaemon, event: str) -> list[dict[str, Any]]:
    return [entry for entry in daemon.log if entry.get("event") == event]


def reason(daemon: RunningDaemon) -> str:
    """Why it could not go on."""
    (line,) = [str(entry["message"]) for entry in daemon.log if "cannot go on" in str(entry["message"])]
    return line


def ask(daemon: RunningDaemon, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{daemon.url}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {daemon.token}"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read() or b"null")


@pytest_twisted.ensureDeferred
async def test_it_serves_an_engine_and_leaves_in_order(
    engine: TestEngine, daemons: Daemons, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(json.dumps({**UNJAILED, "default_timeout_ms": 4321}))
    daemon = await soon(deferToThread(daemons, "--worker", "--iii-url", engine.url))
    await until(lambda: set(PUBLISHED) <= set(engine.functions), "the functions")
    assert engine.values["shell"]["default_timeout_ms"] == 4321
    result = valid("shell::exec", await soon(engine.call("shell::exec", {"command": "echo hi"})))
    assert result["stdout"] == "hi\n"
    marker = tmp_path / "pid"
    script = f"echo $$ > {marker}.t; mv {marker}.t {marker}; sleep 50"
    await soon(engine.call("shell::exec_bg", {"command": "sh", "args": ["-c", script]}))
    await until(marker.exists, "the job")
    assert await soon(deferToThread(daemon.stop)) == 0
    assert not os.path.exists(f"/proc/{int(marker.read_text())}")
    assert not engine.functions


@pytest_twisted.ensureDeferred
async def test_variables_set_it_up_too(engine: TestEngine, daemons: Daemons, tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("X-Team: tests\n\nAuthorization: Bearer in-the-file\n")
    (tmp_path / "seed.json").write_text(json.dumps(UNJAILED))
    daemon = await soon(
        deferToThread(
            lambda: daemons(
                AGENTD_WORKER="1",
                III_URL=engine.url,
                III_WORKER_NAME="mine",
                III_NAMESPACE="tests",
                III_TOKEN="in-the-variable",
                AGENTD_WORKER_CONFIG=str(tmp_path / "seed.json"),
                AGENTD_III_HEADERS_FILE=str(headers),
            )
        )
    )
    await until(lambda: set(PUBLISHED) <= set(engine.functions), "the functions")
    announced = next(f for f in engine.frames if f.get("function_id") == "engine::workers::register")
    assert (announced["data"]["name"], announced["data"]["namespace"]) == ("mine", "tests")
    assert engine.workers[0].headers["authorization"] == "Bearer in-the-file"
    assert engine.workers[0].headers["x-team"] == "tests"
    env = await soon(engine.call("shell::exec", {"command": "env"}))
    assert "in-the-variable" not in env["stdout"]
    assert "in-the" not in json.dumps(daemon.log)


@pytest_twisted.ensureDeferred
async def test_without_an_engine_it_starts_says_so_and_serves_http(
    engine: TestEngine, daemons: Daemons
) -> None:
    await engine.stop()
    daemon = await soon(deferToThread(daemons, "--worker", "--iii-url", engine.url))
    await until(lambda: said(daemon, "engine_unreachable"), "the complaint")
    assert await soon(deferToThread(daemon.bootstrap)) == 200
    status, found = await soon(deferToThread(ask, daemon, "GET", "/v1/functions"))
    assert status == 200
    assert {each["name"] for each in found["functions"]} == set(PUBLISHED)
    status, result = await soon(
        deferToThread(ask, daemon, "POST", "/v1/functions/shell::exec", {"command": "echo here"})
    )
    assert (status, valid("shell::exec", result)["stdout"]) == (200, "here\n")
    engine.start()
    await until(lambda: set(PUBLISHED) <= set(engine.functions), "the functions")
    assert len(said(daemon, "engine_unreachable")) == 1


@pytest_twisted.ensureDeferred
async def test_a_configuration_that_cannot_be_used_ends_the_daemon(
    engine: TestEngine, daemons: Daemons, tmp_path: Path
) -> None:
    seed = tmp_path / "bad.yaml"
    seed.write_text("allowlist: []\n")
    daemon = await soon(
        deferToThread(daemons, "--worker", "--iii-url", engine.url, "--worker-config", str(seed))
    )
    assert await soon(deferToThread(daemon.process.wait, 30)) == 1
    assert "removed in 0.8.0" in reason(daemon)
    assert not engine.functions


@pytest_twisted.ensureDeferred
async def test_a_stored_value_that_cannot_be_used_ends_the_daemon(
    engine: TestEngine, daemons: Daemons
) -> None:
    engine.values["shell"] = None
    daemon = await soon(deferToThread(daemons, "--worker", "--iii-url", engine.url))
    assert await soon(deferToThread(daemon.process.wait, 30)) == 1
    assert "null" in reason(daemon)
    assert "shell::exec" not in engine.functions


def test_without_the_option_there_is_no_such_face(daemons: Daemons) -> None:
    daemon = daemons()
    daemon.bootstrap()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{daemon.url}/v1/functions", timeout=30)
    assert refused.value.code == 404
    refused.value.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--iii-url", "http://x"), "--iii-url: expected ws://"),
        (("--iii-url", ""), "--iii-url: expected a value"),
        (("--worker-namespace", ""), "--worker-namespace: expected a value"),
        (("--iii-headers-file", "/no/such/file"), "No such file"),
    ],
)
def test_bad_options_are_one_line(options: tuple[str, ...], text: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentd", "--worker", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert text in done.stderr + done.stdout
    assert "Traceback" not in done.stderr

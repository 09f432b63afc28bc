"""agentctl against a real daemon: what a person and a script see of each command."""

import base64
import hashlib
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted

from tests.cli.conftest import Ctl, ServeScript, Spawn
from tests.client.support import Hang, answer, chunk, exited, output, stream, until
from tests.conftest import DaemonFactory, RunningDaemon

# -- the machine -------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_health_needs_no_token(ctl: Ctl) -> None:
    ran = await ctl("health", token="")
    assert re.search(r"^bootstrapped +yes$", ran.text, re.M)
    found = json.loads((await ctl("health", "--json")).text)
    assert found["bootstrapped"] is True


@pytest_twisted.ensureDeferred
async def test_bootstrap_with_a_token_and_with_a_fresh_one(
    spawn: Spawn, make_daemon: DaemonFactory, tmp_path: Path
) -> None:
    url = make_daemon().url
    ran = await spawn("bootstrap", "--env", "WHO=me", url=url).result()
    token = ran.text.strip().removeprefix("AGENTD_TOKEN=")
    assert len(token) >= 32
    ran = await spawn("run", "--", "printenv", "WHO", url=url, token=token).result()
    assert ran.out == b"me\n"
    ran = await spawn("bootstrap", url=url, token=token).result()
    assert (ran.status, ran.text) == (0, "bootstrapped\n")
    ran = await spawn("bootstrap", url=url, token="other").result()
    assert (ran.status, "another token" in ran.line) == (1, True)


@pytest_twisted.ensureDeferred
async def test_a_payload_over_the_budget_is_refused_before_any_call(
    spawn: Spawn, serve_script: ServeScript
) -> None:
    script = serve_script()
    ran = await spawn("bootstrap", "--env", "BIG=" + "x" * 5000, url=script.url, token="t").result()
    assert ran.status == 1
    assert "4096" in ran.line
    assert "xxx" not in ran.line
    assert script.requests == []


@pytest_twisted.ensureDeferred
async def test_schema_is_json_either_way(ctl: Ctl) -> None:
    assert json.loads((await ctl("schema")).text)["protocol_version"] == "1"
    assert json.loads((await ctl("schema", "--json", "--openapi")).text)["openapi"].startswith("3.1")


@pytest_twisted.ensureDeferred
async def test_ps_and_kill(ctl: Ctl) -> None:
    hostile = "id-\x1b[31m"
    begun = ctl("run", "--id", hostile, "--", "sleep", "600")
    await_listed = await _listed(ctl, hostile)
    assert await_listed["pids"] == [await_listed["pgid"]]
    table = await ctl("ps")
    assert "running" in table.text
    assert "\x1b" not in table.text
    ran = await ctl("kill", hostile)
    assert ran.text == "killed\n"
    assert (await begun).status == 128 + signal.SIGTERM
    assert json.loads((await ctl("kill", "--json", hostile)).text)["killed"] is False
    assert (await ctl("kill", "nope")).status == 1


async def _listed(ctl: Ctl, exec_id: str) -> dict[str, Any]:
    for _ in range(100):
        for group in json.loads((await ctl("ps", "--json")).text):
            if group["exec_id"] == exec_id and group["pids"]:
                return dict(group)
    raise AssertionError("it is not running")


# -- run ---------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_both_streams_and_the_status(ctl: Ctl) -> None:
    ran = await ctl("run", "--", "sh", "-c", "printf out; printf err >&2; exit 7")
    assert (ran.status, ran.out, ran.err) == (7, b"out", b"err")


@pytest_twisted.ensureDeferred
async def test_bytes_are_passed_as_they_are(ctl: Ctl) -> None:
    ran = await ctl(
        "run", "--shell", "printf '\\342'; sleep 0.1; printf '\\202\\254'; head -c 200000 /dev/zero"
    )
    assert ran.out == "€".encode() + bytes(200_000)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--shell", "kill -9 $$"), 137, "SIGKILL"),
        (("--timeout", "0.3", "--", "sleep", "60"), 143, "timeout"),
        (("--timeout", "0.3", "--shell", "trap 'exit 0' TERM; sleep 60 & wait"), 124, "timeout"),
        (("--", "no-such-program"), 126, "spawn_failed"),
        (("--user", "no-such-user", "--", "true"), 1, "unknown_user"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_other_ends(ctl: Ctl, words: tuple[str, ...], status: int, said: str) -> None:
    ran = await ctl("run", *words)
    assert ran.status == status
    assert said in ran.line


@pytest_twisted.ensureDeferred
async def test_the_options_reach_the_command(ctl: Ctl, tmp_path: Path) -> None:
    words = (
        "--cwd",
        str(tmp_path),
        "-e",
        "A=b",
        "-e",
        "C=d e",
        "--user",
        str(os.getuid()),
        "--group",
        str(os.getgid()),
    )
    ran = await ctl("run", *words, "--", "sh", "-c", "pwd; echo $A $C; id -u; id -g; echo $1", "x", "--user")
    assert ran.text == f"{tmp_path}\nb d e\n{os.getuid()}\n{os.getgid()}\n--user\n"
    ran = await ctl("run", "--shell-name", "bash", "echo $BASH_VERSINFO")
    assert ran.status == 0


@pytest_twisted.ensureDeferred
async def test_standard_input_is_sent_when_asked_for(spawn: Spawn, daemon: RunningDaemon) -> None:
    data = os.urandom(300_000)
    run = spawn(
        "run", "--stdin", "--", "sh", "-c", "sleep 1.5; sha256sum", url=daemon.url, token=daemon.token
    )
    run.process.write(data)
    run.process.closeStdin()
    ran = await run.result()
    assert hashlib.sha256(data).hexdigest() in ran.text
    run = spawn("run", "--", "cat", url=daemon.url, token=daemon.token)
    assert (await run.result()).out == b""


@pytest_twisted.ensureDeferred
async def test_a_command_that_has_enough_of_its_input(spawn: Spawn, daemon: RunningDaemon) -> None:
    run = spawn("run", "--stdin", "--", "head", "-c", "3", url=daemon.url, token=daemon.token)
    run.process.write(b"abcdef" * 100_000)
    ran = await run.result()
    assert (ran.status, ran.out, ran.err) == (0, b"abc", b"")


@pytest_twisted.ensureDeferred
async def test_input_that_cannot_be_sent_ends_the_command(spawn: Spawn, serve_script: ServeScript) -> None:
    started = answer(200, {"exec_id": "e", "phase": "running"})
    script = serve_script(started)

    def rest(request: Any) -> list[Any]:
        verb = request.path.rpartition("/")[2]
        if verb == "stream":
            return [*stream()[:1], Hang()]
        if verb == "stdin":
            return answer(500, {"error": "stdin_write_failed", "detail": "EIO"})
        if verb == "kill":
            for connection in script.connections:
                if connection.hanging:
                    connection.transport.write(chunk(exited(0, exit_code=None, signal=15)) + b"0\r\n\r\n")
                    connection.hanging = False
            return answer(200, {"exec_id": "e", "killed": True})
        return answer(200, {"exec_id": "e", "phase": "exited", "signal": 15, "stdout": "", "stderr": ""})

    script.replies += [rest] * 5
    run = spawn("run", "--stdin", "--id", "e", "--", "cat", url=script.url, token="t")
    run.process.write(b"x")
    ran = await run.result()
    assert "stdin_write_failed" in ran.line
    assert "/v1/exec/e/kill" in [request.path for request in script.requests]


@pytest_twisted.ensureDeferred
async def test_run_as_json(ctl: Ctl) -> None:
    ran = await ctl("run", "--json", "--", "sh", "-c", "printf hi; exit 3")
    started, out, end, outcome = [json.loads(line) for line in ran.text.splitlines()]
    assert ran.status == 3
    assert (started["event"], end["event"]) == ("started", "exit")
    assert base64.b64decode(out["data_b64"]) == b"hi"
    assert (outcome["status"], outcome["exit_code"], outcome["cause"]) == (3, 3, "exit")
    assert outcome["usage"]["max_rss_bytes"] > 0


@pytest_twisted.ensureDeferred
async def test_an_interrupt_ends_the_command(spawn: Spawn, daemon: RunningDaemon, ctl: Ctl) -> None:
    run = spawn(
        "run",
        "--id",
        "interrupted",
        "--",
        "sh",
        "-c",
        "echo up; sleep 600",
        url=daemon.url,
        token=daemon.token,
    )
    await until(lambda: run.out == b"up\n")
    run.signal(signal.SIGINT)
    ran = await run.result()
    assert ran.status == 128 + signal.SIGTERM
    assert b"interrupt again" in ran.err
    (group,) = [g for g in json.loads((await ctl("ps", "--json")).text) if g["exec_id"] == "interrupted"]
    assert group["pids"] == []


@pytest_twisted.ensureDeferred
async def test_a_second_interrupt_leaves_at_once(spawn: Spawn, make_daemon: DaemonFactory) -> None:
    running = make_daemon(env={"AGENTD_KILL_GRACE_SECS": "600"})
    running.bootstrap()
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    run = spawn("run", "--id", "stubborn", "--shell", script, url=running.url, token=running.token)
    await until(lambda: run.out == b"up\n")
    run.signal(signal.SIGINT)
    await until(lambda: b"interrupt again" in run.err)
    run.signal(signal.SIGINT)
    assert (await run.result()).status == 130
    listed = await spawn("ps", "--json", url=running.url, token=running.token).result()
    (group,) = json.loads(listed.text)
    assert group["pids"] != []
    os.killpg(group["pgid"], signal.SIGKILL)


@pytest_twisted.ensureDeferred
async def test_a_reader_that_leaves_ends_the_command(spawn: Spawn, daemon: RunningDaemon, ctl: Ctl) -> None:
    run = spawn("run", "--id", "piped", "--", "yes", url=daemon.url, token=daemon.token)
    await until(lambda: run.out)
    run.process.closeStdout()
    ran = await run.result()
    assert ran.status == 128 + signal.SIGPIPE
    (group,) = [g for g in json.loads((await ctl("ps", "--json")).text) if g["exec_id"] == "piped"]
    assert group["pids"] == []


@pytest_twisted.ensureDeferred
async def test_a_lost_daemon_is_said_with_the_execs_id(spawn: Spawn, make_daemon: DaemonFactory) -> None:
    running = make_daemon()
    running.bootstrap()
    run = spawn(
        "run", "--id", "left", "--", "sh", "-c", "echo up; sleep 600", url=running.url, token=running.token
    )
    await until(lambda: run.out == b"up\n")
    running.process.kill()
    running.process.wait()
    ran = await run.result()
    assert ran.status == 69
    assert b"exec left may still run" in ran.err
    assert b"offset 3" in ran.err


# -- logs --------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_logs_of_a_finished_and_of_a_running_exec(ctl: Ctl) -> None:
    await ctl("run", "--id", "done", "--", "sh", "-c", "printf abcdef; printf err >&2")
    ran = await ctl("logs", "done")
    assert (ran.out, ran.err) == (b"abcdef", b"err")
    assert (await ctl("logs", "--offset", "4", "done")).out == b"ef"
    running = ctl("run", "--id", "going", "--", "sh", "-c", "printf so-far; sleep 600")
    await _listed(ctl, "going")
    ran = await ctl("logs", "going")
    assert (ran.status, ran.out) == (0, b"so-far")
    following = ctl("logs", "-f", "going")
    await ctl("kill", "going")
    assert (await following).out == b"so-far"
    await running
    assert (await ctl("logs", "nope")).status == 1


@pytest_twisted.ensureDeferred
async def test_gaps_are_told(spawn: Spawn, serve_script: ServeScript) -> None:
    script = serve_script(stream(output(5, b"tail"), exited(9)))
    ran = await spawn("logs", "-f", "e", url=script.url, token="t").result()
    assert ran.out == b"tail"
    assert "5 bytes of output lost, [0, 5)" in ran.line

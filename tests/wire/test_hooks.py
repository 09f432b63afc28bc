"""The lifecycle hooks through a socket: the payload's table, the log, workload handlers (contract g)."""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred, gatherResults

from agentd.microvm.routes import HOOK_PREFIX
from tests.conftest import RunningDaemon
from tests.procs import alive
from tests.wire.conftest import Connect
from tests.wire.support import Api, as_json, pause, request, until

TOKEN = "tok-s3cr3t"
KEY = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
"""Thirty-two bytes."""

Make = Callable[..., RunningDaemon]


def payload(**fields: Any) -> str:
    """A payload with a token."""
    return json.dumps({"agent_token": TOKEN, **fields})


REFUSED: list[tuple[bytes, str]] = [
    (b"", ""),
    (b"not json", ""),
    (b"[]", ""),
    (b"{}", ""),
    (b'{"runHookPayload": null}', ""),
    (b'{"runHookPayload": {"agent_token": "x"}}', ""),
    (b'{"runHookPayload": "{}", "runHookPayload": "{}"}', ""),
    *(
        (json.dumps({"runHookPayload": text}).encode(), names)
        for text, names in [
            ("not json", "runHookPayload"),
            ("[]", "runHookPayload"),
            ("{}", "agent_token"),
            ('{"agent_token": 5}', "agent_token"),
            ('{"agent_token": ""}', "agent_token is empty"),
            (payload(env=[]), "env"),
            (payload(env={"NAME": 5}), "NAME"),
            (payload(env={"NAME": None}), "NAME"),
            (payload(identity_seed=5, identity_host_public_key=KEY), "identity_seed"),
            (payload(identity_seed=KEY), "identity_host_public_key"),
            (payload(identity_host_public_key=KEY), "identity_seed"),
            (payload(identity_seed="%%", identity_host_public_key=KEY), "identity_seed"),
            (payload(identity_seed="QUJD", identity_host_public_key=KEY), "3 bytes"),
            (payload(identity_seed="A" * 43 + "=", identity_host_public_key=KEY), "identity_seed"),
        ]
    ),
]


@pytest.mark.parametrize(("body", "names"), REFUSED, ids=lambda value: ascii(value)[:60])
@pytest_twisted.ensureDeferred
async def test_a_refused_payload_is_400_and_installs_nothing(
    closed_api: Api, body: bytes, names: str
) -> None:
    """Contract g.1, row by row: the key is named, no value is quoted, and the API stays closed."""
    reply = await closed_api.hook("run", data=body, headers={"Content-Type": "application/json"})
    assert reply.status == 400
    if names:
        assert reply.headers["content-type"] == "text/plain; charset=utf-8"
        assert names in reply.body.decode()
        assert b"s3cr3t" not in reply.body
    else:
        assert reply.body == b""
    assert (await closed_api.get("/v1/procs", token=TOKEN)).status == 503
    assert (await closed_api.health())["bootstrapped"] is False


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/octet-stream"])
@pytest_twisted.ensureDeferred
async def test_another_content_type_is_a_broken_body(closed_api: Api, content_type: str | None) -> None:
    """400, empty."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    data = json.dumps({"runHookPayload": payload()}).encode()
    reply = await closed_api.hook("run", data=data, headers=headers)
    assert (reply.status, reply.body) == (400, b"")


@pytest_twisted.ensureDeferred
async def test_a_body_over_the_hooks_own_limit_is_400(closed_api: Api) -> None:
    """Two MiB, declared or not (contract a.0)."""
    data = json.dumps({"runHookPayload": payload(x="x" * (2 * 1024 * 1024))}).encode()
    reply = await closed_api.hook("run", data=data, headers={"Content-Type": "application/json"})
    assert (reply.status, reply.body) == (400, b"")


@pytest_twisted.ensureDeferred
async def test_bootstrap_is_one_shot(make_daemon: Make) -> None:
    """Installed, replayed, conflict; what a replay brings along is ignored (contract g.2)."""
    daemon = make_daemon()
    api = Api(daemon.url, TOKEN)
    assert (await api.get("/v1/procs")).status == 503
    assert (await api.run_hook(payload(env={"A": "first", "EMPTY": ""}, unknown=[1]))).status == 200
    assert (await api.get("/v1/procs")).status == 200
    assert (await api.run_hook(payload(env={"A": "second", "B": "x"}))).status == 200
    conflict = await api.run_hook({"agent_token": "another"})
    assert (conflict.status, conflict.body) == (409, b"")
    assert (await api.run_hook(payload(identity_seed=KEY))).status == 400
    assert (await api.get("/v1/procs", token="another")).status == 401
    assert (await api.run(["/usr/bin/env"]))["stdout"] == "A=first\nEMPTY=\n"
    health = await api.health()
    assert [entry["hook"] for entry in health["hooks"]] == ["run"] * 4
    assert health["bootstrapped"] is True


@pytest_twisted.ensureDeferred
async def test_racing_bootstraps_have_one_winner(make_daemon: Make) -> None:
    """Everybody else gets 409."""
    daemon = make_daemon()
    api = Api(daemon.url, None)
    tokens = [f"token-{number}" for number in range(8)]
    replies = await gatherResults(
        [Deferred.fromCoroutine(api.run_hook({"agent_token": token})) for token in tokens]
    )
    assert sorted(reply.status for reply in replies) == [200, *([409] * 7)]
    for token, reply in zip(tokens, replies, strict=True):
        expected = 200 if reply.status == 200 else 401
        assert (await api.get("/v1/procs", token=token)).status == expected


@pytest_twisted.ensureDeferred
async def test_a_token_of_any_text_opens_the_api(make_daemon: Make, raw: Connect) -> None:
    """Tokens are bytes: UTF-8 of what was posted, compared as they are."""
    daemon = make_daemon()
    token = "sp ace\té\N{PILE OF POO}"
    assert (await Api(daemon.url, None).run_hook({"agent_token": token})).status == 200
    for presented, status in (
        (token.encode(), 200),
        (token.encode()[:-1], 401),
        (token.encode("utf-16"), 401),
    ):
        head = b"GET /v1/procs HTTP/1.1\r\nAuthorization: Bearer " + presented + b"\r\n\r\n"
        if b"\0" not in presented and b"\n" not in presented and b"\r" not in presented:
            assert raw(daemon).send(head).reply().status == status


@pytest_twisted.ensureDeferred
async def test_the_hook_log_keeps_the_first_64(make_daemon: Make) -> None:
    """Also malformed and refused ones; the rest is counted, and one that is dropped runs no handler (g.3)."""
    daemon = make_daemon()
    api = Api(daemon.url, TOKEN)
    ran = handler(daemon, "resume", "echo ran >> ran")
    before = int(time.time())
    names = ["ready", "validate", "suspend", "run"] * 16
    for name in names:
        await api.hook(name, data=b"nonsense")
    health = await api.health()
    assert [entry["hook"] for entry in health["hooks"]] == names
    assert all(before <= entry["fired_at"] <= time.time() for entry in health["hooks"])
    assert health["hooks_dropped"] == 0
    assert (await api.hook("resume")).status == 200
    assert (await api.run_hook(payload())).status == 200, "a dropped run still bootstraps"
    after = await api.health()
    assert after["hooks"] == health["hooks"]
    assert (after["hooks_dropped"], after["bootstrapped"]) == (2, True)
    assert not ran.exists()


def handler(daemon: RunningDaemon, hook: str, script: str) -> Path:
    """Put a handler into a daemon's hooks directory; returns the path of ``ran`` beside it."""
    directory = Path(os.readlink(f"/proc/{daemon.pid}/cwd")) / "hooks.d"
    directory.mkdir(exist_ok=True)
    path = directory / hook
    path.write_text(f"#!/bin/sh\ncwd=$(pwd)\ncd {directory}\n{script}\n")
    path.chmod(0o755)
    return directory / "ran"


async def outcomes(api: Api) -> list[Any]:
    """The handler outcomes in the hook log, None where no handler ran."""
    return [entry.get("handler") for entry in (await api.health())["hooks"]]


@pytest_twisted.ensureDeferred
async def test_a_handler_runs_before_the_answer(make_daemon: Make) -> None:
    """In ``/``, nothing on stdin, its own group, the daemon's and launch's variables, never the token (g.4)."""
    daemon = make_daemon(env={"IMAGE": "image", "BOTH": "image"})
    api = Api(daemon.url, TOKEN)
    script = '{ echo "$cwd"; readlink /proc/self/fd/0; env; ps -o pgid= -p $$; echo $$; } > ran'
    ran = handler(daemon, "run", script)
    assert (await api.run_hook(payload(env={"BOTH": "launch", "AGENTD_HOOK": "mine"}))).status == 200
    cwd, stdin, *environment, pgid, pid = ran.read_text().splitlines()
    assert (cwd, stdin) == ("/", "/dev/null")
    assert pgid.strip() == pid
    assert {"IMAGE=image", "BOTH=launch", "AGENTD_HOOK=run"} <= set(environment)
    assert TOKEN not in ran.read_text()
    (outcome,) = await outcomes(api)
    assert (outcome["exit_code"], outcome["signal"], outcome["timed_out"]) == (0, None, False)
    assert isinstance(outcome["duration_ms"], int)
    assert "error" not in outcome
    ran.unlink()
    assert (await api.run_hook(payload())).status == 200
    assert (await api.run_hook({"agent_token": "another"})).status == 409
    assert not ran.exists(), "only the winning run hook has a handler"


@pytest_twisted.ensureDeferred
async def test_a_handler_may_fail_and_the_hook_is_still_answered(make_daemon: Make) -> None:
    """200, with what became of it on the entry."""
    daemon = make_daemon()
    api = Api(daemon.url, TOKEN)
    handler(daemon, "suspend", "exit 7")
    handler(daemon, "resume", "kill -9 $$")
    directory = handler(daemon, "terminate", "").parent
    for name in ("ready", "validate", "suspend", "resume"):
        assert (await api.hook(name)).status == 200
    ready, validate, suspend, resume = await outcomes(api)
    assert (ready, validate) == (None, None)
    assert (suspend["exit_code"], suspend["signal"]) == (7, None)
    assert (resume["exit_code"], resume["signal"]) == (None, 9)
    (directory / "suspend").chmod(0o644)
    (directory / "resume").unlink()
    (directory / "resume").mkdir()
    for name in ("suspend", "resume"):
        assert (await api.hook(name)).status == 200
    suspend, resume = (await outcomes(api))[-2:]
    assert suspend["error"] == "not executable"
    assert resume["error"] == "not a regular file"
    assert (suspend["exit_code"], suspend["signal"], suspend["timed_out"]) == (None, None, False)
    (directory / "resume").rmdir()
    (directory / "suspend").write_text("#!/no/such/interpreter\n")
    (directory / "suspend").chmod(0o755)
    for name in ("suspend", "resume"):
        assert (await api.hook(name)).status == 200
    suspend, resume = (await outcomes(api))[-2:]
    assert suspend["error"].startswith("spawn failed: ")
    assert resume is None, "no handler is no entry"


@pytest_twisted.ensureDeferred
async def test_a_handler_over_its_budget_is_killed_with_its_group(make_daemon: Make) -> None:
    """At once and without TERM; the hook is answered then."""
    daemon = make_daemon(env={"AGENTD_HOOK_HANDLER_TIMEOUT_SECS": "1"})
    api = Api(daemon.url, TOKEN)
    ran = handler(
        daemon, "suspend", "trap 'echo termed >> ran' TERM; sleep 989 & echo $! > ran; wait; sleep 988"
    )
    began = time.monotonic()
    assert (await api.hook("suspend")).status == 200
    assert 0.9 < time.monotonic() - began < 10
    (outcome,) = await outcomes(api)
    assert (outcome["exit_code"], outcome["signal"], outcome["timed_out"]) == (None, 9, True)
    assert outcome["duration_ms"] >= 900
    (child,) = ran.read_text().split()
    await until(lambda: not alive(int(child)))


@pytest_twisted.ensureDeferred
async def test_a_background_child_of_a_handler_does_not_delay_the_answer(make_daemon: Make) -> None:
    """Also when it holds the handler's output open (contract g.4)."""
    daemon = make_daemon()
    api = Api(daemon.url, TOKEN)
    ran = handler(daemon, "suspend", "sleep 987 & echo $! > ran; echo begun")
    began = time.monotonic()
    assert (await api.hook("suspend")).status == 200
    assert time.monotonic() - began < 5
    (outcome,) = await outcomes(api)
    assert (outcome["exit_code"], outcome["timed_out"]) == (0, False)
    os.kill(int(ran.read_text()), 9)


@pytest_twisted.ensureDeferred
async def test_handlers_run_one_at_a_time(make_daemon: Make) -> None:
    """In the whole daemon, whatever their hook."""
    daemon = make_daemon()
    api = Api(daemon.url, TOKEN)
    for hook in ("suspend", "resume"):
        ran = handler(daemon, hook, "echo begin >> ran; sleep 0.15; echo end >> ran")
    replies = await gatherResults(
        [Deferred.fromCoroutine(api.hook(hook)) for hook in ("suspend", "resume", "suspend")]
    )
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert ran.read_text().split() == ["begin", "end"] * 3


@pytest_twisted.ensureDeferred
async def test_a_platform_that_leaves_does_not_stop_a_handler(make_daemon: Make, raw: Connect) -> None:
    """What a hook has begun is finished, in its turn and with its outcome on record."""
    daemon = make_daemon()
    api = Api(daemon.url, TOKEN)
    ran = handler(daemon, "run", "echo begin >> ran; while [ ! -e go ]; do sleep 0.05; done; echo end >> ran")
    handler(daemon, "suspend", "echo suspend >> ran")
    impatient = raw(daemon)
    impatient.send(as_json("POST", f"{HOOK_PREFIX}/run", {"runHookPayload": payload()}))
    await until(ran.exists)
    impatient.close()
    assert (await api.get("/v1/procs")).status == 200, "the token works as soon as it is installed"
    waiting = Deferred.fromCoroutine(api.hook("suspend"))
    await pause(0.2)
    (ran.parent / "go").touch()
    assert (await waiting).status == 200
    assert ran.read_text().split() == ["begin", "end", "suspend"]
    run, suspend = await outcomes(api)
    assert (run["exit_code"], suspend["exit_code"]) == (0, 0)


@pytest_twisted.ensureDeferred
async def test_a_handlers_output_goes_to_the_log_and_not_to_callers(make_daemon: Make) -> None:
    """The first 4,096 bytes of each stream; the rest is drained."""
    daemon = make_daemon()
    api = Api(daemon.url, TOKEN)
    handler(
        daemon, "suspend", "head -c 100000 /dev/zero | tr '\\0' o; head -c 5000 /dev/zero | tr '\\0' e >&2"
    )
    reply = await api.hook("suspend")
    assert (reply.status, reply.body) == (200, b"")
    (entry,) = await until(lambda: [e for e in list(daemon.log) if "stdout" in e])
    assert (entry["stdout"], entry["stderr"]) == ("o" * 4096, "e" * 4096)
    (outcome,) = await outcomes(api)
    assert (outcome["exit_code"], set(outcome)) == (0, {"exit_code", "signal", "timed_out", "duration_ms"})


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_the_winning_run_hook_repairs_the_identity(make_daemon: Make, tmp_path: Path) -> None:
    """Once, before its answer; never on a replay (contract g.5). In namespaces, to leave this machine's alone."""
    etc = tmp_path / "etc"
    script = (
        f"cp -a /etc {etc} && mount --bind {etc} /etc && mount -t tmpfs none /run && mount -t tmpfs none /var/lib "
        "&& mkdir -p /var/lib/systemd /var/lib/dbus && echo seed > /var/lib/systemd/random-seed "
        '&& echo old > /etc/machine-id && exec "$@"'
    )
    daemon = make_daemon(
        env={"AGENTD_REPAIR_IDENTITY": "on"},
        wrap=("unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", script, "sh"),
    )
    api = Api(daemon.url, TOKEN)
    health = await api.health()
    assert (health["identity_repaired"], health["identity_steps"]) == (False, [])
    assert (await api.run_hook(payload())).status == 200
    health = await api.health()
    assert (health["identity_repaired"], health["identity_degraded"]) == (True, False)
    steps = {step["name"]: step["outcome"] for step in health["identity_steps"]}
    assert steps == {
        **dict.fromkeys(["machine-id", "hostname", "boot-id", "random-seed"], "repaired"),
        "cached-credential": "not_applicable",
        "random-generator": "repaired",
    }
    command = "cat /etc/machine-id; hostname; cat /proc/sys/kernel/random/boot_id; ls /var/lib/systemd"
    machine, hostname, boot = (await api.run(command))["stdout"].split()
    assert len(machine) == 32
    assert hostname == f"microvm-{machine[:12]}"
    assert boot.replace("-", "") == machine
    assert socket.gethostname() != hostname
    assert (await api.run_hook(payload())).status == 200
    assert (await api.run(command))["stdout"].split() == [machine, hostname, boot]


def test_a_hook_needs_no_token_and_takes_any(closed_daemon: RunningDaemon, raw: Connect) -> None:
    """Whatever is presented."""
    for token in (None, "any"):
        reply = raw(closed_daemon).send(request("POST", f"{HOOK_PREFIX}/ready", token=token)).reply()
        assert reply.status == 200

"""What was told in confidence is in no log line, no answer and no child (contract g.1, c.2)."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted

from tests.conftest import RunningDaemon
from tests.wire.conftest import Connect
from tests.wire.support import TWISTD, Api, new_id, request, until

TOKEN = "t0ken-s3cr3t"
SEED = bytes(range(100, 132))
SECRETS = (
    TOKEN,
    base64.b64encode(SEED).decode(),
    *(f"{what}-s3cr3t" for what in ("launch", "request", "image", "wrong", "stdin")),
)


@pytest.mark.parametrize("program", [TWISTD, ("-m", "tests.wire.faulty", "-n", "--pidfile=", "agentd")])
@pytest_twisted.ensureDeferred
async def test_no_secret_is_said(
    make_daemon: Callable[..., RunningDaemon], raw: Connect, program: tuple[str, ...]
) -> None:
    """At the most talkative level, through every kind of refusal and fault; each answer that fails is looked at."""
    env = {"AGENTD_LOG": "debug", "IMAGE_SECRET": "image-s3cr3t"}
    daemon = make_daemon(program=program, env=env)
    api, answers = Api(daemon.url, TOKEN), []

    async def say(method: str, path: str, **options: Any) -> None:
        answers.append((await api.call(method, path, **options)).body)

    seed = base64.b64encode(SEED).decode()
    host = base64.b64encode(bytes(range(1, 33))).decode()
    run = {"agent_token": TOKEN, "env": {"LAUNCH": "launch-s3cr3t"}, "identity_seed": seed}
    for broken in (
        {**run, "env": {"A": ["launch-s3cr3t"]}},
        run,
        {**run, "identity_host_public_key": seed[:-4]},
    ):
        answers.append((await api.run_hook(broken)).body)
    answers.append((await api.hook("run", data=json.dumps({"runHookPayload": run}).encode())).body)
    assert (await api.run_hook({**run, "identity_host_public_key": host})).status == 200
    answers.append((await api.run_hook({"agent_token": "wrong-s3cr3t"})).body)

    env = {"REQUEST": "request-s3cr3t"}
    base = {"exec_id": new_id(), "command": ["true"], "env": env}
    for body in (
        {**base, "exec_id": ""},
        {**base, "env": {"REQUEST": ["request-s3cr3t"]}},
        {**base, "user": "no-such-user"},
        {**base, "command": ["no-such-program"]},
        {**base, "cwd": "/no/such/dir"},
        {**base, "timeout_sec": "request-s3cr3t"},
        {**base, "env": {"REQUEST": "request-s3cr3t\0"}},
        {**base, "env": {"A=B\0": "request-s3cr3t"}},
        [base],
    ):
        await say("POST", "/v1/exec/start", json=body)
    cut, as_json = json.dumps(base).encode()[:-1], {"Content-Type": "application/json"}
    await say("POST", "/v1/exec/start", data=cut, headers=as_json)
    await say("POST", "/v1/exec/start", json=base, token="wrong-s3cr3t")
    exec_id = await api.start("read line", stdin=True, env=env)
    for path in ("stdin", "kill", "ack", "stream"):
        for token in ("wrong-s3cr3t", True):
            await say("POST", f"/v1/exec/{exec_id}/{path}", json={"data_b64": "stdin-s3cr3t"}, token=token)
    data = base64.b64encode(b"FAULT stdin-s3cr3t").decode()
    await say("POST", f"/v1/exec/{exec_id}/stdin", json={"data_b64": data})
    fault = await api.start("true", exec_id=f"fault-{new_id()}", env=env)
    await say("POST", f"/v1/exec/{fault}/ack", headers={"X-Secret": "wrong-s3cr3t"})
    await say("GET", "/v1/procs", headers={"Authorization": "Basic wrong-s3cr3t"}, token=False)
    for garbage in (b"wrong-s3cr3t\r\n\r\n", b"GET / HTTP/1.1\r\nAuthorization wrong-s3cr3t\r\n\r\n"):
        answers.append(raw(daemon).send(garbage).until_closed())
    gone = raw(daemon)
    gone.send(request("POST", "/v1/exec/start", "Content-Length: 100", token=TOKEN) + b"request-s3cr3t")
    gone.close()

    inherited = json.dumps(await api.run("env; cat /proc/self/environ", inherit_image_env=True))
    for secret in (TOKEN, seed):
        assert secret not in inherited
    health = json.dumps(await api.health())
    daemon.stop()
    await until(lambda: any(entry.get("event") == "stopped" for entry in list(daemon.log)))
    said = json.dumps(daemon.log) + health + b"".join(answers).decode("latin-1")
    for secret in SECRETS:
        assert secret not in said, secret
    assert "Traceback" not in said

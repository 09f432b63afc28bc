"""`agentctl demo`: shows a build, and leaves no process and no file."""

import json
import os
import re
import signal
from pathlib import Path

import pytest_twisted

from tests.cli.conftest import Spawn
from tests.client.support import until


@pytest_twisted.ensureDeferred
async def test_the_demo_shows_a_build_and_leaves_nothing(spawn: Spawn, tmp_path: Path) -> None:
    ran = await spawn("demo", env={"TMPDIR": str(tmp_path)}).result()
    assert ran.status == 0, ran.err
    assert "2 3 5 7 11 13" in ran.text
    assert b"Ran 3 tests" in ran.err
    assert re.search(r"exit 0, cause exit\n.* s user, .* MiB peak memory", ran.text)
    assert os.listdir(tmp_path) == []
    (pid,) = re.findall(r"daemon (\d+) listens", ran.text)
    assert not os.path.exists(f"/proc/{pid}")


@pytest_twisted.ensureDeferred
async def test_the_demo_interrupted_leaves_nothing_either(spawn: Spawn, tmp_path: Path) -> None:
    run = spawn("demo", env={"TMPDIR": str(tmp_path)})
    await until(lambda: b"exec " in run.out)
    run.signal(signal.SIGINT)
    ran = await run.result()
    assert ran.status == 130
    assert os.listdir(tmp_path) == []
    (pid,) = re.findall(rb"daemon (\d+) listens", ran.out)
    assert not os.path.exists(f"/proc/{int(pid)}")


@pytest_twisted.ensureDeferred
async def test_the_demo_as_json(spawn: Spawn, tmp_path: Path) -> None:
    ran = await spawn("demo", "--json", env={"TMPDIR": str(tmp_path)}).result()
    found = json.loads(ran.text)
    assert (found["exit_code"], found["cause"]) == (0, "exit")
    assert len(found["sha256"]) == 64
    assert ran.err == b""

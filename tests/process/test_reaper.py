"""Reaping what is left to PID 1, and never the status of a child of ours.

The same kernel rule applies to a child subreaper, so this process becomes one for the length of a test. The whole
daemon as PID 1 is in ``tests/wire/test_pid1.py``.
"""

import ctypes
import os
import random
import signal
import subprocess
from collections.abc import Iterator

import pytest
import pytest_twisted
from twisted.internet import process

from agentd.process import reaper
from agentd.process.spawn import ProcessSpawner
from tests.process.support import make_groups, make_tools, reactor, run, sh, soon, turn, until

_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def subreaper() -> Iterator[None]:
    """This process inherits its orphans."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


@pytest.fixture
def spawner() -> ProcessSpawner:
    return ProcessSpawner(reactor, make_groups(), 5.0)


@pytest.fixture
def installed(spawner: ProcessSpawner, subreaper: None) -> Iterator[None]:
    """The sweep runs at every SIGCHLD."""
    uninstall = reaper.install(spawner)
    yield
    uninstall()


def children() -> set[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return set(map(int, file.read().split()))


@pytest_twisted.ensureDeferred
async def test_an_orphan_is_reaped(spawner: ProcessSpawner, subreaper: None) -> None:
    before = children()
    orphan = int(
        subprocess.run(
            ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True
        ).stdout
    )
    assert orphan in children()
    os.kill(orphan, signal.SIGKILL)
    os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
    assert reaper.sweep(spawner) == 1
    assert children() <= before
    assert reaper.sweep(spawner) == 0


def test_without_children_there_is_nothing_to_do(spawner: ProcessSpawner) -> None:
    assert reaper.sweep(spawner) == 0


@pytest_twisted.ensureDeferred
async def test_a_child_of_ours_gets_its_status_from_the_sweep(spawner: ProcessSpawner) -> None:
    job = run(sh("exit 9"), tools=make_tools(spawner))
    os.waitid(os.P_PID, job.child.pid, os.WEXITED | os.WNOWAIT)
    assert not job.exited
    assert reaper.sweep(spawner) == 0  # not an orphan
    assert job.exited
    assert (await soon(job.when_published())).exit_code == 9
    job.forget()


@pytest.mark.usefixtures("installed")
@pytest_twisted.ensureDeferred
async def test_orphans_by_the_dozen_cost_no_exec_its_status(spawner: ProcessSpawner) -> None:
    """Children that leave orphans behind, dying in any order, in and out of their groups."""
    tools = make_tools(spawner)
    before = children()
    chance = random.Random(20)
    jobs = []
    for _ in range(60):
        code = chance.randrange(256)
        script = (
            f"(setsid sh -c 'sleep 0.0{chance.randrange(9)}' &) >/dev/null 2>&1; sh -c 'exit 3' & exit {code}"
        )
        jobs.append((code, run(sh(script), tools=tools)))
    for code, job in jobs:
        found = await soon(job.when_published())
        assert (found.exit_code, found.signal) == (code, None)
        assert found.usage is not None
        job.forget()
    await until(lambda: children() <= before, "no zombie is left")
    assert spawner.children == {}


@pytest.mark.usefixtures("installed")
@pytest_twisted.ensureDeferred
async def test_twisteds_own_children_keep_their_status_too(spawner: ProcessSpawner) -> None:
    from twisted.internet import utils

    out, err, code = await soon(
        utils.getProcessOutputAndValue("/bin/sh", ["-c", "echo out; exit 6"], reactor=reactor)
    )
    assert (out, err, code) == (b"out\n", b"", 6)


def test_it_can_be_undone(spawner: ProcessSpawner) -> None:
    stock = process.reapAllProcesses
    uninstall = reaper.install(spawner)
    assert process.reapAllProcesses is not stock
    uninstall()
    assert process.reapAllProcesses is stock


@pytest_twisted.ensureDeferred
async def test_a_child_that_stops_is_not_one_that_ended(spawner: ProcessSpawner) -> None:
    job = run(sh("kill -STOP $$; exit 4"), tools=make_tools(spawner))
    os.waitid(os.P_PID, job.child.pid, os.WSTOPPED | os.WNOWAIT)
    assert reaper.sweep(spawner) == 0
    await turn()
    assert not job.exited
    os.kill(job.child.pid, signal.SIGCONT)
    assert (await soon(job.when_published())).exit_code == 4
    job.forget()

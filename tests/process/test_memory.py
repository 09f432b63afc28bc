"""Whom the kernel kills for lack of memory, seen through a job's outcome."""

import os
import signal
import sys

import pytest
import pytest_twisted

from agentd.linux.oom import OomLog
from agentd.process.job import Job
from agentd.process.output import STDOUT
from agentd.process.spawn import Plan
from agentd.rules.supervision import Cause
from tests.linux.test_oom import memory_group
from tests.process.support import make_tools, run, soon

LIMIT_BYTES = 48 << 20
EAT = 'import sys; sys.stdout.write("ready"); sys.stdout.flush(); x = bytearray(512 << 20)'


def eater(group: os.PathLike[str], after: str = "") -> Plan:
    """A shell that joins `group`, then runs a program that wants too much: in its place, or as its child."""
    join = 'echo $$ > "$1/cgroup.procs" && '
    script = join + ('exec "$2" -c "$3"' if not after else f'"$2" -c "$3"; {after}')
    return Plan(("/bin/sh", "-c", script, "sh", os.fspath(group), sys.executable, EAT), {"PATH": os.defpath})


def start(plan: Plan, log: OomLog) -> Job:
    return run(plan, tools=make_tools(out_of_memory=lambda pid: pid in log.victims()))


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_its_cause_is_that_it_ran_out_of_memory() -> None:
    with memory_group(LIMIT_BYTES) as group, OomLog() as log:
        job = start(eater(group), log)
        found = await soon(job.when_published())
        job.forget()
    assert job.output.head(STDOUT) == b"ready"
    assert (found.exit_code, found.signal) == (None, signal.SIGKILL)
    assert found.cause is Cause.OUT_OF_MEMORY


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_a_shell_that_outlives_its_command_says_how_it_ended_itself() -> None:
    """The kernel killed a child of the exec, not the exec: its own exit code is the outcome."""
    with memory_group(LIMIT_BYTES) as group, OomLog() as log:
        job = start(eater(group, "exit $?"), log)
        found = await soon(job.when_published())
        job.forget()
    assert (found.exit_code, found.cause) == (128 + signal.SIGKILL, Cause.EXIT)


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_a_kill_by_somebody_else_is_not_taken_for_one() -> None:
    with OomLog() as log:
        job = start(Plan(("/bin/sh", "-c", "kill -KILL $$"), {}), log)
        found = await soon(job.when_published())
        job.forget()
    assert found.cause is Cause.SIGNAL

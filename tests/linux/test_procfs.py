"""Live members of process groups, with real processes."""

import os
import signal
import subprocess
import sys

import pytest

from agentd.linux import procfs
from tests.linux.support import eventually, program

WAIT_FOR_INPUT = "import sys; print('ready', flush=True); sys.stdin.read()"

NAMED = """
import sys
with open("/proc/self/comm", "wb") as comm:
    comm.write(bytes.fromhex(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""

LEADER_LEAVES_A_MEMBER = """
import subprocess, sys
member = subprocess.Popen(["cat"], stdin=sys.stdin, stdout=subprocess.DEVNULL)
print(member.pid, flush=True)
"""

FIRST_THREAD_ENDS = """
import ctypes, platform, sys, threading
exit_thread = {"x86_64": 60, "aarch64": 93}[platform.machine()]
threading.Thread(target=sys.stdin.read).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall(exit_thread, 0)
"""


def ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"


def state(pid: int) -> bytes:
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()[0]


def test_a_running_leader_is_a_member() -> None:
    with program(WAIT_FOR_INPUT) as process:
        ready(process)
        assert procfs.group_members(process.pid) == [process.pid]
        assert procfs.group_alive(process.pid)


def test_a_group_that_nobody_is_in() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], process_group=0)
    process.wait()
    assert procfs.group_members(process.pid) == []
    assert not procfs.group_alive(process.pid)


def test_a_zombie_is_no_live_member_though_it_can_be_signalled() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], process_group=0)
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.killpg(process.pid, 0)
        assert state(process.pid) == b"Z"
        assert procfs.group_members(process.pid) == []
        assert not procfs.group_alive(process.pid)
    finally:
        process.wait()


def test_a_process_whose_first_thread_ended_is_alive() -> None:
    with program(FIRST_THREAD_ENDS) as process:
        ready(process)
        eventually(lambda: state(process.pid) == b"Z", "the first thread shows as a zombie")
        assert procfs.group_members(process.pid) == [process.pid]
        assert procfs.group_alive(process.pid)
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.group_members(process.pid) == []
        assert not procfs.group_alive(process.pid)


def test_a_member_outlives_its_leader() -> None:
    with program(LEADER_LEAVES_A_MEMBER) as process:
        assert process.stdout is not None
        member = int(process.stdout.readline())
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.group_members(process.pid) == [member]
        assert procfs.group_alive(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        eventually(lambda: not procfs.group_alive(process.pid), "the last member is gone")
        assert procfs.group_members(process.pid) == []


@pytest.mark.parametrize("name", [b") Z 1 1 1", b"a b) (c", b"(((", b")))", b"\xff\xfe)", b" "])
def test_names_are_never_mistaken_for_fields(name: bytes) -> None:
    with program(NAMED, name.hex()) as process:
        ready(process)
        with open(f"/proc/{process.pid}/comm", "rb") as comm:
            assert comm.read() == name + b"\n"
        assert procfs.group_members(process.pid) == [process.pid]
        assert procfs.group_alive(process.pid)


def test_many_groups_from_one_pass() -> None:
    with program(WAIT_FOR_INPUT) as one, program(WAIT_FOR_INPUT) as two:
        ready(one)
        ready(two)
        gone = subprocess.Popen([sys.executable, "-c", ""], process_group=0)
        gone.wait()
        found = procfs.groups_members([one.pid, two.pid, gone.pid])
        assert found == {one.pid: [one.pid], two.pid: [two.pid], gone.pid: []}


def test_members_are_ascending_and_complete() -> None:
    with program(WAIT_FOR_INPUT) as leader:
        ready(leader)
        others = [
            subprocess.Popen(["cat"], stdin=subprocess.PIPE, process_group=leader.pid) for _ in range(5)
        ]
        try:
            expected = sorted([leader.pid, *(other.pid for other in others)])
            assert procfs.group_members(leader.pid) == expected
        finally:
            for other in others:
                other.communicate()


def test_processes_may_vanish_during_a_scan() -> None:
    churn = subprocess.Popen(["sh", "-c", "for i in $(seq 300); do /bin/true & done; wait"], process_group=0)
    scans = 0
    try:
        while churn.poll() is None:
            assert set(procfs.groups_members([churn.pid, os.getpgrp()])) == {churn.pid, os.getpgrp()}
            procfs.group_alive(churn.pid)
            scans += 1
    finally:
        churn.kill()
        churn.wait()
    assert scans > 0
    assert os.getpid() in procfs.group_members(os.getpgrp())


def test_no_group_and_no_such_group() -> None:
    assert procfs.groups_members([]) == {}
    for pgid in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            procfs.group_members(pgid)
        with pytest.raises(ValueError, match="positive"):
            procfs.group_alive(pgid)


def test_group_one_is_not_asked_by_signal() -> None:
    assert procfs.group_alive(1) == bool(procfs.group_members(1))


def test_no_descriptor_stays_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        procfs.group_members(os.getpgrp())
        procfs.group_alive(os.getpgrp())
    assert len(os.listdir("/proc/self/fd")) == before

"""Who was killed for lack of memory: the records, and a real kill."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.linux import oom
from tests.linux.support import DEADLINE_SECONDS, eventually

LIMIT_BYTES = 24 * 1024 * 1024

KILLED = b"Killed process 123 (python) total-vm:10kB, anon-rss:9kB, UID:0 pgtables:5kB oom_score_adj:0"
CHOSEN = (
    b"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    b"oom_memcg=/x,task_memcg=/x,task=%s"
)


@pytest.mark.parametrize(
    ("record", "pid"),
    [
        (b"3,10,99,-;Out of memory: " + KILLED + b"\n", 123),
        (b"3,10,99,-;Memory cgroup out of memory: " + KILLED, 123),
        (b"3,10,99,-;Out of memory (oom_kill_allocating_task): " + KILLED, 123),
        (b"3,10,99,-;Out of memory: Kill process 77 (a) score 9 or sacrifice child\n SUBSYSTEM=x\n", 77),
        (b"6,10,99,-,caller=T1;" + CHOSEN % b"python,pid=456,uid=0\n", 456),
        (b"6,10,99,-;" + CHOSEN % b"a,pid=1,uid=2,pid=456,uid=0\n", 456),
        (b"6,10,99,-;" + CHOSEN % b"oom-kill,pid=456,uid=0\n DEVICE=+x\n", 456),
    ],
)
def test_the_kernels_own_reports(record: bytes, pid: int) -> None:
    assert oom.victim(record) == pid


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b";",
        b"no record",
        b"6,10,99,-;eth0: link up\n",
        b"6,10,99,-;x Out of memory: " + KILLED,
        b"6,10,99,-;" + KILLED,
        b"6,10,99,-;nothing\n Out of memory: " + KILLED,
        b"6,10,99,-;Out of memory: OOM victim 123 (python) is already exiting. Skip killing the task",
        b"6,10,99,-;oom_reaper: reaped process 123 (python), now anon-rss:0kB",
        b"6,10,99,-;" + CHOSEN % b"python,pid=456,uid=0,more",
        b"11,10,99,-;Out of memory: " + KILLED,  # facility "user": a program wrote it
        b"14,10,99,-;" + CHOSEN % b"python,pid=456,uid=0",
        b"-3,10,99,-;Out of memory: " + KILLED,
        b"3;Out of memory: Killed process  (python)",
    ],
)
def test_everything_else_is_no_report(record: bytes) -> None:
    assert oom.victim(record) is None


@given(st.binary(max_size=15).filter(lambda name: b"\n" not in name), st.integers(1, 2**22))
def test_no_name_changes_the_pid(name: bytes, pid: int) -> None:
    assert oom.victim(b"6,1,1,-;" + CHOSEN % name + b",pid=%d,uid=0\n" % pid) == pid
    assert oom.victim(b"3,1,1,-;Out of memory: Killed process %d (%s) total-vm:1kB\n" % (pid, name)) == pid


@given(st.binary() | st.binary().map(b"6,1,1,-;oom-kill:constraint=".__add__))
def test_no_bytes_are_an_error(record: bytes) -> None:
    found = oom.victim(record)
    assert found is None or found >= 0


def test_without_the_log_only_the_count_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oom, "_LOG", "/dev/agentd-no-log")
    with oom.OomLog() as log:
        assert not log.precise
        assert log.victims() == set()
        assert log.kills() >= 0


def test_inside_another_pid_namespace_the_log_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oom, "_FIRST_PID_NAMESPACE", 1)
    with oom.OomLog() as log:
        assert not log.precise


def test_a_kernel_that_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counters = tmp_path / "vmstat"
    monkeypatch.setattr(oom, "_COUNTERS", str(counters))
    assert oom.oom_kills() is None
    counters.write_text("nr_free_pages 5\noom_kill_other 9\n")
    assert oom.oom_kills() is None
    with oom.OomLog() as log:
        assert log.kills() == 0
        counters.write_text("nr_free_pages 5\noom_kill 3\n")
        assert (log.kills(), log.kills()) == (3, 0)


class Pipe:
    """A stand-in for the log that answers reads from a list."""

    def __init__(self, answers: list[bytes | OSError]) -> None:
        self.answers = answers

    def read(self, _fd: int, _size: int) -> bytes:
        answer = self.answers.pop(0) if self.answers else BlockingIOError()
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.mark.root
def test_reading_goes_on_after_an_overrun_and_ends_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    report = b"3,1,1,-;Out of memory: Killed process %d (x) y"
    with oom.OomLog() as log:
        assert log.precise
        stand_in = Pipe([report % 1, BrokenPipeError(32, "overrun"), report % 2])
        monkeypatch.setattr(os, "read", stand_in.read)
        assert log.victims() == {1, 2}
        stand_in.answers = [report % 3, OSError(5, "broken")]
        assert log.victims() == {3}
        assert (log.precise, log.victims()) == (False, set())


@pytest.mark.root
def test_a_program_cannot_forge_a_report() -> None:
    with oom.OomLog() as log:
        with open("/dev/kmsg", "wb", buffering=0) as kernel_log:
            kernel_log.write(b"<3>Out of memory: Killed process 4242 (agentd-test) forged")
        assert 4242 not in log.victims()


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A control group of at most `limit` bytes, in either version of control groups."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    if (v1 / "memory.limit_in_bytes").exists():
        group, knob = v1 / f"agentd-test-{os.getpid()}", "memory.limit_in_bytes"
    else:
        group, knob = v2 / f"agentd-test-{os.getpid()}", "memory.max"
    group.mkdir()
    try:
        (group / knob).write_text(str(limit))
        yield group
    finally:

        def removed() -> bool:
            try:
                group.rmdir()
            except OSError:
                return False  # the last task is still on its way out
            return True

        eventually(removed, "the control group can be removed")


@pytest.mark.root
def test_a_real_kill_names_its_victim() -> None:
    eat = 'import sys; sys.stdout.write("ready"); sys.stdout.flush(); x = bytearray(512 * 1024 * 1024)'
    # Nothing but the kernel's choice ends this child: it joins the group, then becomes the program.
    script = 'echo $$ > "$1/cgroup.procs" && exec "$2" -c "$3"'
    with memory_group(LIMIT_BYTES) as group, oom.OomLog() as log:
        assert log.precise
        log.victims()
        log.kills()
        child = subprocess.Popen(
            ["sh", "-c", script, "sh", str(group), sys.executable, eat], stdout=subprocess.PIPE
        )
        try:
            output, _ = child.communicate(timeout=DEADLINE_SECONDS)
        finally:
            child.kill()
            child.wait()
        assert (output, child.returncode) == (b"ready", -signal.SIGKILL)
        eventually(lambda: child.pid in log.victims(), "the log names the victim")
        assert log.kills() >= 1
        assert child.pid not in log.victims()
        with oom.OomLog() as later:
            assert child.pid not in later.victims()

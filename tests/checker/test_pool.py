"""The pool of forked processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from checker.pool import each
from tests.conftest import REPOSITORY

PATIENCE_SECS = 60.0


def test_answers_come_in_order_from_other_processes() -> None:
    offset = 100
    found = list(each(lambda number: (number + offset, os.getpid()), 6, jobs=2))
    assert [answer for answer, _ in found] == list(range(100, 106))
    assert os.getpid() not in {process for _, process in found}


def test_one_job_needs_no_process() -> None:
    assert list(each(lambda number: os.getpid(), 2, jobs=1)) == [os.getpid()] * 2


def test_an_error_of_a_worker_is_raised_here() -> None:
    def work(number: int) -> int:
        if number == 1:
            raise KeyError("no such")
        return number

    with pytest.raises(KeyError, match="no such"):
        list(each(work, 4, jobs=2))


def test_nothing_to_do() -> None:
    assert list(each(lambda number: number, 0)) == []


def test_leaving_early_ends_the_workers() -> None:
    pids = []
    for pid in each(lambda number: os.getpid(), 50, jobs=2):
        pids.append(pid)
        break
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_workers_go_with_whoever_they_work_for(tmp_path: Path, number: int) -> None:
    """And with them the files that they had."""
    process = subprocess.Popen(
        [sys.executable, "-m", "checker", "replay", "jobs", "hooks", "--jobs", "2"],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: len(children(process.pid)) == 2 and len(list(tmp_path.iterdir())) == 2)
        workers = children(process.pid)
        process.send_signal(number)
        assert process.wait(PATIENCE_SECS) != 0
        until(lambda: not any(Path("/proc", pid).exists() for pid in workers))
        assert list(tmp_path.iterdir()) == []
    finally:
        process.kill()
        process.wait()


def children(pid: int) -> list[str]:
    """The children of a process that has one thread that forks."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def until(look: Callable[[], bool]) -> None:
    """Wait until it is so, under a deadline."""
    end = time.monotonic() + PATIENCE_SECS
    while not look():
        assert time.monotonic() < end
        time.sleep(0.01)

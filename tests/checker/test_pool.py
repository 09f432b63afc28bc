"""The pool of forked processes."""

import os

import pytest

from checker.pool import each


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

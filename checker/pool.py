"""A pool of forked processes for work on things that do not travel: models and faults hold functions.

Workers inherit what they work on and are sent numbers only. They are ended by having no more work, and keep
none of the signal handlers of the process they were forked from.
"""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Answer = TypeVar("Answer")

_work: Callable[[int], object] | None = None


def _begin() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(number: int) -> object:
    assert _work is not None
    return _work(number)


def each(work: Callable[[int], Answer], count: int, jobs: int | None = None) -> Iterator[Answer]:
    """``work(0)`` to ``work(count - 1)`` in order, done by `jobs` processes, by default one a processor.

    Answers must be picklable. One job needs no process. One pool at a time.
    """
    global _work
    jobs = min(jobs or os.cpu_count() or 1, count)
    if jobs <= 1:
        yield from map(work, range(count))
        return
    _work = work
    pool = ProcessPoolExecutor(jobs, get_context("fork"), _begin)
    try:
        yield from pool.map(_run, range(count))  # type: ignore[misc]
    finally:
        _work = None
        pool.shutdown(wait=True, cancel_futures=True)

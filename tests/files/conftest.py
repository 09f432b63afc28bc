"""Fixtures: the capability on a real reactor and a small pool of real threads."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from agentd.files.disk import DiskGuard, Spool
from agentd.files.service import Files
from agentd.rules.members import Caps
from tests.files.support import descriptors, until


@pytest.fixture
def reactor() -> Any:
    from twisted.internet import reactor

    return reactor


@pytest.fixture
def run_in_thread(reactor: Any) -> Iterator[Any]:
    """A pool of two threads, stopped when nothing is under way in it: what comes late has clean-ups to do there."""
    pool = ThreadPool(minthreads=0, maxthreads=2)
    pool.start()
    under_way: set[Any] = set()

    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        running = deferToThreadPool(reactor, pool, function, *args, **kwargs)
        token = object()
        under_way.add(token)

        def ended(result: Any) -> Any:
            # Only after this turn: the callbacks behind this one may start the next job.
            reactor.callLater(0, under_way.discard, token)
            return result

        return running.addBoth(ended)

    yield run
    pytest_twisted.blockon(Deferred.fromCoroutine(until(reactor, lambda: not under_way)))
    pool.stop()


MakeFiles = Callable[..., Files]


@pytest.fixture
def make_files(reactor: Any, run_in_thread: Any, tmp_path: Path) -> MakeFiles:
    """`make_files(caps=, guard=, spool=)`: without arguments nothing is guarded, spools are in a temp directory."""

    def make(caps: Caps | None = None, guard: DiskGuard | None = None, spool: bytes | None = None) -> Files:
        where = spool or os.fsencode(tmp_path / "spool")
        return Files(reactor, run_in_thread, caps or Caps(), guard or DiskGuard(0), Spool(where))

    return make


@pytest.fixture
def files(make_files: MakeFiles) -> Files:
    return make_files()


@pytest.fixture
def no_descriptor_left(reactor: Any, run_in_thread: Any) -> Iterator[None]:
    """The test leaves no descriptor of a file open, also not for a thread to close later."""
    before = descriptors().items()
    yield
    pytest_twisted.blockon(Deferred.fromCoroutine(until(reactor, lambda: descriptors().items() <= before)))

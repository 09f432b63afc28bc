"""Fixtures: the capability on a real reactor and a small pool of real threads."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from agentd.files.disk import DiskGuard, Spool
from agentd.files.service import Files
from agentd.rules.members import Caps
from tests.files.support import descriptors


@pytest.fixture
def reactor() -> Any:
    from twisted.internet import reactor

    return reactor


@pytest.fixture
def run_in_thread(reactor: Any) -> Iterator[Any]:
    pool = ThreadPool(minthreads=0, maxthreads=2)
    pool.start()
    yield partial(deferToThreadPool, reactor, pool)
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
    import pytest_twisted
    from twisted.internet.defer import Deferred

    from tests.files.support import until

    before = descriptors().items()
    yield
    pytest_twisted.blockon(Deferred.fromCoroutine(until(reactor, lambda: descriptors().items() <= before)))

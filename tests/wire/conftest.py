"""Fixtures: daemons started with twistd, and callers of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunningDaemon, start_daemon
from tests.wire.support import TWISTD, Api, Raw, connect

Connect = Callable[[RunningDaemon], Raw]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A bootstrapped daemon shared by the tests of one module."""
    running = start_daemon(tmp_path_factory.mktemp("daemon"), program=TWISTD)
    running.bootstrap()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def closed_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that nobody has bootstrapped."""
    running = start_daemon(tmp_path_factory.mktemp("closed"), program=TWISTD)
    yield running
    running.stop()


@pytest.fixture
def make_daemon(tmp_path: Path) -> Iterator[Callable[..., RunningDaemon]]:
    """A function that starts daemons with twistd, each stopped at the end of the test."""
    started: list[RunningDaemon] = []

    def make(**arguments: Any) -> RunningDaemon:
        started.append(start_daemon(tmp_path, **{"program": TWISTD, **arguments}))
        return started[-1]

    yield make
    for each in started:
        each.stop()


@pytest.fixture
def api(daemon: RunningDaemon) -> Api:
    """A caller of the module's daemon, with its token."""
    return Api(daemon.url, daemon.token)


@pytest.fixture
def closed_api(closed_daemon: RunningDaemon) -> Api:
    """A caller of the daemon that is closed."""
    return Api(closed_daemon.url, closed_daemon.token)


@pytest.fixture
def raw() -> Iterator[Connect]:
    """A function that opens bare connections, each closed at the end of the test."""
    opened: list[Raw] = []

    def open_one(daemon: RunningDaemon) -> Raw:
        opened.append(connect(daemon))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()

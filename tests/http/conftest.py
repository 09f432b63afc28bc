"""A fixture: servers in memory that leave nothing behind."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.logger import LogEvent, globalLogPublisher

from tests.http.support import Row, Server


@pytest.fixture
def logged() -> Iterator[list[LogEvent]]:
    """Every event that is logged during the test."""
    events: list[LogEvent] = []
    keep = events.append
    globalLogPublisher.addObserver(keep)
    yield events
    globalLogPublisher.removeObserver(keep)


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(*rows, **config)`: a `Server`. At the end of the test every caller leaves, and nothing may be left."""
    servers: list[Server] = []

    def make(*rows: Row, **config: Any) -> Server:
        servers.append(Server(*rows, **config))
        return servers[-1]

    yield make
    for server in servers:
        server.hang_up()

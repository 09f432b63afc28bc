"""Fixtures: an agent user's home, and servers for it."""

import shutil
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from agentd.environments.limits import Limits
from tests.environments.support import Home, Server, make_home, public_place, serve

Serve = Callable[..., Awaitable[Server]]


@pytest.fixture
def home() -> Iterator[Home]:
    """The agent user's home, in a place of its own."""
    place = public_place()
    yield make_home(place)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def serving(home: Home) -> Iterator[Serve]:
    """`await serving(**limits)`: a server with these limits; `speed`, `key` and `config` as for `serve`."""
    servers: list[Server] = []

    async def start(*, speed: float = 1.0, config: dict[str, Any] | None = None, **limits: Any) -> Server:
        given = {name: limits.pop(name) for name in ("key",) if name in limits}
        server = await serve(home, Limits(**limits), speed=speed, **given, **(config or {}))
        servers.append(server)
        return server

    yield start

    async def stop() -> None:
        for server in servers:
            await server.close()

    pytest_twisted.blockon(Deferred.fromCoroutine(stop()))

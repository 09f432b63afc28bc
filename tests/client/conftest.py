"""Fixtures: a scripted server and a client of it."""

from collections.abc import Callable, Iterator

import pytest
import pytest_twisted

from agentd.client.client import Client
from tests.client.support import Reply, Script, client

Serve = Callable[..., tuple[Script, Client]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(reply, …, **options)`: a server that gives these answers, and a client of it."""
    scripts: list[Script] = []
    clients: list[Client] = []

    def start(*replies: Reply, early: bool = False, **options: object) -> tuple[Script, Client]:
        script = Script(list(replies), early=early)
        scripts.append(script)
        clients.append(client(script.listen(), **options))
        return script, clients[-1]

    yield start

    async def stop() -> None:
        for each in clients:
            await each.close()
        for script in scripts:
            await script.close()

    from twisted.internet.defer import Deferred

    pytest_twisted.blockon(Deferred.fromCoroutine(stop()))

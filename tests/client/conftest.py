"""Fixtures: a scripted server and a client of it."""

from collections.abc import Callable, Iterator

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from agentd.client.client import Client
from tests.client.support import Reply, Script, client

Connect = Callable[..., Client]
Serve = Callable[..., tuple[Script, Client]]

TOKEN = "s3cret-token"


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`connect(url, token, **options)`: a client with short pauses, closed at the end of the test."""
    made: list[Client] = []

    def begin(url: str, token: object = None, **options: object) -> Client:
        made.append(client(url, token, **options))
        return made[-1]

    yield begin

    async def close() -> None:
        for each in made:
            await each.close()

    pytest_twisted.blockon(Deferred.fromCoroutine(close()))


@pytest.fixture
def serve(connect: Connect) -> Iterator[Serve]:
    """`serve(reply, …, **options)`: a server that gives these answers, and a client of it."""
    scripts: list[Script] = []

    def start(
        *replies: Reply, early: bool = False, token: object = TOKEN, **options: object
    ) -> tuple[Script, Client]:
        script = Script(list(replies), early=early)
        scripts.append(script)
        return script, connect(script.listen(), token, **options)

    yield start

    async def stop() -> None:
        for script in scripts:
            await script.close()

    pytest_twisted.blockon(Deferred.fromCoroutine(stop()))

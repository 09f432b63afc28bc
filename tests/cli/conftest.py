"""Fixtures: agentctl with an address and a token, and scripted servers for it."""

from collections.abc import Awaitable, Callable, Iterator

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from tests.cli.support import Agentctl, Ran, start
from tests.client.support import Reply, Script
from tests.conftest import RunningDaemon

Spawn = Callable[..., Agentctl]
Ctl = Callable[..., Awaitable[Ran]]
ServeScript = Callable[..., Script]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """`spawn(word, …, url=, token=)`: agentctl, started; killed at the end of the test if it still runs."""
    running: list[Agentctl] = []

    def begin(*words: str, url: str | None = None, token: str | None = None, **options: object) -> Agentctl:
        running.append(start(*words, url=url, token=token, **options))  # type: ignore[arg-type]
        return running[-1]

    yield begin
    for each in running:
        each.stop()


@pytest.fixture
def ctl(spawn: Spawn, daemon: RunningDaemon) -> Ctl:
    """`await ctl(word, …)`: agentctl against the module's daemon, to its end."""

    def run(*words: str, **options: str) -> Deferred[Ran]:
        begun = spawn(*words, **{"url": daemon.url, "token": daemon.token, **options})
        begun.process.closeStdin()
        return Deferred.fromCoroutine(begun.result())

    return run


@pytest.fixture
def serve_script() -> Iterator[ServeScript]:
    """`serve_script(reply, …)`: a scripted server; its `url` is where it answers."""
    scripts: list[Script] = []

    def serve(*replies: Reply) -> Script:
        script = Script(list(replies))
        script.listen()
        scripts.append(script)
        return script

    yield serve

    async def stop() -> None:
        for script in scripts:
            await script.close()

    pytest_twisted.blockon(Deferred.fromCoroutine(stop()))

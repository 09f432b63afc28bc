"""A worker on the real reactor, at an engine of the test's own; and every response checked against its schema."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from agentd.process.groups import Groups
from agentd.process.job import JobTools
from agentd.process.spawn import ProcessSpawner
from agentd.worker.face import Worker, WorkerOptions
from agentd.worker.registry import load
from tests.process.support import reactor, soon, until
from tests.worker.engine import Failed, TestEngine

PUBLISHED = load()
UNJAILED: Mapping[str, Any] = {"fs": {"allow_unjailed": True}, "env": {"inherit": True}}


def valid(id: str, result: Any) -> Any:
    """`result`, which must be what the published schema of `id` promises."""
    jsonschema.Draft7Validator(PUBLISHED[id]["response_schema"]).validate(result)
    return result


class Clock:
    """The reactor, with a clock that runs `speed` times as fast once the worker is ready.

    Until then it keeps the reactor's time, so that a busy machine does not miss the deadlines of the start.
    """

    def __init__(self, speed: float) -> None:
        self._later = speed
        self._speed = 1.0
        self._base = self._since = float(reactor.seconds())

    def hurry(self) -> None:
        """Run fast from now on."""
        self._base, self._since = self.seconds(), float(reactor.seconds())
        self._speed = self._later

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)

    def seconds(self) -> float:
        return self._base + (float(reactor.seconds()) - self._since) * self._speed

    def callLater(self, delay: float, function: Any, *args: Any, **kwargs: Any) -> Any:
        return _Call(reactor.callLater(delay / self._speed, function, *args, **kwargs), self)

    def real(self, delay: float) -> float:
        """What `delay` takes."""
        return delay / self._speed


class _Call:
    def __init__(self, call: Any, clock: Clock) -> None:
        self._call = call
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def reset(self, delay: float) -> None:
        self._call.reset(self._clock.real(delay))


@define(eq=False)
class RunningWorker:
    """A worker, and the engine it is at."""

    worker: Worker
    engine: TestEngine
    pool: ThreadPool
    failures: list[str] = field(factory=list)

    async def call(self, id: str, data: Any = None) -> Any:
        """A valid result of a function, called over the engine."""
        return valid(id, await soon(self.engine.call(id, data)))

    async def fails(self, id: str, data: Any = None) -> Failed:
        """How a call fails."""
        try:
            result = await soon(self.engine.call(id, data))
        except Failed as reason:
            return reason
        raise AssertionError(f"{id} did not fail: {result}")

    async def exec(self, command: str, *args: str, **fields: Any) -> Any:
        """`shell::exec` of words."""
        return await self.call("shell::exec", {"command": command, "args": list(args), **fields})

    async def sh(self, script: str, **fields: Any) -> Any:
        """`shell::exec` of a shell script."""
        return await self.exec("/bin/sh", "-c", script, **fields)

    @property
    def served(self) -> set[str]:
        """The functions that this worker has."""
        service = self.worker.service
        return {"not loaded yet"} if service is None else set(service.registry.functions)

    async def ready(self) -> None:
        """Every function is registered."""
        await until(lambda: set(self.served) <= set(self.engine.functions) or self.failures, "a ready worker")
        assert not self.failures, self.failures

    async def set(self, value: Mapping[str, Any]) -> None:
        """Store a configuration; it is in force, or refused, when this returns."""
        await soon(self.engine.call("configuration::set", {"id": "shell", "value": dict(value)}))
        await soon(self.engine.call("shell::on-config-change"))

    async def stop(self) -> None:
        await soon(self.worker.stop())
        await soon(deferToThreadPool(reactor, self.pool, lambda: None))
        self.pool.stop()


def make_worker(
    engine: TestEngine,
    seed: Path,
    *,
    clock: Any = reactor,
    environ: Mapping[str, str] | None = None,
    wall_clock: Any = time.time,
    **options: Any,
) -> RunningWorker:
    """A worker that is not started yet. `clock` is the reactor it gets."""
    pool = ThreadPool(0, 4, "worker")
    pool.start()

    def run_in_thread(function: Any, *args: Any) -> "Deferred[Any]":
        return deferToThreadPool(reactor, pool, function, *args)

    groups = Groups(run_in_thread)
    tools = JobTools(clock, ProcessSpawner(clock, groups, 5.0), run_in_thread, lambda pid: False)
    failures: list[str] = []
    settings = WorkerOptions(**{"url": engine.url, "seed": seed, **options})
    worker = Worker(
        settings,
        clock,
        tools,
        wall_clock,
        environ if environ is not None else dict(os.environ),
        failures.append,
    )
    return RunningWorker(worker, engine, pool, failures)

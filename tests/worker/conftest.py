"""Fixtures: an engine, and workers at it."""

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from tests.worker.engine import TestEngine
from tests.worker.support import UNJAILED, Clock, RunningWorker, make_worker

Working = Callable[..., Awaitable[RunningWorker]]


@pytest.fixture
def engine() -> Iterator[TestEngine]:
    """An engine that listens."""
    found = TestEngine()
    found.start()
    yield found
    pytest_twisted.blockon(Deferred.fromCoroutine(found.stop()))


@pytest.fixture
def working(engine: TestEngine, tmp_path: Path) -> Iterator[Working]:
    """`await working(seed={...})`: a ready worker; with `ready=False` one that has only been started."""
    workers: list[RunningWorker] = []

    async def start(
        seed: Any = UNJAILED, *, ready: bool = True, url: str | None = "", **options: Any
    ) -> RunningWorker:
        path = tmp_path / f"seed-{len(workers)}.yaml"
        if seed is not None:
            path.write_text(seed if isinstance(seed, str) else json.dumps(seed))
        if url != "":
            options["url"] = url
        worker = make_worker(engine, path, **options)
        workers.append(worker)
        worker.worker.begin()
        if ready:
            await worker.ready()
        if isinstance(clock := options.get("clock"), Clock):
            clock.hurry()
        return worker

    yield start

    async def stop() -> None:
        for worker in workers:
            await worker.stop()

    pytest_twisted.blockon(Deferred.fromCoroutine(stop()))

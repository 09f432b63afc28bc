"""Fixtures of the tunnel's tests."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest_twisted

from tests.tunnel.support import World


@pytest_twisted.async_yield_fixture
async def worlds() -> AsyncIterator[Callable[..., World]]:
    """Makes worlds with limits and keys of a test's choice, and ends them after it."""
    made: list[World] = []

    def make(**settings: Any) -> World:
        made.append(World(**settings))
        return made[-1]

    yield make
    for world in made:
        await world.tear_down()


@pytest_twisted.async_yield_fixture
async def world() -> AsyncIterator[World]:
    """A daemon with keys and the default limits."""
    made = World()
    yield made
    await made.tear_down()

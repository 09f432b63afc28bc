"""What the handlers of an environment work on: one object per daemon, put together in `agentd.tap`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred

from agentd.environments.account import Agent
from agentd.environments.limits import Limits
from agentd.process.job import JobTools
from agentd.rules.lifecycle import Lifecycle


@define(eq=False)
class Environment:
    """The capabilities this face translates to, and the settings it has of its own."""

    id: str
    agent: Agent
    package_env: Path
    """The agent package's variables (3.2)."""
    platform_env: Path
    """The platform's, which win over all others."""
    clock: Any
    """`IReactorTime` on the monotonic clock."""
    wall_clock: Callable[[], float]
    tools: JobTools
    disk_reserve: int
    """Bytes that no upload may take from the disk."""
    lifecycle: Callable[[], Lifecycle] = field(repr=False)
    limits: Limits = Limits()
    at_drain: list[Callable[[], "Deferred[Any]"]] = field(factory=list, repr=False)
    """Called when the daemon begins to stop, before it waits for what is in flight. Each fires when what it began is
    over."""

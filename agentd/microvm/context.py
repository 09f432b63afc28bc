"""What the handlers of protocol v1 work on: one object per daemon, put together in `agentd.tap`."""

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred

from agentd.config import Config
from agentd.guest.accounts import AccountFiles
from agentd.guest.handlers import HandlerRunner
from agentd.guest.state import Guest
from agentd.process.groups import Groups
from agentd.process.job import JobLimits, JobTools
from agentd.process.table import ExecTable
from agentd.rules.lifecycle import Lifecycle


@define(eq=False)
class Daemon:
    """The capabilities this face translates to."""

    config: Config
    clock: Any
    guest: Guest
    execs: ExecTable
    tools: JobTools
    limits: JobLimits
    groups: Groups
    handlers: HandlerRunner
    accounts: AccountFiles
    lifecycle: Any = field(repr=False)
    """A callable giving the `Lifecycle` now."""
    terminate: Any = field(repr=False)
    """Called once the terminate hook has been answered."""
    at_start: list[Callable[[], object]] = field(factory=list, repr=False)
    """Called once the daemon serves."""
    at_drain: list[Callable[[], "Deferred[Any]"]] = field(factory=list, repr=False)
    """Called when the daemon begins to stop, before it waits for what is in flight. Each fires when what it began is
    over."""
    at_stop: list[Callable[[], None]] = field(factory=list, repr=False)
    """Called when the daemon stops, once nothing is in flight."""

    def life(self) -> Lifecycle:
        """The daemon's stage."""
        state: Lifecycle = self.lifecycle()
        return state

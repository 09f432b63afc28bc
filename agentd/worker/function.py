"""What a function of the worker is: a request, a result, and what turns one into the other.

A family module (`shell`, `jobs`, `fs_*`, `coder_*`, `workspace`) gives a tuple `FUNCTIONS` of these, and nothing else
of it is known outside. A function runs as a coroutine on the reactor and gives what blocks to `Call.run_in_thread`; its
caller going away cancels it. Failures are those of `agentd.worker.errors`; anything else is a bug and answered S216.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

from agentd.files.threads import Reactor, RunInThread

if TYPE_CHECKING:
    from agentd.files.read import Content
    from agentd.worker.coder_paths import CoderPaths
    from agentd.worker.configuration import Configuration
    from agentd.worker.jail import Jail
    from agentd.worker.job_runner import JobRunner
    from agentd.worker.sandbox import Sandbox
    from agentd.worker.settings import Settings


class Channels(Protocol):
    """Byte streams beside the calls (reference A8)."""

    async def send(self, content: "Content") -> dict[str, Any]:
        """Make a channel, give the reference of its reader at once, and pump `content` into it meanwhile."""
        ...

    async def receive(
        self, reference: dict[str, Any], write: Callable[[bytes], Awaitable[object] | None]
    ) -> int:
        """Give every chunk of a caller's channel to `write`, one after the other, until it closes: bytes given.

        `write` may be slow: nothing more is read meanwhile. Raises `Coded` S216 for a channel that cannot be
        opened or stalls for 30 s; what `write` raises ends the reading.
        """
        ...


@frozen
class Call:
    """What one call may use: the settings it started with, whatever is reloaded meanwhile, and the capabilities."""

    settings: "Settings"
    jail: "Jail"
    coder: "CoderPaths"
    jobs: "JobRunner"
    sandbox: "Sandbox"
    channels: Channels
    reactor: Reactor
    run_in_thread: RunInThread
    configuration: "Configuration | None" = None
    """For the functions that are about it."""


@frozen
class Function:
    """One function: `parse` a request's data into what `run` takes. `run`'s result is encoded with msgspec."""

    id: str
    description: str
    parse: Callable[[object], Any]
    """Raises `FunctionError` in the family's shape for data that does not fit."""
    run: Callable[[Call, Any], Awaitable[Any]]
    internal: bool = False

"""A machine and the client that drives it."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from twisted.internet import reactor
from twisted.internet.task import deferLater

from agentd.client import Client, Output
from agentd.client.execs import Exec
from agentd.client.messages import ExitEvent
from agentd.client.transport import default_http
from agentd.vm import platform
from agentd.vm.command import Settings
from agentd.vm.machine import End, Machine

DEADLINE = 60.0
"""Seconds that anything here may take, on a machine ten times slower than its host."""


@frozen
class Saved:
    """The state of a machine that has booted and was never told anything."""

    state: Path
    settings: Settings


@define(eq=False)
class Guest:
    """A machine, its token, and a client that has it."""

    machine: Machine
    token: str = field(factory=lambda: secrets.token_urlsafe(24), repr=False)
    client: Client = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.client = Client(self.machine.url, self.token, reactor=reactor, timeout=DEADLINE)

    async def launch(self, env: Mapping[str, str] | None = None) -> None:
        """Post the run hook."""
        await platform.launch(reactor, self.machine, self.token, env)

    async def sh(self, script: str, **options: Any) -> str:
        """What a script prints, which must succeed."""
        outcome = await self.client.run([script], shell=True, **options)
        assert outcome.succeeded, outcome
        return outcome.stdout or ""

    async def health(self) -> dict[str, Any]:
        """The daemon's health, as it is on the wire."""
        return await get(f"{self.machine.url}/v1/health")

    async def end(self) -> End:
        """Post the terminate hook and wait for the power-off."""
        return await platform.end(reactor, self.machine)


async def get(url: str) -> dict[str, Any]:
    """The JSON at `url`."""
    http, pool = default_http(reactor)
    try:
        answer = await http.request("GET", url, timeout=DEADLINE)
        found: dict[str, Any] = await answer.json()
        return found
    finally:
        await pool.closeCachedConnections()


async def status_of(machine: Machine, token: str | None, path: str = "/v1/procs") -> int:
    """With which status the control API answers this token."""
    http, pool = default_http(reactor)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        answer = await http.request("GET", machine.url + path, headers=headers, timeout=DEADLINE)
        await answer.content()
        status: int = answer.code
        return status
    finally:
        await pool.closeCachedConnections()


async def pause(seconds: float) -> None:
    """Let time pass, for what is about time."""
    await deferLater(reactor, seconds, lambda: None)  # type: ignore[arg-type]  # the module is the reactor


async def until(check: Any, limit: float = DEADLINE) -> Any:
    """What `check` returns once it is true; it is called again and again."""
    left = limit
    while not (found := await check()):
        assert left > 0, "it did not happen in time"
        await pause(0.05)
        left -= 0.05
    return found


async def read(
    handle: Exec, offset: int = 0, enough: int | None = None
) -> tuple[bytes, int, ExitEvent | None]:
    """Standard output from `offset`, to the end or until `enough` bytes have come; the next offset; the end."""
    data = b""
    async with handle.follow(offset) as events:
        async for event in events:
            if isinstance(event, Output):
                assert event.offset == offset, "a byte was lost or doubled"
                assert event.stream == "stdout"
                data += event.data
                offset += len(event.data)
                if enough is not None and len(data) >= enough:
                    return data, offset, None
            else:
                assert isinstance(event, ExitEvent), event
                return data, offset, event
    raise AssertionError("the stream has no end")

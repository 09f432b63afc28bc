"""Running agentctl as its users do: a process with pipes, against a scripted server or a real daemon."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet import error, protocol, reactor
from twisted.internet.defer import Deferred

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 60.0


@define(eq=False)
class Ran:
    """How a run of agentctl ended."""

    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Its standard output."""
        return self.out.decode()

    @property
    def line(self) -> str:
        """Its standard error, which must be one line and no traceback."""
        lines = self.err.decode().splitlines()
        assert len(lines) == 1, self.err.decode()
        return lines[0]


@define(eq=False)
class Agentctl(protocol.ProcessProtocol):
    """One run of agentctl."""

    out: bytes = b""
    err: bytes = b""
    ended: Deferred[int] = field(factory=Deferred)
    over: bool = False
    process: Any = None

    def outReceived(self, data: bytes) -> None:
        self.out += data

    def errReceived(self, data: bytes) -> None:
        self.err += data

    def processEnded(self, reason: Any) -> None:
        self.over = True
        value = reason.value
        self.ended.callback(0 if value.exitCode is None and value.signal is None else value.exitCode)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    async def result(self) -> Ran:
        """Wait for its end, under a deadline."""
        self.ended.addTimeout(LIMIT_SECONDS, reactor, onTimeoutCancel=self._late)
        status = await self.ended
        return Ran(status, self.out, self.err)

    def _late(self, _: Any, __: float) -> int:
        self.stop()
        raise AssertionError(f"agentctl did not end: {self.out[-500:]!r} {self.err[-500:]!r}")

    def stop(self) -> None:
        """End it if it still runs."""
        if not self.over:
            try:
                self.process.signalProcess(signal.SIGKILL)
            except error.ProcessExitedAlready:
                pass


Start = Callable[..., Agentctl]


def start(
    *words: str,
    url: str | None,
    token: str | None,
    env: dict[str, str] | None = None,
    terminal: bool = False,
) -> Agentctl:
    """Start `agentctl WORDS`, with an address and a token in its environment; on a terminal or on pipes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENTD_")}
    environment["PYTHONPATH"] = str(REPOSITORY)
    environment |= {"AGENTD_URL": url} if url is not None else {}
    environment |= {"AGENTD_TOKEN": token} if token is not None else {}
    run = Agentctl()
    command = [sys.executable, "-m", "agentd.cli", *words]
    environment |= env or {}
    run.process = reactor.spawnProcess(run, sys.executable, command, env=environment, usePTY=terminal)
    return run

"""What every command shares: the settings, the client made of them, the run of the reactor, and the output.

A command is a coroutine that returns an exit status. `Session.drive` runs the reactor for it, turns what it
raises into one line on standard error and a status, and decides what an interrupt does: by default the first
one leaves; a command that has something to stop takes the first for that, and the second leaves at once.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field
from twisted.internet.defer import Deferred

from agentd.cli import exits

if TYPE_CHECKING:
    from agentd.client.client import Client

DEFAULT_URL = "http://127.0.0.1:9000"

RETRY_SECONDS = (0.25, 0.5)
"""The pauses before a request is repeated: shorter than the library's, somebody is waiting at the terminal."""


@define
class Session:
    """The settings of one run of agentctl.

    Args:
        reactor: called for the Twisted reactor, when one is needed.
    """

    reactor: Callable[[], Any]
    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    as_json: bool = False
    interrupts: int = 0
    on_interrupt: Callable[[], object] | None = None
    """What the first interrupt does; None to leave."""

    def client(self) -> "Client":
        """A client of the daemon that the settings name.

        Raises:
            ValueError: the URL or the token cannot be.
        """
        from agentd.client.client import Client
        from agentd.client.retry import Backoff

        return Client(self.url, self.token or None, reactor=self.reactor(), backoff=Backoff(RETRY_SECONDS))

    # Output

    def say(self, text: str) -> None:
        """A line for a person, on standard output; nothing with ``--json``."""
        if not self.as_json:
            print(text, flush=True)

    def note(self, text: str) -> None:
        """A line about what is going on, on standard error."""
        line = json.dumps({"note": text}) if self.as_json else f"agentctl: {text}"
        print(line, file=sys.stderr, flush=True)

    def show(self, value: Any, pretty: Callable[[], object] | None = None) -> None:
        """A result: as JSON with ``--json``, or as `pretty` prints it."""
        if self.as_json or pretty is None:
            print(json.dumps(value, indent=None if self.as_json else 2), flush=True)
        else:
            pretty()

    def fail(self, fault: BaseException) -> int:
        """Say what went wrong, in one line, and return the status to exit with."""
        status = exits.status_of(fault)
        if self.as_json:
            report = {"error": exits.slug_of(fault), "detail": exits.explain(fault), "exit": status}
            print(json.dumps(report), file=sys.stderr, flush=True)
        else:
            print(f"agentctl: {exits.explain(fault)}", file=sys.stderr, flush=True)
        return status

    # Running

    def drive(self, command: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """Run the reactor until `command` is done, and return its exit status."""
        reactor = self.reactor()
        status = exits.INTERNAL
        running: list[Deferred[int]] = []
        ended_by: list[int] = []

        def done(result: Any) -> None:
            nonlocal status
            if isinstance(result, int):
                status = result
            elif ended_by:
                status = exits.SIGNALLED + ended_by[0]
            else:
                status = self.fail(result.value)
            reactor.stop()

        def interrupted(number: int, _: object) -> None:
            self.interrupts += 1
            if self.interrupts > 1:
                os._exit(exits.SIGNALLED + number)
            reactor.callFromThread(leave, number)

        def leave(number: int) -> None:
            if self.on_interrupt is not None:
                self.on_interrupt()
                return
            ended_by.append(number)
            for deferred in running:
                deferred.cancel()

        def begin() -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, interrupted)
            deferred = Deferred.fromCoroutine(command())
            running.append(deferred)
            deferred.addBoth(done)

        reactor.callWhenRunning(begin)
        reactor.run()
        return status

    def run(self, command: Callable[["Client"], Coroutine[Any, Any, int | None]]) -> int:
        """`drive` a command that needs a client; no status is success."""

        async def with_client() -> int:
            client = self.client()
            try:
                return await command(client) or exits.OK
            finally:
                await client.close()

        return self.drive(with_client)


def parse_assignments(pairs: tuple[str, ...]) -> Mapping[str, str]:
    """``NAME=VALUE`` words as a mapping; the refusal of a bad one names no value.

    Raises:
        ValueError: a word without a name or without ``=``.
    """
    found: dict[str, str] = {}
    for position, pair in enumerate(pairs, 1):
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise ValueError(f"--env number {position} is not NAME=VALUE")
        found[name] = value
    return found

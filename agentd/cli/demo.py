"""`demo`: the whole way once, on this machine, leaving nothing behind.

Starts a daemon on a free loopback port in a temporary directory, bootstraps it with a fresh token through its run
hook, sends it a small generated Python package, builds and tests that there with live output, shows what the exec's
record says, stops the daemon and removes the directory. It is what a platform, a client and a VM would do, without
the VM, and uses nothing but this Python.
"""

import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from twisted.internet import error, protocol
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

import agentd
from agentd.cli import exits
from agentd.cli.options import common
from agentd.cli.session import Session
from agentd.cli.terminal import Writer

if TYPE_CHECKING:
    from agentd.client.client import Client
    from agentd.client.messages import ExitEvent, PollResponse

START_SECONDS = 30.0
"""How long the daemon may take to listen."""

STOP_SECONDS = 15.0
"""How long it may take to leave in order."""

PACKAGE = {
    "primes/__init__.py": '''\
"""Prime numbers, by the sieve."""


def primes(below: int) -> list[int]:
    """All primes less than a number."""
    candidate = bytearray([1]) * max(below, 2)
    candidate[:2] = b"\\0\\0"
    for number in range(2, int(below**0.5) + 1):
        if candidate[number]:
            candidate[number * number :: number] = bytes(len(range(number * number, len(candidate), number)))
    return [number for number in range(below) if candidate[number]]
''',
    "primes/__main__.py": """\
import sys

from primes import primes

print(*primes(int(sys.argv[1])))
""",
    "tests/__init__.py": "",
    "tests/test_primes.py": """\
import unittest

from primes import primes


class Primes(unittest.TestCase):
    def test_none_below_two(self):
        self.assertEqual(primes(2), [])

    def test_below_thirty(self):
        self.assertEqual(primes(30), [2, 3, 5, 7, 11, 13, 17, 19, 23, 29])

    def test_each_has_no_divisor(self):
        found = primes(2000)
        self.assertEqual(len(found), 303)
        for number in found:
            self.assertTrue(all(number % other for other in found if other * other <= number))
""",
}
"""The package that is built."""

BUILD = """\
set -e
echo '[1/4] compile' && "$PYTHON" -m compileall primes tests
echo '[2/4] test' && "$PYTHON" -m unittest -v
echo '[3/4] package' && mkdir build && cp -r primes build && cp primes/__main__.py build
"$PYTHON" -m zipapp build -o primes.pyz
echo '[4/4] run' && "$PYTHON" primes.pyz 50
"""
"""The script that builds it."""


@click.command()
@common
@click.pass_obj
def demo(session: Session) -> int:
    """Start a daemon here, run a build in it, show the result and leave nothing behind."""

    async def show() -> int:
        reactor = session.reactor()
        pool = reactor.getThreadPool()
        directory = Path(await deferToThreadPool(reactor, pool, tempfile.mkdtemp, "", "agentd-demo-"))
        try:
            daemon = _Daemon(reactor, directory)
            try:
                session.url = await daemon.listening()
                session.token = secrets.token_urlsafe(32)
                return await _drive(session, directory, daemon)
            finally:
                await daemon.stop()
        finally:
            await deferToThreadPool(reactor, pool, shutil.rmtree, directory)

    return session.drive(show)


async def _drive(session: Session, directory: Path, daemon: "_Daemon") -> int:
    client = session.client()
    try:
        session.say(f"daemon {daemon.pid} listens on {session.url}")
        await client.bootstrap(session.token or "", {"PYTHON": sys.executable, "PATH": os.defpath})
        session.say("bootstrapped with a fresh token")
        source = directory / "source"
        await deferToThreadPool(session.reactor(), session.reactor().getThreadPool(), _write_package, source)
        pushed = await client.tar.push(source, str(directory / "work"))
        session.say(f"sent a package of {pushed.members} entries, {pushed.stored.size} bytes")
        outcome, end, printed = await _build(session, client, str(directory / "work"))
        _report(session, outcome, end, printed)
        return exits.outcome_status(outcome)
    finally:
        await client.close()


def _write_package(source: Path) -> None:
    for name, text in PACKAGE.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)


async def _build(
    session: Session, client: "Client", work: str
) -> "tuple[PollResponse, ExitEvent | None, int]":
    """Run the build with its output as it comes; the record, the stream's last event, and the bytes printed."""
    from agentd.client.messages import ExitEvent
    from agentd.client.sse import Output

    handle = await client.start([BUILD], shell=True, cwd=work, timeout=120, digest=True)
    session.say(f"exec {handle.exec_id}: /bin/sh -c '…' in {work}\n")
    writers = {"stdout": Writer(session.reactor(), 1), "stderr": Writer(session.reactor(), 2)}
    printed = 0
    end: ExitEvent | None = None
    async with handle.follow() as events:
        async for event in events:
            if isinstance(event, Output):
                printed += len(event.data)
                if not session.as_json:
                    await writers[event.stream].write(event.data)
            elif isinstance(event, ExitEvent):
                end = event
    outcome = await handle.wait()
    await handle.ack()
    return outcome, end, printed


def _report(session: Session, outcome: "PollResponse", end: "ExitEvent | None", printed: int) -> None:
    from agentd.client.client import as_json

    found = {name: value for name, value in as_json(outcome).items() if name not in ("stdout", "stderr")}
    if end is not None:
        found |= {"bytes_total": end.bytes_total, "sha256": end.sha256}
    session.show(found, lambda: print(_words(outcome, end, printed), flush=True))


def _words(outcome: "PollResponse", end: "ExitEvent | None", printed: int) -> str:
    ended = f"exit {outcome.exit_code}" if outcome.exit_code is not None else f"signal {outcome.signal}"
    lines = [f"\n{ended}, cause {outcome.cause}"]
    if outcome.usage is not None:
        usage = outcome.usage
        lines.append(
            f"{usage.user_seconds:.2f} s user, {usage.system_seconds:.2f} s system, "
            f"{usage.max_rss_bytes / 2**20:.0f} MiB peak memory"
        )
    total = end.bytes_total if end is not None else None
    lines.append(f"{printed} of {total} bytes of output seen" + (f", SHA-256 {end.sha256}" if end else ""))
    return "\n".join(lines)


class _Daemon(protocol.ProcessProtocol):
    """`python -m agentd` as a child of this process."""

    def __init__(self, reactor: Any, directory: Path) -> None:
        self._reactor = reactor
        self._line = b""
        self._said: list[str] = []
        self._listening: Deferred[str] = Deferred()
        self._ended: Deferred[None] = Deferred()
        home = str(Path(agentd.__file__).parent.parent)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENTD_")}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [home, environment.get("PYTHONPATH")]))
        options = {
            "listen": "tcp:0:interface=127.0.0.1",
            "log-format": "json",
            "repair-identity": "off",
            "hooks-dir": str(directory / "hooks.d"),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        command = [sys.executable, "-m", "agentd", *words]
        self._process = reactor.spawnProcess(
            self, sys.executable, command, env=environment, path=str(directory)
        )
        self.pid: int = self._process.pid

    async def listening(self) -> str:
        """Its URL, once it listens.

        Raises:
            Refusal: it does not start.
        """
        self._listening.addTimeout(START_SECONDS, self._reactor)
        try:
            return await self._listening
        except Exception:
            said = "; ".join(self._said[-3:]) or "no word from it"
            raise exits.Refusal(f"the daemon did not start: {said}", exits.UNREACHABLE) from None

    async def stop(self) -> None:
        """End it and wait until it is gone."""
        self._signal(signal.SIGTERM)
        kill = self._reactor.callLater(STOP_SECONDS, self._signal, signal.SIGKILL)
        await self._ended
        if kill.active():
            kill.cancel()

    def outReceived(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._heard(line)

    errReceived = outReceived

    def _heard(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = {"message": line.decode("utf-8", "replace")}
        if not self._listening.called:
            self._said.append(str(entry.get("message", "")))
            if entry.get("event") == "listening":
                self._listening.callback(f"http://{entry['address']}:{entry['port']}")

    def processEnded(self, reason: Failure) -> None:
        if not self._listening.called:
            self._listening.errback(reason)
        self._ended.callback(None)

    def _signal(self, number: int) -> None:
        try:
            self._process.signalProcess(number)
        except error.ProcessExitedAlready:
            pass

"""The processes a run measures: a daemon of its own, or somebody's by URL; and the floors' servers.

Each process is ended by its own handle. They run outside the source tree, so that `--python` measures the daemon
that is installed for that interpreter and not the one beside this file.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

from attrs import frozen

from bench.client import Connection, ProtocolError, Server
from bench.process import Watched

START_SECS: Final = 30.0
RUN_HOOK: Final = "/aws/lambda-microvms/runtime/v1/run"
_SERVERS: Final = Path(__file__).with_name("servers.py")


class SetupFailed(Exception):
    """The run cannot begin; the message says why, in one line."""


@frozen
class Target:
    """A bootstrapped daemon."""

    server: Server
    watched: Watched | None
    """Its process, when it is on this machine and its pid is known."""
    version: str


@frozen
class Choice:
    """Which daemon to measure, as the command line says."""

    python: str = sys.executable
    url: str | None = None
    token: str | None = None
    pid: int | None = None

    @property
    def own(self) -> bool:
        """Whether the run starts a daemon of its own."""
        return self.url is None


class Started:
    """A server started by us on a loopback port, alive until `stop`."""

    def __init__(self, arguments: list[str], port: int) -> None:
        self.server = Server("127.0.0.1", port)
        self._directory = tempfile.mkdtemp(prefix="bench-")
        self._log = open(os.path.join(self._directory, "log"), "w+b")  # noqa: SIM115  # closed by stop
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AGENTD_")}
        environ.pop("PYTHONPATH", None)
        try:
            self.process = subprocess.Popen(
                arguments,
                cwd=self._directory,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
            )
        except OSError:
            self._clean_up()
            raise

    def wait(self, request: bytes) -> Connection:
        """Send `request` until it is answered 200; the connection that was is returned."""
        deadline = time.monotonic() + START_SECS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise SetupFailed(
                    f"a server ended with status {self.process.returncode}: {self._last_line()}"
                )
            try:
                connection = Connection(self.server)
            except OSError:
                time.sleep(0.0005)
                continue
            try:
                if connection.exchange(request).status == 200:
                    return connection
            except (OSError, ProtocolError):
                pass
            connection.close()
        raise SetupFailed(f"no answer within {START_SECS:g} seconds")

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"

    def stop(self) -> None:
        """End it and remove what it left."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(START_SECS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self._clean_up()

    def _clean_up(self) -> None:
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def free_port() -> int:
    """A loopback port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def launch_daemon(python: str, options: tuple[str, ...] = ()) -> Started:
    """A daemon without a token, starting."""
    port = free_port()
    listen = f"tcp:{port}:interface=127.0.0.1"
    return _launch([python, "-m", "agentd", "--listen", listen, "--repair-identity", "off", *options], port)


def launch_server(python: str, kind: str, *arguments: str) -> Started:
    """One of ``bench/servers.py``, starting."""
    port = free_port()
    return _launch([python, str(_SERVERS), kind, str(port), *arguments], port)


def _launch(arguments: list[str], port: int) -> Started:
    try:
        return Started(arguments, port)
    except OSError as reason:
        raise SetupFailed(f"{arguments[0]}: {reason.strerror}") from None


@contextlib.contextmanager
def server(python: str, kind: str, *arguments: str) -> Generator[Started]:
    """One of ``bench/servers.py``, listening."""
    started = launch_server(python, kind, *arguments)
    try:
        if kind == "web":
            started.wait(started.server.prepare("GET", "/")).close()
        else:
            _await_port(started)
        yield started
    finally:
        started.stop()


def _await_port(started: Started) -> None:
    deadline = time.monotonic() + START_SECS
    while time.monotonic() < deadline and started.process.poll() is None:
        try:
            socket.create_connection((started.server.host, started.server.port), 1.0).close()
        except OSError:
            time.sleep(0.005)
        else:
            return
    raise SetupFailed("a floor's server did not start")


@contextlib.contextmanager
def target(choice: Choice, options: tuple[str, ...] = ()) -> Generator[Target]:
    """The daemon to measure: one that is started here and bootstrapped, or that of `choice.url`.

    `options` are the daemon's command line, for one of our own.
    """
    if choice.url is not None:
        yield _remote(choice)
        return
    started = launch_daemon(choice.python, options)
    try:
        with started.wait(started.server.prepare("GET", "/v1/health")) as connection:
            token = secrets.token_urlsafe(24)
            payload = {"runHookPayload": json.dumps({"agent_token": token})}
            status = connection.exchange(started.server.post_json(RUN_HOOK, payload)).status
            if status != 200:
                raise SetupFailed(f"the run hook answered {status}")
        bootstrapped = Server(started.server.host, started.server.port, token)
        yield Target(bootstrapped, Watched(started.process.pid), version(bootstrapped))
    finally:
        started.stop()


def _remote(choice: Choice) -> Target:
    assert choice.url is not None
    try:
        where = Server.from_url(choice.url, choice.token)
        found = version(where)
        with Connection(where) as connection:
            status = connection.exchange(where.prepare("GET", "/v1/procs")).status
    except (OSError, ProtocolError, ValueError) as reason:
        raise SetupFailed(f"{choice.url}: {reason}") from None
    if status != 200:
        raise SetupFailed(f"{choice.url}: the token was answered {status}")
    return Target(where, None if choice.pid is None else Watched(choice.pid), found)


def version(where: Server) -> str:
    """The version that a daemon's health answer gives."""
    with Connection(where) as connection:
        return str(connection.exchange(where.prepare("GET", "/v1/health")).json()["version"])

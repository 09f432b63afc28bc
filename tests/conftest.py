"""Fixtures of the whole suite: a real daemon, a census of leftovers, and who needs to be root."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import define

from tests.leftovers import Census, left_after, started

REPOSITORY = Path(__file__).resolve().parent.parent
START_SECS = 30.0
"""How long a daemon may take to say that it listens."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked ``root`` are left out for other users, those of a ``program`` where it is missing; not in CI."""
    for item in items:
        if os.geteuid() != 0 and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs root"))
        for needed in item.iter_markers("program"):
            program, package = needed.args
            # CI installs what it needs, so there a missing program is a mistake and not a reason.
            if shutil.which(program) is None and not os.environ.get("CI"):
                item.add_marker(pytest.mark.skip(reason=f"needs {program} (Debian package {package})"))


@pytest.fixture(scope="session")
def temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A temporary directory of this process alone, so that what a test leaves there can be told.

    pytest's own stays where it is.
    """
    tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="agentd-tests-") as name:
        os.chmod(name, 0o1777)  # as the one it stands for
        patch.setattr(tempfile, "tempdir", name)
        patch.setenv("TMPDIR", name)
        yield


@pytest.fixture(autouse=True)
def nothing_left(temporary_directory: None) -> Iterator[None]:
    """Fails a test that leaves a timer, a port, a child, a descriptor or a temporary file behind."""
    from twisted.internet import reactor

    before = Census.take(started(reactor))
    yield
    left = left_after(before, reactor)
    assert not left, left


@define
class RunningDaemon:
    """A daemon in a process of its own, on a loopback port of its own choosing."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    token: str
    log: list[dict[str, object]]
    """Its log lines so far."""

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def bootstrap(self, token: str | None = None, env: dict[str, str] | None = None) -> int:
        """Post the run hook; returns the status."""
        payload = json.dumps({"agent_token": token or self.token, "env": env or {}})
        request = urllib.request.Request(
            f"{self.url}/aws/lambda-microvms/runtime/v1/run",
            data=json.dumps({"runHookPayload": payload}).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=START_SECS) as answer:
            status: int = answer.status
        return status

    def stop(self) -> int:
        """End it by its own handle; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(START_SECS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait(START_SECS)


def start_daemon(
    directory: Path,
    *,
    env: dict[str, str] | None = None,
    options: tuple[str, ...] = (),
    program: tuple[str, ...] = ("-m", "agentd"),
    wrap: tuple[str, ...] = (),
) -> RunningDaemon:
    """Start a daemon and wait until it listens; the caller stops it.

    `program` is what the interpreter runs, `wrap` what runs the interpreter. Short grace and linger, so that
    tests of them do not take long; no identity repair, which would be of the machine that tests.
    """
    environ = {key: value for key, value in os.environ.items() if not key.startswith("AGENTD_")}
    environ |= {
        "AGENTD_REPAIR_IDENTITY": "off",
        "AGENTD_HOOKS_DIR": str(directory / "hooks.d"),
        "AGENTD_KILL_GRACE_SECS": "1",
        "AGENTD_OUTPUT_LINGER_SECS": "1",
        "AGENTD_STDIN_WRITE_TIMEOUT_SECS": "1",
        "PYTHONPATH": str(REPOSITORY),
        **(env or {}),
    }
    process = subprocess.Popen(
        [*wrap, sys.executable, *program, "--listen", "tcp:0:interface=127.0.0.1", *options],
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    log: list[dict[str, object]] = []
    listening = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                try:
                    entry = json.loads(line)
                except ValueError:
                    entry = {"message": line.decode("utf-8", "replace").rstrip()}
                log.append(entry)
                if entry.get("event") == "listening":
                    listening.set()
        listening.set()

    threading.Thread(target=read, daemon=True).start()
    listening.wait(START_SECS)
    found = next((entry for entry in log if entry.get("event") == "listening"), None)
    if found is None:
        process.kill()
        process.wait()
        raise AssertionError(f"the daemon did not start: {log}")
    port = found["port"]
    assert isinstance(port, int)
    return RunningDaemon(process, "127.0.0.1", port, secrets.token_hex(16), log)


DaemonFactory = Callable[..., RunningDaemon]


@pytest.fixture
def make_daemon(tmp_path: Path) -> Iterator[DaemonFactory]:
    """A function that starts daemons, each stopped at the end of the test. Arguments as `start_daemon`."""
    started: list[RunningDaemon] = []

    def make(**arguments: object) -> RunningDaemon:
        daemon = start_daemon(tmp_path, **arguments)  # type: ignore[arg-type]
        started.append(daemon)
        return daemon

    yield make
    for daemon in started:
        daemon.stop()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A bootstrapped daemon shared by the tests of one module."""
    running = start_daemon(tmp_path_factory.mktemp("daemon"))
    running.bootstrap()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def closed_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that has not been bootstrapped."""
    running = start_daemon(tmp_path_factory.mktemp("closed"))
    yield running
    running.stop()

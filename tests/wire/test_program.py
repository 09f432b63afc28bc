"""The program: options, variables, help, mistakes in one line, logs, and where it listens."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_twisted
from twisted.python.usage import UsageError

from agentd._version import VERSION
from agentd.config import knobs, option_name, show
from agentd.tap import Options
from tests.conftest import REPOSITORY, RunningDaemon
from tests.wire.support import DEADLINE, TWISTD, Api, until

LIFE = ("listening", "stopping", "stopped")
"""The events that every daemon logs, in their order."""
Make = Callable[..., RunningDaemon]
PROGRAMS = [pytest.param(TWISTD, id="twistd"), pytest.param(("-m", "agentd"), id="python -m agentd")]


def run(
    program: tuple[str, ...], *options: str, cwd: Path, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the program to its end."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("AGENTD_")}
    return subprocess.run(
        [sys.executable, *program, *options],
        cwd=cwd,
        env={**environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200", **(env or {})},
        capture_output=True,
        check=False,
        text=True,
        timeout=DEADLINE * 2,
        stdin=subprocess.DEVNULL,
    )


def lines(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """What it said, on either stream. Once twistd has begun to log, that is a line of its log."""
    said = [line for line in (done.stdout + done.stderr).splitlines() if line]
    return [json.loads(line)["message"] if line.startswith("{") else line for line in said]


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_documents_every_knob(tmp_path: Path, program: tuple[str, ...]) -> None:
    """With its unit, its default and its variable."""
    done = run(program, "--help", cwd=tmp_path)
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    for name, default, knob in knobs():
        flag = name == "worker"
        entry = text[text.index(f"--{option_name(name)}{' ' if flag else '='}") :]
        entry = entry[: entry.index("]") + 1]
        assert knob.doc in entry, name
        told = "off without it" if flag else f"{knob.unit}; default {show(default)}"
        assert entry.endswith(f"[{told}; {knob.variable}]")


def test_twistd_lists_the_plugin(tmp_path: Path) -> None:
    """``twistd --help``."""
    listed = run(TWISTD[:1], "--help", cwd=tmp_path).stdout
    assert re.search(r"^\s+agentd\s", listed, re.MULTILINE)


@pytest.mark.parametrize("program", PROGRAMS)
def test_version(tmp_path: Path, program: tuple[str, ...]) -> None:
    """The daemon's, not Twisted's."""
    done = run(program, "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"agentd {VERSION}\n")


MISTAKES = {
    ("--max-body-bytes", "lots"): "--max-body-bytes",
    ("surplus",): "arguments",
    ("--listen", "tcp"): "--listen",
    ("--token-file", "/no/such/file"): "--token-file",
    ("--listen", "tcp:0:colour=red"): "--listen",
    ("--listen", "tcp:0:interface=192.0.2.1"): "listen",
    ("--listen", "unix:/no/such/dir/socket"): "listen",
}


def check_mistake(done: "subprocess.CompletedProcess[str]", names: str) -> None:
    """One line that names the option, no traceback, and a status that is not 0."""
    assert done.returncode in (1, 2)
    (said,) = lines(done)
    assert said.startswith("agentd: ")
    assert names in said


@pytest.mark.parametrize("options", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Whatever it is about."""
    check_mistake(run(("-m", "agentd"), *options, cwd=tmp_path), MISTAKES[options])


@pytest.mark.parametrize("options", list(MISTAKES)[::2], ids=" ".join)
def test_under_twistd_too(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Which would print its whole help."""
    check_mistake(run(TWISTD, *options, cwd=tmp_path), MISTAKES[options])


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--port", "99999"), "--port"),
        (("--log-format", "xml"), "--log-format"),
        (("--terminate", "never"), "--terminate"),
        (("--no-such-option",), "no-such-option"),
        (("--max-body-bytes",), "max-body-bytes"),
        (("--token-file", "/"), "--token-file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_bad_option_is_refused_by_its_name(options: tuple[str, ...], names: str) -> None:
    """In one line, before anything is begun."""
    with pytest.raises(UsageError, match=names) as refused:
        Options().parseOptions(options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_port_in_use_is_one_line(tmp_path: Path, program: tuple[str, ...]) -> None:
    """That says which."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"
        done = run(program, "--listen", where, cwd=tmp_path)
    assert done.returncode == 1
    (said,) = lines(done)
    assert said.startswith(f"agentd: cannot listen on {where}: ")
    assert "in use" in said


@pytest_twisted.ensureDeferred
async def test_a_bad_variable_is_a_warning_and_the_default(make_daemon: Make) -> None:
    """And no reason not to start."""
    daemon = make_daemon(
        env={
            "AGENTD_MAX_BODY_BYTES": "lots-s3cr3t",
            "AGENTD_EXEC_TTL_SECS": "-5",
            "AGENTD_MAX_OUTPUT_BYTES": "77",
        },
    )
    limits = (await Api(daemon.url, None).get("/v1/schema")).json["limits"]
    assert limits["max_body_bytes"] == 536870912
    assert limits["exec_ttl_secs"] == 900
    assert limits["max_output_bytes"] == 77
    warned = [entry["message"] for entry in daemon.log if " is ignored: " in str(entry["message"])]
    assert len(warned) == 2
    assert any("AGENTD_MAX_BODY_BYTES is ignored" in str(text) for text in warned)
    assert any("AGENTD_EXEC_TTL_SECS is ignored" in str(text) for text in warned)
    assert "s3cr3t" not in json.dumps(daemon.log)


@pytest_twisted.ensureDeferred
async def test_an_option_wins_over_its_variable(make_daemon: Make) -> None:
    """Limits in force are those that are published."""
    daemon = make_daemon(
        env={"AGENTD_MAX_DRAIN_BYTES": "5", "AGENTD_MAX_STDIN_WRITE_BYTES": "6"},
        options=("--max-drain-bytes", "7"),
    )
    limits = (await Api(daemon.url, None).get("/v1/schema")).json["limits"]
    assert (limits["max_drain_bytes"], limits["max_stdin_write_bytes"]) == (7, 6)


@pytest_twisted.ensureDeferred
async def test_a_token_file_bootstraps(make_daemon: Make, tmp_path: Path) -> None:
    """Without a platform; white space around it is not the token's; the run hook then conflicts or replays."""
    (tmp_path / "token").write_text("  file-token \n")
    daemon = make_daemon(options=("--token-file", str(tmp_path / "token")))
    api = Api(daemon.url, "file-token")
    assert (await api.get("/v1/procs")).status == 200
    assert (await api.get("/v1/procs", token="other")).status == 401
    assert (await api.run_hook({"agent_token": "other"})).status == 409
    assert (await api.run_hook({"agent_token": "file-token"})).status == 200
    assert "file-token" not in json.dumps(daemon.log)


def test_an_empty_token_file_is_a_mistake(tmp_path: Path) -> None:
    """One line."""
    (tmp_path / "token").write_text(" \n")
    done = run(("-m", "agentd"), "--token-file", str(tmp_path / "token"), cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "empty" in done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_logs_are_json_lines(make_daemon: Make, program: tuple[str, ...]) -> None:
    """Every line, from the first to the last, and nothing else on either stream."""
    daemon = make_daemon(program=program)
    assert daemon.bootstrap() == 200
    daemon.stop()
    life = [entry["event"] for entry in daemon.log if entry.get("event") in LIFE]
    assert life == list(LIFE)
    for entry in daemon.log:
        assert {"time", "level", "target", "message"} <= set(entry), entry


def test_logs_may_be_text(tmp_path: Path) -> None:
    """For a person."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("AGENTD_")}
    process = subprocess.Popen(
        [sys.executable, *TWISTD, "--listen", "tcp:0:interface=127.0.0.1", "--log-format", "text"],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": str(REPOSITORY), "AGENTD_PORT": "x"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = []
    with process.stdout as output:
        for line in output:
            said.append(line.rstrip("\n"))
            if "event=listening" in line:
                process.terminate()
    process.wait(DEADLINE)
    assert re.fullmatch(r"\S+Z WARN  AGENTD_PORT is ignored: .*", said[0])
    events = [line for line in said if re.search(" event=(listening|stopping|stopped)", line)]
    assert re.match(r"\S+Z INFO  agentd \S+ listening on 127\.0\.0\.1 event=listening ", events[0])
    last = [line.partition(" INFO  ")[2] for line in events[1:]]
    assert last == ["stopping event=stopping", "stopped event=stopped"]


@pytest_twisted.ensureDeferred
async def test_the_log_level_leaves_out_what_is_below(make_daemon: Make, tmp_path: Path) -> None:
    """A daemon that only says what is wrong says nothing in ordinary operation."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "agentd",
                "--listen",
                f"tcp:{port}:interface=127.0.0.1",
                "--log-level",
                "critical",
            ],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "AGENTD_REPAIR_IDENTITY": "off"},
            stdout=output,
            stderr=output,
        )
    try:

        def reached() -> bool:
            with socket.socket() as caller:
                return caller.connect_ex(("127.0.0.1", port)) == 0

        await until(reached)
        api = Api(f"http://127.0.0.1:{port}", "token")
        assert (await api.run_hook({"agent_token": "token"})).status == 200
        assert (await api.run("echo hi"))["stdout"] == "hi\n"
    finally:
        process.terminate()
        process.wait(DEADLINE)
    assert log.read_bytes() == b""


def _connected(path: Path) -> socket.socket | None:
    """A connection to a Unix socket, None as long as nobody listens there."""
    caller = socket.socket(socket.AF_UNIX)
    caller.settimeout(DEADLINE)
    try:
        caller.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        caller.close()
        return None
    return caller


@pytest_twisted.ensureDeferred
async def test_it_listens_on_a_unix_socket(tmp_path: Path) -> None:
    """Any Twisted endpoint will do."""
    path = tmp_path / "socket"
    process = subprocess.Popen(
        [sys.executable, "-m", "agentd", "--listen", f"unix:{path}"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "AGENTD_REPAIR_IDENTITY": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        # Its name is there before anybody listens.
        with await until(lambda: _connected(path)) as caller:
            caller.sendall(b"GET /v1/health HTTP/1.1\r\nConnection: close\r\n\r\n")
            received = b""
            while piece := caller.recv(65536):
                received += piece
        assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE)
    assert process.returncode == 0


def test_timers_run_on_the_monotonic_clock(tmp_path: Path) -> None:
    """Once the service is made, `reactor.seconds` is; a stepped wall clock fires and delays nothing."""
    script = (
        "import time\n"
        "from agentd.tap import Options, makeService\n"
        "options = Options(); options.parseOptions(['--listen', 'tcp:0:interface=127.0.0.1'])\n"
        "service = makeService(options)\n"
        "from twisted.internet import reactor\n"
        "assert reactor.seconds is time.monotonic\n"
        "assert service.daemon.clock is reactor\n"
        "fired = []\n"
        "time.time = lambda: 4e9\n"
        "reactor.callLater(0.2, lambda: (fired.append(1), reactor.stop()))\n"
        "reactor.callLater(3000, fired.append, 2)\n"
        "reactor.run()\n"
        "assert fired == [1]\n"
        "print('monotonic')\n"
    )
    done = run(("-c", script), cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("monotonic\n", "", 0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_worker_that_cannot_start_ends_the_daemon_with_one_line(
    tmp_path: Path, program: tuple[str, ...]
) -> None:
    """Status 1, also under twistd, which has no status of its own; after an orderly stop."""
    (tmp_path / "config.yaml").write_text("fs: {host_root: /srv}\n")
    done = run(
        program, "--listen", "tcp:0:interface=127.0.0.1", "--worker", "--iii-url", "none", cwd=tmp_path
    )
    said = lines(done)
    assert done.returncode == 1
    assert said[-1] == "stopped"
    [reason] = [line for line in said if line.startswith("agentd cannot go on: ")]
    assert "fs.host_roots" in reason


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_worker_option_that_cannot_be_is_one_line(tmp_path: Path, program: tuple[str, ...]) -> None:
    done = run(program, "--worker", "--iii-url", "http://127.0.0.1", cwd=tmp_path)
    assert done.returncode == 2
    assert lines(done) == ["agentd: --iii-url: expected ws://HOST:PORT, wss://HOST:PORT or none"]

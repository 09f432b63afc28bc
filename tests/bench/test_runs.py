"""Each benchmark runs, small, against a real daemon: its report has its parts, and its counts are right.

Nothing here looks at a time.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main, size
from bench.client import Server
from bench.daemon import launch_server
from bench.process import Growth, Watched
from bench.pulse import Pulse
from bench.trees import fingerprint
from tests.conftest import RunningDaemon

REPOSITORY = Path(__file__).resolve().parents[2]

RUNS: dict[str, tuple[list[str], list[str], dict[str, int]]] = {
    # name: (options, ratios, counts that must be there)
    "exec": (
        ["--count", "2", "--parallel", "12", "--rounds", "1"],
        [
            "exec by polling / bare spawn",
            "exec by stream / bare spawn",
            "exec by Prefer: wait / bare spawn",
            "12 execs at once / bare spawns",
        ],
        {"operations with the right outcome": 66, "execs at once with the right exit and output": 12},
    ),
    "stream": (
        ["--bytes", "4M", "--rounds", "2", "--streams", "7", "--stream-bytes", "2M"],
        ["speed of capture / reading the pipe"],
        {"captures of every byte": 2, "bytes accounted for": 7 << 21, "readers with every byte or a gap": 7},
    ),
    "idle": (
        ["--count", "40", "--rounds", "2", "--starts", "1"],
        ["health requests/s / bare resource"],
        {"health answers 200": 80},
    ),
    "files": (
        ["--bytes", "3M", "--rounds", "2"],
        ["speed of reading / cp, before a read", "speed of writing / cp, before a write"],
        {"reads of every byte": 2, "writes equal to their source": 2},
    ),
    "tar": (
        ["--files", "130", "--rounds", "2"],
        ["speed of extracting / tar -x", "speed of packing / tar -c"],
        {"extracted trees equal to the source": 2, "downloaded archives that hold the source": 2},
    ),
    "tunnel": (
        ["--bytes", "3M", "--rounds", "2"],
        ["speed of tunnel down / bare relay down", "speed of tunnel up / bare relay up"],
        {"transfers of every byte": 5},
    ),
    "worker": (
        ["--count", "3", "--files", "130", "--bytes", "1M", "--entries", "60", "--rounds", "1"],
        [
            "shell::exec / bare spawn",
            "speed of coder::search / GNU grep -r",
            "speed of shell::fs::grep / GNU grep -r",
        ],
        {
            "calls with the right outcome": 23,
            "searches that found everything": 2,
            "listings of everything": 2,
        },
    ),
}


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON report of a run, which must find nothing wrong."""
    status = main([*arguments, "--json"])
    printed = capsys.readouterr()
    assert status == 0, printed
    return json.loads(printed.out)


def check(report: Any, name: str) -> None:
    """The parts of a report that a reader relies on."""
    _, ratios, counts = RUNS[name]
    assert report["benchmark"] == name
    assert report["version"] not in ("", "unknown")
    assert report["right"] is True
    assert set(ratios) <= {ratio["name"] for ratio in report["ratios"]}
    for figure in report["figures"]:
        assert figure["samples"] >= 1
        assert figure["min"] <= figure["p50"] <= figure["p90"] <= figure["p99"] <= figure["max"]
    for ratio in report["ratios"]:
        assert 0 < ratio["min"] <= ratio["median"] <= ratio["max"]
    found = {count["name"]: count for count in report["counts"]}
    for what, value in counts.items():
        assert found[what]["value"] == found[what]["expected"] == value


@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_a_daemon_of_its_own(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measures, counts, and leaves nothing in the temporary directory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    report = ran(capsys, name, *RUNS[name][0])
    check(report, name)
    assert os.listdir(tmp_path) == []
    if name == "idle":
        names = {figure["name"] for figure in report["figures"]}
        assert {"start to first 200", "resident memory at the first 200"} <= names


@pytest.mark.parametrize("name", [name for name in RUNS if name != "worker"])  # that one needs its own engine
def test_a_run_against_a_daemon_by_url(
    name: str, capsys: pytest.CaptureFixture[str], daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any daemon that speaks the protocol; its pid, when given, shows its memory."""
    monkeypatch.setenv("AGENTD_TOKEN", daemon.token)
    report = ran(capsys, name, *RUNS[name][0], "--url", daemon.url, "--pid", str(daemon.pid))
    check(report, name)
    assert daemon.process.poll() is None
    assert daemon.token not in json.dumps(report)


def test_the_command_prints_text(daemon: RunningDaemon) -> None:
    """``python -m bench`` as a person runs it."""
    which = ["--url", daemon.url, "--token", daemon.token]
    command = [sys.executable, "-m", "bench", "tunnel", "--bytes", "1M", "--rounds", "1", *which]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tunnel: agentd ")
    assert "transfers of every byte" in done.stdout
    assert done.stderr == ""


def test_a_run_that_is_told_to_stop_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM ends the daemon that the run started, and removes what it made."""
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "bench", "files", "--bytes", "1M", "--rounds", "1000000"]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environ, stdout=subprocess.PIPE) as running:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("bench-*/source")) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list(tmp_path.glob("bench-*/source"))
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM
    assert out == b""
    assert os.listdir(tmp_path) == []


def test_a_run_that_cannot_begin_says_why_in_one_line(
    capsys: pytest.CaptureFixture[str], closed_daemon: RunningDaemon, tmp_path: Path
) -> None:
    """No daemon there, a refused token, an interpreter without agentd, a URL of another kind."""
    empty = tmp_path / "python"
    empty.write_text('#!/bin/sh\necho "no such module" >&2\nexit 7\n')
    empty.chmod(0o755)
    gone = launch_server(sys.executable, "pour")
    gone.stop()
    for arguments, reason in (
        (["--url", f"http://127.0.0.1:{gone.server.port}", "--token", "x"], "refused"),
        (["--url", closed_daemon.url, "--token", "x"], "the token was answered 503"),
        (["--url", "https://127.0.0.1"], "expected http://"),
        (["--python", str(empty)], "ended with status 7: no such module"),
        (["--python", str(tmp_path / "none")], "No such file"),
    ):
        assert main(["exec", *arguments]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert reason in printed.err
        assert printed.err.startswith("bench: ")
        assert printed.err.count("\n") == 1


def test_a_wrong_count_is_exit_status_1(
    capsys: pytest.CaptureFixture[str], daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon whose commands fail is noticed: here the program does not succeed."""
    monkeypatch.setattr("bench.execs.PROGRAM", "/bin/false")
    which = ["--url", daemon.url, "--token", daemon.token]
    status = main(["exec", "--count", "1", "--parallel", "1", "--rounds", "1", "--json", *which])
    report = json.loads(capsys.readouterr().out)
    assert status == 1
    assert report["right"] is False
    assert report["counts"][0] == {
        "name": "operations with the right outcome",
        "value": 0,
        "expected": 63,
    }


def test_sizes() -> None:
    """Plain, and with a factor of 1024 in either case."""
    assert (size("1"), size("2K"), size("3m"), size("1G")) == (1, 2048, 3 << 20, 1 << 30)
    for bad in ("0", "-1", "K", "1T", "x", ""):
        with pytest.raises(ValueError, match=r".*"):
            size(bad)


def test_the_pulse_answers_for_the_asked_stretch_only(daemon: RunningDaemon) -> None:
    """Requests that were due outside the windows are not counted."""
    watched = Watched(daemon.pid)
    spent, began = watched.cpu(), time.monotonic()
    with Pulse(Server(daemon.host, daemon.port)) as pulse, Growth(watched) as growth:
        ready = time.monotonic()
        # Ten milliseconds of the daemon's time are several requests.
        while watched.cpu() < spent + 0.01 and time.monotonic() < began + 30:
            time.sleep(0.01)
    ended = time.monotonic()
    every = pulse.during([(began, ended)])
    assert len(every) >= 2
    assert all(sample > 0 for sample in every)
    assert pulse.during([(0, began), (ended, ended + 1)]) == []
    assert len(pulse.during([(ready, ended), (began, ready)])) == len(every)
    assert growth.peak >= growth.kept >= 0


def test_fingerprints_tell_trees_apart(tmp_path: Path) -> None:
    """Names, types, modes, targets and bytes all count; the root's name does not."""
    seen = set()
    for number, change in enumerate(("none", "name", "mode", "bytes", "link", "type")):
        root = tmp_path / str(number)
        (root / "sub").mkdir(parents=True)
        file = root / ("other" if change == "name" else "file")
        file.write_text("bytes" if change == "bytes" else "text")
        file.chmod(0o600 if change == "mode" else 0o644)
        link = root / "sub/link"
        if change == "type":
            link.write_text("file")
        else:
            link.symlink_to("elsewhere" if change == "link" else "file")
        seen.add(fingerprint(root))
    assert len(seen) == 6
    again = tmp_path / "again"
    (again / "sub").mkdir(parents=True)
    (again / "file").write_text("text")
    (again / "file").chmod(0o644)
    (again / "sub/link").symlink_to("file")
    assert fingerprint(again) in seen

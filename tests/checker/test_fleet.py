"""The checker on a Dask cluster of this machine: the same answers, and refusals in one line."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checker import fleet as fleets
from checker import matrix, models
from checker.cli import main
from checker.fleet import fleet
from checker.model import ModelError
from checker.replay import edges
from checker.sampling import Sampling, swarm
from tests.conftest import REPOSITORY

START_SECS = 60.0


class Process:
    """A scheduler or a worker in a process of its own, ended by its own handle."""

    def __init__(self, directory: Path, *arguments: str, ready: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]],
            cwd=directory,  # from which `-m` imports first
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(directory), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.lines: list[str] = []
        self._ready = threading.Event()
        threading.Thread(target=self._read, args=(ready,), daemon=True).start()
        if not self._ready.wait(START_SECS) or self.process.poll() is not None:
            self.stop()
            raise AssertionError("".join(self.lines))

    def _read(self, ready: str) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.lines.append(line.decode("utf-8", "replace"))
                if ready in self.lines[-1]:
                    self._ready.set()
        self._ready.set()

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(START_SECS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait(START_SECS)


def start_scheduler(directory: Path) -> tuple[Process, str]:
    process = Process(
        directory,
        "dask_scheduler",
        *("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show"),
        ready="Scheduler at:",
    )
    line = next(line for line in process.lines if "Scheduler at:" in line)
    return process, line.split()[-1]


def start_worker(address: str, directory: Path, *options: str, **environ: str) -> Process:
    return Process(
        directory,
        "dask_worker",
        address,
        *("--host", "127.0.0.1", "--no-dashboard", "--nthreads", "1", "--no-nanny"),
        *("--local-directory", str(directory), "--memory-limit", "0", *options),
        ready="Registered to:",
        **environ,
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler with two workers."""
    directory = tmp_path_factory.mktemp("dask")
    scheduler, address = start_scheduler(directory)
    workers = []
    try:
        workers += [start_worker(address, directory) for _ in range(2)]
        yield address
    finally:
        for process in (*workers, scheduler):
            process.stop()


TAKEN = re.compile(r'"seconds": \S+|time="\S+"|, \S+ s, \S+ M/s')
"""How long something took, in any of the formats."""


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """What a command says, without how long it took."""
    code = main(arguments)
    lines = capsys.readouterr().out.splitlines()
    return code, [line.rpartition("; ")[0] if "rule calls" in line else line for line in lines]


def test_a_check_says_the_same(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ("check", "stdin", "lifecycle", "bootstrap_exec", "output"),
        ("check", "bootstrap_exec:deployment_invariant_broken"),
        ("check", "--property", "what an ack answers"),
        ("check", "stdin", "--states", "2"),
    ):
        here = told(capsys, *arguments, "--jobs", "1")
        assert told(capsys, *arguments, "--scheduler", cluster) == here
        assert here[1]


@pytest.mark.parametrize("form", ["json", "junit", "sarif", "mermaid", "text"])
def test_a_report_is_the_same(
    cluster: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
) -> None:
    keys = ("stdin", "lifecycle", "bootstrap_exec:deployment_invariant_broken")
    found = []
    for who in (("--jobs", "1"), ("--jobs", "2"), ("--scheduler", cluster)):
        file = tmp_path / who[1].replace("/", "")
        assert main(["check", *keys, *who, "--format", form, "--coverage", "--output", str(file)]) == 1
        assert capsys.readouterr().out == ""
        found.append(TAKEN.sub("", file.read_text()))
    assert found[0] == found[1] == found[2]
    assert (
        "attacker never authorized" in found[0] or form == "sarif"
    )  # which has no violations that are expected


def test_the_matrix_is_the_same(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["stdin", "lifecycle:drain"]
    with fleet(cluster) as workers:
        there = matrix.matrix(keys, fleet=workers)
    here = matrix.matrix(keys, jobs=1)
    assert there.rows == here.rows
    assert (there.unkillable, there.unbroken) == (here.unkillable, here.unbroken)
    assert len(there.rows) > 30
    assert main(["mutants", "stdin", "--seeded", "--scheduler", cluster]) == main(
        ["mutants", "stdin", "--seeded", "--jobs", "1"]
    )


def test_a_swarm_finds_the_same(cluster: str) -> None:
    model = models.load("bootstrap_exec:deployment_invariant_broken")
    how = Sampling(seed=3, searches=4, jobs=1)
    here = swarm(model, sampling=how)
    with fleet(cluster) as workers:
        there = swarm(model, sampling=how, fleet=workers)
    assert (there.states, there.transitions) == (here.states, here.transitions)
    assert {prop.name for prop in there.hits} == {prop.name for prop in here.hits}
    for prop in there.violations():
        assert [step.event.name for step in there.trace(prop).steps] == [
            step.event.name for step in here.trace(next(p for p in here.hits if p.name == prop.name)).steps
        ]


def test_replay_is_shared_too(cluster: str) -> None:
    with fleet(cluster) as workers:
        (there,) = edges.replay(
            ["bootstrap_exec:deployment_invariant_held"], edges.Extent(20_000), fleet=workers
        )
    (here,) = edges.replay(["bootstrap_exec:deployment_invariant_held"], edges.Extent(20_000), jobs=1)
    assert (there.states, there.edges, there.runs, there.steps) == (
        here.states,
        here.edges,
        here.runs,
        here.steps,
    )
    assert there.divergences == ()


def test_a_worker_that_is_lost_is_made_up_for(tmp_path: Path) -> None:
    scheduler, address = start_scheduler(tmp_path)
    workers = [start_worker(address, tmp_path) for _ in range(2)]
    try:
        with fleet(address) as found:
            answers = found.each(_slowly, (str(tmp_path), os.getpid()), range(6))
            first = next(answers)
            # One is killed while it works on something; another does that anew.
            _until(lambda: len(list(tmp_path.glob("begun-*"))) >= 3)
            workers[0].stop(signal.SIGKILL)
            (tmp_path / "go").touch()
            assert [first, *answers] == [number * number for number in range(6)]
    finally:
        for process in (*workers, scheduler):
            process.stop()


def _slowly(shared: tuple[str, int], number: int) -> int:
    """Waits for a file, all but the first, so that there is a time at which to end whoever waits."""
    directory = Path(shared[0])
    (directory / f"begun-{number}-{os.getpid()}").touch()
    if number:
        _until((directory / "go").exists)
    return number * number


def _until(look: Callable[[], Any]) -> None:
    end = time.monotonic() + START_SECS
    while not look():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_is_shared_may_be_the_same_again_and_again(cluster: str) -> None:
    with fleet(cluster) as workers:
        for _ in range(100):
            assert list(workers.each(_load, None, ["stdin:writes"] * 3)) == ["stdin:writes"] * 3


def test_work_is_done_one_at_a_time_in_a_process(tmp_path: Path) -> None:
    scheduler, address = start_scheduler(tmp_path)
    worker = start_worker(address, tmp_path, "--nthreads", "4")
    try:
        with fleet(address) as found:
            assert set(found.each(_alone, str(tmp_path), range(12))) == {0}
    finally:
        worker.stop()
        scheduler.stop()


def _alone(directory: str, number: int) -> int:
    """How many others are at work in this process when one begins."""
    mine = Path(directory) / f"at-work-{number}"
    others = len(list(Path(directory).glob("at-work-*")))
    mine.touch()
    for key in ("stdin:writes", "lifecycle:drain"):
        matrix.baseline(key)
    mine.unlink()
    return others


# --- Refusals -----------------------------------------------------------------------------------------------


def test_no_scheduler_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleets, "PATIENCE_SECS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for address in (f"tcp://127.0.0.1:{port}", "nonsense://x", "tcp://127.0.0.1:99999"):
        assert main(["mutants", "stdin", "--scheduler", address]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"checker: {address}: no scheduler answers")
        assert error.count("\n") == 1


def test_a_scheduler_without_workers_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler, address = start_scheduler(tmp_path)
    try:
        monkeypatch.setattr(fleets, "PATIENCE_SECS", 2.0)
        assert main(["check", "stdin", "--scheduler", address]) == 2
        assert capsys.readouterr().err == f"checker: {address}: the scheduler has no workers\n"
    finally:
        scheduler.stop()


def with_other_rules(directory: Path) -> Path:
    """A directory with a checker that is not this one."""
    for package in ("checker", "agentd"):
        shutil.copytree(
            REPOSITORY / package, directory / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    with (directory / "agentd" / "rules" / "execs.py").open("a") as rule:
        rule.write("# Somebody was here.\n")
    return directory


def test_another_checker_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = with_other_rules(tmp_path / "other")
    scheduler, address = start_scheduler(tmp_path)
    worker = start_worker(address, other, PYTHONPATH=str(other))
    try:
        assert main(["check", "stdin", "--scheduler", address]) == 2
    finally:
        worker.stop()
        scheduler.stop()
    error = capsys.readouterr().err
    assert "has another checker, or other rules, than this machine" in error
    assert error.count("\n") == 1


def test_another_checker_that_joins_later_is_refused(tmp_path: Path) -> None:
    other = with_other_rules(tmp_path / "other")
    scheduler, address = start_scheduler(tmp_path)
    workers = [start_worker(address, tmp_path)]
    try:
        with fleet(address) as found:
            assert list(found.each(_load, None, ["stdin:writes"])) == ["stdin:writes"]
            workers.append(start_worker(address, other, PYTHONPATH=str(other)))
            workers.pop(0).stop()
            with pytest.raises(ModelError, match="has another checker, or other rules, than this machine"):
                list(found.each(_load, None, ["stdin"]))
    finally:
        for process in (*workers, scheduler):
            process.stop()


def test_a_scheduler_that_goes_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleets, "PATIENCE_SECS", 3.0)
    scheduler, address = start_scheduler(tmp_path)
    worker = start_worker(address, tmp_path)
    try:
        with fleet(address) as found:
            answers = found.each(_slowly, (str(tmp_path), os.getpid()), range(4))
            assert next(answers) == 0
            _until(lambda: len(list(tmp_path.glob("begun-*"))) >= 2)
            scheduler.stop(signal.SIGKILL)
            with pytest.raises(ModelError, match=r"^the cluster has lost the work: .+$"):
                list(answers)
            with pytest.raises(ModelError, match=r"^the cluster has lost the work: .+$"):
                list(found.each(_load, None, ["stdin"]))
    finally:
        (tmp_path / "go").touch()
        worker.stop()
        scheduler.stop()
    # The library's own account of it is several pages.
    assert capfd.readouterr().err == ""


def test_what_a_fleet_cannot_do_is_said(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("--checkpoint", "/tmp"), ("--spill", "/tmp"), ("--progress",)):
        assert main(["check", "stdin", "--scheduler", cluster, *arguments]) == 2
        assert capsys.readouterr().err.startswith("checker: with --scheduler nothing is kept on disk")


def test_what_is_raised_there_is_raised_here(cluster: str) -> None:
    with fleet(cluster) as workers, pytest.raises(ModelError, match="no model 'nope'"):
        list(workers.each(_load, None, ["nope"]))


def _load(shared: None, key: str) -> str:
    return models.load(key).key


def test_the_library_is_an_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["check", "stdin", "--scheduler", "tcp://127.0.0.1:1"]) == 2
    assert "install agentd[checker-fleet]" in capsys.readouterr().err

"""The benchmark of the model checker runs it as CI does, and its counts are right. Nothing here looks at a time."""

import json
import sys
from pathlib import Path

import pytest

from bench import checker
from bench.__main__ import main


def test_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert main(["checker", "--rounds", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["benchmark"] == "checker"
    counts = {count["name"]: count for count in report["counts"]}
    assert counts["default checks in which everything holds"]["value"] == 1
    assert counts["wide searches in which both engines agree"]["value"] == 1
    assert counts["states of the default configurations"]["value"] > 10_000
    assert {target["unit"] for target in report["targets"]} == {"s", "M/s"}
    assert list(tmp_path.iterdir()) == []


def test_what_a_process_cost_is_measured() -> None:
    ran = checker.run_python(sys.executable, "-c", "print(sum(range(10**6)))")
    assert (ran.status, ran.output) == (0, "499999500000\n")
    assert ran.cpu > 0
    assert ran.resident > 1 << 20


def test_a_process_that_fails_says_so() -> None:
    assert checker.run_python(sys.executable, "-c", "raise SystemExit(3)").status == 3

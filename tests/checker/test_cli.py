"""The command line: what it prints, and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from checker import models, pins
from checker.cli import main
from checker.faults import planted, seeded

BROKEN = "bootstrap_exec:deployment_invariant_broken"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_check_of_everything_holds(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "check")
    assert (code, err) == (0, "")
    assert all(f"{key}: " in out for key in models.every())
    assert "violated, as it must be here: attacker never authorized" in out


def test_a_counterfactual_named_is_judged_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", BROKEN)
    assert code == 1
    assert "VIOLATED: attacker never authorized" in out
    assert "   1. attacker posts the run hook  =>  installed" in out
    assert "   2. somebody presents 'Bearer A'  =>  granted" in out


def test_a_broken_rule_turns_red(capsys: pytest.CaptureFixture[str]) -> None:
    with planted(seeded()["a running exec can be acked"]):
        code, out, _ = run(capsys, "check")
    assert code == 1
    assert "VIOLATED: what an ack answers" in out
    assert "client acks exec 0  =>  released" in out


def test_a_counterfactual_that_holds_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with planted(seeded()["the right token is refused"]):
        _, out, _ = run(capsys, "check")
    assert "NOT BROKEN: attacker never authorized" in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "checker: the following arguments are required: COMMAND\n"),
        (("nonsense",), "argument COMMAND: invalid choice: 'nonsense'"),
        (("check", "nope"), "checker: no model 'nope'; there are bootstrap_exec"),
        (("check", "stdin:nope"), "checker: model 'stdin' has no configuration 'nope'; it has writes\n"),
        (("check", "stdin", "--property", "nope"), "checker: stdin:writes has no property 'nope'\n"),
        (("check", "--property", "nope"), "checker: no model has the property 'nope'\n"),
        (("check", "--depth", "0"), "argument --depth: invalid positive integer value: '0'\n"),
        (("check", "--seconds", "-1"), "argument --seconds: invalid number of seconds value: '-1'\n"),
        (("check", "--seconds", "nan"), "invalid number of seconds value: 'nan'\n"),
        (("check", "--memory", "1T"), "argument --memory: invalid number of bytes value: '1T'\n"),
        (("check", "--format", "pdf"), "argument --format: invalid choice: 'pdf'"),
        (("check", "stdin", "--resume"), "checker: --resume needs --checkpoint\n"),
        (("check", "--checkpoint", "x"), "checker: a checkpoint is of one configuration; name it\n"),
        (("check", "stdin", "--resume", "--checkpoint", "/nonexistent"), "no checkpoint there"),
        (("check", "stdin", "--engine", "packed", "--spill", "x"), "the packed engine keeps nothing on disk"),
        (("check", "stdin", "--search", "dfs", "--symmetric"), "need --search bfs\n"),
        (("show", "stdin", "nope"), "checker: stdin:writes has no property 'nope'\n"),
        (("mutants", "nope"), "checker: no model 'nope'"),
    ],
)
def test_bad_usage_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "output", "--depth", "3"),
        ("check", "output", "--states", "100"),
        ("check", "output", "--search", "random", "--walks", "3", "--length", "5"),
        ("check", "output", "--search", "dfs", "--depth", "4"),
        ("check", "output", "--search", "swarm", "--searches", "1", "--length", "3", "--jobs", "1"),
    ],
)
def test_a_limit_that_is_hit_is_incomplete(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code, out, _ = run(capsys, *arguments)
    assert code == 3
    assert "stopped at" in out


@pytest.mark.parametrize("search", ["dfs", "swarm"])
def test_other_searches_to_the_end(capsys: pytest.CaptureFixture[str], search: str) -> None:
    code, out, _ = run(
        capsys, "check", "bootstrap_exec", "--search", search, "--jobs", "1", "--searches", "1"
    )
    assert code == 0
    assert "148 states" in out


def test_vacuity(capsys: pytest.CaptureFixture[str]) -> None:
    with planted(seeded()["no hook runs a handler"]):
        code, out, _ = run(capsys, "check", "hooks", "--property", "an entry says what was posted and when")
    assert code == 4
    assert "NEVER SEEN: a handler runs" in out


def test_drift(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pinned = pins.load()
    pinned["stdin:writes"] = {**pinned["stdin:writes"], "states": 5}
    (tmp_path / "pins.json").write_text(json.dumps(pinned))
    monkeypatch.setattr(pins.load, "__defaults__", (tmp_path / "pins.json",))
    code, out, _ = run(capsys, "check", "stdin")
    assert code == 6
    assert "COUNTS DRIFTED: 4 states instead of 5" in out
    code, out, _ = run(capsys, "check", "stdin", "--format", "junit")
    assert code == 6
    assert "4 states instead of 5" in out


def test_what_is_not_pinned_drifts_only_when_strict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pins.json").write_text("{}")
    monkeypatch.setattr(pins.load, "__defaults__", (tmp_path / "pins.json",))
    assert run(capsys, "check", "stdin")[0] == 0
    code, out, _ = run(capsys, "check", "stdin", "--strict")
    assert code == 6
    assert "no counts are pinned" in out


def test_pinning(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "pins.json"
    monkeypatch.setattr(pins.save, "__defaults__", (file,))
    assert run(capsys, "pin", "stdin")[0] == 0
    assert run(capsys, "pin", "lifecycle:drain")[0] == 0
    assert json.loads(file.read_text()) == {
        key: count for key, count in pins.load().items() if key in ("stdin:writes", "lifecycle:drain")
    }


def test_strict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check", "stdin", "lifecycle", "--strict")[0] == 0
    with planted(seeded()["a full write is too large"]):
        code, _, err = run(capsys, "check", "stdin", "--strict")
    assert code == 1
    assert err == ""


def test_a_check_of_one_property(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "--property", "stdin never opens again")
    assert code == 0
    assert out.count("\n") == 1


def test_symmetry_slices_and_engines(capsys: pytest.CaptureFixture[str]) -> None:
    assert "337 states" in run(capsys, "check", "bootstrap_exec:three_ids", "--symmetric")[1]
    assert "; frontier," in run(capsys, "check", "output", "--engine", "frontier")[1]
    code, out, _ = run(
        capsys, "check", "bootstrap_exec", "--slice", "--property", "no exec before bootstrap (exec.1)"
    )
    assert code == 0
    assert "148 states" in out


def test_checkpoints_from_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = str(tmp_path / "c")
    assert run(capsys, "check", "output", "--checkpoint", where, "--depth", "4")[0] == 3
    code, out, _ = run(capsys, "check", "output", "--checkpoint", where, "--resume")
    assert code == 0
    assert "output:one_reader: 1,619 states" in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", BROKEN, "--format", "json")
    told = json.loads(out)
    (configuration,) = told["configurations"]
    assert told["exit"] == code == configuration["exit"] == 1
    assert (configuration["states"], configuration["engine"]) == (295, "packed")
    verdicts = {prop["name"]: prop for prop in configuration["properties"]}
    attacked = verdicts["attacker never authorized"]
    assert attacked["verdict"] == "violated"
    assert [step["actor"] for step in attacked["trace"]["steps"]] == ["attacker", "anyone"]
    assert verdicts["AGENTD-3 bootstrap is one-shot"]["verdict"] == "holds"
    assert verdicts["a start is retried"]["verdict"] == "witnessed"


def test_junit(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", BROKEN, "stdin", "--format", "junit")
    suites = list(ElementTree.fromstring(out))
    assert code == 1
    assert [suite.get("failures") for suite in suites] == ["1", "0"]
    failure = suites[0].find("testcase/failure")
    assert failure is not None
    assert "1. attacker posts the run hook" in str(failure.text)
    assert int(str(suites[1].get("tests"))) == len(models.load("stdin").properties) + 1


def test_junit_of_an_incomplete_search(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "check", "output", "--depth", "1", "--format", "junit")
    (suite,) = ElementTree.fromstring(out)
    assert int(str(suite.get("skipped"))) > 10


def test_sarif(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "check", BROKEN, "--format", "sarif")
    told = json.loads(out)
    (result,) = told["runs"][0]["results"]
    assert told["version"] == "2.1.0"
    assert result["ruleId"] == "attacker never authorized"
    location = result["locations"][0]["physicalLocation"]
    file = Path(__file__).parents[2] / location["artifactLocation"]["uri"]
    line = file.read_text().splitlines()[location["region"]["startLine"] - 1]
    assert "presented(e) != ATTACKER" in line
    assert len(result["codeFlows"][0]["threadFlows"][0]["locations"]) >= 2


def test_sarif_locates_a_table_where_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with planted(seeded()["a running exec can be acked"]):
        _, out, _ = run(
            capsys, "check", "bootstrap_exec", "--property", "what an ack answers", "--format", "sarif"
        )
    result, *_ = json.loads(out)["runs"][0]["results"]
    file = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert file == "checker/models/bootstrap_exec_properties.py"


def test_mermaid(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "check", BROKEN, "--format", "mermaid")
    lines = out.splitlines()
    assert lines[0] == "sequenceDiagram"
    assert "    a_attacker->>daemon: 1. attacker posts the run hook" in lines
    assert "    daemon-->>a_anyone: granted" in lines


def test_a_report_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "check", "stdin", "--output", str(tmp_path / "report"))
    assert (code, out) == (0, "")
    assert (tmp_path / "report").read_text().startswith("stdin:writes: 4 states")


def test_show_describes_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "show", "stdin")
    assert "1 components" in out
    assert "  stdin = none  (the daemon's end of the pipe)" in out
    assert "      broken by: a time-out closes" in out


def test_show_tells_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "show", "bootstrap_exec", "an exec runs, exits and is acked")
    assert "   4. client acks exec 0  =>  released" in out
    assert "exec.0: phase=exited -> acked, output_held=yes -> no" in out
    _, out, _ = run(capsys, "show", "bootstrap_exec", "an exec starts", "--format", "json")
    assert json.loads(out)["steps"][1]["response"] == "spawn"
    _, out, _ = run(capsys, "show", "bootstrap_exec", "an exec starts", "--format", "mermaid")
    assert out.startswith("sequenceDiagram\n    title an exec starts\n")


def test_show_says_when_there_is_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "stdin", "stdin never opens again")
    assert (code, out) == (0, "stdin never opens again: holds, so there is no run to show\n")


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "models")
    assert "stdin:writes\n" in out
    assert "published:wide  (large" in out


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "check", "lifecycle", "--coverage")
    assert "  a client asks for an exec: yes (4), no (7)" in out


def test_footprints(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "footprints", "stdin")
    assert code == 0
    assert out.startswith("stdin:writes: ")
    assert out.endswith(" 0 wrong\n")


def test_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "mutants", "lifecycle:drain", "--seeded", "--jobs", "1", "--progress")
    assert code in (0, 1)
    assert "killed    no exec is taken on" in out
    assert "lifecycle:drain: execs are taken on exactly while serving" in out
    assert err.endswith("faults")


def test_from_a_shell_without_numpy() -> None:
    """The packed engine, and so every default check, runs on the standard library and attrs alone."""
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from checker.cli import main\n"
        "code = main(['check', 'stdin', 'output'])\n"
        "assert main(['check', 'stdin', '--engine', 'frontier']) == 2\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "needs numpy" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_leaves_early() -> None:
    command = [sys.executable, "-m", "checker", "show", "supervision"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 0

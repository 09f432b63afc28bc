"""Somebody else's search of our models: Spin counts as many states, and finds the same violations.

TLC is in no Debian package, so what is written for it is held against somebody else's grammar of TLA+, and then read
back here and searched by forty lines that know nothing else of a model.
"""

import re
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import tree_sitter
import tree_sitter_tlaplus
from hypothesis import given, settings

from checker import models, naive
from checker.check import check
from checker.cli import main
from checker.faults import planted, seeded
from checker.model import Model
from checker.oracle.promela import promela
from checker.oracle.tables import tables, violations
from checker.oracle.tla import tla
from tests.checker import systems

SPIN = pytest.mark.program("spin", "spin")
BROKEN = "bootstrap_exec:deployment_invariant_broken"
COUNTED = (
    "bootstrap_exec:deployment_invariant_held",
    BROKEN,
    "published:deployment_invariant_held",
    "exec_start:environments",
    "output:one_reader",
    "stdin:writes",
    "supervision:racing",
    "processes:polls",
    "tunnel:relay",
    "product:small",
)


def spin(files: dict[str, str], directory: Path, *, judge: bool) -> tuple[int, int]:
    """What Spin makes of a model: states stored, and errors."""
    for name, text in files.items():
        (directory / name).write_text(text)
    model = next(name for name in files if name.endswith(".pml"))
    flags = f"-O1 -w -DSAFETY -DNOREDUCE -DMEMLIM=4096 -DORACLE_JUDGE={int(judge)}"
    for command in (["spin", "-a", model], ["cc", *flags.split(), "-o", "pan", "pan.c"]):
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(
        ["./pan", "-m1000000", "-E", "-n", *(["-c0"] if judge else [])],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    stored = re.search(r"(\d+) states, stored", done.stdout)
    errors = re.search(r"errors: (\d+)", done.stdout)
    assert stored, done.stdout
    assert errors, done.stdout
    assert "max search depth too small" not in done.stdout
    return int(stored[1]), int(errors[1])


@SPIN
@pytest.mark.parametrize("key", COUNTED)
def test_spin_counts_as_many_states(key: str, tmp_path: Path) -> None:
    model = models.load(key)
    assert spin(promela(tables(model), "m"), tmp_path, judge=False) == (check(model).states, 0)


@SPIN
def test_spin_has_the_published_count(tmp_path: Path) -> None:
    found = tables(models.load("published"))
    assert spin(promela(found, "m"), tmp_path, judge=False) == (3303, 0)


@SPIN
@pytest.mark.parametrize(
    ("key", "fault"),
    [
        (BROKEN, None),
        ("client:double_bootstrap_planted", None),
        ("bootstrap_exec", "a running exec can be acked"),
        ("output", "the window never moves"),
        ("stdin", "a time-out closes"),
    ],
)
def test_spin_finds_what_is_violated(key: str, fault: str | None, tmp_path: Path) -> None:
    if fault is None:
        found = tables(models.load(key))
    else:
        with planted(seeded()[fault]):
            model = models.load(key)
            assert list(violations(check(model)))
            found = tables(model)
    assert found.violated
    _, errors = spin(promela(found, "m"), tmp_path, judge=True)
    assert errors > 0


@SPIN
@pytest.mark.parametrize("key", ["bootstrap_exec", "stdin", "lifecycle:drain"])
def test_spin_finds_nothing_where_nothing_is(key: str, tmp_path: Path) -> None:
    model = models.load(key)
    assert spin(promela(tables(model), "m"), tmp_path, judge=True) == (check(model).states, 0)


@SPIN
def test_what_our_search_never_met_is_an_error_there(tmp_path: Path) -> None:
    """The state after the first start, taken out of one table."""
    files = promela(tables(models.load("stdin")), "m")
    lines = files["m.h"].splitlines()
    keys = next(
        number for number, line in enumerate(lines) if line.startswith("static const unsigned long long e3")
    )
    lines[keys + 1] = re.sub(r"\b(\d+)ULL", lambda found: f"{int(found[1]) + 1000}ULL", lines[keys + 1])
    files["m.h"] = "\n".join(lines) + "\n"
    assert spin(files, tmp_path, judge=False)[1] > 0


# --- TLA+ ---------------------------------------------------------------------------------------------------

TUPLE = re.compile(r"<<([^<>]*)>>")


class Module:
    """A module of TLA+, as far as `checker.oracle.tla` goes."""

    def __init__(self, text: str) -> None:
        lines = [line for line in text.splitlines() if not line.startswith("\\*")]
        assert re.fullmatch(r"---- MODULE \w+ ----", lines[0])
        assert lines[1] == "EXTENDS Integers"
        assert lines[-1] == "===="
        self.variables = lines[2].removeprefix("VARIABLES ").split(", ")
        self.defined = dict(
            line.split(" == ", 1) if " == " in line else line.split(" ==", 1) for line in lines[3:-1]
        )

    def tuples(self, name: str) -> set[tuple[int, ...]]:
        return {
            tuple(int(number) for number in found.split(", ") if number)
            for found in TUPLE.findall(self.defined[name])
        }

    def initial(self) -> dict[str, int]:
        parts = re.findall(r"/\\ (v\d+) = (\d+)", self.defined["Init"])
        return {name: int(value) for name, value in parts}

    def events(self) -> Iterator[tuple[list[tuple[str, int]], list[tuple[str, int]], set[tuple[int, ...]]]]:
        """Of each event: which variables have to be what of a tuple, which become what, and the tuples."""
        for name in re.findall(r"\\/ (\w+)", self.defined["Next"]):
            found = re.fullmatch(r"\\E t \\in (\w+) : (.*)", self.defined[name])
            assert found
            when: list[tuple[str, int]] = []
            then: list[tuple[str, int]] = []
            kept: list[str] = []
            for part in found[2].split(" /\\ "):
                step = re.fullmatch(r"(v\d+)('?) = t\[(\d+)\]", part)
                if step:
                    (then if step[2] else when).append((step[1], int(step[3]) - 1))
                elif part:
                    kept = part.removeprefix("UNCHANGED <<").removesuffix(">>").split(", ")
            # An action of TLA+ has to say of every variable what becomes of it.
            assert sorted([*kept, *(name for name, _ in then)]) == sorted(self.variables)
            yield when, then, self.tuples(found[1])

    def holds(self, name: str, state: dict[str, int]) -> bool:
        found = re.fullmatch(r"<<([^<>]*)>> \\notin \{(.*)\}", self.defined[name])
        assert found
        told = tuple(state[variable] for variable in found[1].split(", ") if variable)
        return told not in {
            tuple(int(n) for n in one.split(", ") if n) for one in TUPLE.findall("{" + found[2] + "}")
        }

    def search(self, invariants: list[str]) -> tuple[int, set[str]]:
        """Distinct states, and the invariants that do not hold of all of them."""
        events = [
            (when, then, {tuple(row[at] for _, at in when): row for row in rows})
            for when, then, rows in self.events()
        ]
        seen = {tuple(self.initial()[name] for name in self.variables)}
        queue: list[tuple[int, ...]] = list(seen)
        violated: set[str] = set()
        for values in queue:
            state = dict(zip(self.variables, values, strict=True))
            violated |= {name for name in invariants if not self.holds(name, state)}
            for when, then, rows in events:
                row = rows.get(tuple(state[name] for name, _ in when))
                if row is None:
                    continue
                after = {**state, **{name: row[at] for name, at in then}}
                following = tuple(after[name] for name in self.variables)
                if following not in seen:
                    seen.add(following)
                    queue.append(following)
        return len(seen), violated


def assert_grammatical(module: str) -> None:
    """TLA+ as somebody else's grammar has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it hands its grammar over as a number
        language = tree_sitter.Language(tree_sitter_tlaplus.language())
    assert not tree_sitter.Parser(language).parse(module.encode()).root_node.has_error


def read_back(files: dict[str, str]) -> tuple[int, set[str]]:
    """The search of a module, with the invariants that its configuration names."""
    assert_grammatical(next(text for name, text in files.items() if name.endswith(".tla")))
    config = next(text for name, text in files.items() if name.endswith(".cfg")).splitlines()
    assert config[:2] == ["INIT Init", "NEXT Next"]
    module = Module(next(text for name, text in files.items() if name.endswith(".tla")))
    return module.search([line.removeprefix("INVARIANT ") for line in config[2:]])


@pytest.mark.parametrize(
    "key", ["bootstrap_exec", BROKEN, "stdin", "lifecycle:drain", "hooks", "exec_start:environments"]
)
def test_a_module_of_tla_has_as_many_states(key: str) -> None:
    found = tables(models.load(key))
    states, violated = read_back(tla(found, "m"))
    assert states == found.states == check(models.load(key)).states
    assert bool(violated) is found.violated is bool(list(violations(check(models.load(key)))))


@settings(deadline=None, max_examples=60)
@given(systems.models())
def test_any_model_has_as_many_states_in_tla(model: Model) -> None:
    found = tables(model)
    states, violated = read_back(tla(found, "m"))
    assert states == naive.explore(model).states
    assert bool(violated) is bool(list(violations(check(model))))


# --- The command line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["promela", "tla"])
def test_the_command_writes_two_files(how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["oracle", "stdin", "--format", how, "--output", str(tmp_path / "made")]) == 0
    files = capsys.readouterr().out.splitlines()
    suffixes = {"promela": {".pml", ".h"}, "tla": {".tla", ".cfg"}}[how]
    assert {Path(file).suffix for file in files} == suffixes
    assert all("stdin_writes" in file and Path(file).read_text() for file in files)
    main_file = next(Path(file).read_text() for file in files if file.endswith((".pml", ".tla")))
    assert "4 states, as our own search has them." in main_file


def test_a_model_that_is_cut_off_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["oracle", "stdin", "--states", "2", "--output", str(tmp_path)]) == 3
    assert capsys.readouterr().err == "checker: incomplete: 2 states, and there are more\n"
    assert "which were cut off" in (tmp_path / "stdin_writes.pml").read_text()


def test_bad_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for arguments in (
        ["nope"],
        ["stdin", "--output", str(tmp_path / "file")],
        ["stdin", "--format", "alloy"],
    ):
        assert main(["oracle", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1

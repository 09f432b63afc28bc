"""What may import what, and what may wait for a child: the rules of the house, read from the source.

    rules, linux  <  config  <  process, files, tunnel, guest  <  http  <  microvm, environments, worker  <  tap

An arrow never points up. Whoever imports a layer above it, even inside a function, fails here.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from attrs import frozen

from tests.conftest import REPOSITORY

LAYERS = (
    {"_version", "rules", "linux"},
    {"config", "log"},
    {"process", "files", "tunnel", "guest"},
    {"http"},
    {"microvm", "environments", "worker"},
    {"tap"},
    {"__main__"},
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
OUTSIDE = {"client", "vm", "cli"}
"""Not the daemon, but what talks to it: these have rules of their own."""
DAEMON = set(RANK)


@frozen
class Import:
    """One import statement's target."""

    module: str
    """Of the importing file, dotted."""
    target: str
    line: int
    top: bool
    """Whether it runs when the module is imported."""

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((REPOSITORY / package).rglob("*.py")):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def imports(package: str) -> tuple[Import, ...]:
    return tuple(
        found for module, path in modules(package) for found in _of(module, ast.parse(path.read_text()))
    )


def _of(module: str, node: ast.AST, top: bool = True) -> Iterator[Import]:
    for target in _targets(node):
        yield Import(module, target, getattr(node, "lineno", 0), top)
    top = top and not (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or _is_for_types(node))
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _of(module, inner, top)


def _targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def part(module: str) -> str:
    """The part of agentd that a dotted name belongs to; "" for the package itself and for other packages."""
    names = [*module.split("."), ""]
    return names[1] if names[0] == "agentd" and names[1] != "__version__" else ""


AGENTD = imports("agentd")
CHECKER = imports("checker")


def test_every_part_of_the_daemon_has_its_layer() -> None:
    found = {part(module) for module, _ in modules("agentd")} - {""}
    assert found <= DAEMON | OUTSIDE


def test_imports_never_point_up() -> None:
    up = [
        str(each)
        for each in AGENTD
        if part(each.module) in RANK
        and part(each.target) in RANK
        and RANK[part(each.target)] > RANK[part(each.module)]
    ]
    assert up == []


def test_rules_and_system_calls_do_not_know_each_other() -> None:
    assert [
        str(each) for each in AGENTD if {part(each.module), part(each.target)} == {"rules", "linux"}
    ] == []


def test_faces_do_not_know_each_other() -> None:
    faces = {"microvm", "environments", "worker"}
    across = [
        str(each)
        for each in AGENTD
        if part(each.module) in faces and part(each.target) in faces - {part(each.module)}
    ]
    assert across == []


def test_rules_import_the_standard_library_and_attrs_alone() -> None:
    """And of the standard library nothing that touches the world or gives a different answer twice."""
    allowed = set(sys.stdlib_module_names) | {"attrs", "agentd"}
    impure = {"os", "io", "time", "datetime", "random", "secrets", "uuid", "socket", "select", "selectors"}
    impure |= {"subprocess", "threading", "asyncio", "signal", "pathlib", "tempfile", "shutil", "logging"}
    wrong = [
        str(each)
        for each in AGENTD
        if part(each.module) == "rules"
        and (
            each.target.split(".")[0] not in allowed - impure
            or (each.target.startswith("agentd") and part(each.target) != "rules")
        )
    ]
    assert wrong == []


DRIVES = ("checker.replay", "checker.schedules", "checker.histories")
"""The parts of the checker that drive the daemon itself, in memory or over a socket."""


def drives(module: str) -> bool:
    return module.startswith(DRIVES)


def test_models_and_engines_know_the_rules_and_nothing_else_of_the_daemon() -> None:
    proving = [each for each in CHECKER if not drives(each.module)]
    assert {part(each.target) for each in proving} - {""} <= {"rules", "_version"}
    assert any(part(each.target) == "rules" for each in proving)


def test_models_and_engines_do_not_need_the_daemon() -> None:
    """What proves something about the rules must not be able to load what it would be proved of."""
    wrong = [
        str(each)
        for each in CHECKER
        if drives(each.target)
        and not drives(each.module)
        and (each.top or not each.module.startswith(("checker.commands.", "checker.report.")))
    ]
    assert wrong == []


def test_the_daemon_does_not_know_its_clients() -> None:
    assert [str(each) for each in AGENTD if part(each.module) in RANK and part(each.target) in OUTSIDE] == []


def test_the_command_line_knows_the_client_library_and_machines_alone() -> None:
    known = {part(each.target) for each in AGENTD if part(each.module) == "cli"} - {"", "cli"}
    assert known <= {"client", "vm", "_version"}


def test_machines_are_driven_from_outside_through_the_client_library_alone() -> None:
    known = {part(each.target) for each in AGENTD if part(each.module) == "vm"} - {"", "vm"}
    assert known <= {"client"}


REACTOR = ("twisted.internet.reactor", "twisted.internet.default")


@pytest.mark.parametrize("package", ["agentd", "checker", "bench", "twisted"])
def test_nobody_imports_the_reactor_with_a_module(package: str) -> None:
    """Importing it installs it; it is an argument everywhere else."""
    found = [each for each in imports(package) if each.target.startswith(REACTOR)]
    assert [str(each) for each in found if each.top] == []
    if package == "agentd":
        assert {each.module for each in found} <= {"agentd.tap", "agentd.__main__", "agentd.cli.__main__"}


WAITERS = {"agentd.process.spawn", "agentd.process.reaper", "agentd.process.zygote"}
WAITS = {
    f"os.{name}" for name in ("wait", "waitpid", "wait3", "wait4", "waitid", "system", "popen", "spawnv")
}
WAITS |= {
    f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "getoutput", "Popen")
}


def test_nobody_else_starts_or_waits_for_a_child() -> None:
    """As PID 1 the daemon reaps everything: another wait would take a status, or find it taken."""
    found: dict[str, set[str]] = {}
    for module, path in modules("agentd"):
        if part(module) in OUTSIDE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in WAITS:
                found.setdefault(module, set()).add(ast.unparse(node))
    assert set(found) == WAITERS
    assert found["agentd.process.spawn"] == {"subprocess.Popen", "os.wait4", "os.waitpid"}
    assert found["agentd.process.reaper"] == {"os.waitid", "os.waitpid"}
    # It starts one process of its own, and waits for a child that did not get to its program.
    assert found["agentd.process.zygote"] == {"subprocess.Popen", "os.waitpid"}
    unseen = [
        str(each) for each in AGENTD if each.target in WAITS or each.target.startswith("multiprocessing")
    ]
    assert unseen == []


def test_these_tests_see_what_they_look_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "sample"
    package.mkdir()
    (package / "one.py").write_text(
        "import a.b\n"
        "from c import d as e, f\n"
        "def g():\n    from h import i\n"
        "if TYPE_CHECKING:\n    import j\n"
        "class K:\n    import l\n"
    )
    monkeypatch.setattr("tests.test_layers.REPOSITORY", tmp_path)
    found = {(each.target, each.top) for each in imports("sample")}
    assert found == {("a.b", True), ("c.d", True), ("c.f", True), ("h.i", False), ("j", False), ("l", True)}

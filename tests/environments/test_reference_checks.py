"""The hundred checks that the contract asks of a good test-suite: each is made by a test here."""

import ast
from collections import defaultdict
from pathlib import Path


def made() -> dict[int, list[str]]:
    """Which tests say that they make which check."""
    found: dict[int, list[str]] = defaultdict(list)
    for path in sorted(Path(__file__).parent.glob("test_checks_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "checks":
                        for argument in decorator.args:
                            assert isinstance(argument, ast.Constant)
                            assert isinstance(argument.value, int)
                            found[argument.value].append(f"{path.name}::{node.name}")
    return found


def test_every_check_is_made() -> None:
    """No number is missing, and none is made up."""
    assert sorted(made()) == list(range(1, 101))

"""Which commands can be run."""

import pytest

from agentd.rules import commands
from agentd.rules.commands import Command, InvalidCommand


def test_what_is_executed() -> None:
    """An argv as it is, a line by the shell whose path nobody can replace."""
    assert commands.command(["a", "", "b"], None) == Command(("a", "", "b"))
    assert commands.command(None, "x y") == Command(("bash", "-lc", "x y"), "/bin/bash")
    assert "secret" not in repr(commands.command(["a", "secret"], None))


@pytest.mark.parametrize(
    ("argv", "line", "text"),
    [
        (None, None, "exactly one"),
        (["a"], "b", "exactly one"),
        ([], None, "argv must not be empty"),
        (["", "x"], None, "argv[0] must not be empty"),
        (["a"] * 4097, None, "more than 4096"),
        (["a", "\0"], None, "argv[1] must not contain NUL"),
        (["a", "é" * 65_536], None, "longer than 131071 bytes"),
        (None, "", "command must not be empty"),
        (None, "a\0", "must not contain NUL"),
        (None, "a" * 131_072, "longer than 131071 bytes"),
    ],
)
def test_what_is_not(argv: list[str] | None, line: str | None, text: str) -> None:
    with pytest.raises(InvalidCommand) as raised:
        commands.command(argv, line)
    assert text in str(raised.value)


def test_limits_are_inclusive() -> None:
    commands.command(["a" * 131_071] * 4096, None)
    commands.command(None, "é" * 65_535 + "x")
    commands.check_timeout(1, 1, 600)
    commands.check_timeout(600, 1, 600)
    for seconds in (0, 601):
        with pytest.raises(InvalidCommand, match="between 1 and 600"):
            commands.check_timeout(seconds, 1, 600)


def test_variables_and_directories() -> None:
    commands.check_variables({"_": "", "a9": "x\n", "A": "é"})
    for name in ("", "1A", "A-B", "A=B", "É", "A\n", "A\0"):
        with pytest.raises(InvalidCommand, match="invalid variable name"):
            commands.check_variables({name: "secret"})
    with pytest.raises(InvalidCommand) as raised:
        commands.check_variables({"A": "secret\0"})
    assert "secret" not in str(raised.value)
    commands.check_directory(None)
    commands.check_directory("/x")
    for cwd in ("", "a\0"):
        with pytest.raises(InvalidCommand):
            commands.check_directory(cwd)

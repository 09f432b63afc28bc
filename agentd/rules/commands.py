"""Which commands a request may ask for: the checks on values that a schema cannot express (environments 3.1, 2.4).

Exactly one of `argv` and `command` is given. An argv runs as it is; a command runs as ``bash -lc``, by the shell's
absolute path so that a PATH in the request cannot put another in its place. The limits are the kernel's for one
argument (execve(2), MAX_ARG_STRLEN less its NUL).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import field, frozen

from agentd.rules.env_file import NAME, SHELL

MAX_ARGUMENTS: Final = 4096
MAX_ARGUMENT_BYTES: Final = 131_071


class InvalidCommand(ValueError):
    """A value that cannot be run; the text is for the caller and quotes no value of a variable."""


@frozen
class Command:
    """What to execute: the words, and the program when it is not the first of them."""

    argv: tuple[str, ...] = field(repr=False)
    executable: str | None = None


def command(argv: Sequence[str] | None, line: str | None) -> Command:
    """What a request's `argv` or `command` runs. Raises `InvalidCommand`."""
    if (argv is None) == (line is None):
        raise InvalidCommand("exactly one of argv and command is required")
    if line is not None:
        if not line:
            raise InvalidCommand("command must not be empty")
        _argument(line, "command")
        return Command(("bash", "-lc", line), SHELL)
    assert argv is not None
    if not argv:
        raise InvalidCommand("argv must not be empty")
    if not argv[0]:
        raise InvalidCommand("argv[0] must not be empty")
    if len(argv) > MAX_ARGUMENTS:
        raise InvalidCommand(f"argv must not have more than {MAX_ARGUMENTS} items")
    for index, word in enumerate(argv):
        _argument(word, f"argv[{index}]")
    return Command(tuple(argv))


def _argument(text: str, name: str) -> None:
    _no_nul(text, name)
    # A character has one byte at least and four at most, so most texts need no encoding to be measured.
    if len(text) * 4 > MAX_ARGUMENT_BYTES and len(text.encode()) > MAX_ARGUMENT_BYTES:
        raise InvalidCommand(f"{name} must not be longer than {MAX_ARGUMENT_BYTES} bytes")


def _no_nul(text: str, name: str) -> None:
    if "\0" in text:
        raise InvalidCommand(f"{name} must not contain NUL")


def check_variables(variables: Mapping[str, str]) -> None:
    """Raises `InvalidCommand` for a name that no variable may have, or a NUL in a value."""
    for name, value in variables.items():
        if not NAME.match(name):
            raise InvalidCommand(f"invalid variable name: {_shown(name)}")
        _no_nul(value, f"env.{name}")


def _shown(name: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in name[:80])


def check_directory(cwd: str | None) -> None:
    """Raises `InvalidCommand` for a working directory that cannot be named."""
    if cwd is not None:
        if not cwd:
            raise InvalidCommand("cwd must not be empty")
        _no_nul(cwd, "cwd")


def check_timeout(seconds: int, least: int, most: int) -> None:
    """Raises `InvalidCommand` for a timeout out of bounds, which are seconds and inclusive."""
    if not least <= seconds <= most:
        raise InvalidCommand(f"timeout_secs must be between {least} and {most}")

"""image/Dockerfile and the handlers beside it: what a platform relies on. `tox -e vm` runs hadolint on it too."""

import json

from tests.conftest import REPOSITORY

TEXT = (REPOSITORY / "image/Dockerfile").read_text()


def instructions() -> list[tuple[str, str]]:
    """Name and arguments of each instruction, lines that go on joined."""
    lines = [line for line in TEXT.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def test_the_daemon_is_the_command_and_nothing_wraps_it() -> None:
    last = dict(instructions())
    assert json.loads(last["ENTRYPOINT"]) == []
    assert json.loads(last["CMD"]) == ["python", "-m", "agentd"]
    assert last["EXPOSE"] == "9000"
    assert "USER" not in last, "the daemon changes users itself"


def test_everything_it_copies_is_there() -> None:
    copied = [rest.split()[:-1] for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    assert len(copied) > 3
    for sources in copied:
        assert [source for source in sources if not (REPOSITORY / source).exists()] == []


def test_compiled_files_and_the_cache_of_plugins_are_made_in_it() -> None:
    (steps,) = [rest for name, rest in instructions() if name == "RUN" and "useradd" in rest]
    assert "compileall" in steps
    assert "twistd --help" in steps


def test_the_example_handlers_are_what_the_daemon_runs() -> None:
    """Names of hooks that have handlers, regular, executable, with an interpreter that the image has."""
    handlers = {path.name: path for path in (REPOSITORY / "image/hooks.d").iterdir()}
    assert set(handlers) == {"run", "suspend", "resume", "terminate"}
    for path in handlers.values():
        assert path.stat().st_mode & 0o111
        assert path.read_text().startswith("#!/bin/sh\n")

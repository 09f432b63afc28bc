"""What agentctl's statuses mean, and that whatever goes wrong is one line."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import pytest_twisted

from agentd.cli import exits
from agentd.cli.options import forward_spec, line_range
from agentd.cli.run import name_or_id
from agentd.cli.session import parse_assignments
from agentd.client import errors
from agentd.client.errors import answer_error
from agentd.client.messages import PollResponse
from agentd.client.proxy import MintFailed
from agentd.client.tunnel import TunnelRefused
from tests.cli.conftest import ServeScript, Spawn
from tests.client.support import Cut, Hang, answer, until


def outcome(**fields: Any) -> PollResponse:
    return PollResponse("e", "exited", stdout="", stderr="", **fields)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (answer_error(404, "unknown_exec"), 1),
        (answer_error(507), 1),
        (TunnelRefused(4502), 1),
        (ValueError("x"), 2),
        (errors.Unreachable("x"), 69),
        (errors.StreamLost(3, "x"), 69),
        (RuntimeError("x"), 70),
        (errors.LocalFault("x"), 74),
        (errors.DigestMismatch("x"), 74),
        (FileNotFoundError(2, "No such file", "f"), 74),
        (answer_error(503), 75),
        (answer_error(500), 75),
        (errors.ProtocolFault("x"), 76),
        (answer_error(401), 77),
        (MintFailed("x"), 77),
        (answer_error(500, "spawn_failed"), 126),
        (exits.Refusal("x", 5), 5),
    ],
)
def test_each_fault_has_its_status(fault: Exception, status: int) -> None:
    assert exits.status_of(fault) == status
    assert "\n" not in exits.explain(fault)


@pytest.mark.parametrize(
    ("fields", "status", "note"),
    [
        ({"exit_code": 0}, 0, ""),
        ({"exit_code": 42}, 42, ""),
        ({"signal": 9}, 137, "SIGKILL"),
        ({"signal": 40}, 168, "signal 40"),
        ({"exit_code": 0, "timed_out": True}, 124, "timeout"),
        ({"exit_code": 5, "timed_out": True}, 5, "timeout"),
        ({"signal": 15, "timed_out": True}, 143, "timeout"),
        ({"signal": 9, "cause": "out_of_memory"}, 137, "memory"),
        ({}, 1, ""),
    ],
)
def test_each_outcome_has_its_status(fields: dict[str, Any], status: int, note: str) -> None:
    assert exits.outcome_status(outcome(**fields)) == status
    assert note in exits.outcome_note(outcome(**fields))
    assert bool(note) == bool(exits.outcome_note(outcome(**fields)))


@pytest.mark.parametrize(
    ("text", "window"),
    [("2:4", (2, 4)), ("2:", (2, None)), (":4", (None, 4)), ("3", (3, 3)), ("5:5", (5, 5))],
)
def test_line_ranges(text: str, window: tuple[int | None, int | None]) -> None:
    assert line_range(text) == window


@pytest.mark.parametrize("text", ["", ":", "0:1", "4:2", "a:b", "1:2:3", "-1:", ":0"])
def test_what_is_no_line_range(text: str) -> None:
    with pytest.raises(click.BadParameter):
        line_range(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8080:80", ("127.0.0.1", 8080, 80)),
        ("0:5432", ("127.0.0.1", 0, 5432)),
        ("127.0.0.2:1:2", ("127.0.0.2", 1, 2)),
        ("[::1]:1:2", ("::1", 1, 2)),
    ],
)
def test_forward_specs(text: str, found: tuple[str, int, int]) -> None:
    assert forward_spec(text) == found


@pytest.mark.parametrize("text", ["", "80", "a:80", "80:", ":80", "80:0", "70000:80", "80:70000"])
def test_what_is_no_forward_spec(text: str) -> None:
    with pytest.raises(click.BadParameter):
        forward_spec(text)


def test_assignments_and_their_refusal_without_the_value() -> None:
    assert parse_assignments(("A=1", "B=", "C=x=y")) == {"A": "1", "B": "", "C": "x=y"}
    for bad in ("sekrit", "=sekrit"):
        with pytest.raises(ValueError, match="number 2") as refusal:
            parse_assignments(("A=1", bad))
        assert "sekrit" not in str(refusal.value)


def test_digits_are_an_id() -> None:
    assert [name_or_id(text) for text in ("0", "daemon", None)] == [0, "daemon", None]


# -- as processes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "status", "word"),
    [
        (answer(401), 77, "token"),
        (answer(503), 75, "bootstrapped"),
        (answer(404, {"error": "unknown_exec", "detail": "e"}), 1, "unknown_exec"),
        (answer(200, b"<html>"), 76, "protocol"),
        ([Cut()], 69, "connection"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_answers_become_statuses(
    spawn: Spawn, serve_script: ServeScript, reply: list[Any], status: int, word: str
) -> None:
    script = serve_script(*[reply] * 3)
    ran = await spawn("kill", "e", url=script.url, token="sesame").result()
    assert ran.status == status
    assert word in ran.line
    assert ran.out == b""
    assert "sesame" not in ran.line


@pytest_twisted.ensureDeferred
async def test_nobody_there(spawn: Spawn, serve_script: ServeScript) -> None:
    script = serve_script()
    url = script.url
    await script.close()
    ran = await spawn("health", url=url).result()
    assert (ran.status, "cannot connect" in ran.line) == (69, True)


@pytest.mark.parametrize(
    "words",
    [
        ("--bogus",),
        ("bogus",),
        ("run",),
        ("run", "--timeout", "soon", "--", "true"),
        ("run", "-e", "NOVALUE", "--", "true"),
        ("logs", "--offset", "-1", "e"),
        ("cp", "a", "b"),
        ("cp", "vm:/a", "vm:/b"),
        ("cat", "--lines", "0:1", "/f"),
        ("forward", "80"),
        ("forward", "80:80", "--verify", "AAAA"),
        ("--url", "ftp://x", "health"),
        ("--token-file", "/no/such/file", "health"),
        ("bootstrap", "--host-public-key", "AAAA"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_usage_is_one_line_and_status_2(spawn: Spawn, words: tuple[str, ...]) -> None:
    ran = await spawn(*words, url="http://127.0.0.1:1", token="t").result()
    assert ran.status == 2
    assert ran.line.startswith("agentctl: ")


@pytest_twisted.ensureDeferred
async def test_errors_as_json(spawn: Spawn, serve_script: ServeScript) -> None:
    script = serve_script(answer(404, {"error": "unknown_exec", "detail": "e"}))
    ran = await spawn("kill", "e", "--json", url=script.url).result()
    assert json.loads(ran.line) == {"error": "unknown_exec", "detail": "404 unknown_exec e", "exit": 1}
    ran = await spawn("--json", "run", url=script.url).result()
    assert json.loads(ran.line)["exit"] == 2


@pytest_twisted.ensureDeferred
async def test_where_the_token_comes_from(spawn: Spawn, serve_script: ServeScript, tmp_path: Path) -> None:
    script = serve_script(*[answer(200, {"procs": []})] * 3)
    (tmp_path / "token").write_text("from-file\n")
    await spawn("ps", url=script.url, token="from-env").result()
    await spawn("ps", "--token-file", str(tmp_path / "token"), url=script.url, token="from-env").result()
    await spawn("--url", script.url, "ps", "--token", "from-flag", token="from-env").result()
    sent = [request.headers["authorization"] for request in script.requests]
    assert sent == ["Bearer from-env", "Bearer from-file", "Bearer from-flag"]


@pytest_twisted.ensureDeferred
async def test_help_lists_the_commands_and_the_statuses(spawn: Spawn) -> None:
    ran = await spawn("--help").result()
    assert ran.status == 0
    for word in (
        "health",
        "run",
        "ps",
        "logs",
        "kill",
        "schema",
        "bootstrap",
        "cp",
        "cat",
        "forward",
        "demo",
        "69",
        "77",
    ):
        assert word in ran.text
    ran = await spawn("--version").result()
    assert ran.text.startswith("agentctl, version ")


@pytest_twisted.ensureDeferred
async def test_ending_it_while_it_waits(spawn: Spawn, serve_script: ServeScript) -> None:
    script = serve_script([Hang()])
    run = spawn("health", url=script.url)
    await until(lambda: script.requests)
    run.signal(signal.SIGINT)
    ran = await run.result()
    assert (ran.status, ran.err) == (130, b"")


def test_imports_stay_light() -> None:
    """`agentctl --help` must not pay for what only some commands need."""
    heavy = ("autobahn", "treq", "cryptography", "rich")
    script = f"import sys; import agentd.cli.app; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

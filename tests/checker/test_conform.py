"""The conformance kit, against daemons on sockets: the right one, and one made wrong."""

import json
import socket
from pathlib import Path

import pytest

from checker.cli import main
from tests.conftest import DaemonFactory

WRONG = """
import sys
from agentd.microvm import exec as routes
from agentd.rules.stdin import Refusal
routes._STDIN_STATUS[Refusal.CLOSED] = (409, "stdin is closed")
from agentd.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    """The token, where nobody can list it."""
    monkeypatch.setenv("AGENTD_TOKEN", "conformance-token")
    return "conformance-token"


def test_this_daemon_conforms(
    make_daemon: DaemonFactory, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = make_daemon()
    assert main(["conform", "--url", daemon.url, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["replayed"]
    assert [one["model"] for one in told] == ["bootstrap_exec:deployment_invariant_held", "stdin:writes"]
    for one in told:
        assert one["complete"]
        assert one["divergences"] == []
        assert one["steps"] >= one["edges"] > 0
        assert one["left_out"]


def test_it_can_be_asked_again_and_is_left_idle(
    make_daemon: DaemonFactory, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = make_daemon()
    assert daemon.bootstrap(token) == 200
    for _ in range(2):
        assert main(["conform", "stdin", "--url", daemon.url + "/"]) == 0
    assert main(["conform", "stdin", "--url", daemon.url, "--token", "another"]) == 2
    assert "it holds another token" in capsys.readouterr().err


def test_a_daemon_that_answers_otherwise_is_told_of(
    make_daemon: DaemonFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = make_daemon(program=("-c", WRONG))
    kept = tmp_path / "token"
    kept.write_text("conformance-token\n")
    assert main(["conform", "stdin", "--url", daemon.url, "--token-file", str(kept)]) == 5
    told = capsys.readouterr().out
    assert "stdin:writes: " in told
    assert "DIVERGES in 3 steps:" in told
    assert '>> error: "stdin_closed" is expected' not in told
    assert ">> status 410 is expected, 409 came" in told


def test_witnesses_hold_of_fresh_daemons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "--spawn"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in told if not line.startswith(" ")] == [
        "bootstrap_exec",
        "stdin",
    ]


def test_what_cannot_be_tried_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AGENTD_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for arguments, complaint in (
        ([], "conform needs either --url or --spawn"),
        (["--url", "http://127.0.0.1:1", "--spawn"], "conform needs either --url or --spawn"),
        (["--url", "http://127.0.0.1:1"], "conform needs the token"),
        (["--url", "agentd", "--token", "t"], "agentd: not the URL of a daemon"),
        (["--url", "http://127.0.0.1:99999", "--token", "t"], "not the URL of a daemon"),
        (["--url", f"http://127.0.0.1:{port}", "--token", "t"], "refused"),
        (["hooks", "--url", "http://127.0.0.1:1", "--token", "t"], "hooks can be replayed in memory only"),
        (["--deadline", "-1", "--spawn"], "invalid number of seconds value"),
    ):
        assert main(["conform", *arguments]) == 2
        error = capsys.readouterr().err
        assert complaint in error
        assert error.count("\n") == 1

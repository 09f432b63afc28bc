"""`agentctl env` against a daemon of its own, as it is used: words in, output and a status out."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from tests.conftest import REPOSITORY, RunningDaemon, start_daemon
from tests.environments.support import Home, make_home, public_place


@define
class Ctl:
    """agentctl with the daemon's address and key around it."""

    daemon: RunningDaemon
    home: Home
    place: Path

    @property
    def settings(self) -> dict[str, Any]:
        environ = {key: value for key, value in os.environ.items() if not key.startswith("AGENTD_")}
        environ |= {
            "AGENTD_URL": self.daemon.url,
            "AGENTD_TOKEN": self.daemon.token,
            "PYTHONPATH": str(REPOSITORY),
        }
        environ["AGENTD_ENVIRONMENT_ID"] = "vm"
        return {"env": environ, "cwd": self.place}

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "agentd.cli", "env", *words]

    def __call__(self, *words: str, data: bytes = b"") -> tuple[int, str, str]:
        """Status, standard output, standard error."""
        run = subprocess.run(
            self.words(*words), input=data, capture_output=True, timeout=60, check=False, **self.settings
        )
        return run.returncode, run.stdout.decode(), run.stderr.decode()


@pytest.fixture(scope="module")
def ctl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ctl]:
    place = public_place()
    home = make_home(place)
    env = {
        "AGENTD_PASSWD_FILE": str(home.passwd),
        "AGENTD_GROUP_FILE": str(home.group),
        "AGENTD_ENVIRONMENT_ID": "vm",
    }
    daemon = start_daemon(tmp_path_factory.mktemp("daemon"), env=env)
    daemon.bootstrap()
    yield Ctl(daemon, home, tmp_path_factory.mktemp("local"))
    daemon.stop()
    shutil.rmtree(place, ignore_errors=True)


def test_exec(ctl: Ctl) -> None:
    status, out, err = ctl("exec", "-e", "A=é", "-C", "/", "sh", "-c", "echo $A; pwd; echo err >&2; exit 3")
    assert (status, out, err) == (3, "é\n/\n", "err\n")
    assert ctl("exec", "-s", "echo $0 |", "cat")[1] == "bash\n"
    assert ctl("exec", "-i", "cat", data="ü\n".encode())[:2] == (0, "ü\n")
    status, _, err = ctl("exec", "-s", "kill -9 $$")
    assert (status, err) == (137, "agentctl: the command was ended by KILL\n")
    status, _, err = ctl("exec", "-t", "1", "sleep", "30")
    assert (status, err) == (137, "agentctl: the command's timeout expired\n")
    status, _, err = ctl("exec", "no-such-program")
    assert status == 126
    assert "could not start no-such-program: No such file or directory" in err
    assert ctl("exec", "-i", "cat", data=b"\xff")[0] == 2
    status, out, _ = ctl("exec", "--json", "printf", "x")
    assert status == 0
    assert json.loads(out)["stdout"] == "x"
    status, _, err = ctl("exec", "-s", "head -c 2000000 /dev/zero")
    assert (status, err) == (0, "agentctl: stdout was cut; for more, use --detach and env attach\n")


def test_processes(ctl: Ctl) -> None:
    status, pid, _ = ctl("exec", "-d", "-i", "-s", "cat; echo done >&2; exit 4")
    pid = pid.strip()
    assert status == 0
    listed = ctl("ps")[1]
    assert pid in listed
    assert "running" in listed
    status, out, err = ctl("attach", "-i", pid, data="zeile ü\n".encode())
    assert (status, out, err) == (4, "zeile ü\n", "done\n")
    status, out, _ = ctl("attach", "--since", "6", pid)
    assert (status, out) == (4, "ü\n")
    lines = [json.loads(line) for line in ctl("attach", "--json", pid)[1].splitlines()]
    assert [line["type"] for line in lines] == ["attached", "output", "output", "exit"]
    assert "exited 4" in ctl("ps")[1]
    assert [each["pid"] for each in json.loads(ctl("ps", "--json")[1])] == [pid]
    assert ctl("kill", pid)[0] == 0
    status, _, err = ctl("attach", pid)
    assert (status, err.startswith("agentctl: 404")) == (1, True)
    assert json.loads(ctl("ps", "--json")[1]) == []


def test_an_interrupt_goes_to_the_process_and_a_signal_too(ctl: Ctl) -> None:
    pid = ctl("exec", "-d", "-s", "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done")[
        1
    ].strip()
    with subprocess.Popen(ctl.words("attach", pid), stdout=subprocess.PIPE, **ctl.settings) as attached:
        assert attached.stdout is not None
        assert attached.stdout.readline() == b"ready\n"
        attached.send_signal(signal.SIGINT)
        assert attached.stdout.readline() == b"caught\n"
        assert attached.wait(30) == 5
    ctl("kill", pid)
    pid = ctl("exec", "-d", "sleep", "100")[1].strip()
    assert ctl("kill", "-s", "TERM", pid)[0] == 0
    end = time.monotonic() + 30
    while "killed TERM" not in (shown := ctl("ps")[1]):
        assert time.monotonic() < end, shown
    assert ctl("attach", pid)[0] == 143
    ctl("kill", pid)


def test_files(ctl: Ctl) -> None:
    (ctl.place / "source").write_bytes(b"content\n")
    status, out, _ = ctl("put", "-p", "source", "d/file")
    assert (status, out) == (0, f"8 bytes to {ctl.home.home}/d/file\n")
    assert ctl("put", "-", "d/piped", data=b"\x00\xff")[0] == 0
    assert (ctl.home.home / "d/piped").read_bytes() == b"\x00\xff"
    assert ctl("get", "d/file", "-")[:2] == (0, "content\n")
    assert ctl("get", "d/file", "copy")[:2] == (0, "8 bytes to copy\n")
    assert (ctl.place / "copy").read_bytes() == b"content\n"
    ctl.home.link("d/link", "file")
    status, out, _ = ctl("ls", "d")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == ["-0644", "l0777", "-0644"]
    assert out.splitlines()[1].endswith("link -> file")
    assert [entry["name"] for entry in json.loads(ctl("ls", "--json", "d")[1])["entries"]] == [
        "file",
        "link",
        "piped",
    ]
    status, _, err = ctl("put", "source", "none/x")
    assert (status, err) == (1, "agentctl: 404 not_found no such file or directory\n")
    status, _, err = ctl("rm", "d")
    assert status == 1
    assert "directory" in err
    assert ctl("rm", "-r", "d")[0] == 0
    assert ctl("rm", "d")[0] == 1
    assert ctl("get", "d", "x")[0] == 1
    assert not (ctl.place / "x").exists()
    assert ctl("put", "nothing", "x")[0] == 74

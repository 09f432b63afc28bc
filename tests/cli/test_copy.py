"""`agentctl cp` and `cat` against a real daemon."""

import base64
import hashlib
import json
import os
import re
from pathlib import Path

import pytest_twisted

from tests.cli.conftest import Ctl, ServeScript, Spawn
from tests.client.support import answer
from tests.conftest import RunningDaemon


@pytest_twisted.ensureDeferred
async def test_a_file_up_and_down(ctl: Ctl, tmp_path: Path) -> None:
    data = os.urandom(2_000_000)
    (tmp_path / "src").write_bytes(data)
    ran = await ctl("cp", str(tmp_path / "src"), f"vm:{tmp_path}/there/")
    assert (tmp_path / "there" / "src").read_bytes() == data
    assert "digest verified" in ran.text
    (tmp_path / "into").mkdir()
    ran = await ctl("cp", "--json", f"vm:{tmp_path}/there/src", str(tmp_path / "into"))
    assert (tmp_path / "into" / "src").read_bytes() == data
    report = json.loads(ran.text)
    assert (report["bytes"], report["verified"]) == (len(data), True)
    assert report["sha256"] == hashlib.sha256(data).hexdigest()


@pytest_twisted.ensureDeferred
async def test_a_terminal_is_shown_the_rate_and_the_time_left(
    spawn: Spawn, daemon: RunningDaemon, tmp_path: Path
) -> None:
    (tmp_path / "a[bold]name").write_bytes(bytes(30_000_000))
    words = ("cp", str(tmp_path / "a[bold]name"), f"vm:{tmp_path}/there")
    ran = await spawn(
        *words, url=daemon.url, token=daemon.token, terminal=True, env={"TERM": "xterm"}
    ).result()
    assert ran.status == 0
    assert re.search(rb"a\[bold\]name .*MiB.*MB/s.*\d:\d\d:\d\d", ran.out, re.S)
    assert b"digest verified" in ran.out
    quiet = await spawn(*words, "--quiet", url=daemon.url, token=daemon.token, terminal=True).result()
    assert b"MB/s" not in quiet.out


@pytest_twisted.ensureDeferred
async def test_a_tree_up_and_down(ctl: Ctl, tmp_path: Path) -> None:
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "f").write_text("text")
    ran = await ctl("cp", str(tmp_path / "tree"), f"vm:{tmp_path}/there")
    assert (tmp_path / "there" / "sub" / "f").read_text() == "text"
    assert "2 entries" in ran.text
    ran = await ctl("cp", "--json", f"vm:{tmp_path}/there", str(tmp_path / "back"))
    assert (tmp_path / "back" / "sub" / "f").read_text() == "text"
    assert json.loads(ran.text)["kind"] == "tree"


@pytest_twisted.ensureDeferred
async def test_copies_that_fail_leave_nothing(ctl: Ctl, tmp_path: Path) -> None:
    before = sorted(os.listdir(tmp_path))
    for words, status in (
        (("vm:/no/such", str(tmp_path / "x")), 1),
        ((str(tmp_path / "missing"), "vm:/tmp/x"), 74),
        (("vm:/etc/passwd", str(tmp_path / "no" / "dir" / "x" / "")), 0),
    ):
        ran = await ctl("cp", *words)
        assert ran.status == status
    assert sorted(set(os.listdir(tmp_path)) - {"no"}) == before


@pytest_twisted.ensureDeferred
async def test_a_copy_that_is_not_what_the_vm_holds(
    spawn: Spawn, serve_script: ServeScript, tmp_path: Path
) -> None:
    held = {"Preference-Applied": "wait=25"}
    summed = {"exec_id": "e", "phase": "exited", "exit_code": 0, "stdout": "0" * 64 + "  f\n", "stderr": ""}
    script = serve_script(answer(200, b"data"), answer(200, summed, held), answer(200, summed))
    ran = await spawn("cp", "vm:/f", str(tmp_path / "f"), url=script.url, token="t").result()
    assert ran.status == 74
    assert "is not what" in ran.line


@pytest_twisted.ensureDeferred
async def test_cat_whole_and_by_lines(ctl: Ctl, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\n")
    assert (await ctl("cat", str(tmp_path / "f"))).out == b"a\nb\nc\n"
    assert (await ctl("cat", "--lines", "2:", f"vm:{tmp_path}/f")).out == b"b\nc\n"
    (line,) = (await ctl("cat", "--json", "-l", "2", str(tmp_path / "f"))).text.splitlines()
    assert base64.b64decode(json.loads(line)["data_b64"]) == b"b\n"
    assert (await ctl("cat", str(tmp_path))).status == 1

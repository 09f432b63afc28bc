"""What broke in daemons like this one, as inputs and right answers: the reports about execs and HTTP.

Each test is one public report about another daemon, reduced to its smallest input. Where the contract fixes a
status, the contract decides what is right.
"""

import base64
import hashlib
import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_twisted

from tests.conftest import RunningDaemon
from tests.wire.conftest import Connect
from tests.wire.support import Api, Raw, check_tiling, events, new_id, output, pause, request

Make = Callable[..., RunningDaemon]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest_twisted.ensureDeferred
async def test_a_last_line_without_its_newline_is_sent(api: Api) -> None:
    """Exactly the bytes, then the exit."""
    exec_id = await api.start("printf abc")
    found = await api.stream(exec_id)
    assert output(found) == b"abc"
    assert (found[-1].name, found[-1].data["exit_code"]) == ("exit", 0)
    assert (await api.poll(exec_id))["stdout"] == "abc"


@pytest_twisted.ensureDeferred
async def test_a_split_character_and_bytes_that_are_no_text(api: Api, tmp_path: Path) -> None:
    """Identical bytes, by their digest; the exit code is kept."""
    split = await api.stream(await api.start("printf '\\342'; sleep .3; printf '\\202\\254'"))
    assert output(split) == "€".encode()
    source = tmp_path / "random"
    source.write_bytes(os.urandom(65536) + b"\xff")
    exec_id = await api.start(f"cat {source}; exit 5", digest=True)
    found = await api.stream(exec_id)
    assert sha256(output(found)) == sha256(source.read_bytes()) == found[-1].data["sha256"]
    assert found[-1].data["exit_code"] == 5
    assert (await api.poll(exec_id))["exit_code"] == 5


@pytest_twisted.ensureDeferred
async def test_a_single_0xff_loses_neither_stream_nor_exit_code(api: Api) -> None:
    """One byte that is no UTF-8."""
    exec_id = await api.start("printf '\\377'; exit 4")
    found = await api.stream(exec_id)
    assert (output(found), found[-1].data["exit_code"]) == (b"\xff", 4)
    assert (await api.poll(exec_id))["stdout"] == "\ufffd"


def test_the_tail_is_there_before_the_exit(daemon: RunningDaemon, raw: Connect) -> None:
    """A client of a few megabytes a second, 200 MiB: every byte is accounted for, and the exit event is last."""
    total = 200 * 1024 * 1024
    connection, follower = raw(daemon), raw(daemon)
    body = {"exec_id": "tail", "command": ["dd", "if=/dev/zero", "bs=1M", "count=200", "status=none"]}
    _start(connection, daemon, body)
    follower.send(request("GET", "/v1/exec/tail/stream", token=daemon.token))
    follower.until(b"\r\n\r\n")
    at, content, began = 0, b"", time.monotonic()
    received = b""
    while b"event: exit" not in content[-4000:]:
        piece = follower.socket.recv(262_144)
        assert piece, "cut before the exit"
        received += piece
        if len(received) > 5_000_000 * (time.monotonic() - began + 0.2):
            time.sleep(0.01)
        whole, received = _unwrap(received)
        content += whole
        blocks = content.split(b"\n\n")
        content = blocks.pop()
        for event in events(b"".join(block + b"\n\n" for block in blocks)):
            assert event.data.get("from", event.data["offset"] if event.name != "gap" else at) == at
            if event.name == "output":
                at += len(base64.b64decode(event.data["output"]))
            elif event.name == "gap":
                at = event.data["to"]
            else:
                assert event.data["offset"] == at == total
                return


def _unwrap(data: bytes) -> tuple[bytes, bytes]:
    """The content of the whole chunks in `data`, and the rest."""
    content = b""
    while True:
        size, found, rest = data.partition(b"\r\n")
        if not found or len(rest) < int(size, 16) + 2:
            return content, data
        content += rest[: int(size, 16)]
        data = rest[int(size, 16) + 2 :]


def _start(connection: Raw, daemon: RunningDaemon, body: dict[str, object]) -> None:
    data = json.dumps(body).encode()
    head = ("Content-Type: application/json",)
    reply = connection.send(request("POST", "/v1/exec/start", *head, token=daemon.token, body=data)).reply()
    assert reply.status == 200, reply.body


@pytest_twisted.ensureDeferred
async def test_without_stdin_a_session_goes_on_after_the_first_burst(api: Api) -> None:
    """Both lines, then the exit."""
    found = await api.stream(await api.start("echo a; sleep 1; echo b"))
    assert output(found) == b"a\nb\n"
    assert found[-1].name == "exit"


@pytest_twisted.ensureDeferred
async def test_a_grandchild_that_holds_the_pipe_does_not_hold_the_exec(api: Api) -> None:
    """Over within the linger; what the grandchild writes later is lost, and the outcome says that it may live."""
    began = time.monotonic()
    exec_id = await api.start("(sleep 4; echo late; sleep 300) & echo ok")
    found = await api.wait(exec_id)
    assert (found["stdout"], found["exit_code"], found["writers_may_be_alive"]) == ("ok\n", 0, True)
    assert time.monotonic() - began < 4
    assert output(await api.stream(exec_id)) == b"ok\n"
    await api.post(f"/v1/exec/{exec_id}/kill")


@pytest_twisted.ensureDeferred
async def test_a_heredoc_does_not_hang(api: Api, tmp_path: Path) -> None:
    """Exit 0 at once, and the file is there."""
    target = tmp_path / "t"
    found = await api.run([f"cat << 'EOF' > {target}", "hello", "EOF"], shell=True)
    assert (found["exit_code"], target.read_text()) == (0, "hello\n")


@pytest_twisted.ensureDeferred
async def test_a_stalled_subscriber_freezes_nobody(api: Api, daemon: RunningDaemon, raw: Connect) -> None:
    """The other gets everything, a third can join, a kill works."""
    exec_id = await api.start("head -c 30000000 /dev/zero; echo end >&2; sleep 300")
    stalled, other = raw(daemon), raw(daemon)
    for each in (stalled, other):
        each.send(request("GET", f"/v1/exec/{exec_id}/stream", token=daemon.token))
    other.until(b"\r\n\r\n")
    received = b""
    while base64.b64encode(b"end\n") not in received[-500:]:
        received += other.socket.recv(1 << 20)
    third = raw(daemon)
    third.send(request("GET", f"/v1/exec/{exec_id}/stream?offset=30000000", token=daemon.token))
    assert base64.b64encode(b"end\n") in third.until(b"\n\n\r\n")
    assert (await api.post(f"/v1/exec/{exec_id}/kill")).json["killed"] is True
    assert b"event: exit" in third.until(b"\r\n0\r\n\r\n")


@pytest_twisted.ensureDeferred
async def test_a_running_command_is_found_again(api: Api, daemon: RunningDaemon, raw: Connect) -> None:
    """Left, and rejoined later by its id at its offset: contiguous from there."""
    exec_id = await api.start("i=0; while [ $i -lt 40 ]; do echo tick $i; i=$((i+1)); sleep 0.05; done")
    first = raw(daemon)
    first.send(request("GET", f"/v1/exec/{exec_id}/stream", token=daemon.token))
    first.until(b"dGljayAwCg==")  # tick 0
    first.close()
    await pause(0.5)
    found = await api.stream(exec_id, len(b"tick 0\n"))
    check_tiling(found, len(b"tick 0\n"))
    assert output(found) == b"".join(b"tick %d\n" % i for i in range(1, 40))


@pytest_twisted.ensureDeferred
async def test_eof_can_be_signalled_and_twice_is_harmless(api: Api) -> None:
    """``cat`` ends; the second end of file is a typed answer, not a fault."""
    exec_id = await api.start(["cat"], stdin=True)
    assert (await api.stdin(exec_id, b"x")).status == 200
    assert (await api.stdin(exec_id, signal="eof")).status == 200
    found = await api.wait(exec_id)
    assert (found["stdout"], found["exit_code"]) == ("x", 0)
    assert (await api.stdin(exec_id, signal="eof")).key == (410, "stdin_closed")
    assert (await api.poll(exec_id)) == found


@pytest_twisted.ensureDeferred
async def test_a_reader_of_no_stdin_ends_at_once(api: Api) -> None:
    """And a write to it is a typed 409."""
    began = time.monotonic()
    exec_id = await api.start(["cat"])
    assert (await api.wait(exec_id))["exit_code"] == 0
    assert time.monotonic() - began < 5
    assert (await api.stdin(exec_id, b"x")).key == (409, "stdin_not_requested")


@pytest_twisted.ensureDeferred
async def test_a_child_that_exits_early_is_no_error(api: Api) -> None:
    """``head -n 1`` of ten megabytes: its line and exit 0; writes that come too late say that it has closed."""
    exec_id = await api.start(["head", "-n", "1"], stdin=True)
    piece, keys = b"line\n" * 200_000, set()
    for _ in range(10):
        reply = await api.stdin(exec_id, piece)
        keys.add(reply.key)
        assert 0 <= reply.json.get("written", 0) <= len(piece)
    assert (410, "stdin_closed") in keys
    assert keys <= {(200, ""), (410, "stdin_closed")}
    found = await api.wait(exec_id)
    assert (found["stdout"], found["exit_code"]) == ("line\n", 0)


@pytest_twisted.ensureDeferred
async def test_a_kill_answers_when_nobody_is_left(api: Api) -> None:
    """The shell and both its children."""
    exec_id = await api.start("sleep 998 & sleep 999 & echo up; wait")
    await api.first_output(exec_id)
    (group,) = (g for g in (await api.get("/v1/procs")).json["procs"] if g["exec_id"] == exec_id)
    assert len(group["pids"]) == 3
    assert (await api.post(f"/v1/exec/{exec_id}/kill")).json["killed"] is True
    (after,) = (g for g in (await api.get("/v1/procs")).json["procs"] if g["exec_id"] == exec_id)
    assert after["pids"] == []


@pytest_twisted.ensureDeferred
async def test_a_timeout_is_reported_when_it_fires(api: Api) -> None:
    """Not when the command would have ended; partial output is kept."""
    began = time.monotonic()
    found = await api.run("echo part; sleep 30", timeout_sec=1)
    assert 0.9 < time.monotonic() - began < 10
    assert (found["cause"], found["timed_out"], found["stdout"]) == ("timeout", True, "part\n")


@pytest_twisted.ensureDeferred
async def test_what_cannot_run_fails_at_once_and_never_runs(api: Api, tmp_path: Path) -> None:
    """A missing program, a directory, a file without x, a bad interpreter: 500 ``spawn_failed``, no exec."""
    plain, bad = tmp_path / "plain", tmp_path / "bad"
    plain.write_text("#!/bin/sh\n")
    bad.write_text("#!/no/such/interpreter\n")
    plain.chmod(0o644)
    bad.chmod(0o755)
    for program in ("nope-bin", str(tmp_path), str(plain), str(bad)):
        began, exec_id = time.monotonic(), new_id()
        reply = await api.post("/v1/exec/start", json={"exec_id": exec_id, "command": [program]})
        assert reply.key == (500, "spawn_failed"), program
        assert program in reply.json["detail"]
        assert time.monotonic() - began < 5
        assert (await api.get(f"/v1/exec/{exec_id}")).status == 404


@pytest_twisted.ensureDeferred
async def test_variables_are_layered_and_none_lingers(make_daemon: Make) -> None:
    """Per-exec beats VM-wide; what one exec set the next has not; the daemon's secrets are in none."""
    daemon = make_daemon()
    daemon.bootstrap(env={"A": "vm", "B": "vm"})
    api = Api(daemon.url, daemon.token)
    assert (await api.run(["/usr/bin/env"], env={"B": "exec", "C": "exec"}))[
        "stdout"
    ] == "A=vm\nB=exec\nC=exec\n"
    assert (await api.run(["/usr/bin/env"]))["stdout"] == "A=vm\nB=vm\n"


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_home_is_the_users(api: Api) -> None:
    """The passwd row's for a user that has one; without a user or a row, what the layers say: nothing."""
    assert (await api.run("echo $HOME", user="root"))["stdout"] == f"{pwd.getpwnam('root').pw_dir}\n"
    assert (await api.run("echo $HOME", user=0))["stdout"] == f"{pwd.getpwuid(0).pw_dir}\n"
    assert (await api.run("echo [$HOME]", user=54321))["stdout"] == "[]\n"
    assert (await api.run("echo [$HOME]"))["stdout"] == "[]\n"


@pytest_twisted.ensureDeferred
async def test_a_value_may_hold_line_ends(api: Api) -> None:
    """And quotes, and equals signs."""
    value = 'a\nb="c"\n=d\n'
    assert (await api.run('printf %s "$V"', env={"V": value}))["stdout"] == value


@pytest_twisted.ensureDeferred
async def test_a_retried_exec_does_not_run_twice(api: Api, tmp_path: Path) -> None:
    """In any phase."""
    log, exec_id = tmp_path / "log", new_id()
    body = {"exec_id": exec_id, "command": [f"echo ran >> {log}"], "shell": True}
    for step in range(3):
        assert (await api.post("/v1/exec/start", json=body)).status == 200
        await api.wait(exec_id, "acked" if step == 2 else "exited")
        if step == 1:
            assert (await api.post(f"/v1/exec/{exec_id}/ack")).status == 200
    assert log.read_text() == "ran\n"


@pytest_twisted.ensureDeferred
async def test_a_second_ack_says_that_it_is_the_second(api: Api) -> None:
    """And does not look like a first."""
    exec_id = await api.start("true")
    await api.wait(exec_id)
    assert (await api.post(f"/v1/exec/{exec_id}/ack")).status == 200
    assert (await api.post(f"/v1/exec/{exec_id}/ack")).key == (409, "already_acked")


@pytest_twisted.ensureDeferred
async def test_a_stream_attached_after_the_daemon_was_stopped_and_continued(make_daemon: Make) -> None:
    """What a pause of the VM is to its processes: neither bytes nor the exit are lost, and no stream is empty."""
    daemon = make_daemon()
    daemon.bootstrap()
    api = Api(daemon.url, daemon.token)
    exec_id = await api.start("echo before; sleep 0.3; echo after; exit 6")
    await api.first_output(exec_id)
    daemon.process.send_signal(signal.SIGSTOP)
    await pause(0.6)
    daemon.process.send_signal(signal.SIGCONT)
    found = await api.stream(exec_id)
    assert (output(found), found[-1].data["exit_code"]) == (b"before\nafter\n", 6)


@pytest_twisted.ensureDeferred
async def test_the_temp_directory_may_go_away(make_daemon: Make, tmp_path: Path) -> None:
    """Deleted under a running daemon: calls go on working."""
    (tmp_path / "tmp").mkdir()
    daemon = make_daemon(env={"TMPDIR": str(tmp_path / "tmp")})
    daemon.bootstrap()
    api = Api(daemon.url, daemon.token)
    assert (await api.run("echo a"))["stdout"] == "a\n"
    subprocess.run(["rm", "-rf", str(tmp_path / "tmp")], check=True)
    assert (await api.run("echo b", user="root" if os.geteuid() == 0 else None))["stdout"] == "b\n"
    assert (await api.health())["execs"] == 2

"""Checks 66 to 83 and 95 to 98 of the contract's list: background processes, their output, signals."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from tests.environments.conftest import Serve
from tests.environments.support import KEY, Home, Server, checks, pause, the_reactor, until
from tests.environments.test_checks_commands import alive, rss

MIB = 1024 * 1024


def joined(chunks: list[dict[str, Any]], stream: str = "stdout") -> str:
    return "".join(chunk["data"] for chunk in chunks if chunk["stream"] == stream)


@checks(66)
@pytest_twisted.ensureDeferred
async def test_the_life_of_a_process(serving: Serve, home: Home) -> None:
    server = await serving()
    answer = await server.post("/processes", {"argv": ["sleep", "100"], "cwd": "/", "env": {"A": "secret"}})
    assert answer.status == 201
    assert "secret" not in answer.body.decode()
    shown = answer.json
    pid, number = shown["pid"], shown["os_pid"]
    assert alive(number)
    assert os.readlink(f"/proc/{number}/cwd") == "/"
    assert shown == {
        "pid": pid,
        "os_pid": number,
        "argv": ["sleep", "100"],
        "command": None,
        "cwd": "/",
        "stdin": False,
        "timeout_secs": 0,
        "started_at": shown["started_at"],
        "exited_at": None,
        "running": True,
        "exit": None,
        "output_start": 0,
        "output_end": 0,
    }
    other = await server.spawn("true")
    assert [each["pid"] for each in (await server.get("/processes")).json["processes"]] == [pid, other]
    assert await server.look(pid) == shown
    assert await server.delete(pid) == 204
    await until(lambda: not alive(number), "the end of the process")
    for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/output")]:
        answer = await server.ask(method, f"/processes/{pid}{path}")
        assert answer.fault == (404, "not_found")
        assert answer.json["message"] == "no such resource"
    assert [each["pid"] for each in (await server.get("/processes")).json["processes"]] == [other]


@checks(67, 68)
@pytest_twisted.ensureDeferred
async def test_sixty_four_records(serving: Serve) -> None:
    server = await serving()
    first = await server.spawn("true")
    await server.exited(first)
    running = [
        Deferred.fromCoroutine(server.post("/processes", {"argv": ["sleep", "100"]})) for _ in range(100)
    ]
    statuses = [(await each).status for each in running]
    assert sorted(statuses) == [201] * 63 + [429] * 37
    full = await server.post("/processes", {"argv": ["true"]})
    assert full.fault == (429, "too_many_processes")
    assert full.json["message"] == "64 background processes exist; delete one first"
    assert (await server.post("/processes", {})).status == 400
    assert (await server.post("/processes", {"x": 1})).status == 422
    # What runs to its end counts for nothing.
    assert (await server.exec("true"))["exit_code"] == 0
    assert await server.delete(first) == 204
    failed = await server.post("/processes", {"argv": ["no-such-program"]})
    assert failed.fault == (503, "exec_failed")
    assert len((await server.get("/processes")).json["processes"]) == 63
    assert (await server.post("/processes", {"argv": ["true"]})).status == 201
    assert (await server.post("/processes", {"argv": ["true"]})).status == 429


@checks(69, 70)
@pytest_twisted.ensureDeferred
async def test_reading_consumes_nothing(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn("echo héllo; echo err >&2; exec sleep 100")
    await until_written(server, pid, 11)
    first = await server.output(pid)
    assert first == await server.output(pid)
    assert joined(first["chunks"]) == "héllo\n"
    assert joined(first["chunks"], "stderr") == "err\n"
    assert first["next"] == 11
    assert await server.output(pid, 11) == {
        "chunks": [],
        "next": 11,
        "exited": False,
        "exit": None,
        "output_start": 0,
    }
    beyond = await server.get(f"/processes/{pid}/output?since=12")
    assert beyond.json["message"] == "since is beyond the end of the output"
    answer = await server.get(f"/processes/{pid}/output?since=11&wait_secs=2")
    assert 1.9 < answer.seconds < 6
    assert (answer.json["chunks"], answer.json["next"]) == ([], 11)
    # A character cut by a client of its own making (7.2, point 7).
    inside = await server.output(pid, since_of(first, "h") + 2)
    assert inside["chunks"][0]["data"].startswith("\ufffdllo")
    assert inside["chunks"][0]["offset"] == since_of(first, "h") + 2


def since_of(page: dict[str, Any], start: str) -> int:
    """Where the chunk that starts so begins."""
    return int(next(chunk["offset"] for chunk in page["chunks"] if chunk["data"].startswith(start)))


async def until_written(server: Server, pid: str, count: int) -> None:
    """Wait until a process has written so much."""
    while (await server.look(pid))["output_end"] < count:
        await pause(0.01)


@checks(70)
@pytest_twisted.ensureDeferred
async def test_a_wait_of_ten_minutes_is_one_of_thirty_seconds(serving: Serve) -> None:
    """By a clock that runs fast."""
    server = await serving(speed=20)
    pid = await server.spawn(["sleep", "100"])
    answer = await server.get(f"/processes/{pid}/output?wait_secs=600")
    assert 1.4 < answer.seconds < 5
    assert answer.json["chunks"] == []


@checks(71, 72, 73)
@pytest_twisted.ensureDeferred
async def test_the_timing_of_a_long_poll(serving: Serve, home: Home) -> None:
    server = await serving()
    pid = await server.spawn("echo ready; exec sleep 100")
    await until_written(server, pid, 6)
    assert (await server.get(f"/processes/{pid}/output?wait_secs=30")).seconds < 0.1

    os.mkfifo(home.home / "go")
    os.chown(home.home / "go", home.uid, home.gid)
    pid = await server.spawn("read x < go; printf a; sleep 0.05; printf b; sleep 0.5; printf c; sleep 0.5")
    polling = Deferred.fromCoroutine(server.get(f"/processes/{pid}/output?wait_secs=30"))
    await until(lambda: waiters(server), "the poll")
    (home.home / "go").write_text("x\n")
    began = the_reactor().seconds()
    page = (await polling).json
    assert joined(page["chunks"]) == "ab"
    assert 0.1 <= the_reactor().seconds() - began < 0.5
    page = (await server.get(f"/processes/{pid}/output?since=2&wait_secs=30")).json
    assert joined(page["chunks"]) == "c"
    answer = await server.get(f"/processes/{pid}/output?since=3&wait_secs=30")
    assert answer.seconds < 5
    assert (answer.json["chunks"], answer.json["exited"]) == ([], True)
    assert answer.json["exit"] == {"exit_code": 0, "signal": None, "timed_out": False}


def table(server: Server) -> Any:
    """The server's own table of processes."""
    (stop, _) = server.environment.at_drain
    return stop.__self__


def waiters(server: Server) -> int:
    return sum(len(process.waiters) for process in table(server))


@checks(74)
@pytest_twisted.ensureDeferred
async def test_ten_mebibytes_through_a_ring_of_eight(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn(["python3", "-c", "import sys; sys.stdout.write('é' * (5 << 20))"])
    shown = await server.exited(pid)
    assert shown["output_end"] == 10 * MIB
    assert 8 * MIB - 3 <= shown["output_end"] - shown["output_start"] <= 8 * MIB
    since, pages = 0, 0
    while True:
        page = await server.output(pid, since)
        pages += 1
        for chunk in page["chunks"]:
            assert chunk["offset"] == (since if since else shown["output_start"]) > 0
            assert set(chunk["data"]) == {"é"}
            size = len(chunk["data"].encode())
            assert size <= 4 * MIB
            since = chunk["offset"] + size
        assert page["next"] == since
        if page["exited"]:
            break
    assert pages == 2
    assert since == 10 * MIB


@checks(75)
@pytest_twisted.ensureDeferred
async def test_a_tail_longer_than_a_reply(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn("head -c 6291456 /dev/zero | tr '\\0' a")
    await server.exited(pid)
    first = await server.output(pid)
    assert (first["exited"], first["next"]) == (False, 4 * MIB)
    last = await server.output(pid, first["next"])
    assert (last["exited"], last["next"]) == (True, 6 * MIB)
    assert joined(await server.everything(pid)) == "a" * 6 * MIB


@checks(76, 77, 79)
@pytest.mark.parametrize(
    ("script", "stdout", "stderr"),
    [
        (r"printf 'c\303'; sleep 0.4; printf '\251\n'", "cé\n", ""),
        (r"printf 'c\303' >&2; sleep 0.4; printf '\251\n' >&2", "", "cé\n"),
        (r"printf '\342\202'; sleep 0.2; printf x >&2; sleep 0.2; printf '\254'", "€", "x"),
        (r"printf '\342'", "\ufffd", ""),
        (r"printf '\360\237\230'", "\ufffd", ""),
        (r"printf '\342\202A'", "\ufffdA", ""),
        (r"printf 'a\377b'", "a\ufffdb", ""),
    ],
)
@pytest_twisted.ensureDeferred
async def test_characters_in_pieces(serving: Serve, script: str, stdout: str, stderr: str) -> None:
    """Polled all the time; never half a character."""
    server = await serving()
    pid = await server.spawn(script)
    chunks: list[dict[str, Any]] = []
    since = 0
    while True:
        page = await server.output(pid, since)
        chunks += page["chunks"]
        since = page["next"]
        if page["exited"]:
            break
        await pause(0.01)
    assert joined(chunks) == stdout
    assert joined(chunks, "stderr") == stderr


@checks(77, 79)
@pytest_twisted.ensureDeferred
async def test_offsets_of_characters_in_pieces(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn(r"printf '\342\202'; sleep 0.2; printf x >&2; sleep 0.2; printf '\254'")
    chunks = await server.everything(pid)
    assert [(chunk["stream"], chunk["offset"], chunk["data"]) for chunk in chunks] == [
        ("stderr", 0, "x"),
        ("stdout", 1, "€"),
    ]
    pid = await server.spawn(r"printf '\342'")
    await server.exited(pid)
    page = await server.output(pid)
    assert (page["chunks"], page["next"]) == ([{"stream": "stdout", "offset": 0, "data": "\ufffd"}], 1)
    # What can never be completed shows without waiting for more.
    pid = await server.spawn(r"printf '\377'; exec sleep 100")
    page = await server.output(pid, 0, 30)
    assert page["chunks"][0]["data"] == "\ufffd"


@checks(78)
@pytest.mark.parametrize("padding", range(4))
@pytest_twisted.ensureDeferred
async def test_cuts_inside_a_character(serving: Serve, padding: int) -> None:
    """Of a page, a message and the ring, by small limits."""
    server = await serving(reply=1001, ring=8001)
    text = "a" * padding + "😀" * 5000
    pid = await server.spawn(
        ["python3", "-c", f"import sys; sys.stdout.write('a' * {padding} + '😀' * 5000)"]
    )
    shown = await server.exited(pid)
    assert shown["output_end"] == len(text.encode())
    chunks = await server.everything(pid)
    found = joined(chunks)
    assert set(found) == {"😀"}
    assert text.endswith(found)
    assert len(found.encode()) == shown["output_end"] - shown["output_start"] <= 8001
    client = await server.attach(pid, 0)
    assert await client.end() == 1000
    assert client.text() == found


@checks(80)
@pytest_twisted.ensureDeferred
async def test_alternating_single_bytes(serving: Serve) -> None:
    """Two streams, a byte each: bounded memory and replies, and the order in which the daemon read them."""
    server = await serving(ring=MIB)
    before = rss()
    script = "import os\nfor _ in range(100_000):\n os.write(1, b'o'); os.write(2, b'e')"
    pid = await server.spawn(["python3", "-c", script])
    shown = await server.exited(pid)
    assert shown["output_end"] == 200_000
    page = await server.get(f"/processes/{pid}/output")
    assert len(page.json["chunks"]) <= server.limits.chunks
    chunks = await server.everything(pid)
    assert joined(chunks) == "o" * 100_000
    assert joined(chunks, "stderr") == "e" * 100_000
    assert rss() - before < 64 * MIB


@checks(81)
@pytest_twisted.ensureDeferred
async def test_output_that_nobody_reads(serving: Serve) -> None:
    server = await serving()
    before = rss()
    pid = await server.spawn(["head", "-c", "1073741824", "/dev/zero"])
    most = 0
    while (shown := await server.look(pid))["running"]:
        most = max(most, rss())
        await pause(0.01)
    assert shown["exit"]["exit_code"] == 0
    assert shown["output_end"] == 1024 * MIB
    assert most - before < 48 * MIB


@checks(82)
@pytest_twisted.ensureDeferred
async def test_a_process_with_a_timeout(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn(["sleep", "100"], timeout_secs=1)
    assert (await server.look(pid))["timeout_secs"] == 1
    shown = await server.exited(pid)
    assert shown["exit"] == {"exit_code": None, "signal": "KILL", "timed_out": True}


@checks(83)
@pytest_twisted.ensureDeferred
async def test_a_server_in_the_background_outlives_its_shell_and_its_record(
    serving: Serve, home: Home
) -> None:
    server = await serving()
    pid = await server.spawn("(while sleep 0.02; do echo x; echo x >> ticks; done) & echo $! > pid; echo up")
    answer = await server.get(f"/processes/{pid}/output?wait_secs=30")
    assert joined(answer.json["chunks"]).startswith("up\n")
    shown = await server.exited(pid)
    assert shown["exit"]["exit_code"] == 0
    child = int((home.home / "pid").read_text())
    assert await server.delete(pid) == 204
    ticks = home.home / "ticks"
    before = ticks.stat().st_size
    await until(lambda: ticks.stat().st_size > before + 20, "ten more writes")
    assert alive(child)
    os.kill(child, signal.SIGKILL)


@checks(95)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"signal": "SIGTERM"}, 422),
        ({"signal": "term"}, 422),
        ({"signal": "15"}, 422),
        ({"signal": 15}, 422),
        ({"signal": "USR1"}, 422),
        ({"signal": None}, 422),
        ({"signal": "TERM", "x": 1}, 422),
        ({}, 422),
        ([], 422),
        ({"signal": "TERM"}, 204),
    ],
)
@pytest_twisted.ensureDeferred
async def test_signal_requests(serving: Serve, body: Any, status: int) -> None:
    server = await serving()
    pid = await server.spawn(["sleep", "100"])
    answer = await server.post(f"/processes/{pid}/signal", body)
    assert answer.status == status
    if status == 422:
        assert answer.slug == "invalid_body"
        assert (await server.look(pid))["running"]
    else:
        assert (await server.exited(pid))["exit"]["signal"] == "TERM"


@checks(95)
@pytest_twisted.ensureDeferred
async def test_a_signal_reaches_the_whole_group(serving: Serve, home: Home) -> None:
    server = await serving()
    for name in ("INT", "HUP", "TERM", "KILL"):
        pid = await server.spawn(
            "sh -c 'echo $$ > one; exec sleep 100' | sh -c 'echo $$ > two; exec cat'; true"
        )
        both = [home.home / "one", home.home / "two"]
        await until(lambda both=both: all(f.exists() and f.read_text() for f in both), "the pipeline")
        members = [int(file.read_text()) for file in both]
        assert (await server.signal(pid, name)).status == 204
        await server.exited(pid)
        for member in members:
            await until(lambda member=member: not alive(member), "the end of every member")
        for file in both:
            file.unlink()


@checks(96)
@pytest_twisted.ensureDeferred
async def test_a_number_that_was_reaped_is_never_signalled(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither after the exit nor while the output of a process that is gone is drained; nor by a deletion."""
    server = await serving(linger=5.0, quiet=2.0)
    sent: list[tuple[int, int]] = []
    real = os.killpg

    def killpg(group: int, number: int) -> None:
        if number:
            sent.append((group, number))
        real(group, number)

    monkeypatch.setattr(os, "killpg", killpg)
    gone = await server.spawn("true")
    await server.exited(gone)
    draining = await server.spawn("setsid sleep 3 & true")
    number = (await server.look(draining))["os_pid"]
    await until(lambda: not Path(f"/proc/{number}").exists(), "the reaping")
    assert (await server.look(draining))["running"]
    for pid in (gone, draining):
        for name in ("TERM", "KILL"):
            assert (await server.signal(pid, name)).status == 204
        assert await server.delete(pid) == 204
    assert sent == []
    victim = await server.spawn(["sleep", "100"])
    assert (await server.signal(victim, "TERM")).status == 204
    assert len(sent) == 1


@checks(97)
@pytest_twisted.ensureDeferred
async def test_a_deletion_ends_polls_and_tells_those_who_are_attached(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn("echo hi; exec sleep 100")
    await until_written(server, pid, 3)
    client = await server.attach(pid)
    await client.wait("output")
    polling = Deferred.fromCoroutine(server.get(f"/processes/{pid}/output?since=3&wait_secs=30"))
    await until(lambda: waiters(server), "the poll")
    assert await server.delete(pid) == 204
    assert (await polling).fault == (404, "not_found")
    assert await client.wait("exit") == {
        "type": "exit",
        "exit": {"exit_code": None, "signal": "KILL", "timed_out": False},
        "next": 3,
    }
    assert await client.end() == 1000


@checks(98)
@pytest_twisted.ensureDeferred
async def test_ids_of_another_daemon_are_unknown(serving: Serve) -> None:
    first = await serving()
    old = [await first.spawn("true") for _ in range(3)]
    second = await serving()
    new = [await second.spawn("true") for _ in range(5)]
    assert not set(old) & set(new)
    for pid in old:
        for method, path in [("GET", ""), ("GET", "/output"), ("DELETE", "")]:
            assert (await second.ask(method, f"/processes/{pid}{path}")).status == 404
        assert (await second.signal(pid, "TERM")).status == 404


@pytest_twisted.ensureDeferred
async def test_a_poll_that_is_left_leaves_nothing_behind(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn(["sleep", "100"])
    connection = await server.connect()
    connection.send(
        b"GET /v1/environments/local/processes/%s/output?wait_secs=30 HTTP/1.1\r\nHost: x\r\n"
        b"Authorization: Bearer %s\r\n\r\n" % (pid.encode(), KEY.encode())
    )
    await until(lambda: waiters(server) == 1, "the poll")
    connection.close()
    await until(lambda: waiters(server) == 0, "the end of the poll")
    assert server.site.state.in_flight == 0


@pytest_twisted.ensureDeferred
async def test_an_unkillable_command_is_503_after_thirty_seconds(serving: Serve) -> None:
    """A command whose end is not seen, by a clock that runs fast and an exit that is held back."""
    server = await serving(speed=20)
    killed: list[int] = []

    class Immortal:
        """A group that signals cannot reach."""

        def __init__(self, group: Any) -> None:
            self._group = group

        def __getattr__(self, name: str) -> Any:
            return getattr(self._group, name)

        def signal(self, number: int) -> bool:
            killed.append(number)
            return True

    spawner = server.environment.tools.spawner
    groups: list[Any] = []

    def spawn(protocol: Any, plan: Any) -> Any:
        child = spawner(protocol, plan)
        groups.append(child.group)
        child.group = Immortal(child.group)
        return child

    object.__setattr__(server.environment.tools, "spawner", spawn)
    answer = await server.try_exec(argv=["sleep", "100"], timeout_secs=1)
    assert answer.fault == (503, "exec_timeout")
    assert 1.4 < answer.seconds < 10
    assert killed == [signal.SIGKILL]
    groups[0].signal(signal.SIGKILL)

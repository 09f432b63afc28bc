"""Checks 66 to 68, 82, 83 and 95 to 98 of the contract's list: background processes and signals."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from tests.environments.conftest import Serve
from tests.environments.support import Home, Server
from tests.environments.wire import checks, pause, until
from tests.procs import alive

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


async def until_written(server: Server, pid: str, count: int) -> None:
    """Wait until a process has written so much."""
    while (await server.look(pid))["output_end"] < count:
        await pause(0.01)


def table(server: Server) -> Any:
    """The server's own table of processes."""
    (stop, _) = server.environment.at_drain
    return stop.__self__


def waiters(server: Server) -> int:
    return sum(len(process.waiters) for process in table(server))


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

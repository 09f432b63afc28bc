"""Checks 84 to 94, 99 and 100 of the contract's list: attached clients."""

import json
import os
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from tests.environments.conftest import Serve
from tests.environments.support import KEY, Home, Server
from tests.environments.test_checks_commands import rss
from tests.environments.test_checks_processes import table, until_written
from tests.environments.wire import Client, checks, pause, until
from tests.procs import alive

MIB = 1024 * 1024

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@checks(84)
@pytest_twisted.ensureDeferred
async def test_refusals_are_answers_of_http(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn("cat", stdin=True)
    path = f"/processes/{pid}/attach"
    assert (await server.get(path)).fault == (400, "invalid_request")
    for name, value in [
        ("Upgrade", "h2c"),
        ("Connection", "keep-alive"),
        ("Sec-WebSocket-Version", "8"),
        ("Sec-WebSocket-Key", "short"),
    ]:
        assert (await server.get(path, headers={**UPGRADE, name: value})).fault == (400, "invalid_request")
    assert (await server.get("/processes/none/attach", headers=UPGRADE)).fault == (404, "not_found")
    assert (await server.get(path, headers=UPGRADE, key=None)).fault == (401, "unauthorized")
    elsewhere = await server.get(path, headers=UPGRADE, prefix="/v1/environments/elsewhere")
    assert elsewhere.fault == (404, "not_found")
    for since, message in [("-1", "invalid query"), ("x", "invalid query"), ("1", "beyond the end")]:
        answer = await server.get(f"{path}?since={since}", headers=UPGRADE)
        assert answer.fault == (400, "invalid_request")
        assert message in answer.json["message"]
    upgraded = await server.get(path, headers={**UPGRADE, "Sec-WebSocket-Protocol": "a, b"})
    assert upgraded.status == 101
    assert upgraded.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert "sec-websocket-protocol" not in upgraded.headers
    assert "sec-websocket-extensions" not in upgraded.headers
    assert "microvms-agentd-version" in upgraded.headers


@checks(85, 88)
@pytest_twisted.ensureDeferred
async def test_the_documents_example(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn("cat", stdin=True)
    assert (await server.look(pid))["stdin"]
    client = await server.attach(pid)
    client.say(stdin="héllo\n")
    await client.wait("output")
    client.say(stdin="x", signal="FOO")
    await client.wait("error")
    client.say(stdin="y", stdin_eof=True)
    await client.wait("exit")
    assert await client.end() == 1000
    (attached,) = client.of("attached")
    assert attached["process"]["pid"] == pid
    assert client.messages[0] is attached
    assert client.messages[1:] == [
        {"type": "output", "stream": "stdout", "offset": 0, "data": "héllo\n"},
        {"type": "error", "message": "signal: must be one of TERM, KILL, INT, HUP"},
        {"type": "output", "stream": "stdout", "offset": 7, "data": "y"},
        {"type": "exit", "exit": {"exit_code": 0, "signal": None, "timed_out": False}, "next": 8},
    ]
    assert not (await server.look(pid))["stdin"]


@checks(85, 86)
@pytest_twisted.ensureDeferred
async def test_attaching_to_what_has_exited(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn("printf abcdef; exit 3")
    shown = await server.exited(pid)
    for since, rest in [(None, "abcdef"), (0, "abcdef"), (4, "ef"), (6, "")]:
        client = await server.attach(pid, since)
        assert await client.end() == 1000
        assert [message["type"] for message in client.messages] == [
            "attached",
            *["output"] * bool(rest),
            "exit",
        ]
        assert client.messages[0]["process"] == shown
        assert client.text() == rest
        assert client.messages[-1]["exit"]["exit_code"] == 3
        assert client.messages[-1]["next"] == 6


@checks(87)
@pytest_twisted.ensureDeferred
async def test_a_hundred_cuts_lose_nothing(serving: Serve, home: Home) -> None:
    server = await serving()
    script = (
        "import sys, time\n"
        "with open('copy', 'w') as copy:\n"
        "    for n in range(6000):\n"
        "        line = f'line {n} ' + 'x' * 100 + '\\n'\n"
        "        sys.stdout.write(line); copy.write(line)\n"
        "        if n % 50 == 0: sys.stdout.flush(); time.sleep(0.01)\n"
    )
    pid = await server.spawn(["python3", "-c", script])
    received, since, cuts = bytearray(), 0, 0
    while True:
        client = await server.attach(pid, since)
        await until(lambda client=client: client.of("output") or client.gone, "output")
        over = cuts >= 100
        if over:
            await client.end()
        client.cut()
        for message in client.of("output"):
            assert message["offset"] == len(received)
            received += message["data"].encode()
        since = len(received)
        if client.of("exit"):
            break
        cuts += 1
    assert cuts >= 20
    assert bytes(received) == (home.home / "copy").read_bytes()


@checks(89, 90)
@pytest_twisted.ensureDeferred
async def test_messages_that_are_refused_whole(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn("cat", stdin=True)
    client = await server.attach(pid)
    bad: list[tuple[bytes | dict[str, Any], str]] = [
        ({"stdin": "x", "signal": "BAD"}, "signal: must be one of TERM, KILL, INT, HUP"),
        ({"stdin": "x", "signal": 15}, "signal: "),
        ({"stdin": "x", "more": 1}, "more: unknown field"),
        ({"stdin": "x", "stdin_eof": "yes"}, "stdin_eof: "),
        ({"stdin": 5}, "stdin: "),
        ({}, "message is empty"),
        ({"stdin": None}, "message is empty"),
        (b"[]", "body: Expected object"),
        (b"nonsense", "message is not valid JSON"),
        (b"", "message is not valid JSON"),
        (b'{"stdin":"x","stdin":"y"}', "stdin: given twice"),
        (b'{"stdin":"\\ud800"}', "message is not valid JSON"),
    ]
    for count, (message, start) in enumerate(bad, 1):
        client.say_raw(json.dumps(message).encode() if isinstance(message, dict) else message)
        error = await client.wait("error", count)
        assert error["message"].startswith(start), error
        assert "next" not in error
    client.say_raw(b'{"stdin":"x"}', True)
    assert (await client.wait("error", len(bad) + 1))["message"] == "messages are text"
    client.say(stdin_eof=False)
    client.say(stdin="")
    client.say(stdin="end\n", stdin_eof=True)
    await client.end()
    assert client.text() == "end\n"
    assert len(client.of("error")) == len(bad) + 1


@checks(89)
@pytest_twisted.ensureDeferred
async def test_stdin_that_cannot_be_written(serving: Serve) -> None:
    server = await serving()
    without = await server.attach(await server.spawn(["sleep", "100"]))
    without.say(stdin="x", signal="KILL")
    assert (await without.wait("error"))["message"] == "stdin: the process was started without stdin"
    without.say(stdin_eof=True)
    assert (await without.wait("error", 2))["message"] == "stdin_eof: the process was started without stdin"
    without.say(signal="KILL")
    assert (await without.wait("exit"))["exit"]["signal"] == "KILL"

    pid = await server.spawn("cat; sleep 100", stdin=True)
    ended = await server.attach(pid)
    ended.say(stdin_eof=True)
    ended.say(stdin="x")
    assert (await ended.wait("error"))["message"] == "stdin: stdin was ended before"
    assert not (await server.look(pid))["stdin"]

    pid = await server.spawn("exec <&-; echo closed; exec sleep 100", stdin=True)
    closed = await server.attach(pid)
    await closed.wait("output")
    await until_not_writable(server, pid)
    closed.say(stdin="x")
    assert (await closed.wait("error"))["message"] == "stdin: the process does not read its stdin any more"
    closed.say(signal="TERM")
    assert (await closed.wait("exit"))["exit"]["signal"] == "TERM"


async def until_not_writable(server: Server, pid: str) -> None:
    while (await server.look(pid))["stdin"]:
        await pause(0.01)


@checks(91)
@pytest_twisted.ensureDeferred
async def test_a_queue_that_is_full(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn(["sleep", "100"], stdin=True)
    client = await server.attach(pid)
    before = rss()
    piece = "x" * (MIB - 100)
    for _ in range(17):
        client.say(stdin=piece)
    assert (await client.wait("error"))["message"] == "stdin: the stdin queue is full"
    assert rss() - before < 64 * MIB
    client.say(signal="KILL")
    assert (await client.wait("exit"))["exit"]["signal"] == "KILL"
    assert await client.end() == 1000


@pytest_twisted.ensureDeferred
async def test_all_of_a_large_stdin_arrives_in_order(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn("sleep 0.2; cat | sha256sum", stdin=True)
    client = await server.attach(pid)
    import hashlib

    digest = hashlib.sha256()
    for number in range(40):
        piece = f"{number}é" * 50_000
        digest.update(piece.encode())
        client.say(stdin=piece)
    client.say(stdin_eof=True)
    await client.end()
    assert client.of("error") == []
    assert client.text() == f"{digest.hexdigest()}  -\n"


@checks(92)
@pytest_twisted.ensureDeferred
async def test_a_process_does_not_notice_that_its_client_left(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn("cat", stdin=True)
    client = await server.attach(pid)
    client.say(stdin="one\n")
    await client.wait("output")
    client.cut()
    await until(lambda: not table(server).get(pid).listeners, "the departure")
    shown = await server.look(pid)
    assert shown["running"]
    assert shown["stdin"]
    again = await server.attach(pid, 4)
    again.say(stdin="two\n", stdin_eof=True)
    assert await again.end() == 1000
    assert again.text() == "two\n"


@checks(93)
@pytest_twisted.ensureDeferred
async def test_a_client_that_does_not_read(serving: Serve) -> None:
    """The process goes on, memory stays bounded, and what was missed is a gap between offsets."""
    server = await serving()
    pid = await server.spawn("head -c 200000000 /dev/zero | tr '\\0' a; echo; sleep 0.3; echo end")
    client = await server.attach(pid)
    await client.wait("output")
    client.transport.pauseProducing()
    before = rss()
    most = 0
    while (shown := await server.look(pid))["running"]:
        most = max(most, rss())
        await pause(0.01)
    assert shown["exit"]["exit_code"] == 0
    assert most - before < 64 * MIB
    client.transport.resumeProducing()
    assert await client.end() == 1000
    ends = [message["offset"] + len(message["data"]) for message in client.of("output")]
    starts = [message["offset"] for message in client.of("output")]
    gaps = [(end, start) for end, start in zip(ends, starts[1:], strict=False) if start != end]
    assert len(gaps) >= 1
    assert all(start > end for end, start in gaps)
    assert ends[-1] == client.messages[-1]["next"] == shown["output_end"]
    assert client.text().endswith("end\n")


@checks(94)
@pytest_twisted.ensureDeferred
async def test_two_clients(serving: Serve) -> None:
    server = await serving()
    pid = await server.spawn("cat", stdin=True)
    one, two, third = [await server.attach(pid) for _ in range(3)]
    one.say(stdin="a\n")
    two.say(stdin="b\n")
    for client in (one, two, third):
        await until(lambda client=client: len(client.text()) == 4, "both lines")
        assert sorted(client.text().split()) == ["a", "b"]
    one.cut()
    third.sendClose(1000)  # type: ignore[no-untyped-call]
    assert await third.end() == 1000
    two.say(stdin="c\n", stdin_eof=True)
    assert await two.end() == 1000
    assert two.text().endswith("c\n")


@pytest_twisted.ensureDeferred
async def test_closing_codes_of_violations(serving: Serve) -> None:
    """Not UTF-8, too long, no frame at all."""
    server = await serving()
    pid = await server.spawn(["sleep", "100"])
    for code, say in [
        (1007, lambda client: client.say_raw(b'{"stdin":"\xff"}')),
        (1009, lambda client: client.say_raw(b" " * (MIB + 1))),
        (1002, lambda client: client.transport.write(b"\xff\xff\xff\xff")),
    ]:
        client = await server.attach(pid)
        say(client)
        assert await client.end() == code
    client = await server.attach(pid)
    client.say_raw(b" " * (MIB - 20) + b'{"signal":"KILL"}')
    assert await client.end() == 1000


@checks(99)
@pytest_twisted.ensureDeferred
async def test_silence_of_the_process_and_silence_of_the_client(serving: Serve) -> None:
    """Five minutes by a clock that runs fast."""
    server = await serving(speed=100)
    pid = await server.spawn(["sleep", "100"])
    quiet = await server.attach(pid)
    mute = Client()
    mute.pongs = False
    await server.attach(pid, client=mute)
    began = server.environment.clock.seconds()
    await until(lambda: mute.gone, "the end of the one that answers no ping")
    assert 60 <= server.environment.clock.seconds() - began < 150
    await until(lambda: server.environment.clock.seconds() - began > 300, "five minutes")
    assert not quiet.gone
    quiet.say(signal="KILL")
    assert await quiet.end() == 1000


@checks(100)
@pytest_twisted.ensureDeferred
async def test_the_end_of_the_daemon(serving: Serve) -> None:
    """Clients are told where to go on, polls are answered, commands are killed and answered, and nothing new starts."""
    server = await serving()
    pid = await server.spawn("echo hi; exec sleep 100")
    await until_written(server, pid, 3)
    client = await server.attach(pid)
    await client.wait("output")
    polling = Deferred.fromCoroutine(server.get(f"/processes/{pid}/output?since=3&wait_secs=30"))
    running = Deferred.fromCoroutine(server.exec("sleep", "100"))
    await until(lambda: server.site.state.in_flight == 2, "both requests")
    number = (await server.look(pid))["os_pid"]
    late = await server.connect()
    server.drain()
    assert await client.wait("error") == {
        "type": "error",
        "message": "the daemon is shutting down",
        "next": 3,
    }
    assert await client.end() == 1001
    page = (await polling).json
    assert (page["chunks"], page["next"], page["exited"]) == ([], 3, False)
    assert (await running)["signal"] == "KILL"
    await until(lambda: not alive(number), "the end of the process")
    late.send(
        b"GET /v1/environments/local/processes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n"
        % KEY.encode()
    )
    assert (await late.answer()).fault == (503, "environment_not_running")


@pytest_twisted.ensureDeferred
async def test_deleted_processes_are_not_kept_for_those_who_do_not_read(serving: Serve) -> None:
    """Attach, do not read, delete, and again: there are never more rings than twice the slots."""
    server = await serving(processes=3, ring=MIB)
    clients = []
    for _ in range(9):
        pid = await server.spawn("head -c 60000000 /dev/zero; exec sleep 100")
        client = await server.attach(pid)
        await client.wait("output")
        client.transport.pauseProducing()
        clients.append(client)
        await until_written(server, pid, 60_000_000)
        assert await server.delete(pid) == 204
    await until(lambda: len(table(server)._deleted) <= 3, "the release of the others")
    assert len(clients) == 9


@pytest.mark.parametrize("kind", ["polls", "clients"])
@pytest_twisted.ensureDeferred
async def test_a_thousand_at_once_cost_no_thread(serving: Serve, kind: str) -> None:
    server = await serving()
    pid = await server.spawn("read x; echo $x; exec sleep 100", stdin=True)
    warm = await server.attach(pid)
    polls, clients = [], []
    threads = set(os.listdir("/proc/self/task"))
    for start in range(0, 1000, 50):
        if kind == "polls":
            polls += [
                Deferred.fromCoroutine(server.get(f"/processes/{pid}/output?wait_secs=30")) for _ in range(50)
            ]
            await until(
                lambda start=start: len(table(server).get(pid).waiters) >= start + 50, "fifty more polls"
            )
        else:
            clients += [await server.attach(pid) for _ in range(50)]
    assert len(set(os.listdir("/proc/self/task")) - threads) <= 4  # the pool's own
    assert (await server.exec("true"))["exit_code"] == 0
    warm.say(stdin="go\n")
    for poll in polls:
        answer = await poll
        assert answer.json["chunks"] == [{"stream": "stdout", "offset": 0, "data": "go\n"}]
    for client in clients:
        assert (await client.wait("output"))["data"] == "go\n"
    warm.say(signal="KILL")
    for client in clients:
        assert await client.end() == 1000

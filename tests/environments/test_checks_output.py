"""Checks 69 to 81 of the contract's list: reading output by offsets and long polls."""

import os
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from tests.environments.conftest import Serve
from tests.environments.support import KEY, Home
from tests.environments.test_checks_commands import rss
from tests.environments.test_checks_processes import joined, until_written, waiters
from tests.environments.wire import checks, pause, the_reactor, until

MIB = 1024 * 1024


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

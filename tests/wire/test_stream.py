"""Streams through a socket: framing to the byte, offsets, gaps, silence (contract d)."""

import base64
import hashlib
import json
import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_twisted

from tests.conftest import RunningDaemon, start_daemon
from tests.wire.conftest import Connect
from tests.wire.support import TWISTD, Api, as_json, check_tiling, events, output, request

RING = 50_000


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """With a small replay window and a keep-alive every second."""
    env = {"AGENTD_SSE_KEEPALIVE_SECS": "1", "AGENTD_STREAM_BUFFER_BYTES": str(RING)}
    running = start_daemon(tmp_path_factory.mktemp("daemon"), program=TWISTD, env=env)
    running.bootstrap()
    yield running
    running.stop()


def dechunk(body: bytes) -> bytes:
    """The content of a chunked body."""
    content = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        count = int(size, 16)
        content += rest[:count]
        assert rest[count : count + 2] == b"\r\n"
        body = rest[count + 2 :]
        if count == 0:
            return content
    raise AssertionError("the body was cut")


def test_the_frames_byte_for_byte(daemon: RunningDaemon, raw: Connect) -> None:
    """Headers, framing, and nothing else."""
    connection = raw(daemon)
    body = {"exec_id": "frames", "command": ["printf abc; exit 3"], "shell": True, "digest": True}
    connection.send(as_json("POST", "/v1/exec/start", body, "Prefer: wait=20", token=daemon.token)).reply()
    connection.send(request("GET", "/v1/exec/frames/stream", token=daemon.token))
    headers = connection.until(b"\r\n\r\n").lower()
    for line in (
        b"content-type: text/event-stream",
        b"cache-control: no-cache",
        b"x-accel-buffering: no",
        b"transfer-encoding: chunked",
        b"microvms-agentd-version: ",
    ):
        assert b"\r\n" + line in headers
    content = dechunk(connection.until(b"0\r\n\r\n"))
    first, second, end = content.split(b"\n\n")
    assert first == b'event: output\nid: 3\ndata: {"offset":0,"stream":"stdout","output":"YWJj"}'
    assert end == b""
    name, last_id, data = second.split(b"\n")
    assert (name, last_id) == (b"event: exit", b"id: 3")
    exit_event = json.loads(data.removeprefix(b"data: "))
    usage = exit_event.pop("usage")
    assert set(usage) == {"user_seconds", "system_seconds", "max_rss_bytes"}
    assert exit_event == {
        "exit_code": 3,
        "signal": None,
        "timed_out": False,
        "truncated": False,
        "writers_may_be_alive": False,
        "offset": 3,
        "bytes_total": 3,
        "cause": "exit",
        "sha256": hashlib.sha256(b"abc").hexdigest(),
    }
    reply = connection.send(request("GET", "/v1/exec/frames", token=daemon.token)).reply()
    assert reply.status == 200, "the connection goes on after a stream"


@pytest.mark.parametrize(
    "query",
    [
        *(f"offset={text}" for text in ("", "-1", "x", "1.0", "18446744073709551616", "+1")),
        "offset=1&offset=1",
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_bad_offset_is_refused_before_the_id_is_looked_up(api: Api, query: str) -> None:
    """Contract a.4."""
    exec_id = await api.start("true")
    for name in (exec_id, "nobody"):
        reply = await api.get(f"/v1/exec/{name}/stream?{query}")
        assert reply.key == (400, "malformed_request")


@pytest_twisted.ensureDeferred
async def test_any_offset_gets_exactly_what_is_behind_it(api: Api) -> None:
    """From the start, from inside a piece, from the end, from beyond it; also after the acknowledgement."""
    exec_id = await api.start("printf 'out1 '; printf 'err ' >&2; sleep 0.1; printf out2")
    await api.wait(exec_id)
    whole = await api.stream(exec_id)
    check_tiling(whole)
    text = output(whole)
    assert sorted(text) == sorted(b"out1 err out2")
    assert output(whole, "stdout") == b"out1 out2"
    assert output(whole, "stderr") == b"err "
    for acknowledged in (False, True):
        for offset in (0, 1, 5, 12, 13):
            found = await api.stream(exec_id, offset)
            check_tiling(found, offset)
            assert output(found) == text[offset:]
        beyond = await api.stream(exec_id, 2**64 - 1)
        assert [event.name for event in beyond] == ["exit"]
        assert beyond[0].data["offset"] == 13
        if not acknowledged:
            assert (await api.post(f"/v1/exec/{exec_id}/ack")).status == 200


@pytest_twisted.ensureDeferred
async def test_last_event_id_resumes(api: Api) -> None:
    """When no offset is given; a bad one is refused as a bad offset is."""
    exec_id = await api.start("printf abcdef")
    await api.wait(exec_id)

    async def resumed(headers: dict[str, str], query: str = "") -> Any:
        return await api.get(f"/v1/exec/{exec_id}/stream{query}", headers=headers)

    assert output(events((await resumed({"Last-Event-ID": "4"})).body)) == b"ef"
    assert output(events((await resumed({"Last-Event-ID": " 4 "})).body)) == b"ef"
    assert output(events((await resumed({"Last-Event-ID": "4"}, "?offset=2")).body)) == b"cdef"
    for bad in ("x", "-1", "1.5", ""):
        assert (await resumed({"Last-Event-ID": bad})).key == (400, "malformed_request"), bad
    assert (await resumed({"Last-Event-ID": "x"}, "?offset=2")).status == 200


@pytest_twisted.ensureDeferred
async def test_what_fell_out_of_the_window_is_a_gap(api: Api) -> None:
    """The window holds exactly the last bytes; `from` and `to` say what is missing."""
    total = 3 * RING + 17
    exec_id = await api.start(f"head -c {total} /dev/urandom")
    await api.wait(exec_id)
    found = await api.stream(exec_id)
    check_tiling(found)
    assert found[0].name == "gap"
    assert found[0].data == {"from": 0, "to": total - RING}
    assert len(output(found)) == RING
    inside = await api.stream(exec_id, total - RING + 5)
    assert inside[0].name == "output"
    assert output(inside) == output(found)[5:]
    edge = await api.stream(exec_id, total - RING - 1)
    assert edge[0].data == {"from": total - RING - 1, "to": total - RING}


@pytest_twisted.ensureDeferred
async def test_pieces_are_at_most_16384_bytes(api: Api) -> None:
    """And all of the same stream."""
    exec_id = await api.start("head -c 45000 /dev/zero; head -c 3 /dev/zero >&2")
    await api.wait(exec_id)
    found = await api.stream(exec_id)
    check_tiling(found)
    sizes = [len(base64.b64decode(event.data["output"])) for event in found if event.name == "output"]
    assert max(sizes) == 16384
    assert (len(output(found, "stdout")), len(output(found, "stderr"))) == (45000, 3)


def test_silence_is_broken_by_comments(daemon: RunningDaemon, raw: Connect) -> None:
    """Also before any output; the timer starts anew with each event."""
    connection = raw(daemon)
    body = {"exec_id": "silent", "command": ["sleep 2.3; echo a; sleep 1.4"], "shell": True}
    connection.send(as_json("POST", "/v1/exec/start", body, token=daemon.token)).reply()
    began = time.monotonic()
    connection.send(request("GET", "/v1/exec/silent/stream", token=daemon.token))
    connection.until(b"\r\n\r\n")
    comment = b"3\r\n:\n\n\r\n"
    connection.until(comment)
    assert 0.8 < time.monotonic() - began < 2
    content = dechunk(comment + connection.until(b"0\r\n\r\n"))
    blocks = content.split(b"\n\n")[:-1]
    assert blocks[0:2] == [b":", b":"]
    assert [block[:13] for block in blocks if block != b":"] == [b"event: output", b"event: exit\ni"]
    assert blocks[3] == b":"
    assert len(blocks) == 5


def test_head_of_a_stream_has_no_body(daemon: RunningDaemon, raw: Connect) -> None:
    """Of a running exec too: it does not wait for its end."""
    connection = raw(daemon)
    body = {"exec_id": "head", "command": ["sleep", "300"]}
    connection.send(as_json("POST", "/v1/exec/start", body, token=daemon.token)).reply()
    reply = connection.send(request("HEAD", "/v1/exec/head/stream", token=daemon.token)).reply(head=True)
    assert reply.headers["content-type"] == "text/event-stream"
    assert connection.send(request("GET", "/v1/procs", token=daemon.token)).reply().status == 200
    connection.send(request("POST", "/v1/exec/head/kill", token=daemon.token)).reply()


def test_a_reader_that_stops_reading_gets_a_gap_and_holds_nobody_up(
    daemon: RunningDaemon, raw: Connect
) -> None:
    """Its cursor jumps; the child is not slowed; another reader gets what there is."""
    lines = 400_000
    script = f"seq 1 {lines}; echo done >&2"
    expected = "".join(f"{number}\n" for number in range(1, lines + 1)).encode()
    connection = raw(daemon)
    body = {"exec_id": "slow", "command": [f"sleep 0.3; {script}"], "shell": True}
    connection.send(as_json("POST", "/v1/exec/start", body, token=daemon.token)).reply()
    slow = raw(daemon)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    slow.send(request("GET", "/v1/exec/slow/stream", token=daemon.token))
    waited = request("GET", "/v1/exec/slow", "Prefer: wait=20", token=daemon.token)
    began = time.monotonic()
    outcome = json.loads(connection.send(waited).reply().body)
    assert outcome["phase"] == "exited", "a reader held the child up"
    assert time.monotonic() - began < 15
    assert outcome["stdout"].encode() == expected
    slow.until(b"\r\n\r\n")
    found = events(dechunk(slow.until_closed_or(b"0\r\n\r\n")))
    check_tiling(found)
    assert any(event.name == "gap" for event in found)
    at = 0
    for event in found[:-1]:
        if event.name == "gap":
            at = event.data["to"]
        elif event.data["stream"] == "stdout":
            data = base64.b64decode(event.data["output"])
            assert expected[at : at + len(data)] == data
            at += len(data)


@pytest_twisted.ensureDeferred
async def test_reconnecting_readers_miss_nothing(api: Api, daemon: RunningDaemon, raw: Connect) -> None:
    """Cut anywhere, resumed at the cursor: pieces and gaps tile, whatever the cuts (tiling law)."""
    chooser = random.Random(7)
    lines = 20_000
    expected = "".join(f"{number}\n" for number in range(1, lines + 1)).encode()
    exec_id = await api.start(
        "for i in $(seq 0 99); do seq $((i * 200 + 1)) $((i * 200 + 200)); sleep 0.01; done"
    )
    at, received, ended = 0, bytearray(len(expected)), False
    while not ended:
        connection = raw(daemon)
        connection.send(request("GET", f"/v1/exec/{exec_id}/stream?offset={at}", token=daemon.token))
        connection.until(b"\r\n\r\n")
        wanted, data = chooser.randrange(1, 40_000), b""
        while len(data) < wanted and not data.endswith(b"0\r\n\r\n"):
            piece = connection.socket.recv(4096)
            assert piece
            data += piece
        connection.close()
        for event in _whole_events(data):
            if event["name"] == "output":
                assert event["offset"] == at
                piece = base64.b64decode(event["output"])
                received[at : at + len(piece)] = piece
                at += len(piece)
            elif event["name"] == "gap":
                assert event["from"] == at
                received[at : event["to"]] = expected[at : event["to"]]
                at = event["to"]
            else:
                ended = True
                assert event["offset"] == at
    assert bytes(received) == expected


def _whole_events(data: bytes) -> list[dict[str, Any]]:
    """The events of a body that may have been cut anywhere."""
    content = b""
    while data:
        size, found, rest = data.partition(b"\r\n")
        if not found or len(rest) < int(size, 16):
            break
        content += rest[: int(size, 16)]
        data = rest[int(size, 16) + 2 :]
    blocks = content.split(b"\n\n")[:-1]
    return [
        {
            "name": block.split(b"\n")[0].decode().removeprefix("event: "),
            **json.loads(block.split(b"data: ", 1)[1]),
        }
        for block in blocks
        if block != b":"
    ]


@pytest_twisted.ensureDeferred
async def test_bytes_are_bytes(api: Api) -> None:
    """Half characters, bytes that are no text, a NUL: identical; and polls show them as text can."""
    exec_id = await api.start("printf '\\342'; sleep 0.2; printf '\\202\\254\\377\\000x'")
    found = await api.wait(exec_id)
    assert output(await api.stream(exec_id)) == b"\xe2\x82\xac\xff\0x"
    assert found["stdout"] == "€\ufffd\0x"


@pytest_twisted.ensureDeferred
async def test_a_hundred_readers_see_the_same(api: Api, daemon: RunningDaemon, raw: Connect) -> None:
    """Attached at once, before the first byte."""
    exec_id = await api.start("read go; seq 1 5000", stdin=True)
    readers = [raw(daemon) for _ in range(100)]
    for reader in readers:
        reader.send(request("GET", f"/v1/exec/{exec_id}/stream", token=daemon.token))
        reader.until(b"\r\n\r\n")
    await api.stdin(exec_id, b"go\n", "eof")
    expected = "".join(f"{number}\n" for number in range(1, 5001)).encode()
    for reader in readers:
        found = events(dechunk(reader.until_closed_or(b"0\r\n\r\n")))
        check_tiling(found)
        assert output(found) == expected


def test_a_stream_over_http_1_0_ends_with_the_connection(daemon: RunningDaemon, raw: Connect) -> None:
    """No chunks."""
    connection = raw(daemon)
    body = {"exec_id": "old", "command": ["echo", "hi"]}
    connection.send(as_json("POST", "/v1/exec/start", body, token=daemon.token)).reply()
    ask = request("GET", "/v1/exec/old/stream", token=daemon.token).replace(b"HTTP/1.1", b"HTTP/1.0")
    old = raw(daemon).send(ask)
    headers, _, content = old.until_closed().partition(b"\r\n\r\n")
    assert headers.startswith(b"HTTP/1.0 200")
    assert b"chunked" not in headers
    check_tiling(events(content))

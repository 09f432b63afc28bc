"""HTTP over a real socket: what kernels and clients make of refusals, garbage and departures (contract a.0, i)."""

import json
import os
import socket
import struct
import time
from collections.abc import Callable

import pytest

from agentd.microvm.routes import HOOK_PREFIX
from tests.conftest import RunningDaemon
from tests.wire.conftest import Connect
from tests.wire.support import DEADLINE, VERSION_HEADER, Raw, Reply, request

Make = Callable[..., RunningDaemon]
HEALTH = request("GET", "/v1/health")


def last_reply(connection: Raw) -> Reply:
    """The one answer of a connection that the server then closes, and nothing behind it."""
    received = connection.until_closed()
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    assert VERSION_HEADER in headers
    assert headers["connection"] == "close"
    assert len(body) == int(headers["content-length"])
    return Reply(int(lines[0].split(" ")[1]), headers, body)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(512), 400),
        (b"\x80" + os.urandom(64) + b"\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET /" + b"a" * 5_000_000, 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 5_000_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 500_000 + b"\r\n", 431),
        (b"POST /v1/procs HTTP/1.1\r\nContent-Length: x\r\n\r\n" + b"b" * 900_000, 400),
    ],
    ids=["tls", "noise", "version", "line", "header", "headers", "length"],
)
def test_what_is_no_request_is_answered_and_the_answer_arrives(
    daemon: RunningDaemon, raw: Connect, sent: bytes, status: int
) -> None:
    """However much was sent behind it; and the listener is unaffected (contract i.5)."""
    assert last_reply(raw(daemon).send(sent)).status == status
    assert raw(daemon).send(HEALTH).reply().status == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (("POST", "/v1/exec/start", "Content-Length: 20000000"), 401),
        (("POST", "/v1/exec/start", "Transfer-Encoding: chunked"), 401),
        (("PUT", "/v1/fs/file?path=/nowhere", "Content-Length: 999999999999"), 413),
        (("POST", "/nowhere", "Content-Length: 20000000"), 404),
        (("PUT", "/v1/health", "Content-Length: 20000000"), 405),
    ],
)
def test_a_refusal_reaches_a_caller_that_keeps_sending(
    daemon: RunningDaemon, raw: Connect, head: tuple[str, ...], status: int
) -> None:
    """A megabyte or so is read and dropped, so that no reset overtakes the answer."""
    connection = raw(daemon)
    connection.send(request(*head))
    piece = b"x" * 65_536
    if "chunked" in head[-1]:
        piece = b"10000\r\n" + piece + b"\r\n"
    for _ in range(12):
        connection.send(piece)
    assert last_reply(connection).status == status
    assert raw(daemon).send(HEALTH).reply().status == 200


def test_a_small_refused_body_keeps_the_connection(daemon: RunningDaemon, raw: Connect) -> None:
    """Ten times over, with bodies at the drain cap; the eleventh request is served."""
    connection = raw(daemon)
    for size in [0, 1, 100, 65_535, 65_536] * 2:
        reply = connection.send(request("POST", "/v1/exec/start", token="wrong", body=b"x" * size)).reply()
        assert (reply.status, reply.body) == (401, b"")
    assert connection.send(HEALTH).reply().status == 200


def test_expect_100(daemon: RunningDaemon, raw: Connect) -> None:
    """Go on, or the verdict; never both."""
    body = json.dumps({"exec_id": "expect", "command": ["true"]}).encode()
    headers = ("Content-Type: application/json", "Expect: 100-continue")
    welcome = raw(daemon)
    head = request("POST", "/v1/exec/start", *headers, token=daemon.token, body=body)
    welcome.send(head[: -len(body)])
    assert welcome.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert welcome.send(body).reply().status == 200
    refused = raw(daemon)
    refused.send(request("POST", "/v1/exec/start", *headers, token="wrong", body=body)[: -len(body)])
    assert last_reply(refused).status == 401


def test_callers_that_vanish_affect_nobody(daemon: RunningDaemon, raw: Connect) -> None:
    """In the middle of a line, a header, a body, a stream; with a farewell or with a reset (contract i.6)."""
    body = json.dumps({"exec_id": "vanish", "command": ["sleep", "300"]}).encode()
    start = request("POST", "/v1/exec/start", "Content-Type: application/json", token=daemon.token, body=body)
    assert raw(daemon).send(start).reply().status == 200
    pieces = [
        b"GE",
        b"GET /v1/health HT",
        b"GET /v1/health HTTP/1.1\r\nX-",
        start[:-20],
        request("PUT", "/v1/fs/file?path=/nowhere/x", "Content-Length: 100", token=daemon.token) + b"x",
        request("POST", "/v1/exec/start", "Transfer-Encoding: chunked", token=daemon.token) + b"5\r\nab",
        request("POST", "/v1/exec/start", "Content-Length: 1000", token="wrong") + b"x",
        request("GET", "/v1/exec/vanish/stream", token=daemon.token),
        request("GET", "/v1/exec/vanish", "Prefer: wait=50", token=daemon.token),
        request("POST", "/v1/exec/vanish/stdin", "Content-Length: 5", token=daemon.token),
    ]
    for reset in (False, True):
        for piece in pieces:
            gone = raw(daemon)
            gone.send(piece)
            if reset:
                gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.close()
        assert raw(daemon).send(HEALTH).reply().status == 200
    assert raw(daemon).send(request("POST", "/v1/exec/vanish/kill", token=daemon.token)).reply().status == 200
    wrong = [entry for entry in daemon.log if entry["level"] in ("error", "critical")]
    assert wrong == [], json.dumps(wrong)


def test_slow_callers_are_told(make_daemon: Make, raw: Connect) -> None:
    """Deadlines of headers and bodies; an idle connection is just closed."""
    daemon = make_daemon(env={"AGENTD_HEADER_TIMEOUT_SECS": "0.5", "AGENTD_IDLE_TIMEOUT_SECS": "1"})
    headers, body, idle = raw(daemon), raw(daemon), raw(daemon)
    body.send(request("POST", f"{HOOK_PREFIX}/run", "Content-Type: application/json", "Content-Length: 9"))
    idle.send(HEALTH).reply()
    began = time.monotonic()
    headers.send(b"GET /v1/health HTTP/1.1\r\n")
    while time.monotonic() - began < 0.4:
        headers.send(b"X")
        time.sleep(0.02)
    assert last_reply(headers).status == 408
    assert last_reply(body).status == 408
    assert idle.until_closed() == b""
    assert time.monotonic() - began < 10


def test_too_many_connections(make_daemon: Make, raw: Connect) -> None:
    """One too many is told so; room is made again by leaving."""
    daemon = make_daemon(env={"AGENTD_MAX_CONNECTIONS": "3"})
    held = [raw(daemon) for _ in range(3)]
    for connection in held:
        assert connection.send(HEALTH).reply().status == 200
    assert last_reply(raw(daemon)).status == 503
    held[0].close()
    limit = time.monotonic() + DEADLINE
    while True:
        assert time.monotonic() < limit
        try:
            if raw(daemon).send(HEALTH).reply().status == 200:
                break
        except (AssertionError, ConnectionResetError):
            continue


def test_pipelined_requests_over_a_socket(daemon: RunningDaemon, raw: Connect) -> None:
    """In order."""
    connection = raw(daemon)
    connection.send(
        b"".join(request("GET", f"/v1/exec/p-{number}", token=daemon.token) for number in range(200))
    )
    for number in range(200):
        assert connection.reply().json["detail"] == f"p-{number}"


def test_a_connection_is_kept_for_many_requests(daemon: RunningDaemon, raw: Connect) -> None:
    """Of every kind, refusals included."""
    connection = raw(daemon)
    for _ in range(50):
        assert connection.send(HEALTH).reply().status == 200
        assert connection.send(request("GET", "/nowhere")).reply().status == 404
        assert connection.send(request("PUT", "/v1/health", body=b"x")).reply().status == 405
        assert connection.send(request("GET", "/v1/procs")).reply().status == 401
        malformed = request("POST", "/v1/exec/start", token=daemon.token, body=b"{")
        assert connection.send(malformed).reply().status == 400

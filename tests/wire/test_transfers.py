"""Callers that vanish, stall or lie while a file or an archive is on its way (contract e).

Whatever they do, the target holds its old content or all of the new, no temporary file is beside it, and the daemon
holds nothing for them afterwards.
"""

import gzip
import io
import os
import socket
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunningDaemon, start_daemon
from tests.wire.file_producers import FILE, TAR, archive, at
from tests.wire.support import DEADLINE, Raw, connect, request
from tests.wire.test_load import base

CAP = 100_000
"""`max_body_bytes` of the daemon, in bytes."""
LARGE = 64 * 1024 * 1024
"""More than sockets hold, in bytes."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that waits a second for bytes to come."""
    running = start_daemon(
        tmp_path_factory.mktemp("d"),
        env={
            "AGENTD_MAX_BODY_BYTES": str(CAP),
            "AGENTD_IDLE_TIMEOUT_SECS": "1",
            "AGENTD_DISK_RESERVE_BYTES": "0",
        },
    )
    running.bootstrap()
    yield running
    running.stop()


class Place:
    """A directory with one file in it, which nothing below may change by halves."""

    def __init__(self, daemon: RunningDaemon, directory: Path) -> None:
        self.daemon = daemon
        self.directory = directory
        self.file = directory / "file"
        self.file.write_bytes(b"old content")
        # Threads of the pool are kept: they are there before anything is counted.
        self.send(FILE, "Content-Length: 11", body=b"old content").reply()
        self.before = held(daemon)

    def target(self, route: str) -> str:
        """Where an upload goes: the file itself, or the directory around it."""
        return at(route, self.file if route == FILE else self.directory)

    def send(self, route: str, *headers: str, body: bytes, method: str = "PUT") -> Raw:
        """A request with headers as given, whatever its body is."""
        head = request(method, self.target(route), *headers, token=self.daemon.token)
        return connect(self.daemon).send(head, body)

    def check_daemon(self) -> None:
        """The daemon lets go of all that it has opened for its callers."""
        end = time.monotonic() + DEADLINE
        while (now := held(self.daemon)) != self.before:
            assert time.monotonic() < end, now

    def check(self, content: bytes = b"old content") -> None:
        """Nothing is here but the file, and the daemon is back at its base."""
        self.check_daemon()
        assert os.listdir(self.directory) == ["file"]
        assert self.file.read_bytes() == content


def held(daemon: RunningDaemon) -> tuple[tuple[str, ...], int]:
    """A daemon's descriptors and children, once the last connection is gone."""
    census = base(daemon)
    return census.descriptors, census.children


@pytest.fixture
def place(daemon: RunningDaemon, tmp_path: Path) -> Place:
    return Place(daemon, tmp_path)


BOTH = pytest.mark.parametrize("route", [FILE, TAR])


@BOTH
@pytest.mark.parametrize("sent", [0, 1, 700])
@pytest.mark.parametrize("coding", ["Content-Length: 5000", "Transfer-Encoding: chunked"])
def test_a_caller_that_vanishes_leaves_everything_as_it_was(
    place: Place, route: str, sent: int, coding: str
) -> None:
    data = archive("new", size=4000)[:sent]
    body = data if "Length" in coding else f"{len(data):x}\r\n".encode() + data + b"\r\n" if data else b""
    place.send(route, coding, body=body).close()
    place.check()


@BOTH
def test_a_caller_that_resets_the_connection_does_too(place: Place, route: str) -> None:
    caller = place.send(route, "Content-Length: 5000", body=archive("new")[:700])
    caller.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    caller.close()
    place.check()


@BOTH
def test_a_body_that_stalls_is_408(place: Place, route: str) -> None:
    caller = place.send(route, "Content-Length: 5000", body=archive("new")[:700])
    assert caller.reply().status == 408
    assert caller.until_closed() == b""
    caller.close()
    place.check()


def test_a_body_longer_than_declared_is_two_requests(place: Place) -> None:
    """And the second is none (RFC 9112, 6.3): the first is stored, and the connection ends with 400."""
    caller = place.send(FILE, "Content-Length: 3", body=b"newer content\r\n\r\n")
    assert caller.reply().status == 204
    assert caller.reply().status == 400
    assert caller.until_closed() == b""
    caller.close()
    place.check(b"new")


@BOTH
@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 3", "Content-Length: 4"),
        ("Content-Length: 3", "Transfer-Encoding: chunked"),
        ("Content-Length: -3",),
        ("Content-Length: 3, 4",),
        ("Transfer-Encoding: gzip",),
    ],
    ids=" ".join,
)
def test_a_length_that_is_none_is_refused_before_the_body(
    place: Place, route: str, headers: tuple[str, ...]
) -> None:
    """RFC 9112, 6.3: it is not guessed where the body ends."""
    caller = place.send(route, *headers, body=b"new")
    assert caller.reply().status in (400, 501)
    assert caller.until_closed() == b""
    caller.close()
    place.check()


@BOTH
@pytest.mark.parametrize("body", [b"zz\r\nnew\r\n", b"3\r\nnewer\r\n", b"-1\r\n", b"3;" + b"x" * 20_000])
def test_a_chunk_that_is_none_is_400(place: Place, route: str, body: bytes) -> None:
    caller = place.send(route, "Transfer-Encoding: chunked", body=body)
    assert caller.reply().status == 400
    assert caller.until_closed() == b""
    caller.close()
    place.check()


@BOTH
@pytest.mark.parametrize("chunk", [CAP + 1, 9000])
def test_chunks_over_the_cap_are_413(place: Place, route: str, chunk: int) -> None:
    """Counted on the wire, in one chunk or in many."""
    piece = f"{chunk:x}\r\n".encode() + bytes(chunk) + b"\r\n"
    caller = place.send(route, "Transfer-Encoding: chunked", body=piece * (CAP // chunk + 1) + b"0\r\n\r\n")
    assert caller.reply().status == 413
    caller.close()
    place.check()


@pytest.mark.parametrize("lines", ["", "&start_line=1&end_line=1"])
def test_a_reader_that_vanishes_takes_its_descriptor_along(place: Place, lines: str) -> None:
    with place.file.open("wb") as file:
        file.truncate(LARGE)  # one line
    caller = connect(place.daemon)
    caller.send(request("GET", at(FILE, place.file, lines), token=place.daemon.token))
    assert caller.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200")
    caller.close()
    place.check_daemon()


def test_a_reader_that_stalls_keeps_nobody_waiting(place: Place) -> None:
    """Also not the idle timeout: there is an answer under way. It reads on and gets every byte."""
    with place.file.open("wb") as file:
        file.truncate(LARGE)
    slow = connect(place.daemon)
    slow.send(request("GET", at(FILE, place.file), token=place.daemon.token))
    slow.until(b"\r\n\r\n")
    for _ in range(20):
        other = connect(place.daemon)
        small = request("GET", at(FILE, place.file), "Range: bytes=0-9", token=place.daemon.token)
        assert other.send(small).reply().body == bytes(10)
        other.close()
    left = LARGE
    while left:
        piece = slow.socket.recv(1 << 20)
        assert piece
        left -= len(piece)
    slow.close()
    place.check_daemon()


def test_a_tree_is_packed_in_the_coding_that_is_asked_for(place: Place) -> None:
    """On the wire, where no client decodes it (RFC 9110, 12.5.3)."""
    caller = connect(place.daemon)
    ask = request("GET", at(TAR, place.directory), "Accept-Encoding: gzip", token=place.daemon.token)
    head = caller.send(ask).until(b"\r\n\r\n").lower()
    assert b"content-encoding: gzip" in head
    caller.send(request("GET", "/v1/nowhere", "Connection: close"))
    body = caller.until_closed()
    caller.close()
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"content-length" in line), None
    )
    assert length is not None
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(body[:length]))) as reading:
        assert {member.name for member in reading} == {".", "./file"}

"""The raw client takes answers however they arrive, and says when one is cut."""

import socket
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.client import Connection, ProtocolError, Server

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n4\r\nwiki\r\n6;a=b\r\npedia!\r\n0\r\n\r\n"
)
MEASURED = b"HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nhello"
EMPTY = b"HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n"
EXPECTED = [(200, b"wikipedia!"), (404, b"hello"), (204, b""), (404, b"hello")]


class Speaker:
    """A server that says given pieces to whoever connects, then hangs up."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.server = Server("127.0.0.1", self._listening.getsockname()[1], "secret")
        self._thread = threading.Thread(target=self._speak)
        self._thread.start()

    def _speak(self) -> None:
        caller, _ = self._listening.accept()
        with caller:
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in self._pieces:
                caller.sendall(piece)

    def close(self) -> None:
        """Wait for it to end."""
        self._thread.join(10)
        self._listening.close()


@pytest.fixture
def speakers() -> Iterator[list[Speaker]]:
    """Speakers to close at the end of the test."""
    made: list[Speaker] = []
    yield made
    for speaker in made:
        speaker.close()


def spoken(pieces: list[bytes], answers: int) -> list[tuple[int, bytes]]:
    """The answers a client takes from what a server said in `pieces`."""
    speaker = Speaker(pieces)
    try:
        with Connection(speaker.server, timeout=10) as connection:
            taken = [connection.receive() for _ in range(answers)]
    finally:
        speaker.close()
    return [(answer.status, answer.body) for answer in taken]


@given(st.lists(st.integers(1, len(CHUNKED + MEASURED + EMPTY + MEASURED) - 1), max_size=8))
def test_answers_do_not_depend_on_how_they_are_cut(cuts: list[int]) -> None:
    """Chunked, measured and empty answers one after the other, in any pieces."""
    whole = CHUNKED + MEASURED + EMPTY + MEASURED
    marks = [0, *sorted(set(cuts)), len(whole)]
    pieces = [whole[begin:end] for begin, end in pairwise(marks)]
    assert spoken(pieces, 4) == EXPECTED


@pytest.mark.parametrize("answer", [CHUNKED[:-4], MEASURED[:-1], b"HTTP/1.1 200 OK\r\n", b""])
def test_a_cut_answer_is_an_error(answer: bytes) -> None:
    """Never a short body."""
    with pytest.raises(ProtocolError):
        spoken([answer], 1)


def test_bytes_that_are_no_answer_are_an_error() -> None:
    """Another protocol's greeting."""
    with pytest.raises(ProtocolError, match="not an HTTP answer"):
        spoken([b"220 mail ready\r\n\r\n"], 1)


def test_a_body_may_be_dropped_unseen(speakers: list[Speaker]) -> None:
    """`discard` counts a measured body, part of which came with the head, and a chunked one."""
    body = bytes(3_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    speakers.append(Speaker([head + body[:1000], body[1000:], CHUNKED, head, body[:-1]]))
    with Connection(speakers[0].server, timeout=10) as connection:
        assert connection.discard(connection.head()) == len(body)
        assert connection.discard(connection.head()) == 10
        with pytest.raises(ProtocolError, match="closed after 2999999 of 3000000 bytes"):
            connection.discard(connection.head())


def test_a_prepared_request_is_whole() -> None:
    """Host, token, own headers, length and body."""
    request = Server("localhost", 9000, "secret").post_json("/v1/x", {"a": 1}, ("Prefer: wait=5",))
    head, _, body = request.partition(b"\r\n\r\n")
    assert body == b'{"a": 1}'
    assert head.split(b"\r\n") == [
        b"POST /v1/x HTTP/1.1",
        b"Host: localhost:9000",
        b"Authorization: Bearer secret",
        b"Content-Type: application/json",
        b"Prefer: wait=5",
        b"Content-Length: 8",
    ]


def test_the_token_is_not_shown() -> None:
    """Neither where a server is printed nor where it is refused."""
    assert "secret" not in repr(Server("localhost", 9000, "secret"))
    with pytest.raises(ValueError, match="expected http://") as refused:
        Server.from_url("https://localhost", "secret")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [("http://127.0.0.1:9000", "127.0.0.1", 9000), ("http://vm/", "vm", 80), ("http://[::1]:1", "::1", 1)],
)
def test_urls(url: str, host: str, port: int) -> None:
    """Host and port of a cleartext URL."""
    found = Server.from_url(url, None)
    assert (found.host, found.port) == (host, port)


@pytest.mark.parametrize("url", ["https://vm:1", "vm:9000", "http://", "http://vm/path", "http://vm?x=1"])
def test_urls_that_are_refused(url: str) -> None:
    """Whatever a bare socket and absolute paths cannot serve."""
    with pytest.raises(ValueError, match="expected http://"):
        Server.from_url(url, None)

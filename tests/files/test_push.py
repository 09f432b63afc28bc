"""A large file on its way to a connection within the kernel: every byte in order, and nothing kept open.

The consumer here writes the first piece to a socket pair, as a connection's buffer does, and then asks for more.
"""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import CancelledError, Deferred

from agentd.files import read as module
from agentd.files.errors import FilesError
from agentd.files.read import CHUNK_BYTES, PUSH_BYTES
from agentd.files.send import PUSH_LEAST_BYTES, ConsumerVanished, FileRead
from agentd.files.service import Files
from tests.files.support import Consumer, until

pytestmark = pytest.mark.usefixtures("no_descriptor_left")
SIZE = CHUNK_BYTES + 3 * PUSH_BYTES + 12345


class Pair:
    """Both ends of a connection; the far one is read by hand."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.received = bytearray()

    def drain(self, most: int = 1 << 30) -> bool:
        """Take what has come, and say whether the end has."""
        while len(self.received) < most:
            try:
                piece = self.far.recv(1 << 20)
            except BlockingIOError:
                return False
            if not piece:
                return True
            self.received += piece
        return False


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.near.close()
    made.far.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(os.urandom(SIZE))
    return path


async def begun(
    files: Files, path: Path, pair: Pair, field: str | None = None
) -> tuple[Consumer, "Deferred[int]"]:
    """A transfer whose first piece is in the consumer, which has paused."""
    found: FileRead = await files.read(os.fsencode(path), range_field=field)
    consumer = Consumer(pause_every=1)
    sending = found.send(consumer, os.dup(pair.near.fileno()))
    await until(files.reactor, lambda: consumer.paused)
    return consumer, sending


async def taken(files: Files, pair: Pair, sending: "Deferred[int]") -> int:
    """Read the far end until the transfer is over; what it fires with."""
    await until(files.reactor, lambda: pair.drain() or sending.called)
    pair.drain()
    return await sending


@pytest_twisted.ensureDeferred
async def test_the_rest_goes_past_the_consumer(files: Files, source: Path, pair: Pair) -> None:
    consumer, sending = await begun(files, source, pair)
    assert consumer.data == source.read_bytes()[:CHUNK_BYTES]
    assert not pair.drain()
    assert not pair.received, "nothing may overtake what the consumer still has"
    consumer.resume()
    assert await taken(files, pair, sending) == SIZE
    assert consumer.data + pair.received == source.read_bytes()
    assert consumer.producer is None


@pytest_twisted.ensureDeferred
async def test_a_range_too(files: Files, source: Path, pair: Pair) -> None:
    first, last = 1000, SIZE - 1000
    consumer, sending = await begun(files, source, pair, f"bytes={first}-{last}")
    consumer.resume()
    assert await taken(files, pair, sending) == last - first + 1
    assert consumer.data + pair.received == source.read_bytes()[first : last + 1]


@pytest_twisted.ensureDeferred
async def test_what_is_small_goes_through_the_consumer(files: Files, tmp_path: Path, pair: Pair) -> None:
    data = os.urandom(CHUNK_BYTES + PUSH_LEAST_BYTES - 1)
    (tmp_path / "small").write_bytes(data)
    consumer, sending = await begun(files, tmp_path / "small", pair)
    while not sending.called:
        await until(files.reactor, lambda: consumer.paused or sending.called)
        consumer.resume()
    assert await sending == len(data)
    assert consumer.data == data
    assert not pair.drain()
    assert not pair.received


@pytest_twisted.ensureDeferred
async def test_a_stalled_reader_costs_nothing_and_goes_on(files: Files, source: Path, pair: Pair) -> None:
    consumer, sending = await begun(files, source, pair)
    consumer.resume()
    watching = files.reactor.getWriters
    await until(files.reactor, lambda: any(type(each).__name__ == "_Readiness" for each in watching()))
    assert not sending.called
    assert await taken(files, pair, sending) == SIZE
    assert consumer.data + pair.received == source.read_bytes()


@pytest_twisted.ensureDeferred
async def test_a_reader_that_goes_away_ends_it(files: Files, source: Path, pair: Pair) -> None:
    consumer, sending = await begun(files, source, pair)
    pair.far.close()
    consumer.resume()
    with pytest.raises(ConsumerVanished):
        await sending


@pytest.mark.parametrize("stalled", [False, True])
@pytest_twisted.ensureDeferred
async def test_it_can_be_cancelled_whenever(files: Files, source: Path, pair: Pair, stalled: bool) -> None:
    consumer, sending = await begun(files, source, pair)
    consumer.resume()
    if stalled:
        watching = files.reactor.getWriters
        await until(files.reactor, lambda: any(type(each).__name__ == "_Readiness" for each in watching()))
    sending.cancel()
    with pytest.raises(CancelledError):
        await sending
    assert consumer.producer is None
    consumer.resume()


@pytest_twisted.ensureDeferred
async def test_the_consumer_can_stop_it(files: Files, source: Path, pair: Pair) -> None:
    consumer, sending = await begun(files, source, pair)
    consumer.resume()
    consumer.producer.stopProducing()
    with pytest.raises(ConsumerVanished):
        await sending


@pytest_twisted.ensureDeferred
async def test_a_file_that_shrinks_fails_it(files: Files, source: Path, pair: Pair) -> None:
    consumer, sending = await begun(files, source, pair)
    os.truncate(source, CHUNK_BYTES + 1000)
    consumer.resume()
    with pytest.raises(FilesError, match="became shorter"):
        await taken(files, pair, sending)
    assert len(pair.received) == 1000


@pytest.mark.parametrize("after", [0, 1])
@pytest_twisted.ensureDeferred
async def test_where_the_kernel_cannot_it_goes_through_the_consumer(
    files: Files, source: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """From the byte that is next, also in the middle."""
    real, calls = os.sendfile, 0

    def refusing(*arguments: Any) -> int:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(errno.EINVAL, "not on this file system")
        return real(*arguments[:3], 70_000)

    monkeypatch.setattr(module.os, "sendfile", refusing)
    consumer, sending = await begun(files, source, pair)
    consumer.resume()
    while not sending.called:
        await until(files.reactor, lambda: consumer.paused or sending.called)
        consumer.resume()
    assert await sending == SIZE
    pair.drain()
    content = source.read_bytes()
    assert len(pair.received) == 70_000 * after
    middle = CHUNK_BYTES + len(pair.received)
    assert consumer.data[:CHUNK_BYTES] + pair.received + consumer.data[CHUNK_BYTES:] == content
    assert middle < SIZE


@pytest_twisted.ensureDeferred
async def test_an_error_of_the_disk_is_one_of_the_file(
    files: Files, source: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> int:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(module.os, "sendfile", broken)
    consumer, sending = await begun(files, source, pair)
    consumer.resume()
    with pytest.raises(FilesError, match="cannot read"):
        await sending

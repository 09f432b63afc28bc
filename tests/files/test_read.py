"""Reading files: whole, windows, ranges, back-pressure, and whoever goes away (contract a.10, e.2)."""

import os
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import CancelledError

from agentd.files.errors import Kind, RangeUnsatisfiable
from agentd.files.read import CHUNK_BYTES
from agentd.files.send import ConsumerVanished
from agentd.files.service import Files
from agentd.rules.lines import LineWindow
from tests.files.support import Consumer, refusal, until

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

SIZES = [0, 1, 5, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 17]


def content(size: int) -> bytes:
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
@pytest_twisted.ensureDeferred
async def test_a_whole_file_with_its_length(files: Files, tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(size))
    read = await files.read(os.fsencode(path))
    consumer = Consumer()
    assert read.length == size
    assert await read.send(consumer) == size
    assert consumer.data == content(size)
    assert consumer.producer is None
    assert consumer.registered == 1


@pytest.mark.parametrize("name", ["\N{PILE OF POO}", 'a"quote\nand newline', b"\xff\xfe not UTF-8"])
@pytest_twisted.ensureDeferred
async def test_any_name(files: Files, tmp_path: Path, name: str | bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), os.fsencode(name))
    with open(path, "wb") as file:
        file.write(b"here")
    consumer = Consumer()
    await (await files.read(path)).send(consumer)
    assert consumer.data == b"here"


@pytest.mark.parametrize(
    ("field", "piece", "known"),
    [
        ("bytes=0-0", slice(0, 1), True),
        ("bytes=100000-499999", slice(100_000, 500_000), True),
        ("bytes=-5", slice(-5, None), True),
        ("bytes=999999-", slice(999_999, None), True),
        ("bytes=1-2,5-6", slice(None), False),
        ("nonsense", slice(None), False),
    ],
)
@pytest_twisted.ensureDeferred
async def test_ranges(files: Files, tmp_path: Path, field: str, piece: slice, known: bool) -> None:
    path = tmp_path / "file"
    whole = content(1_000_000)
    path.write_bytes(whole)
    read = await files.read(os.fsencode(path), range_field=field)
    consumer = Consumer()
    assert (read.range is not None) is known
    assert read.size == len(whole)
    assert read.length == len(whole[piece])
    await read.send(consumer)
    assert consumer.data == whole[piece]


@pytest_twisted.ensureDeferred
async def test_a_range_behind_the_end(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    error = await refusal(files.read(os.fsencode(path), range_field="bytes=5-"))
    assert isinstance(error, RangeUnsatisfiable)
    assert error.kind is Kind.UNSATISFIABLE
    assert error.size == 5


@pytest_twisted.ensureDeferred
async def test_a_window_ignores_a_range_and_knows_a_short_length(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\nb\nc\n")
    read = await files.read(os.fsencode(path), LineWindow(2, 3), "bytes=0-0")
    consumer = Consumer()
    assert read.range is None
    assert read.length == 4
    await read.send(consumer)
    assert consumer.data == b"b\nc\n"


@pytest.mark.parametrize(
    ("first", "last"), [(1, 1), (100_000, 100_001), (199_999, None), (200_001, None), (7, 150_000)]
)
@pytest_twisted.ensureDeferred
async def test_windows_of_a_long_file(files: Files, tmp_path: Path, first: int, last: int | None) -> None:
    path = tmp_path / "file"
    lines = [b"line %d\n" % number for number in range(1, 200_001)]
    path.write_bytes(b"".join(lines))
    read = await files.read(os.fsencode(path), LineWindow(first, last))
    consumer = Consumer()
    await read.send(consumer)
    assert consumer.data == b"".join(lines[first - 1 : last])


@pytest_twisted.ensureDeferred
async def test_a_closed_window_stops_reading(files: Files, tmp_path: Path) -> None:
    """The file has no end, so reading it to its end would never come to one."""
    read = await files.read(b"/dev/zero", LineWindow(1, 1))
    consumer = Consumer(pause_every=1)
    sending = read.send(consumer)
    await until(files.reactor, lambda: consumer.pieces)
    sending.addErrback(lambda _: None).cancel()
    path = tmp_path / "file"
    path.write_bytes(b"first\n" + b"x" * (64 * CHUNK_BYTES))
    read = await files.read(os.fsencode(path), LineWindow(1, 1))
    assert os.lseek(read._content.fd, 0, os.SEEK_CUR) == CHUNK_BYTES
    assert read.length == 6
    consumer = Consumer()
    assert await read.send(consumer) == 6


@pytest_twisted.ensureDeferred
async def test_a_file_that_knows_its_size_only_when_read(files: Files) -> None:
    consumer = Consumer()
    read = await files.read(b"/proc/self/status")
    await read.send(consumer)
    assert b"Name:" in consumer.data
    assert read.length == len(consumer.data)


@pytest_twisted.ensureDeferred
async def test_a_file_that_claims_a_page(files: Files) -> None:
    consumer = Consumer()
    read = await files.read(b"/sys/kernel/mm/transparent_hugepage/enabled")
    await read.send(consumer)
    assert 0 < len(consumer.data) < 4096
    assert read.length == len(consumer.data)


@pytest_twisted.ensureDeferred
async def test_refusals(files: Files, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    for path, kind in {
        b"": Kind.NOT_FOUND,
        b"nul\0byte": Kind.BAD_REQUEST,
        os.fsencode(tmp_path / "nothing"): Kind.NOT_FOUND,
        os.fsencode(tmp_path / "no" / "directory"): Kind.NOT_FOUND,
        os.fsencode(tmp_path): Kind.BAD_REQUEST,
        os.fsencode(tmp_path / "file" / "below"): Kind.FAILED,
        os.fsencode(tmp_path / "loop"): Kind.FAILED,
        os.fsencode(tmp_path / ("x" * 300)): Kind.FAILED,
    }.items():
        error = await refusal(files.read(path))
        assert error.kind is kind, (path, error)
        assert "\n" not in error.detail


@pytest_twisted.ensureDeferred
async def test_a_paused_consumer_is_not_written_to_and_loses_nothing(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(2_000_000))
    consumer = Consumer(pause_every=1)
    sending = (await files.read(os.fsencode(path))).send(consumer)
    while not sending.called:
        await until(files.reactor, lambda: consumer.paused or sending.called)
        consumer.resume()
    assert await sending == 2_000_000
    assert consumer.data == content(2_000_000)


@pytest_twisted.ensureDeferred
async def test_one_piece_is_read_ahead_and_no_more(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(10 * CHUNK_BYTES))
    consumer = Consumer(pause_every=1)
    read = await files.read(os.fsencode(path))
    sending = read.send(consumer)
    await until(files.reactor, lambda: os.lseek(read._content.fd, 0, os.SEEK_CUR) == 2 * CHUNK_BYTES)
    for _ in range(50):
        await until(files.reactor, lambda: True)
    assert os.lseek(read._content.fd, 0, os.SEEK_CUR) == 2 * CHUNK_BYTES
    assert len(consumer.pieces) == 1
    sending.addErrback(lambda _: None).cancel()


@pytest.mark.parametrize("pieces", [0, 1, 3])
@pytest_twisted.ensureDeferred
async def test_a_vanished_consumer_ends_the_transfer(files: Files, tmp_path: Path, pieces: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(50 * CHUNK_BYTES))
    consumer = Consumer()
    sending = (await files.read(os.fsencode(path))).send(consumer)
    await until(files.reactor, lambda: len(consumer.pieces) >= pieces)
    consumer.producer.stopProducing()
    with pytest.raises(ConsumerVanished):
        await sending
    assert len(consumer.pieces) < 50


@pytest_twisted.ensureDeferred
async def test_cancelling_ends_the_transfer(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(50 * CHUNK_BYTES))
    consumer = Consumer()
    sending = (await files.read(os.fsencode(path))).send(consumer)
    await until(files.reactor, lambda: consumer.pieces)
    sending.cancel()
    with pytest.raises(CancelledError):
        await sending
    assert consumer.producer is None


@pytest_twisted.ensureDeferred
async def test_cancelling_while_opening_leaks_nothing(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(1000))
    for _ in range(20):
        opening = files.read(os.fsencode(path))
        opening.cancel()
        with pytest.raises(CancelledError):
            await opening


@pytest_twisted.ensureDeferred
async def test_closing_without_sending(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(1000))
    await (await files.read(os.fsencode(path))).close()


@pytest_twisted.ensureDeferred
async def test_a_file_that_shrinks_fails_instead_of_lying(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(10 * CHUNK_BYTES))
    read = await files.read(os.fsencode(path))
    os.truncate(path, CHUNK_BYTES + 10)
    consumer = Consumer()
    error = await refusal(read.send(consumer))
    assert error.kind is Kind.FAILED
    assert consumer.producer is None


@pytest_twisted.ensureDeferred
async def test_a_file_that_grows_is_sent_up_to_its_length(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(2 * CHUNK_BYTES))
    read = await files.read(os.fsencode(path))
    with path.open("ab") as file:
        file.write(b"more")
    consumer = Consumer()
    assert await read.send(consumer) == read.length == 2 * CHUNK_BYTES


@pytest_twisted.ensureDeferred
async def test_a_fifo_is_read_as_its_writer_goes_on(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    keep = os.open(path, os.O_RDWR)
    try:
        read = await files.read(os.fsencode(path))
        consumer = Consumer()
        assert read.length is None
        sending = read.send(consumer)
        os.write(keep, b"one ")
        await until(files.reactor, lambda: consumer.data == b"one ")
        os.write(keep, b"two")
        await until(files.reactor, lambda: consumer.data == b"one two")
        # While it waits it holds no thread: others can be served by the same two.
        for _ in range(4):
            await (await files.read(b"/proc/self/stat")).close()
    finally:
        os.close(keep)
    assert await sending == 7


@pytest_twisted.ensureDeferred
async def test_waiting_for_a_fifo_can_be_cancelled(files: Files, tmp_path: Path, reactor: Any) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    keep = os.open(path, os.O_RDWR)
    try:
        watched = len(reactor.getReaders())
        sending = (await files.read(os.fsencode(path))).send(Consumer())
        await until(reactor, lambda: len(reactor.getReaders()) > watched)
        sending.cancel()
        with pytest.raises(CancelledError):
            await sending
        assert len(reactor.getReaders()) == watched
    finally:
        os.close(keep)


@pytest_twisted.ensureDeferred
async def test_a_fifo_without_a_writer_is_empty(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    assert await (await files.read(os.fsencode(path))).send(Consumer()) == 0

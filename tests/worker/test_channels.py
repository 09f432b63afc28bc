"""Byte streams at an engine: both directions, both ends, slow and broken peers."""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from agentd.files.read import Content, open_content
from agentd.worker.channels import EngineChannels
from agentd.worker.errors import Coded
from agentd.worker.websocket import ClientSocket, connect, parse_address
from tests.process.support import reactor, soon, until
from tests.worker.conftest import Working
from tests.worker.engine import Failed, TestEngine
from tests.worker.support import Clock, RunningWorker


class End:
    """The caller's end of a channel."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.texts: list[str] = []
        self.over = False
        self.socket: ClientSocket | None = None

    def message(self, payload: bytes, binary: bool) -> None:
        if binary:
            self.chunks.append(payload)
        else:
            self.texts.append(payload.decode())

    def heard(self) -> None:
        pass

    def closed(self, reason: str) -> None:
        self.over = True

    async def open(self, engine: TestEngine, reference: dict[str, Any], direction: str) -> "End":
        address = parse_address(engine.url)
        url = address.channel(reference["channel_id"], reference["access_key"], direction)
        self.socket = await soon(connect(reactor, address, url, self))
        return self

    async def ended(self) -> bytes:
        await until(lambda: self.over, "the end of the stream")
        return b"".join(self.chunks)


def channels(worker: RunningWorker) -> EngineChannels:
    assert worker.worker.service is not None
    found = worker.worker.service._channels
    assert found is not None
    return found


def content(path: Path) -> Content:
    return open_content(os.fsencode(path), None, None)


async def create(engine: TestEngine) -> dict[str, Any]:
    found: dict[str, Any] = await soon(engine.call("engine::channels::create"))
    return found


# -- sending -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 3_000_000])
@pytest_twisted.ensureDeferred
async def test_a_file_is_sent_in_frames_behind_the_answer(
    working: Working, engine: TestEngine, tmp_path: Path, size: int
) -> None:
    worker = await working()
    file = tmp_path / "file"
    file.write_bytes(os.urandom(size))
    reference = await soon(channels(worker).send(content(file)))
    assert set(reference) == {"channel_id", "access_key", "direction"}
    assert reference["direction"] == "read"
    reader = await End().open(engine, reference, "read")
    assert await reader.ended() == file.read_bytes()
    assert all(len(chunk) <= 65_536 for chunk in reader.chunks)
    assert reader.texts == []


@pytest_twisted.ensureDeferred
async def test_a_slow_reader_slows_the_reading(working: Working, engine: TestEngine, tmp_path: Path) -> None:
    worker = await working()
    file = tmp_path / "file"
    size = 64 << 20
    with open(file, "wb") as made:
        made.truncate(size)
    opened = content(file)
    reference = await soon(channels(worker).send(opened))
    channel = engine.channels[reference["channel_id"]]
    await until(lambda: len(channel.held) >= channel.buffer, "a full channel")
    reads = []
    for _ in range(20):
        reads.append(os.lseek(opened.fd, 0, os.SEEK_CUR))
        await deferLater(reactor, 0.02)
    await until(lambda: os.lseek(opened.fd, 0, os.SEEK_CUR) < size // 2, "a file that is not read through")
    assert reads[-1] < size // 2
    reader = await End().open(engine, reference, "read")
    assert len(await reader.ended()) == size
    await until(lambda: opened.fd < 0, "the closed file")


@pytest_twisted.ensureDeferred
async def test_a_reader_that_comes_late_gets_everything(
    working: Working, engine: TestEngine, tmp_path: Path
) -> None:
    worker = await working(clock=Clock(20))
    file = tmp_path / "file"
    file.write_bytes(os.urandom(8 << 20))
    reference = await soon(channels(worker).send(content(file)))
    await deferLater(
        reactor, 0.5
    )  # 10 s of the worker's clock, twice what an engine gets for a closing handshake
    reader = await End().open(engine, reference, "read")
    assert await reader.ended() == file.read_bytes()


@pytest_twisted.ensureDeferred
async def test_a_file_that_shrinks_ends_with_a_message(
    working: Working, engine: TestEngine, tmp_path: Path
) -> None:
    worker = await working()
    file = tmp_path / "file"
    with open(file, "wb") as made:
        made.truncate(32 << 20)
    reference = await soon(channels(worker).send(content(file)))
    channel = engine.channels[reference["channel_id"]]
    await until(lambda: len(channel.held) >= channel.buffer, "a full channel")
    os.truncate(file, 1 << 20)
    reader = await End().open(engine, reference, "read")
    assert len(await reader.ended()) < 32 << 20
    assert "became shorter" in json.loads(reader.texts[0])["error"]


@pytest_twisted.ensureDeferred
async def test_a_reader_that_leaves_ends_the_pump(
    working: Working, engine: TestEngine, tmp_path: Path
) -> None:
    worker = await working()
    file = tmp_path / "file"
    with open(file, "wb") as made:
        made.truncate(64 << 20)
    opened = content(file)
    reference = await soon(channels(worker).send(opened))
    channel = engine.channels[reference["channel_id"]]
    await until(lambda: channel.writer is not None, "the writer")
    assert channel.writer is not None
    channel.writer.transport.abortConnection()
    await until(lambda: opened.fd < 0, "the closed file")


@pytest.mark.parametrize(
    "answer", [None, {}, {"writer": {}, "reader": {}}, Failed("FORBIDDEN", "no channels")]
)
@pytest_twisted.ensureDeferred
async def test_without_a_channel_sending_is_s216(
    working: Working, engine: TestEngine, tmp_path: Path, answer: Any
) -> None:
    worker = await working()

    def create(data: Any) -> Any:
        if isinstance(answer, Failed):
            raise answer
        return answer

    engine.provided["engine::channels::create"] = create
    file = tmp_path / "file"
    file.write_bytes(b"x")
    opened = content(file)
    with pytest.raises(Coded, match="S216"):
        await soon(channels(worker).send(opened))
    await until(lambda: opened.fd < 0, "the closed file")


@pytest_twisted.ensureDeferred
async def test_a_channel_that_cannot_be_opened_closes_the_file(
    working: Working, engine: TestEngine, tmp_path: Path
) -> None:
    worker = await working()
    reference = {"channel_id": "unknown", "access_key": "k"}
    engine.provided["engine::channels::create"] = lambda data: {"writer": reference, "reader": reference}
    file = tmp_path / "file"
    file.write_bytes(b"x")
    opened = content(file)
    await soon(channels(worker).send(opened))
    await until(lambda: opened.fd < 0, "the closed file")


# -- receiving -----------------------------------------------------------------------------------------------------


class Sink:
    """Takes chunks, as slowly as it is told to."""

    def __init__(self, wait: Callable[[], Awaitable[object]] | None = None) -> None:
        self.data = bytearray()
        self._wait = wait

    def write(self, chunk: bytes) -> Awaitable[object] | None:
        self.data += chunk
        return None if self._wait is None else self._wait()


@pytest_twisted.ensureDeferred
async def test_a_callers_bytes_are_written_until_the_close(working: Working, engine: TestEngine) -> None:
    worker = await working()
    made = await create(engine)
    sink = Sink()
    receiving = Deferred.fromCoroutine(channels(worker).receive(made["reader"], sink.write))
    writer = await End().open(engine, made["writer"], "write")
    assert writer.socket is not None
    data = os.urandom(1_000_000)
    for start in range(0, len(data), 50_000):
        writer.socket.say(data[start : start + 50_000], True)
        writer.socket.say(b'{"progress":1}')
    writer.socket.close()
    assert await soon(receiving) == len(data)
    assert sink.data == data


@pytest_twisted.ensureDeferred
async def test_an_end_at_once_is_an_empty_stream(working: Working, engine: TestEngine) -> None:
    worker = await working()
    made = await create(engine)
    writer = await End().open(engine, made["writer"], "write")
    assert writer.socket is not None
    writer.socket.close()
    reference = {key: made["reader"][key] for key in ("channel_id", "access_key")}
    sink = Sink()
    assert await soon(channels(worker).receive(reference, sink.write)) == 0
    # An end that somebody else has taken looks the same.
    assert await soon(channels(worker).receive(reference, sink.write)) == 0


@pytest_twisted.ensureDeferred
async def test_a_slow_writer_of_files_slows_the_caller(working: Working, engine: TestEngine) -> None:
    worker = await working()
    made = await create(engine)
    gates: list[Deferred[None]] = []

    def wait() -> Deferred[None]:
        gates.append(Deferred())
        return gates[-1]

    sink = Sink(wait)
    receiving = Deferred.fromCoroutine(channels(worker).receive(made["reader"], sink.write))
    channel = engine.channels[made["reader"]["channel_id"]]
    writer = await End().open(engine, made["writer"], "write")
    assert writer.socket is not None
    for _ in range(600):
        writer.socket.say(bytes(65_536), True)
    writer.socket.close(60)
    await until(lambda: gates and channel.slow, "back-pressure")
    held = [len(channel.held)]
    for _ in range(20):
        await deferLater(reactor, 0.01)
        held.append(len(channel.held))
    assert len(sink.data) == 65_536
    assert len(gates) == 1
    while not receiving.called:
        for gate in gates:
            if not gate.called:
                gate.callback(None)
        await deferLater(reactor, 0)
    assert await soon(receiving) == 600 * 65_536


@pytest_twisted.ensureDeferred
async def test_a_stream_without_a_frame_for_long_is_s216(working: Working, engine: TestEngine) -> None:
    worker = await working(clock=Clock(20))
    made = await create(engine)
    writer = await End().open(engine, made["writer"], "write")
    assert writer.socket is not None
    writer.socket.say(b"some", True)
    sink = Sink()
    with pytest.raises(Coded, match="S216"):
        await soon(channels(worker).receive(made["reader"], sink.write))
    assert sink.data == b"some"


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ({"channel_id": "unknown", "access_key": "k"}, "S216"),
        ({"channel_id": "a/../b?x", "access_key": "k&dir=write"}, "S216"),
        ({"channel_id": "c"}, "S210"),
        ({"channel_id": 1, "access_key": "k"}, "S210"),
        ({"channel_id": "c", "access_key": "k", "direction": "write"}, "S210"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_reference_that_is_no_readers(working: Working, reference: dict[str, Any], code: str) -> None:
    worker = await working()
    with pytest.raises(Coded, match=code):
        await soon(channels(worker).receive(reference, Sink().write))


@pytest_twisted.ensureDeferred
async def test_a_wrong_key_is_s216(working: Working, engine: TestEngine) -> None:
    worker = await working()
    made = await create(engine)
    with pytest.raises(Coded, match="404"):
        await soon(channels(worker).receive({**made["reader"], "access_key": "wrong"}, Sink().write))


@pytest_twisted.ensureDeferred
async def test_what_the_writing_raises_ends_the_reading(working: Working, engine: TestEngine) -> None:
    worker = await working()
    made = await create(engine)
    writer = await End().open(engine, made["writer"], "write")
    assert writer.socket is not None
    writer.socket.say(b"x", True)

    def full(chunk: bytes) -> None:
        raise Coded("S218", "too much")

    with pytest.raises(Coded, match="S218"):
        await soon(channels(worker).receive(made["reader"], full))
    await until(lambda: not [each for each in engine.sockets if each.side == "read"], "the closed end")


@pytest_twisted.ensureDeferred
async def test_a_stopping_worker_closes_its_channels(
    working: Working, engine: TestEngine, tmp_path: Path
) -> None:
    worker = await working()
    made = await create(engine)
    receiving = Deferred.fromCoroutine(channels(worker).receive(made["reader"], Sink().write))
    file = tmp_path / "file"
    with open(file, "wb") as big:
        big.truncate(64 << 20)
    opened = content(file)
    await soon(channels(worker).send(opened))
    await until(lambda: len([each for each in engine.sockets if each.channel]) == 2, "both channels")
    await soon(worker.worker.stop())
    with pytest.raises(Coded, match="S216"):
        await soon(receiving)
    await until(lambda: opened.fd < 0, "the closed file")
    await until(lambda: not engine.sockets, "the closed channels")

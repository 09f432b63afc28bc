"""The daemon's ends of pipes, on real pipes and the real reactor."""

import errno
import fcntl
import os
from collections.abc import Iterator

import pytest
import pytest_twisted
from twisted.internet import task
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from agentd.process import pipes as module
from agentd.process.pipes import FULL_BYTES, PIPE_BYTES, READ_BYTES, READS_PER_WAKE, PipeReader, PipeWriter
from agentd.rules.stdin import Result, Written
from tests.process.support import pending, reactor, result_of, turn, until

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe: its read end and its write end, closed afterwards unless they have been."""
    ends = os.pipe2(os.O_CLOEXEC)
    for end in ends:
        os.set_blocking(end, False)
    copies = [os.fstat(end) for end in ends]
    yield ends
    for end, was in zip(ends, copies, strict=True):
        try:
            found = os.fstat(end)
        except OSError:
            continue
        if (found.st_ino, found.st_dev) == (was.st_ino, was.st_dev):
            os.close(end)


class Feed:
    """What a reader was fed, and whether it ended."""

    def __init__(self, fd: int) -> None:
        self.data = bytearray()
        self.sizes: list[int] = []
        self.ended = 0
        self.reader = PipeReader(reactor, fd, self._take, self._end)

    def _take(self, data: memoryview) -> None:
        self.data += data
        self.sizes.append(len(data))

    def _end(self) -> None:
        self.ended += 1


# -- reading ---------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_it_reads_to_the_end_and_says_so_once(pipe: Pipe) -> None:
    feed = Feed(pipe[0])
    os.write(pipe[1], b"some")
    await until(lambda: feed.data == b"some")
    os.write(pipe[1], b"more")
    os.close(pipe[1])
    await until(lambda: feed.ended)
    assert feed.data == b"somemore"
    assert not feed.reader.open
    feed.reader.connectionLost(Failure(ConnectionDone()))
    feed.reader.close()
    feed.reader.read_rest()
    assert feed.ended == 1


@pytest_twisted.ensureDeferred
async def test_an_end_without_a_byte(pipe: Pipe) -> None:
    feed = Feed(pipe[0])
    os.close(pipe[1])
    await until(lambda: feed.ended)
    assert feed.data == b""


@pytest_twisted.ensureDeferred
async def test_a_pipe_that_filled_up_is_widened(pipe: Pipe) -> None:
    before = fcntl.fcntl(pipe[0], fcntl.F_GETPIPE_SZ)
    feed = Feed(pipe[0])
    os.write(pipe[1], bytes(100))
    await until(lambda: feed.data)
    assert fcntl.fcntl(pipe[0], fcntl.F_GETPIPE_SZ) == before
    os.write(pipe[1], bytes(FULL_BYTES))
    await until(lambda: len(feed.data) == 100 + FULL_BYTES)
    assert fcntl.fcntl(pipe[0], fcntl.F_GETPIPE_SZ) == PIPE_BYTES
    feed.reader.close()


def test_one_turn_reads_so_much_and_no_more(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that writes faster than it is read must not keep the reactor."""
    feed = Feed(pipe[0])
    monkeypatch.setattr(module.os, "readv", lambda fd, rooms: len(rooms[0]))
    assert feed.reader.doRead() is None
    assert feed.sizes == [READ_BYTES] * READS_PER_WAKE
    feed.reader.close()


@pytest_twisted.ensureDeferred
async def test_paused_it_leaves_everything_in_the_pipe(pipe: Pipe) -> None:
    feed = Feed(pipe[0])
    feed.reader.pause()
    feed.reader.pause()
    os.write(pipe[1], b"later")
    for _ in range(5):
        await turn()
    assert feed.data == b""
    feed.reader.resume()
    feed.reader.resume()
    await until(lambda: feed.data == b"later")
    feed.reader.close()


def test_a_pause_out_of_a_feed_ends_the_reading(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    reader = PipeReader(
        reactor, pipe[0], lambda data: (sizes.append(len(data)), reader.pause()), lambda: None
    )  # type: ignore[func-returns-value]
    monkeypatch.setattr(module.os, "readv", lambda fd, rooms: len(rooms[0]))
    reader.doRead()
    assert sizes == [READ_BYTES]
    reader.close()


def test_a_close_out_of_a_feed_ends_the_reading(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    reader = PipeReader(
        reactor, pipe[0], lambda data: (sizes.append(len(data)), reader.close()), lambda: None
    )  # type: ignore[func-returns-value]
    monkeypatch.setattr(module.os, "readv", lambda fd, rooms: len(rooms[0]))
    assert reader.doRead() is None
    assert sizes == [READ_BYTES]


def test_the_rest_is_read_at_once_even_when_paused(pipe: Pipe) -> None:
    feed = Feed(pipe[0])
    feed.reader.pause()
    os.write(pipe[1], b"rest")
    os.close(pipe[1])
    feed.reader.read_rest()
    assert (feed.data, feed.ended) == (b"rest", 1)


def test_the_rest_of_a_pipe_that_is_held_open_does_not_end_it(pipe: Pipe) -> None:
    feed = Feed(pipe[0])
    os.write(pipe[1], b"rest")
    feed.reader.read_rest()
    assert (feed.data, feed.ended, feed.reader.open) == (b"rest", 0, True)
    feed.reader.close()


@pytest_twisted.ensureDeferred
async def test_a_hang_up_that_is_not_true_changes_nothing(pipe: Pipe) -> None:
    """The reactor's event may be of an older descriptor with this number; it stops watching all the same."""
    feed = Feed(pipe[0])
    os.write(pipe[1], b"a")
    reactor.removeReader(feed.reader)
    feed.reader.connectionLost(Failure(ConnectionDone()))
    assert (feed.data, feed.ended) == (b"a", 0)
    os.write(pipe[1], b"b")
    await until(lambda: feed.data == b"ab")
    feed.reader.doWrite()
    feed.reader.close()


@pytest_twisted.ensureDeferred
async def test_a_hang_up_that_is_not_true_does_not_wake_a_paused_reader(pipe: Pipe) -> None:
    feed = Feed(pipe[0])
    feed.reader.pause()
    feed.reader.connectionLost(Failure(ConnectionDone()))
    assert feed.reader not in reactor.getReaders()
    feed.reader.close()


def test_closed_it_has_no_number_that_could_be_anothers(pipe: Pipe) -> None:
    feed = Feed(pipe[0])
    feed.reader.close()
    assert feed.reader.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pipe[0])
    assert feed.ended == 0


# -- writing ---------------------------------------------------------------------------------------------------


def fill(fd: int) -> int:
    """Write to a pipe until it is full; how many bytes that took."""
    total = 0
    try:
        while True:
            total += os.write(fd, bytes(4096))
    except BlockingIOError:
        return total


def drain(fd: int) -> bytes:
    """Everything that is in a pipe now."""
    data = bytearray()
    try:
        while piece := os.read(fd, 1 << 20):
            data += piece
    except BlockingIOError:
        pass
    return bytes(data)


def writer_of(pipe: Pipe, timeout: float = 30.0, clock: object = reactor) -> PipeWriter:
    return PipeWriter(clock, pipe[1], timeout)


class WatchingClock(task.Clock):
    """A virtual clock that remembers who waits for room."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: list[object] = []

    def addWriter(self, writer: object) -> None:
        self.writers.append(writer)

    def removeWriter(self, writer: object) -> None:
        if writer in self.writers:
            self.writers.remove(writer)


def test_what_fits_is_written_at_once(pipe: Pipe) -> None:
    writer = writer_of(pipe)
    assert result_of(writer.write(b"one")).result is Result.WRITTEN
    assert result_of(writer.write(b"")).result is Result.WRITTEN
    assert drain(pipe[0]) == b"one"
    writer.close()
    assert not writer.open


@pytest_twisted.ensureDeferred
async def test_what_does_not_fit_waits_for_the_child_to_read(pipe: Pipe) -> None:
    writer = writer_of(pipe)
    data = os.urandom(300_000)
    done = writer.write(data)
    assert pending(done)
    received = bytearray()
    while pending(done):
        received += drain(pipe[0])
        await turn()
    received += drain(pipe[0])
    assert (received, result_of(done).result) == (data, Result.WRITTEN)
    writer.close()


@pytest_twisted.ensureDeferred
async def test_writes_keep_their_order(pipe: Pipe) -> None:
    writer = writer_of(pipe)
    filled = fill(pipe[1])
    answered: list[int] = []
    writes = [writer.write(b"%d," % number) for number in range(200)]
    for number, write in enumerate(writes):
        write.addCallback(lambda result, number=number: answered.append(number))
    assert drain(pipe[0]) == bytes(filled)
    await until(lambda: len(answered) == 200)
    assert answered == list(range(200))
    assert drain(pipe[0]) == b"".join(b"%d," % number for number in range(200))
    writer.close()


@pytest_twisted.ensureDeferred
async def test_thousands_may_wait(pipe: Pipe) -> None:
    """Served in a loop: a call in a call for each would be too deep for the interpreter."""
    writer = writer_of(pipe)
    fill(pipe[1])
    writes = [writer.write(b"x") for _ in range(5000)]
    drain(pipe[0])
    await until(lambda: not pending(writes[-1]))
    assert [result_of(write).result for write in writes] == [Result.WRITTEN] * 5000
    assert drain(pipe[0]) == b"x" * 5000
    writer.close()


def test_thousands_may_be_broken(pipe: Pipe) -> None:
    writer = writer_of(pipe)
    fill(pipe[1])
    writes = [writer.write(b"x") for _ in range(5000)]
    writer.close()
    assert [result_of(write).result for write in writes] == [Result.BROKEN] * 5000


def test_a_child_that_closed_its_end_breaks_the_pipe(pipe: Pipe) -> None:
    writer = writer_of(pipe)
    os.close(pipe[0])
    assert result_of(writer.write(b"x")).result is Result.BROKEN
    assert not writer.open
    assert result_of(writer.write(b"y")).result is Result.BROKEN
    assert result_of(writer.write(b"")).result is Result.BROKEN


@pytest_twisted.ensureDeferred
async def test_a_child_that_closes_its_end_meanwhile_breaks_what_waits(pipe: Pipe) -> None:
    writer = writer_of(pipe)
    fill(pipe[1])
    first, second = writer.write(b"x"), writer.write(b"y")
    os.close(pipe[0])
    await until(lambda: not pending(second))
    assert (result_of(first).result, result_of(second).result) == (Result.BROKEN, Result.BROKEN)
    assert not writer.open


def test_a_child_that_does_not_read_times_the_write_out_and_the_pipe_stays(pipe: Pipe) -> None:
    clock = WatchingClock()
    writer = writer_of(pipe, 5.0, clock)
    filled = fill(pipe[1])
    first, second = writer.write(b"first"), writer.write(b"second")
    clock.advance(4.999)
    assert pending(first)
    clock.advance(0.001)
    assert result_of(first).result is Result.TIMED_OUT
    assert pending(second)  # its time starts when its turn comes
    clock.advance(4.999)
    assert pending(second)
    assert drain(pipe[0]) == bytes(filled)
    writer.doWrite()
    assert result_of(second).result is Result.WRITTEN
    assert drain(pipe[0]) == b"second"
    assert clock.getDelayedCalls() == []
    assert clock.writers == []
    writer.close()


def test_what_was_written_before_the_time_ran_out_stays_written(pipe: Pipe) -> None:
    clock = WatchingClock()
    writer = writer_of(pipe, 1.0, clock)
    data = os.urandom(1 << 20)
    done = writer.write(data)
    clock.advance(1.0)
    written = drain(pipe[0])
    assert 0 < len(written) < len(data)
    assert result_of(done) == Written(Result.TIMED_OUT, len(written))
    assert data.startswith(written)
    writer.close()


def test_the_close_breaks_what_waits_and_stops_waiting(pipe: Pipe) -> None:
    clock = WatchingClock()
    writer = writer_of(pipe, 5.0, clock)
    filled = fill(pipe[1])
    done = writer.write(b"never")
    assert clock.writers == [writer]
    writer.close()
    writer.close()
    assert result_of(done).result is Result.BROKEN
    assert clock.getDelayedCalls() == []
    assert clock.writers == []
    assert writer.fileno() == -1
    assert drain(pipe[0]) == bytes(filled)
    assert os.read(pipe[0], 1) == b""  # the end of file


def test_a_close_from_an_answer_breaks_the_rest(pipe: Pipe) -> None:
    """As an end of file does: written through first, and nothing after it."""
    writer = writer_of(pipe)
    filled = fill(pipe[1])
    first, second, third = writer.write(b"a"), writer.write(b"b"), writer.write(b"c")
    second.addCallback(lambda result: (writer.close(), result)[1])
    assert drain(pipe[0]) == bytes(filled)
    writer.doWrite()
    assert [result_of(each).result for each in (first, second, third)] == [
        Result.WRITTEN,
        Result.WRITTEN,
        Result.BROKEN,
    ]
    assert drain(pipe[0]) == b"ab"


def test_an_error_of_another_kind_fails_the_write_and_keeps_the_pipe(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int, data: object) -> int:
        raise OSError(errno.EIO, "input/output error")

    writer = writer_of(pipe)
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", broken)
        assert result_of(writer.write(b"x")).result is Result.FAILED
    assert result_of(writer.write(b"y")).result is Result.WRITTEN
    assert drain(pipe[0]) == b"y"
    writer.close()


def test_an_error_that_is_not_true_changes_nothing(pipe: Pipe) -> None:
    """The reactor's event may be of an older descriptor with this number; it stops watching all the same."""
    clock = WatchingClock()
    writer = writer_of(pipe, 5.0, clock)
    filled = fill(pipe[1])
    done = writer.write(b"x")
    clock.writers.clear()
    writer.connectionLost(Failure(ConnectionLost()))
    assert pending(done)
    assert clock.writers == [writer]
    assert drain(pipe[0]) == bytes(filled)
    writer.doRead()
    writer.doWrite()
    assert result_of(done).result is Result.WRITTEN
    writer.connectionLost(Failure(ConnectionLost()))
    assert writer.open
    assert clock.writers == []
    writer.close()

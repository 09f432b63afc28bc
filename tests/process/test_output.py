"""The ring against a plain list, heads that stop at their cap, and what a million tiny writes cost."""

import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.process.output import STDERR, STDOUT, Output, Ring
from agentd.rules.output import Span

streams = st.sampled_from([STDOUT, STDERR])
chunks = st.lists(st.tuples(streams, st.binary(max_size=40)), max_size=40)
counted = st.integers(0, 9000).map(lambda count: bytes(n % 251 for n in range(count)))
runs = st.lists(st.tuples(streams, counted), max_size=12)


class Naive:
    """What a ring is: every byte with its tag, of which the last `capacity` can be read."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.all: list[tuple[int, int]] = []

    def append(self, tag: int, data: bytes) -> None:
        self.all += [(tag, byte) for byte in data]

    @property
    def start(self) -> int:
        return max(0, len(self.all) - self.capacity)


def read_all(ring: Ring, start: int, step: int) -> list[tuple[int, int]]:
    """Every byte from `start` on, with its tag, in pieces of up to `step` bytes."""
    found: list[tuple[int, int]] = []
    while start < ring.total:
        end = min(ring.total, start + step)
        tag, data = ring.piece(start, end)
        assert 0 < len(data) <= end - start
        found += [(tag, byte) for byte in data]
        start += len(data)
    return found


def compare(capacity: int, chunks: list[tuple[int, bytes]], step: int, every: int) -> None:
    ring, naive = Ring(capacity), Naive(capacity)
    for number, (tag, data) in enumerate(chunks):
        ring.append(tag, data)
        naive.append(tag, data)
        assert (ring.total, ring.start) == (len(naive.all), naive.start)
        if number % every == 0:
            assert read_all(ring, ring.start, step) == naive.all[naive.start :]
    for start in {ring.start, (ring.start + ring.total) // 2, max(ring.start, ring.total - 1)}:
        assert read_all(ring, start, step) == naive.all[start:]


@given(st.integers(0, 70), chunks, st.integers(1, 50), st.integers(1, 5))
def test_a_small_ring_is_the_tail_of_what_was_written(
    capacity: int, chunks: list[tuple[int, bytes]], step: int, every: int
) -> None:
    compare(capacity, chunks, step, every)


@given(st.sampled_from([1, 4095, 4096, 4097, 8192, 10007, 1 << 20]), runs, st.integers(1000, 20000))
def test_a_ring_that_grows_is_too(capacity: int, chunks: list[tuple[int, bytes]], step: int) -> None:
    compare(capacity, chunks, step, 3)


@pytest.mark.parametrize("capacity", [0, 1, 2, 3, 7])
def test_one_byte_at_a_time_of_either_stream(capacity: int) -> None:
    compare(capacity, [(n % 2, bytes([n % 256])) for n in range(40)], 3, 1)


def test_views_are_copied() -> None:
    room = bytearray(b"first")
    ring, output = Ring(100), Output(100, 100)
    ring.append(STDOUT, memoryview(room))
    output.feed(STDERR, memoryview(room))
    room[:] = b"other"
    assert ring.piece(0, 5) == (STDOUT, b"first")
    assert output.piece(0, 5) == (STDERR, b"first")
    assert output.head(STDERR) == b"first"


def test_memory_is_the_rings_size_however_the_child_slices_its_writes() -> None:
    """One-byte writes of alternating streams cost what one large write costs."""
    window = 1 << 15
    tracemalloc.start()
    try:
        output = Output(1000, window)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(window // 2):
            output.feed(STDOUT, b"o")
            output.feed(STDERR, b"e")
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    data_and_tags = 2 * window
    assert after - before <= data_and_tags + 16384
    assert peak - before <= 2 * data_and_tags + 16384  # while it doubles
    assert output.span == Span(0, window)
    assert output.piece(0, 100) == (STDOUT, b"o")
    assert output.piece(window - 1, window) == (STDERR, b"e")


def test_a_command_that_prints_a_line_does_not_pay_for_a_megabyte() -> None:
    ring = Ring(1 << 20)
    ring.append(STDOUT, b"a line\n")
    assert sys.getsizeof(ring._data.obj) < 10_000


@given(st.integers(0, 60), chunks)
def test_heads_are_the_first_bytes_of_each_stream(cap: int, chunks: list[tuple[int, bytes]]) -> None:
    output = Output(cap, 10)
    for stream, data in chunks:
        output.feed(stream, data)
    whole = {
        stream: b"".join(data for which, data in chunks if which == stream) for stream in (STDOUT, STDERR)
    }
    for stream, data in whole.items():
        assert output.head(stream) == data[:cap]
    assert output.truncated == any(len(data) > cap for data in whole.values())
    assert output.head_size() == sum(min(cap, len(data)) for data in whole.values())
    assert output.span.total == sum(map(len, whole.values()))


@pytest.mark.parametrize(
    ("writes", "truncated"), [([10], False), ([4, 6], False), ([11], True), ([10, 1], True)]
)
def test_exactly_the_cap_is_not_truncated(writes: list[int], truncated: bool) -> None:
    output = Output(10, 100)
    for count in writes:
        output.feed(STDOUT, bytes(count))
    output.feed(STDERR, bytes(10))  # a cap for each stream, not for both
    assert output.truncated is truncated
    assert output.head_size() == 20


def test_what_the_head_cuts_the_ring_still_has() -> None:
    output = Output(3, 100)
    output.feed(STDOUT, b"abcdef")
    assert output.head(STDOUT) == b"abc"
    assert output.piece(0, 6) == (STDOUT, b"abcdef")


def test_the_acknowledgement_releases_the_heads_alone() -> None:
    output = Output(10, 100)
    output.feed(STDOUT, b"abc")
    output.release_head()
    assert (output.head(STDOUT), output.head_size()) == (b"", 0)
    assert output.piece(0, 3) == (STDOUT, b"abc")
    assert output.span == Span(0, 3)


def test_watchers_hear_of_every_change_until_they_leave() -> None:
    output, heard = Output(10, 10), []
    listener = [lambda: heard.append("a"), lambda: heard.append("b")]
    for each in listener:
        output.watch(each)
    output.feed(STDOUT, b"x")
    output.unwatch(listener[0])
    output.close()
    assert heard == ["a", "b", "b"]
    assert output.span.closed

"""Followers: a cursor that pulls when it may, waits when it must, and costs an integer when it is slow."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from agentd.config import PIECE_BYTES
from agentd.process.follow import BATCH_BYTES, ITEM_BYTES, TURN_BYTES, Follower, Item, Piece
from agentd.process.output import STDERR, STDOUT, Output
from agentd.rules.output import End, Gap

BIG = 1 << 30


class Reader:
    """A consumer that writes down what it gets, and pauses after so many deliveries when told to."""

    def __init__(
        self, output: Output, clock: Clock, offset: int = 0, slack: int = BIG, pause_after: int = 0
    ) -> None:
        self.batches: list[list[Item]] = []
        self.pause_after = pause_after
        self.on_deliver: Callable[[], None] = lambda: None
        self.follower = Follower(output, offset, self, clock.callLater, slack)

    def deliver(self, items: list[Item]) -> None:
        assert not self.follower.paused
        self.batches.append(items)
        if self.pause_after:
            self.pause_after -= 1
            if not self.pause_after:
                self.follower.pauseProducing()
        self.on_deliver()

    @property
    def items(self) -> list[Item]:
        return [item for batch in self.batches for item in batch]

    @property
    def ended(self) -> bool:
        return bool(self.items) and isinstance(self.items[-1], End)

    @property
    def gaps(self) -> list[Gap]:
        return [item for item in self.items if isinstance(item, Gap)]

    def data(self) -> bytes:
        return b"".join(item.data for item in self.items if isinstance(item, Piece))

    def tiles(self, start: int, total: int) -> bool:
        """Whether pieces and gaps are one unbroken run of ``[start, total)``."""
        at = start
        for item in self.items:
            if isinstance(item, Piece):
                assert item.offset == at
                assert 0 < len(item.data) <= PIECE_BYTES
                at += len(item.data)
            elif isinstance(item, Gap):
                assert item.start == at
                assert item.end > at
                at = item.end
        return at == total


@pytest.fixture
def clock() -> Clock:
    return Clock()


def turn(clock: Clock) -> None:
    """One turn of the reactor: what is due now, and nothing it schedules."""
    for call in list(clock.getDelayedCalls()):
        func, args = call.func, call.args
        call.cancel()
        func(*args)


def settle(clock: Clock) -> int:
    """Turns until nothing is scheduled; how many it took."""
    turns = 0
    while clock.getDelayedCalls():
        clock.advance(0)
        turns += 1
        assert turns < 10_000
    return turns


def test_what_is_there_then_what_comes_then_the_end(clock: Clock) -> None:
    output = Output(0, 100)
    output.feed(STDOUT, b"ab")
    output.feed(STDERR, b"c")
    reader = Reader(output, clock)
    reader.follower.start()
    assert reader.batches == []  # nothing from inside `start`
    settle(clock)
    assert reader.items == [Piece(0, STDOUT, b"ab"), Piece(2, STDERR, b"c")]
    output.feed(STDOUT, b"d")
    settle(clock)
    output.close()
    settle(clock)
    assert reader.items[2:] == [Piece(3, STDOUT, b"d"), End()]
    assert output._watchers == []


def test_many_changes_of_one_turn_are_one_delivery(clock: Clock) -> None:
    output = Output(0, 100)
    reader = Reader(output, clock)
    reader.follower.start()
    for byte in b"hello":
        output.feed(STDOUT, bytes([byte]))
    assert len(clock.getDelayedCalls()) == 1
    settle(clock)
    assert reader.batches == [[Piece(0, STDOUT, b"hello")]]


def test_a_finished_output_is_replayed_and_ends_at_once(clock: Clock) -> None:
    output = Output(0, 4)
    output.feed(STDOUT, b"abcdef")
    output.close()
    reader = Reader(output, clock, offset=1)
    reader.follower.start()
    settle(clock)
    assert reader.items[0] == Gap(1, 2)
    assert reader.data() == b"cdef"
    assert reader.tiles(1, 6)
    assert reader.ended


def test_attached_beyond_the_end_it_waits_for_the_total_to_pass(clock: Clock) -> None:
    output = Output(0, 100)
    output.feed(STDOUT, b"ab")
    reader = Reader(output, clock, offset=4)
    reader.follower.start()
    output.feed(STDOUT, b"cd")
    settle(clock)
    assert reader.items == []
    output.feed(STDOUT, b"ef")
    settle(clock)
    assert reader.items == [Piece(4, STDOUT, b"ef")]


def test_paused_it_gets_nothing_and_costs_nothing(clock: Clock) -> None:
    output = Output(0, 100)
    reader = Reader(output, clock, pause_after=1)
    reader.follower.start()
    output.feed(STDOUT, b"a")
    settle(clock)
    for _ in range(50):
        output.feed(STDOUT, b"b")
    assert clock.getDelayedCalls() == []
    assert reader.data() == b"a"
    reader.follower.resumeProducing()
    settle(clock)
    assert reader.data() == b"a" + b"b" * 50


def test_a_paused_reader_meets_a_gap_when_the_ring_has_moved_on(clock: Clock) -> None:
    output = Output(0, 10)
    reader = Reader(output, clock, pause_after=1)
    reader.follower.start()
    output.feed(STDOUT, b"0")
    settle(clock)
    output.feed(STDOUT, b"x" * 25)
    output.close()
    reader.follower.resumeProducing()
    settle(clock)
    assert reader.gaps == [Gap(1, 16)]
    assert reader.tiles(0, 26)
    assert reader.ended


def test_a_reader_held_up_beyond_its_slack_is_taken_to_the_present(clock: Clock) -> None:
    output = Output(0, 1000)
    reader = Reader(output, clock, slack=50, pause_after=1)
    reader.follower.start()
    output.feed(STDOUT, b"0")
    settle(clock)
    output.feed(STDOUT, b"x" * 51)
    reader.follower.resumeProducing()
    settle(clock)
    output.feed(STDOUT, b"y")
    settle(clock)
    assert reader.items == [Piece(0, STDOUT, b"0"), Gap(1, 52), Piece(52, STDOUT, b"y")]


@pytest.mark.parametrize("owed", [1, 50])
def test_within_its_slack_it_loses_nothing(clock: Clock, owed: int) -> None:
    output = Output(0, 1000)
    reader = Reader(output, clock, slack=50, pause_after=1)
    reader.follower.start()
    output.feed(STDOUT, b"0")
    settle(clock)
    output.feed(STDOUT, b"x" * owed)
    reader.follower.resumeProducing()
    settle(clock)
    assert reader.gaps == []
    assert reader.tiles(0, 1 + owed)


def test_a_reader_that_was_never_held_up_may_fall_behind_by_more_than_its_slack(clock: Clock) -> None:
    """Much may come in one turn; that is not the reader's fault."""
    output = Output(0, 1000)
    reader = Reader(output, clock, slack=10)
    reader.follower.start()
    settle(clock)
    output.feed(STDOUT, b"x" * 500)
    settle(clock)
    assert reader.gaps == []
    assert reader.tiles(0, 500)


def test_whoever_attaches_far_behind_gets_the_whole_replay_though_held_up(clock: Clock) -> None:
    output = Output(0, 4 * BATCH_BYTES)
    output.feed(STDOUT, bytes(3 * BATCH_BYTES))
    reader = Reader(output, clock, slack=PIECE_BYTES, pause_after=1)
    reader.follower.start()
    settle(clock)
    for _ in range(4):  # as a socket does: full after every batch
        reader.pause_after = 1
        reader.follower.resumeProducing()
        settle(clock)
    assert reader.gaps == []
    assert reader.tiles(0, 3 * BATCH_BYTES)


def test_after_the_end_slack_means_nothing(clock: Clock) -> None:
    """Nothing more will come, so a slow reader may have all the time it needs."""
    output = Output(0, 1000)
    reader = Reader(output, clock, slack=10, pause_after=1)
    reader.follower.start()
    output.feed(STDOUT, b"0")
    settle(clock)
    output.feed(STDOUT, b"x" * 500)
    output.close()
    reader.follower.resumeProducing()
    settle(clock)
    assert reader.gaps == []
    assert reader.ended


def test_one_turn_delivers_so_much_and_no_more(clock: Clock) -> None:
    total = 3 * TURN_BYTES + 5
    output = Output(0, total)
    output.feed(STDOUT, bytes(total))
    reader = Reader(output, clock)
    reader.follower.start()
    turns = []
    while clock.getDelayedCalls():
        before = len(reader.data())
        turn(clock)
        turns.append(len(reader.data()) - before)
    assert turns == [TURN_BYTES, TURN_BYTES, TURN_BYTES, 5]
    for batch in reader.batches:
        assert sum(len(item.data) for item in batch if isinstance(item, Piece)) <= BATCH_BYTES


def test_readers_take_turns(clock: Clock) -> None:
    total = 2 * TURN_BYTES
    output = Output(0, total)
    output.feed(STDOUT, bytes(total))
    readers = [Reader(output, clock) for _ in range(3)]
    for reader in readers:
        reader.follower.start()
    turn(clock)
    assert [len(reader.data()) for reader in readers] == [TURN_BYTES] * 3


def test_tiny_pieces_share_the_turn_too(clock: Clock) -> None:
    """A byte here and a byte there make a piece each: a turn is bounded in pieces, not only in bytes."""
    count = 3 * TURN_BYTES // ITEM_BYTES
    output = Output(0, count)
    for number in range(count):
        output.feed(number % 2, b"x")
    reader = Reader(output, clock)
    reader.follower.start()
    turn(clock)
    assert len(reader.items) == TURN_BYTES // ITEM_BYTES
    assert max(map(len, reader.batches)) == BATCH_BYTES // ITEM_BYTES
    settle(clock)
    assert reader.tiles(0, count)


def test_a_consumer_that_leaves_in_the_middle_gets_nothing_more(clock: Clock) -> None:
    output = Output(0, 10 * BATCH_BYTES)
    output.feed(STDOUT, bytes(10 * BATCH_BYTES))
    reader = Reader(output, clock)
    reader.on_deliver = reader.follower.stopProducing
    reader.follower.start()
    settle(clock)
    assert len(reader.batches) == 1
    output.feed(STDOUT, b"more")
    assert clock.getDelayedCalls() == []
    assert output._watchers == []


def test_stopped_before_its_turn_came(clock: Clock) -> None:
    output = Output(0, 10)
    output.feed(STDOUT, b"x")
    reader = Reader(output, clock)
    reader.follower.start()
    reader.follower.stop()
    reader.follower.stop()
    settle(clock)
    assert reader.items == []
    assert output._watchers == []


def test_stopped_before_it_was_started(clock: Clock) -> None:
    """A transport that is gone already says so while it is told of its producer."""
    output = Output(0, 10)
    reader = Reader(output, clock)
    reader.follower.stopProducing()
    reader.follower.start()
    output.feed(STDOUT, b"x")
    assert clock.getDelayedCalls() == []
    assert output._watchers == []


def test_resumed_again_and_again_it_delivers_once(clock: Clock) -> None:
    output = Output(0, 10)
    output.feed(STDOUT, b"x")
    reader = Reader(output, clock)
    reader.follower.start()
    for _ in range(3):
        reader.follower.resumeProducing()
    settle(clock)
    assert reader.items == [Piece(0, STDOUT, b"x")]


actions = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 400)),
        st.tuples(st.just("error"), st.integers(0, 400)),
        st.tuples(st.sampled_from(["pause", "resume", "turn"]), st.just(0)),
    ),
    max_size=40,
)


@given(actions, st.integers(0, 600), st.integers(0, 1500), st.integers(0, 800), st.integers(0, 20))
def test_whatever_the_order_what_is_delivered_tiles_and_is_right(
    script: list[tuple[str, int]], window: int, offset: int, slack: int, attach: int
) -> None:
    clock, output = Clock(), Output(0, window)
    written = bytearray()
    tags: list[int] = []
    reader = Reader(output, clock, offset=offset, slack=slack)

    def act(what: str, count: int) -> None:
        follower: Any = reader.follower
        if what in ("write", "error"):
            data = bytes((len(written) + i) % 256 for i in range(count))
            written.extend(data)
            tags.extend([STDERR if what == "error" else STDOUT] * count)
            output.feed(STDERR if what == "error" else STDOUT, data)
        elif what == "turn":
            turn(clock)
        elif what == "pause":
            follower.pauseProducing()
        else:
            follower.resumeProducing()

    for number, step in enumerate(script):
        if number == attach:
            reader.follower.start()
        act(*step)
    if len(script) <= attach:
        reader.follower.start()
    output.close()
    reader.follower.resumeProducing()
    settle(clock)
    assert reader.ended
    assert [isinstance(item, End) for item in reader.items].count(True) == 1
    assert reader.tiles(offset, max(offset, len(written)))
    for item in reader.items:
        if isinstance(item, Piece):
            assert item.data == written[item.offset : item.offset + len(item.data)]
            assert set(tags[item.offset : item.offset + len(item.data)]) == {item.stream}

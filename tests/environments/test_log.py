"""The laws of the log: whatever is written, however it is sliced and read, one decode of the whole comes out."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.environments.log import TextLog
from agentd.process.follow import Follower, Item, Piece
from agentd.process.output import STDERR, STDOUT
from agentd.rules.output import End, Gap
from tests.rules.test_utf8 import HOSTILE

WRITES = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), HOSTILE), max_size=12)


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def streams_of(writes: list[tuple[int, bytes]]) -> list[bytes]:
    return [b"".join(data for stream, data in writes if stream == each) for each in (STDOUT, STDERR)]


def filled(writes: list[tuple[int, bytes]], capacity: int = 1 << 20, *, close: bool = True) -> TextLog:
    log = TextLog(capacity)
    for stream, data in writes:
        log.feed(stream, data)
    if close:
        log.close()
    return log


def pages(log: TextLog, since: int, limit: int, most: int = 1000) -> list[Piece]:
    found: list[Piece] = []
    while True:
        pieces, end = log.page(since, limit, most)
        if not pieces:
            assert end == log.span.total
            return found
        assert end > since
        found += pieces
        since = end


def joined(pieces: list[Piece]) -> list[str]:
    return [
        "".join(text(piece.data) for piece in pieces if piece.stream == each) for each in (STDOUT, STDERR)
    ]


@given(WRITES, st.integers(1, 30), st.integers(1, 4))
def test_pages_of_any_size_decode_to_the_whole(
    writes: list[tuple[int, bytes]], limit: int, most: int
) -> None:
    """For any bytes, any chunking, any page size (environments 7.2)."""
    log = filled(writes)
    assert joined(pages(log, 0, limit, most)) == [text(data) for data in streams_of(writes)]


@given(WRITES, st.integers(0, 500), st.integers(1, 30))
def test_any_since_gives_the_bytes_from_there_on(
    writes: list[tuple[int, bytes]], since: int, limit: int
) -> None:
    """From any offset the data is one decode, per run of a stream, of exactly the bytes from there on."""
    log = filled(writes)
    since = min(since, log.span.total)
    whole = pages(log, 0, 1 << 20)
    expected = []
    for piece in whole:
        if piece.offset + len(piece.data) > since:
            cut = max(0, since - piece.offset)
            expected.append((piece.offset + cut, piece.stream, text(piece.data[cut:])))
    found: list[tuple[int, int, str]] = []
    end = since
    for piece in pages(log, since, limit):
        assert piece.offset == end
        end += len(piece.data)
        if found and found[-1][1] == piece.stream:
            found[-1] = (found[-1][0], piece.stream, found[-1][2] + text(piece.data))
        else:
            found.append((piece.offset, piece.stream, text(piece.data)))
    merged: list[tuple[int, int, str]] = []
    for item in expected:
        assert not merged or merged[-1][1] != item[1]  # adjacent bytes of one stream are one chunk
        merged.append(item)
    assert found == merged


@given(WRITES, st.integers(4, 24), st.integers(1, 9))
def test_what_is_evicted_is_evicted_by_whole_characters(
    writes: list[tuple[int, bytes]], capacity: int, limit: int
) -> None:
    """The retained bytes are at most the capacity, and decode to the end of the whole."""
    log = filled(writes, capacity)
    assert capacity - 3 <= log.span.total - log.span.start <= capacity or log.span.start == 0
    kept = pages(log, 0, limit)
    if kept:
        assert kept[0].offset == log.span.start
    whole = filled(writes)
    assert whole.span.total == log.span.total
    late = pages(whole, log.span.start, 1 << 20)
    assert joined(kept) == joined(late)
    # Nothing was broken that was whole: what was dropped and what was kept decode to all there was.
    early = pages(whole, 0, 1 << 20)
    for each in (STDOUT, STDERR):
        dropped = b"".join(
            piece.data[: max(0, log.span.start - piece.offset)] for piece in early if piece.stream == each
        )
        assert text(dropped) + joined(kept)[each] == text(streams_of(writes)[each])


@given(WRITES, st.lists(st.integers(0, 3), max_size=12))
def test_reading_while_it_is_written(writes: list[tuple[int, bytes]], reads: list[int]) -> None:
    """Polls in between see no half character, and in the end everything."""
    log = TextLog(1 << 20)
    since = 0
    found: list[Piece] = []
    for index, (stream, data) in enumerate(writes):
        log.feed(stream, data)
        for _ in range(reads[index] if index < len(reads) else 0):
            pieces, since = log.page(since, 5, 2)
            found += pieces
    log.close()
    found += pages(log, since, 7)
    assert joined(found) == [text(data) for data in streams_of(writes)]


class _Taker:
    """Takes what a follower delivers; pauses it after every batch if told so."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.ended = False

    def deliver(self, items: list[Item]) -> None:
        self.items += items
        self.ended = isinstance(items[-1], End)


@settings(max_examples=50)
@given(WRITES, st.integers(0, 100))
def test_a_follower_gets_whole_characters_too(writes: list[tuple[int, bytes]], since: int) -> None:
    """The same through the follower that attached clients use, with its own cuts."""
    log = filled(writes)
    since = min(since, log.span.total)
    taker, turns = _Taker(), []
    follower = Follower(log, since, taker, lambda _, turn: turns.append(turn), 1 << 62)
    follower.start()
    while turns:
        turns.pop()()
    assert taker.ended
    pieces = [item for item in taker.items if isinstance(item, Piece)]
    assert not [item for item in taker.items if isinstance(item, Gap)]
    assert joined(pieces) == joined(pages(log, since, 1 << 20))


def test_the_documents_examples() -> None:
    """The table of worked examples (environments 7.2)."""
    log = TextLog(100)
    log.feed(STDOUT, b"c\xc3")
    assert log.page(0, 100, 9) == ([Piece(0, STDOUT, b"c")], 1)
    log.feed(STDOUT, b"\xa9\n")
    assert log.page(1, 100, 9) == ([Piece(1, STDOUT, "é\n".encode())], 4)

    log = filled([(STDOUT, b"\xe2\x82"), (STDERR, b"x"), (STDOUT, b"\xac")])
    assert log.page(0, 100, 9) == ([Piece(0, STDERR, b"x"), Piece(1, STDOUT, "€".encode())], 4)

    log = filled([(STDOUT, b"a\xffb")], close=False)
    assert log.page(0, 100, 9) == ([Piece(0, STDOUT, b"a\xffb")], 3)

    log = filled([(STDOUT, b"\xf0\x9f\x98")])
    assert log.page(0, 100, 9) == ([Piece(0, STDOUT, b"\xf0\x9f\x98")], 3)
    assert text(b"\xf0\x9f\x98") == "\ufffd"

    log = filled([(STDOUT, "héllo\n".encode())])
    assert log.page(2, 100, 9) == ([Piece(2, STDOUT, b"\xa9llo\n")], 7)


def test_memory_does_not_depend_on_how_streams_alternate() -> None:
    """A byte on one stream, a byte on the other: the ring holds what it always holds."""
    log = TextLog(4096)
    for _ in range(20_000):
        log.feed(STDOUT, b"a")
        log.feed(STDERR, b"b")
    assert log.span.total == 40_000
    assert log.span.total - log.span.start == 4096
    pieces, end = log.page(0, 1 << 20, 100)
    assert len(pieces) == 100
    assert end == log.span.start + 100

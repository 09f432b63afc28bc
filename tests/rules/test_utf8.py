"""Laws of cutting UTF-8 by bytes, against one decode of the whole by Python's own decoder."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentd.rules import utf8
from agentd.rules.utf8 import NOTHING_HELD, arrive, begun, decoded, incomplete, whole

# Bytes that matter to UTF-8 are common here: leads of every class, continuations, and what can never be right.
BYTES = st.sampled_from(
    list(b"aZ\x00\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc2\xdf\xe0\xe2\xed\xef\xf0\xf4\xf5\xff")
)
HOSTILE = st.one_of(st.lists(BYTES, max_size=40).map(bytes), st.text(max_size=20).map(str.encode))


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("data", "held"),
    [
        (b"", 0),
        (b"abc", 0),
        (b"\xc3", 1),
        (b"c\xc3", 1),
        (b"\xe2", 1),
        (b"\xe2\x82", 2),
        (b"\xe2\x82\xac", 0),
        (b"\xf0\x9f\x98", 3),
        (b"\xf0\x9f\x98\x80", 0),
        (b"\xff", 0),
        (b"\xc0", 0),
        (b"\xc1", 0),
        (b"\xf5", 0),
        (b"\xe0\x80", 0),
        (b"\xed\xa0", 0),
        (b"\xf4\x90", 0),
        (b"\xf0\x80", 0),
        (b"\x80\x80\x80", 0),
        (b"\xe2\x82A", 0),
        (b"\xc3\xa9\xa9", 0),
    ],
)
def test_what_is_held_back(data: bytes, held: int) -> None:
    """Only what some continuation could complete (environments 7.2, points 1 and 4)."""
    assert incomplete(data) == held


@given(HOSTILE)
def test_held_bytes_could_be_completed_and_others_could_not(data: bytes) -> None:
    """By search over all continuations that matter: a tail is held exactly if some byte can extend its character."""
    count = incomplete(data)
    kept, tail = data[: len(data) - count], data[len(data) - count :]
    assert text(kept) + text(tail) == text(data)
    if count:
        assert any(len(text(tail + more)) == 1 and "\ufffd" not in text(tail + more) for more in COMPLETIONS)
    else:
        for back in (1, 2, 3):
            tail = data[-back:]
            if len(tail) == back and tail[0] >= 0xC0 and text(tail) == "\ufffd":
                assert all("\ufffd" in text(tail + more) for more in COMPLETIONS)


COMPLETIONS = [
    bytes(more)
    for first in (0x80, 0x90, 0xA0, 0xBF)
    for more in ([first], [first, 0x80], [first, 0x80, 0x80], [first, 0xBF], [first, 0xBF, 0xBF])
]


@given(st.lists(HOSTILE, max_size=8))
@example([b"\xe2", b"\x82", b"\xac"])
@example([b"\xf0\x9f", b"A"])
def test_any_chunking_decodes_to_the_whole(chunks: list[bytes]) -> None:
    """What is numbered after each read, and the rest at the end, decode piece by piece to the whole."""
    held, pieces = NOTHING_HELD, []
    for chunk in chunks:
        held, ready = arrive(held, chunk)
        assert len(held.data) <= 3
        pieces.append(ready)
    pieces.append(held.data)
    assert b"".join(pieces) == b"".join(chunks)
    assert "".join(map(text, pieces)) == text(b"".join(chunks))


@given(HOSTILE, st.integers(1, 12))
def test_pages_decode_to_the_whole(data: bytes, limit: int) -> None:
    """Cuts by length fall between characters, make progress, and are at most three bytes early."""
    pieces, rest = [], data
    while rest:
        length = whole(rest, limit)
        assert 0 < length <= max(limit, utf8.LONGEST)
        assert length >= min(len(rest), limit) - 3
        pieces.append(rest[:length])
        rest = rest[length:]
    assert "".join(map(text, pieces)) == text(data)


@given(HOSTILE, st.integers(0, 40), st.integers(0, 3))
def test_dropping_the_oldest_bytes_drops_whole_characters(data: bytes, cut: int, more: int) -> None:
    """After an eviction, what is left decodes to an end of the whole's text, three bytes at most later."""
    cut = min(cut, len(data))
    skipped = begun(data[:cut][-3 - more :], data[cut:])
    assert 0 <= skipped <= 3
    left = data[cut + skipped :]
    assert text(data[: cut + skipped]) + text(left) == text(data)
    if skipped:
        # It was necessary: without it the cut would have broken a character.
        assert text(data[:cut]) + text(data[cut:]) != text(data)


@given(HOSTILE, st.booleans())
def test_a_cut_text_never_ends_in_a_broken_character(data: bytes, cut: bool) -> None:
    """A tail that the cut broke is removed; damage of the sender's own stays."""
    found = decoded(data, cut)
    assert found == text(data[: len(data) - incomplete(data)] if cut else data)


def test_the_documents_example_of_a_cut() -> None:
    """1,048,575 letters and the first byte of a longer character."""
    data = b"a" * 1_048_575 + "€".encode()
    assert decoded(data[:1_048_576], True) == "a" * 1_048_575
    assert decoded(b"\xed\xa0\x80", False) == "\ufffd" * 3
    assert decoded(b"a\xffb\xe2\x82", False) == "a\ufffdb\ufffd"

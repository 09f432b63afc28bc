"""UTF-8 by byte offsets: where a stream of bytes may be cut without cutting a character.

Theory of operation
-------------------
Text is sent in pieces while offsets count raw bytes, so three places could cut a character in two: between two
reads of a pipe, where a reply ends, and where a ring drops its oldest bytes. Decoding replaces each *maximal
ill-formed subsequence* with one U+FFFD (Unicode 3.9, "U+FFFD Substitution of Maximal Subparts"; the WHATWG decoder).
Seen that way every byte string, however broken, falls into segments: well-formed characters, and ill-formed
subsequences of one to three bytes. Decoding pieces one by one equals decoding the whole exactly if every piece
ends between two segments.

Segments can be told from their first byte on, without looking back: a lead byte always begins one, and it goes on
for as long as continuation bytes come that some well-formed character allows there. Three questions follow:

    incomplete(data)            how many bytes at the end began a character that more bytes could still complete?
    begun(before, after)        how many bytes of `after` belong to a character that began in `before`?
    whole(data, limit)          how long is the longest piece of at most `limit` bytes that ends between segments?

Bytes that nothing can complete (FF, C0, E0 80, ED A0, F4 90, a stray continuation) are never held back
(environments 7.2).
"""

from typing import Final

from attrs import frozen

LONGEST: Final = 4
"""Bytes of the longest character."""


def _allowed() -> dict[int, tuple[int, int, int]]:
    """Lead byte: continuation bytes it wants, and the bounds of the first of them (Unicode table 3-7)."""
    table = dict.fromkeys(range(0xC2, 0xE0), (1, 0x80, 0xBF))
    table |= dict.fromkeys(range(0xE0, 0xF0), (2, 0x80, 0xBF))
    table |= dict.fromkeys(range(0xF0, 0xF5), (3, 0x80, 0xBF))
    table[0xE0] = (2, 0xA0, 0xBF)
    table[0xED] = (2, 0x80, 0x9F)
    table[0xF0] = (3, 0x90, 0xBF)
    table[0xF4] = (3, 0x80, 0x8F)
    return table


_ALLOWED: Final = _allowed()


def _runs(data: bytes, at: int) -> tuple[int, bool]:
    """The length of the segment that begins at `at`, and whether more bytes could still complete it."""
    wanted = _ALLOWED.get(data[at])
    if wanted is None:
        return 1, False
    count, low, high = wanted
    length = 1
    while length <= count:
        if at + length == len(data):
            return length, True
        if not low <= data[at + length] <= high:
            return length, False
        low, high = 0x80, 0xBF
        length += 1
    return length, False


def incomplete(data: bytes) -> int:
    """How many bytes at the end of `data` (0 to 3) began a character that some continuation could complete."""
    for back in range(1, min(LONGEST, len(data) + 1)):
        byte = data[-back]
        if byte < 0x80:
            return 0
        if byte >= 0xC0:
            length, open_ended = _runs(data, len(data) - back)
            return back if open_ended and length == back else 0
    return 0


def begun(before: bytes, after: bytes) -> int:
    """How many bytes at the start of `after` (0 to 3) belong to a character that began in `before`.

    `before` may be the last three bytes of what really came before; more is not looked at.
    """
    joined = before[-(LONGEST - 1) :] + after[: LONGEST - 1]
    cut = min(len(before), LONGEST - 1)
    for at in range(cut - 1, -1, -1):
        if joined[at] < 0x80:
            return 0
        if joined[at] >= 0xC0:
            length, _ = _runs(joined, at)
            return max(0, at + length - cut)
    return 0


def whole(data: bytes, limit: int) -> int:
    """The length of the longest piece of `data`, at most `limit` bytes, that ends between two segments.

    `limit` is positive. At least one whole segment, even a longer one, is always given: a reader makes progress
    (environments 7.2, point 6).
    """
    if len(data) <= limit:
        return len(data)
    # Only an open-ended tail may be completed behind the limit; a broken one ends where it ends.
    length = limit - incomplete(data[max(0, limit - LONGEST + 1) : limit])
    return length if length > 0 else _runs(data, 0)[0]


@frozen
class Held:
    """The bytes at the end of what one stream has delivered that wait for the rest of their character."""

    data: bytes = b""


NOTHING_HELD: Final = Held()


def arrive(held: Held, data: bytes) -> tuple[Held, bytes]:
    """`data` was read from the stream: what to hold from now on, and what may be numbered now."""
    joined = held.data + data if held.data else data
    count = incomplete(joined)
    if count == 0:
        return NOTHING_HELD, joined
    return Held(joined[-count:]), joined[:-count]


def decoded(data: bytes, cut: bool) -> str:
    """`data` as text; if it was `cut` from something longer, without a character that the cut broke.

    What the cut broke is removed rather than replaced: only the sender's own damage shows as U+FFFD
    (environments 3.5).
    """
    if cut:
        count = incomplete(data)
        if count:
            data = data[:-count]
    return data.decode("utf-8", "replace")

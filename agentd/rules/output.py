"""What a reader of an exec's output gets next: bytes, a gap, the end, or a wait.

Theory of operation
-------------------
Both pipes of a child share one offset space, numbered in the order the daemon read them. Of the `total`
bytes published so far the last `window` are kept; a reader is nothing but a cursor into that space:

         0                 start              cursor            total
         ├─ gone for good ──┼──── replayable ───┼── this reader ──┤ … bytes to come
                                                      next

From the cursor alone follows what to do: below `start` the lost stretch is reported as a gap and the cursor
jumps to `start`; between `start` and `total` bytes are replayed; at `total` the reader waits, or, once the
output is closed, gets the end. A reader that owes more than `slack` bytes when it comes back is taken to the
present with one gap, so that following stays following (contract d: slow subscriber).

Law (checked by `checker` and by a hypothesis test): bytes and gaps tile ``[cursor₀, total)`` with no hole
and no overlap, whatever the sizes of writes and whenever readers come and go. A cursor beyond `total` waits
without a gap, and bytes below it are never delivered to it.
"""

from attrs import frozen


@frozen
class Span:
    """The published stretch of one output: `start` ≤ `total`, both byte offsets."""

    start: int = 0
    """The first offset that can still be replayed."""
    total: int = 0
    """How many bytes have been published."""
    closed: bool = False
    """Whether no more will come."""


@frozen
class Bytes:
    """Deliver ``[start, end)``; the cursor moves to `end`."""

    start: int
    end: int


@frozen
class Gap:
    """Say that ``[start, end)`` will never be delivered; the cursor moves to `end`."""

    start: int
    end: int


@frozen
class Wait:
    """Nothing to deliver now."""


@frozen
class End:
    """Everything was delivered or reported, and nothing more will come."""


Step = Bytes | Gap | Wait | End

WAIT = Wait()
END = End()


def publish(span: Span, count: int, window: int) -> Span:
    """`count` more bytes were read from the child; at most the last `window` bytes stay replayable."""
    total = span.total + count
    return Span(max(span.start, total - window), total, span.closed)


def close(span: Span) -> Span:
    """No more bytes will come."""
    return Span(span.start, span.total, True)


def next_step(cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    """What a reader at offset `cursor` gets next.

    `piece` is the most bytes one delivery holds (contract b: 16,384). `slack`, when given, is how many bytes
    a reader that has followed live may owe before it is taken to the present.
    """
    if cursor >= span.total:
        return END if span.closed else WAIT
    if slack is not None and not span.closed and span.total - cursor > slack:
        return Gap(cursor, span.total)
    if cursor < span.start:
        return Gap(cursor, span.start)
    return Bytes(cursor, min(span.total, cursor + piece))


def slack(held_up: bool, cursor: int, replay_end: int, most: int) -> int | None:
    """How many bytes a reader may owe that comes back for more, None for any number.

    `most` for one that was held up (it paused) and follows live: its cursor has passed `replay_end`, what there was
    when it attached. A reader that attached far behind is owed its replay first, as far as that can be kept for it.
    """
    return most if held_up and cursor >= replay_end else None


def advance(cursor: int, step: Step) -> int:
    """The cursor after `step` was delivered."""
    return step.end if isinstance(step, (Bytes, Gap)) else cursor


def head_room(held: int, cap: int, count: int) -> tuple[int, bool]:
    """How many of `count` new bytes of one stream the head keeps, and whether any byte is cut.

    The head is what a poll returns: the first `cap` bytes of each stream. Output of exactly `cap` bytes is
    not truncated (contract c.5).
    """
    kept = min(count, max(0, cap - held))
    return kept, kept < count

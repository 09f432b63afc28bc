"""One exec's output: a head for polling, a ring for streams, one offset space, exact to the byte.

Theory of operation
-------------------
`feed` numbers bytes in the order the daemon read them. Two copies are kept, both bounded by configuration:

* the *head* of each stream, the first `head_bytes` of it, which a poll returns once the exec has exited;
* the *ring*, the last `ring_bytes` of both streams together, which readers replay from any offset in it.

The ring is two flat byte arrays: the data, and for each byte a tag that says which stream it came from. So its
memory does not depend on how a child slices its writes (a million one-byte writes cost what one large write
costs), and the extent of a piece of one stream is a single search for the other tag. It grows by doubling up to its
size, so that a command that prints a line does not pay for a megabyte; and as long as all it holds is of one
stream, as it mostly is, the tags are neither kept up nor looked at.

What a reader gets at an offset is decided by `agentd.rules.output`; this module stores and slices.
"""

from collections.abc import Callable
from typing import Final

from agentd.rules import output as rules
from agentd.rules.output import Span

STDOUT: Final = 0
STDERR: Final = 1

_SMALLEST: Final = 4096
_TAGS: Final = (b"\0", b"\1")


class Ring:
    """The last `capacity` bytes of a numbered sequence, each with a tag of 0 or 1."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.total = 0
        self._size = 0
        # Written through views: assigning to a slice of a bytearray copies the other side first.
        self._data = memoryview(bytearray())
        self._tags = bytearray()
        self._last = 0
        """The tag of the last byte."""
        self._since = 0
        """The offset from which on every byte has that tag."""

    @property
    def start(self) -> int:
        """The first offset that is still here."""
        return max(0, self.total - self.capacity)

    def append(self, tag: int, data: bytes | memoryview) -> None:
        """Number and keep `data`; what no longer fits falls off the other end."""
        count = len(data)
        if count == 0:
            return
        if tag != self._last:
            self._mark()
            self._last, self._since = tag, self.total
        offset = self.total
        self.total += count
        if count > self.capacity:
            data = memoryview(data)[count - self.capacity :]
            offset = self.total - self.capacity
            count = self.capacity
        self._grow()
        self._put(self._data, offset, data)

    def _put(self, there: memoryview, offset: int, data: bytes | memoryview) -> None:
        count = len(data)
        if count == 0:
            return
        at = offset % self._size
        first = min(count, self._size - at)
        there[at : at + first] = data if first == count else memoryview(data)[:first]
        if first < count:
            there[: count - first] = memoryview(data)[first:]

    def _mark(self) -> None:
        """Write down the tags of the run that ends here."""
        if self._size == 0:
            return
        if len(self._tags) < self._size:
            self._tags.extend(bytes(self._size - len(self._tags)))
        since = max(self._since, self.start)
        self._put(memoryview(self._tags), since, _TAGS[self._last] * (self.total - since))

    def _grow(self) -> None:
        # Until the ring has wrapped, byte n is at index n, so growing keeps what is there where it is.
        if self._size >= self.capacity or self.total <= self._size:
            return
        size = max(_SMALLEST, self._size)
        while size < self.total and size < self.capacity:
            size *= 2
        size = min(size, self.capacity)
        larger = memoryview(bytearray(size))
        larger[: self._size] = self._data
        self._data = larger
        self._size = size

    def piece(self, start: int, end: int) -> tuple[int, bytes]:
        """The tag at `start`, and the bytes of that tag from there on, up to `end` at most.

        ``self.start <= start < end <= self.total``.
        """
        at = start % self._size
        count = end - start
        tag = self._last
        if start < self._since:
            # Before the last run; it is not to be reached, for its own tags are not written down yet.
            count = min(count, self._since - start)
            tag = self._tags[at]
            count = self._run(at, count, _TAGS[1 - tag])
        first = self._data[at : at + count]
        if len(first) == count:
            return tag, bytes(first)
        return tag, b"".join((first, self._data[: count - len(first)]))

    def _run(self, at: int, count: int, other: bytes) -> int:
        """How many of the `count` tags from index `at` on come before one that is `other`."""
        found = self._tags.find(other, at, at + count)
        if found >= 0:
            return found - at
        behind = at + count - self._size
        if behind > 0:
            found = self._tags.find(other, 0, behind)
            if found >= 0:
                return self._size - at + found
        return count


class Output:
    """Everything one exec has written, as far as it is kept.

    `changed` callbacks run at every change, on the reactor thread, and must be cheap: readers use them to
    schedule themselves.
    """

    def __init__(self, head_bytes: int, ring_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._ring = Ring(ring_bytes)
        self._heads = (bytearray(), bytearray())
        self.truncated = False
        self.span = Span()
        self._watchers: list[Callable[[], None]] = []

    def feed(self, stream: int, data: bytes | memoryview) -> None:
        """`data` was read from the pipe of `stream`. What is kept of it is copied."""
        head = self._heads[stream]
        kept, cut = rules.head_room(len(head), self._head_bytes, len(data))
        if kept:
            head += data if kept == len(data) else memoryview(data)[:kept]
        if cut:
            self.truncated = True
        self._publish(stream, data)

    def _publish(self, stream: int, data: bytes | memoryview) -> None:
        """Number `data`, keep it, and tell everybody."""
        self._ring.append(stream, data)
        self.span = rules.publish(self.span, len(data), self._ring.capacity)
        self._tell()

    def _tell(self) -> None:
        for watcher in self._watchers:
            watcher()

    def end(self, stream: int) -> None:
        """The pipe of `stream` has ended."""

    def close(self) -> None:
        """No more will come."""
        self.span = rules.close(self.span)
        self._tell()

    def release_head(self) -> None:
        """Forget what polls return; streams go on replaying the ring."""
        self._heads = (bytearray(), bytearray())

    def head(self, stream: int) -> bytes:
        """The first bytes of one stream, as far as they are kept."""
        return bytes(self._heads[stream])

    def head_size(self) -> int:
        """How many bytes both heads hold."""
        return len(self._heads[0]) + len(self._heads[1])

    def piece(self, start: int, end: int) -> tuple[int, bytes]:
        """`Ring.piece`."""
        return self._ring.piece(start, end)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` after every change."""
        self._watchers.append(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Undo `watch`."""
        self._watchers.remove(callback)

"""One exec's output: a head for polling, a ring for streams, one offset space, exact to the byte.

Theory of operation
-------------------
`feed` numbers bytes in the order the daemon read them. Two copies are kept, both bounded by configuration:

* the *head* of each stream, the first `head_bytes` of it, which a poll returns once the exec has exited;
* the *ring*, the last `ring_bytes` of both streams together, which readers replay from any offset in it.

The ring is two flat byte arrays: the data, and for each byte a tag that says which stream it came from. So its
memory does not depend on how a child slices its writes (a million one-byte writes cost what one large write
costs), and the extent of a piece of one stream is a single search for the other tag. It grows by doubling up to its
size, so that a command that prints a line does not pay for a megabyte.

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
        self._data = bytearray()
        self._tags = bytearray()

    @property
    def start(self) -> int:
        """The first offset that is still here."""
        return max(0, self.total - self.capacity)

    def append(self, tag: int, data: bytes) -> None:
        """Number and keep `data`; what no longer fits falls off the other end."""
        count = len(data)
        offset = self.total
        self.total += count
        if count > self.capacity:
            data = data[count - self.capacity :]
            offset = self.total - self.capacity
            count = self.capacity
        if count == 0:
            return
        self._grow()
        size = self._size
        at = offset % size
        first = min(count, size - at)
        self._data[at : at + first] = data if first == count else memoryview(data)[:first]
        self._tags[at : at + first] = _TAGS[tag] * first
        if first < count:
            rest = count - first
            self._data[:rest] = memoryview(data)[first:]
            self._tags[:rest] = _TAGS[tag] * rest

    def _grow(self) -> None:
        # Until the ring has wrapped, byte n is at index n, so growing is appending.
        if self._size >= self.capacity or self.total <= self._size:
            return
        size = max(_SMALLEST, self._size)
        while size < self.total and size < self.capacity:
            size *= 2
        size = min(size, self.capacity)
        self._data.extend(bytes(size - self._size))
        self._tags.extend(bytes(size - self._size))
        self._size = size

    def piece(self, start: int, end: int) -> tuple[int, bytes]:
        """The tag at `start`, and the bytes of that tag from there on, up to `end` at most.

        ``self.start <= start < end <= self.total``. May be shorter than the run where the ring wraps.
        """
        at = start % self._size
        stop = min(self._size, at + end - start)
        tag = self._tags[at]
        other = self._tags.find(_TAGS[1 - tag], at, stop)
        if other >= 0:
            stop = other
        return tag, bytes(memoryview(self._data)[at:stop])


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

    def feed(self, stream: int, data: bytes) -> None:
        """`data` was read from the pipe of `stream`."""
        head = self._heads[stream]
        kept, cut = rules.head_room(len(head), self._head_bytes, len(data))
        if kept:
            head += data if kept == len(data) else memoryview(data)[:kept]
        if cut:
            self.truncated = True
        self._ring.append(stream, data)
        self.span = rules.publish(self.span, len(data), self._ring.capacity)
        for watcher in self._watchers:
            watcher()

    def close(self) -> None:
        """No more will come."""
        self.span = rules.close(self.span)
        for watcher in self._watchers:
            watcher()

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

"""The log of one process: both outputs joined, numbered by bytes, and never cut inside a character (environments 7).

It is the `Output` that every exec has, with three things of its own: what one stream has delivered of an unfinished
character waits for the rest before it is numbered; the oldest bytes leave by whole characters; and a piece ends
between two characters. What "character" means for bytes that are none is `agentd.rules.utf8`'s.
"""

from typing import Final

from attrs import evolve

from agentd.process.follow import Piece
from agentd.process.output import STDERR, STDOUT, Output
from agentd.rules import output as rules
from agentd.rules import processes, utf8
from agentd.rules.utf8 import NOTHING_HELD, Held

_LOOK: Final = utf8.LONGEST - 1
"""How far around a cut a character can reach, in bytes."""


class TextLog(Output):
    """The newest `capacity` bytes of a process' outputs, or up to three fewer."""

    def __init__(self, capacity: int) -> None:
        # A little more is kept than is shown, to see whether the first byte shown continues a character.
        super().__init__(0, capacity + _LOOK)
        self._capacity = capacity
        self._held: list[Held] = [NOTHING_HELD, NOTHING_HELD]

    def feed(self, stream: int, data: bytes | memoryview) -> None:
        """`data` was read from the pipe of `stream`; the bytes of an unfinished character are held back."""
        self._held[stream], ready = utf8.arrive(self._held[stream], bytes(data))
        if ready:
            self._publish(stream, ready)

    def end(self, stream: int) -> None:
        """The pipe of `stream` has ended, and what was held back will not be completed."""
        held, self._held[stream] = self._held[stream], NOTHING_HELD
        if held.data:
            self._publish(stream, held.data)

    def close(self) -> None:
        """No more will come."""
        self.end(STDOUT)
        self.end(STDERR)
        super().close()

    def _publish(self, stream: int, data: bytes | memoryview) -> None:
        self._ring.append(stream, data)
        before = self.span.start
        span = rules.publish(self.span, len(data), self._capacity)
        if span.start > before:
            span = evolve(span, start=span.start + self._begun_before(span.start, span.total))
        self.span = span
        self._tell()

    def _begun_before(self, start: int, total: int) -> int:
        """How many bytes from `start` on belong to a character that is being dropped."""
        stream, after = self._run(start, min(total, start + _LOOK))
        before = b""
        at = max(self._ring.start, start - _LOOK)
        while at < start:
            other, data = self._ring.piece(at, start)
            before = before + data if other == stream else b""
            at += len(data)
        return utf8.begun(before, after)

    def _run(self, start: int, end: int) -> tuple[int, bytes]:
        """The stream at `start`, and its bytes from there to where the other's begin, or `end`."""
        stream, data = self._ring.piece(start, end)
        parts = [data]
        at = start + len(data)
        while at < end:
            other, data = self._ring.piece(at, end)
            if other != stream:
                break
            parts.append(data)
            at += len(data)
        return stream, parts[0] if len(parts) == 1 else b"".join(parts)

    def piece(self, start: int, end: int) -> tuple[int, bytes]:
        """The stream at `start`, and its bytes from there on, ending between two characters.

        Up to `end`, or a little less; more only to complete a first character that reaches beyond it.
        """
        stream, data = self._run(start, min(self.span.total, end + _LOOK))
        length = utf8.whole(data, end - start)
        return stream, data if length == len(data) else data[:length]

    def page(self, since: int, limit: int, most: int) -> tuple[list[Piece], int]:
        """What a reply from `since` holds: pieces, at most `most`, of some `limit` bytes in all; and where it ends."""
        bounds = processes.page(since, self.span, limit)
        pieces: list[Piece] = []
        at = bounds.start
        while at < bounds.end and len(pieces) < most:
            stream, data = self.piece(at, bounds.end)
            pieces.append(Piece(at, stream, data))
            at += len(data)
        return pieces, at

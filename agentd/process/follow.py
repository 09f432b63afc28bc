"""Following an output: a cursor that pulls when it may and waits when it must.

Theory of operation
-------------------
A follower owns nothing but an offset. When the output changes it schedules one turn of the reactor, however many
changes there are; in that turn it takes what the rules give it, hands a batch to its consumer, and goes on until
the consumer pauses it, the output has no more, or its share of the turn is used up. While it is paused nothing is
queued for it: it will find what is left in the ring, or a gap. So a slow reader costs an integer, never slows the
child, and never slows another reader.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from attrs import frozen

from agentd.config import PIECE_BYTES
from agentd.process.output import Output
from agentd.rules import output as rules
from agentd.rules.output import Bytes, End, Gap, Wait

BATCH_BYTES: Final = 4 * PIECE_BYTES
"""What is handed over at once; after each batch the consumer may have paused."""
TURN_BYTES: Final = 1 << 20
"""Most bytes one follower delivers in one turn of the reactor, so that no reader starves the others."""
ITEM_BYTES: Final = 1024
"""What an item counts as at least: a child that writes a byte here and a byte there makes a piece of each."""


@frozen
class Piece:
    """Bytes of one stream: ``[offset, offset + len(data))``."""

    offset: int
    stream: int
    data: bytes


Item = Piece | Gap | End


class Consumer(Protocol):
    """Takes what a follower delivers."""

    def deliver(self, items: list[Item]) -> None:
        """The next items in order; `End` is the last of all."""


class Follower:
    """Delivers an output from an offset on to `consumer`. An `IPushProducer` to whatever writes for it."""

    def __init__(
        self, output: Output, offset: int, consumer: Consumer, call_soon: Callable[..., Any], slack: int
    ) -> None:
        self.cursor = offset
        self._output = output
        self._consumer = consumer
        self._call_soon = call_soon
        self._slack = slack
        self._replay_end = 0
        self._lagging = False
        self._paused = False
        self._scheduled = False
        self._watching = False
        self._stopped = False

    @property
    def paused(self) -> bool:
        """Whether the consumer has asked for a pause."""
        return self._paused

    def start(self) -> None:
        """Begin delivering, in a later turn. Does nothing once stopped."""
        if not self._stopped:
            self._watching = True
            self._replay_end = self._output.span.total
            self._output.watch(self._changed)
            self._changed()

    def stop(self) -> None:
        """Deliver nothing more. May come before `start`, and again."""
        self._stopped = True
        if self._watching:
            self._watching = False
            self._output.unwatch(self._changed)

    def pauseProducing(self) -> None:
        """The consumer cannot take more."""
        self._paused = True
        self._lagging = True

    def resumeProducing(self) -> None:
        """The consumer can take more."""
        self._paused = False
        self._changed()

    def stopProducing(self) -> None:
        """The consumer has gone."""
        self.stop()

    def _changed(self) -> None:
        if not (self._scheduled or self._paused or self._stopped):
            self._scheduled = True
            self._call_soon(0, self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._paused:
            return  # and is still held up when it comes back
        slack = rules.slack(self._lagging, self.cursor, self._replay_end, self._slack)
        self._lagging = False
        budget = TURN_BYTES
        while not (self._paused or self._stopped):
            items, size = self._batch(slack)
            slack = None
            if not items:
                return
            if isinstance(items[-1], End):
                self.stop()
            self._consumer.deliver(items)
            budget -= size
            if budget <= 0:
                self._changed()
                return

    def _batch(self, slack: int | None) -> tuple[list[Item], int]:
        """The next items, some `BATCH_BYTES` of them, and how many bytes they count as."""
        items: list[Item] = []
        size = 0
        while size < BATCH_BYTES:
            step = rules.next_step(self.cursor, self._output.span, PIECE_BYTES, slack)
            slack = None
            if isinstance(step, Wait):
                break
            if isinstance(step, Bytes):
                stream, data = self._output.piece(step.start, step.end)
                items.append(Piece(step.start, stream, data))
                step = Bytes(step.start, step.start + len(data))
                size += max(len(data), ITEM_BYTES)
            else:
                items.append(step)
                size += ITEM_BYTES
                if isinstance(step, End):
                    break
            self.cursor = rules.advance(self.cursor, step)
        return items, size

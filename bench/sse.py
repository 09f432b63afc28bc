"""Following an exec's stream and keeping account of every byte of it.

`Ledger` is the law that a stream must obey, applied: events tile ``[0, total)`` in order, each piece's bytes are
those that the child wrote there, a gap covers what was left out, and the exit event stands at the total.
"""

import json
from base64 import b64decode
from typing import Any

from attrs import define, field


class EventParser:
    """Server-sent events from the bytes of a chunked body, fed as they arrive."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._text = bytearray()
        self.ended = False
        """Whether the last chunk, the empty one, has arrived."""

    def feed(self, data: bytes) -> list[tuple[bytes, Any]]:
        """The events that `data` completes, as (name, decoded JSON); comments are dropped."""
        self._raw += data
        self._unchunk()
        *blocks, rest = bytes(self._text).split(b"\n\n")
        self._text = bytearray(rest)
        events = []
        for block in blocks:
            fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
            if b"event" in fields:
                events.append((fields[b"event"], json.loads(fields[b"data"])))
        return events

    def _unchunk(self) -> None:
        raw, at = self._raw, 0
        while (end := raw.find(b"\r\n", at)) >= 0:
            size = int(raw[at:end], 16)
            if len(raw) < end + size + 4:
                break
            self._text += raw[end + 2 : end + 2 + size]
            at = end + size + 4
            if size == 0:
                self.ended = True
                break
        del raw[:at]


@define
class Ledger:
    """One reader's account of an exec that writes `expected` to its stdout."""

    expected: bytes = field(repr=False)
    cursor: int = 0
    delivered: int = 0
    """Bytes that arrived and are the child's."""
    missed: int = 0
    """Bytes that a gap said would not arrive."""
    faults: int = 0
    """Pieces and gaps out of place, bytes that are not the child's."""
    exited: bool = False

    def enter(self, name: bytes, event: Any) -> None:
        """Account for one event."""
        if name == b"output":
            data = b64decode(event["output"])
            right = event["offset"] == self.cursor and event["stream"] == "stdout"
            if right and self.expected.startswith(data, self.cursor):
                self.delivered += len(data)
            else:
                self.faults += 1
            self.cursor = event["offset"] + len(data)
        elif name == b"gap":
            self.faults += event["from"] != self.cursor
            self.missed += event["to"] - event["from"]
            self.cursor = event["to"]
        elif name == b"exit":
            self.exited = event["exit_code"] == 0 and event["offset"] == self.cursor

    @property
    def balanced(self) -> bool:
        """Whether every byte was delivered once or is in a gap."""
        total = len(self.expected)
        return (
            self.exited and not self.faults and self.cursor == total and self.delivered + self.missed == total
        )

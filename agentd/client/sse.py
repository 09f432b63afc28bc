"""Server-Sent Events, from bytes to typed events.

The wire format is the event stream of the HTML standard (section 9.2), the content is contract (d). The parser
is fed whatever the connection delivers and holds at most one unfinished event: above `MAX_EVENT_BYTES` without
a blank line it fails instead of growing. Line ends may be LF, CRLF or CR, also split between two reads.
Comments are dropped, and so is any event it does not know or whose data it cannot decode, since a newer daemon
may send those; but output whose base64 is broken is fatal, because bytes are missing and their count with them.
"""

import binascii
from typing import Literal

import msgspec
from attrs import frozen

from agentd.client.errors import ProtocolFault
from agentd.client.messages import ExitEvent, GapEvent, OutputEvent

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""How much may arrive without ending an event."""

Stream = Literal["stdout", "stderr"]


@frozen
class Output:
    """Bytes the command wrote to one of its two streams, `data`, at `offset` in the space both share."""

    offset: int
    stream: Stream
    data: bytes

    @property
    def end(self) -> int:
        """The offset after the last byte: where to resume."""
        return self.offset + len(self.data)


@frozen
class Gap:
    """Bytes ``[start, end)`` that this reader will never get: they left the replay window first."""

    start: int
    end: int


Event = Output | Gap | ExitEvent

_output = msgspec.json.Decoder(OutputEvent)
_gap = msgspec.json.Decoder(GapEvent)
_exit = msgspec.json.Decoder(ExitEvent)


class EventParser:
    """An incremental parser; one for each connection."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._after_cr = False
        self._first = True
        self._fault: ProtocolFault | None = None

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes; return the events they completed.

        Whatever was whole before a fault is returned first, and the fault raised by the next call, so that what
        a reader gets does not depend on how the bytes were cut up.

        Raises:
            ProtocolFault: an event grew over the limit, or the base64 of an output event is broken.
        """
        self.check()
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data[-1:] == b"\r"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer = self._buffer
        buffer += data
        if self._first and len(buffer) >= 3:
            self._first = False
            if buffer.startswith(b"\xef\xbb\xbf"):
                del buffer[:3]
        events: list[Event] = []
        start = 0
        try:
            end = buffer.find(b"\n\n", max(self._scanned - 1, 0))
            while end >= 0:
                self._bound(end - start)
                event = _event(bytes(buffer[start:end]))
                if event is not None:
                    events.append(event)
                start = end + 2
                end = buffer.find(b"\n\n", start)
            self._bound(len(buffer) - start)
        except ProtocolFault as fault:
            self._fault = fault
            buffer.clear()
            if not events:
                raise
            return events
        del buffer[:start]
        self._scanned = len(buffer)
        return events

    def check(self) -> None:
        """Raise the fault that the last call met behind the events it returned, if it did."""
        if self._fault is not None:
            raise self._fault

    def _bound(self, size: int) -> None:
        if size > self._limit:
            raise ProtocolFault(f"an event of the stream is longer than {self._limit} bytes")


def _event(frame: bytes) -> Event | None:
    """The event one block of lines makes, or None for what is to be ignored."""
    name = b""
    data: list[bytes] = []
    for line in frame.split(b"\n"):
        key, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if key == b"event":
            name = value
        elif key == b"data":
            data.append(value)
    if not data:
        return None
    payload = b"\n".join(data)
    try:
        if name == b"output":
            wire = _output.decode(payload)
        elif name == b"gap":
            gap = _gap.decode(payload)
            return Gap(gap.from_, gap.to)
        elif name == b"exit":
            return _exit.decode(payload)
        else:
            return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    try:
        if len(wire.output) % 4:  # strict mode takes superfluous padding
            raise ValueError
        return Output(wire.offset, wire.stream, binascii.a2b_base64(wire.output, strict_mode=True))
    except ValueError:
        raise ProtocolFault(f"the output event at offset {wire.offset} is not base64") from None

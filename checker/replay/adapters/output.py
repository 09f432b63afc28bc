"""One exec's output and who reads it, done to a daemon in memory: contract a.4, c.5, d.

A byte of the model is half a piece of the daemon. A reader is held up between its steps, and the daemon hands over one
item at a time, as it does to a caller whose socket takes no more. What is delivered is compared byte for byte with what
the child wrote at that offset. The daemon cuts a delivery where the stream changes, which the model does not, so one
variant reads what one stream wrote, and the other has both streams, and a poll.
"""

import base64
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, ClassVar, Final

from attrs import define, field

from agentd.config import PIECE_BYTES
from agentd.process import follow
from agentd.process.job import Job
from agentd.process.output import STDERR, STDOUT
from agentd.rules.output import Bytes, End, Gap, Span, Wait
from checker.model import Event, Model
from checker.models.bootstrap_exec_terms import HOST
from checker.models.output import CAP, PIECE, SLACK, STREAMS, WINDOW, Head
from checker.replay.adapter import Adapter, compared, install
from checker.replay.memory import Pending
from checker.replay.wire import Says, chunks, events
from checker.result import Step

Values = Mapping[str, Hashable]

UNIT: Final = PIECE_BYTES // PIECE
"""Bytes of the daemon to one of the model."""
ONE, BOTH = "one stream, with readers", "both streams, with a poll"


@define(eq=False)
class Reader:
    """A caller that follows the output."""

    request: Pending
    seen: int = field(init=False, default=0)
    """Bytes of events that were looked at."""

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The events that came since the last time: name and data."""
        _, _, rest = self.request.connection.received.partition(b"\r\n\r\n")
        body, _ = chunks(rest)
        fresh, self.seen = body[self.seen :], len(body)
        return list(events(fresh))

    @property
    def begun(self) -> bool:
        """Whether the stream was granted."""
        return self.request.connection.received.startswith(b"HTTP/1.1 200 ")


class Streamed(Adapter):
    """What the output of an exec is put through; the exec itself is somebody else's."""

    subject: Any
    streamed: str
    """The id of the exec."""
    job: Job | None = None
    """Its job."""

    @classmethod
    def settings(cls, model: Model) -> dict[str, Any]:
        """The model's bounds, in bytes."""
        return {
            **super().settings(model),
            "stream_buffer_bytes": WINDOW * UNIT,
            "max_output_bytes": CAP * UNIT,
            "stream_channel_capacity": SLACK // PIECE,
        }

    def begin(self, model: Model) -> None:
        """One item at a time."""
        super().begin(model)
        self.readers: dict[object, Reader] = {}
        self.streams: list[int] = []
        self.batch, follow.BATCH_BYTES = follow.BATCH_BYTES, 1  # type: ignore[misc]

    def finish(self) -> Iterator[str]:
        """As many as there are."""
        follow.BATCH_BYTES = self.batch  # type: ignore[misc]
        yield from super().finish()

    def on_write(self, step: Step, values: Values) -> Iterator[str]:
        """The child writes, so that each byte says at which offset it is."""
        stream = STREAMS.index(str(step.event.args["stream"]))
        count = int(str(step.event.args["count"]))
        data = b"".join(map(_written, range(len(self.streams), len(self.streams) + count)))
        self.streams += [stream] * count
        self.subject.child(self.streamed).write(data, 1 + stream)
        self.subject.memory.clock.settle()
        return iter(())

    def on_attach(self, step: Step, values: Values) -> Iterator[str]:
        """A reader attaches, and takes nothing yet."""
        offset = int(str(step.event.args["offset"])) * UNIT
        target = f"/v1/exec/{self.streamed}/stream?offset={offset}"
        token = self.names.token(step.event.args.get("token", HOST))
        request = self.subject.begin("GET", target, token=token, settle=False)
        request.connection.pause()
        self.subject.memory.clock.settle()
        reader = Reader(request)
        if not reader.begun:
            yield "the stream was not granted"
        self.readers[step.event.args["reader"]] = reader

    def refused_attach(self, step: Step, says: Says) -> Iterator[str]:
        """A reader that is not let in."""
        target, token = f"/v1/exec/{self.streamed}/stream", self.names.token(step.event.args["token"])
        yield from says.differences(self.subject.ask("GET", target, token=token))

    def on_deliver(self, step: Step, values: Values) -> Iterator[str]:
        """The reader can take more, for a moment."""
        number = step.event.args["reader"]
        reader = self.readers[number]
        connection = reader.request.connection
        expected = [] if isinstance(step.response, Wait) else [_event(step.response)]
        connection.resume(room=1)
        self.subject.memory.clock.settle()
        connection.pause()
        found = reader.events()
        yield from compared("events", expected, [(name, _told(data)) for name, data in found])
        if isinstance(step.response, Bytes):
            wanted = b"".join(map(_written, range(step.response.start, step.response.end)))
            if b"".join(base64.b64decode(data.get("output", "")) for name, data in found) != wanted:
                yield "the bytes delivered are not those that were written there"
        if isinstance(step.response, End):
            if not reader.request.connection.received.endswith(b"0\r\n\r\n"):
                yield "the stream is over, and its body did not end"
            self._detach(number)

    def on_detach(self, step: Step, values: Values) -> Iterator[str]:
        """The reader leaves."""
        self._detach(step.event.args["reader"])
        return iter(())

    def _detach(self, number: object) -> None:
        reader = self.readers.pop(number, None)
        if reader is not None:
            reader.request.connection.leave()
            self.subject.memory.clock.settle()

    def output_state(self, values: Values, heads: bool = True) -> Iterator[str]:
        """The span, and the heads."""
        span = values["span"]
        assert isinstance(span, Span)
        if self.job is None:
            return
        output = self.job.output
        found = Span(output.span.start // UNIT, output.span.total // UNIT, output.span.closed)
        yield from compared("the output", span, found)
        if not heads:
            return
        truncated = False
        for stream, number in zip(STREAMS, (STDOUT, STDERR), strict=True):
            head = values.get(f"head.{stream}")
            if isinstance(head, Head):
                yield from compared(f"the head of {stream}", head.held * UNIT, len(output.head(number)))
                truncated = truncated or head.truncated
        yield from compared("truncated", truncated, output.truncated)


class OutputReaders(Streamed):
    """The adapter of ``output``."""

    variants: ClassVar[tuple[str, ...]] = (ONE, BOTH)
    streamed = "exec-output"

    @classmethod
    def can(cls, event: Event, in_memory: bool, variant: str) -> bool:
        """Readers are held up between their steps."""
        if not in_memory or (event.kind == "deliver" and not event.args["held_up"]):
            return False
        if variant == ONE:
            return event.args.get("stream") != STREAMS[1]
        return event.kind not in ("attach", "deliver", "detach")

    def begin(self, model: Model) -> None:
        """With an exec that runs."""
        super().begin(model)
        token = self.names.token(HOST)
        install(self.subject, token)
        value = {"exec_id": self.streamed, "command": ["scripted"]}
        self.subject.ask("POST", "/v1/exec/start", token=token, value=value)
        self.job = self.subject.job(self.streamed)

    def on_close(self, step: Step, values: Values) -> Iterator[str]:
        """The child ends, and with the result its output is closed. A poll tells its heads."""
        self.subject.exit(self.streamed)
        answer = self.subject.ask("GET", f"/v1/exec/{self.streamed}", token=self.names.token(HOST))
        fields: dict[str, object] = {"phase": "exited"}
        truncated = False
        for stream in STREAMS:
            head = values[f"head.{stream}"]
            assert isinstance(head, Head)
            truncated = truncated or head.truncated
            offsets = [offset for offset, wrote in enumerate(self.streams) if STREAMS[wrote] == stream]
            fields[stream] = b"".join(map(_written, offsets[: head.held])).decode()
        yield from Says(200, fields={**fields, "truncated": truncated}).differences(answer)

    def state(self, values: Values) -> Iterator[str]:
        """The output."""
        yield from self.output_state(values)


def _written(offset: int) -> bytes:
    """What the child writes at an offset of the model."""
    return bytes([65 + offset % 26]) * UNIT


def _event(step: Hashable) -> tuple[str, object]:
    """The event of a step. One stream writes all there is."""
    if isinstance(step, Bytes):
        return "output", (STREAMS[0], step.start * UNIT, (step.end - step.start) * UNIT)
    if isinstance(step, Gap):
        return "gap", (step.start * UNIT, step.end * UNIT)
    return "exit", None


def _told(data: dict[str, Any]) -> object:
    """What an event tells of offsets."""
    if "output" in data:
        return data["stream"], data["offset"], len(base64.b64decode(data["output"]))
    return (data["from"], data["to"]) if "from" in data else None

"""Who reads a background process, and who writes to it: environments 7 and 8, done to a daemon in memory.

A long poll waits on its connection. An attached client is held up between its steps, as a reader of a stream is; a gap
is not told to it, so it goes with what follows.
"""

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

from attrs import define, field

from agentd.environments.poll import LongPoll
from agentd.rules.output import Bytes, End, Gap
from agentd.rules.processes import Fault, Verdict
from checker.models.processes_terms import NOWHERE, Reply
from checker.replay.adapter import Adapter, compared
from checker.replay.children import ScriptedChild
from checker.replay.memory import Pending
from checker.replay.websocket import CLOSE, HANDSHAKE, TEXT, frames, text
from checker.replay.wire import Answer, Says
from checker.result import Step

Values = Mapping[str, Hashable]

ROOT: Final = "/v1/environments/local/processes"
MISSING: Final = Says(404)
PATIENCE: Final = 30
"""Seconds that a patient poll waits; time stands still, so any number will do."""


@define(eq=False)
class Attached:
    """A client that is attached."""

    request: Pending
    seen: int = field(init=False, default=-1)
    """Bytes that were looked at, the answer to the handshake included; -1 before that came."""
    closed: bool = field(init=False, default=False)
    """Whether a close frame came."""

    def messages(self) -> list[dict[str, Any]]:
        """The messages that came since the last time."""
        received = self.request.connection.received
        if self.seen < 0:
            head, found, _ = received.partition(b"\r\n\r\n")
            if not found or not head.startswith(b"HTTP/1.1 101 "):
                return []
            self.seen = len(head) + len(found)
        told, length = frames(received[self.seen :])
        self.seen += length
        self.closed = self.closed or any(opcode == CLOSE for opcode, _ in told)
        return [json.loads(payload) for opcode, payload in told if opcode == TEXT]


class Readers(Adapter):
    """What readers and writers of one process are put through; the process is somebody else's."""

    subject: Any
    token: bytes
    pids: dict[object, str]
    """The ids of processes, by number, or ``input`` for the one whose stdin a run is about."""
    children: dict[object, ScriptedChild]
    waiting: Pending | None
    """The long poll."""
    attached: Attached | None

    def ask(self, method: str, target: str, value: object = None) -> Answer:
        """A request with the token."""
        answer: Answer = self.subject.ask(method, target, token=self.token, value=value)
        return answer

    # -- the long poll --------------------------------------------------------------------------------------

    def on_poll(self, step: Step, values: Values) -> Iterator[str]:
        """A long poll."""
        seconds = PATIENCE if step.event.args["patient"] else 0
        pid = self.pids.get(0, "none")
        target = f"{ROOT}/{pid}/output?since={step.event.args['since']}&wait_secs={seconds}"
        pending = self.subject.begin("GET", target, token=self.token)
        if step.response == NOWHERE:
            answer = pending.look()
            if answer is None:
                yield "the poll of a process that is not there was not answered"
            else:
                yield from MISSING.differences(answer)
                self.subject.done(pending)
            return
        self.waiting = pending
        yield from self.poll_told(step)

    def on_expire(self, step: Step, values: Values) -> Iterator[str]:
        """The time of the poll is over; of one that was answered nothing is left that could be."""
        clock = self.subject.memory.clock
        for call in clock.arm():
            if isinstance(getattr(call.func, "__self__", None), LongPoll):
                clock.fire(call)
        clock.settle()
        yield from self.poll_told(step)

    def on_leave(self, step: Step, values: Values) -> Iterator[str]:
        """The poll's client leaves."""
        if self.waiting is not None:
            self.waiting.connection.leave()
            self.waiting = None
        return iter(())

    def poll_told(self, step: Step) -> Iterator[str]:
        """What became of the poll on this step."""
        told = step.response[-1] if isinstance(step.response, tuple) else step.response
        if self.waiting is None or not isinstance(told, Reply):
            return
        before = self.waiting.answer
        answer = self.waiting.look()
        if told.verdict in (Verdict.WAIT, Verdict.COLLECT):
            if answer is not before:
                yield "the poll was answered, and should wait"
        elif answer is None:
            yield "the poll was not answered"
        elif told.verdict is Verdict.NOT_FOUND:
            yield from MISSING.differences(answer)
        elif told.verdict is Verdict.BEYOND_END:
            yield from Says(400).differences(answer)
        else:
            assert told.page is not None
            fields: dict[str, object] = {"next": told.page.end, "exited": told.final}
            if not told.final:
                fields["exit"] = None
            yield from Says(200, fields=fields).differences(answer)
            chunks = answer.fields().get("chunks", [])
            text = "".join(chunk["data"] for chunk in chunks)
            yield from compared("the output", written(told.page.start, told.page.end), text)
            if told.final and (answer.fields().get("exit") is not None) is not told.exit:
                yield "the exit shows, or does not, as it should not"

    # -- the attached client --------------------------------------------------------------------------------

    def on_attach(self, step: Step, values: Values) -> Iterator[str]:
        """A client attaches, and takes nothing yet but the first message."""
        yield from self._attach(0, missing=step.response == NOWHERE)

    def _attach(self, number: object, missing: bool = False) -> Iterator[str]:
        target = f"{ROOT}/{self.pids.get(number, 'none')}/attach"
        pending = self.subject.begin("GET", target, token=self.token, settle=False, headers=HANDSHAKE)
        pending.connection.pause()
        self.subject.memory.clock.settle()
        if missing:
            pending.connection.resume()
            answer = pending.look()
            if answer is None:
                yield "an attach to what is not there was not answered"
            else:
                yield from MISSING.differences(answer)
                self.subject.done(pending)
            return
        self.attached = Attached(pending)
        told = self.attached.messages()
        yield from compared("the first message", ["attached"], [message.get("type") for message in told])

    def on_attend(self, step: Step, values: Values) -> Iterator[str]:
        """The client can take more, for a moment."""
        assert isinstance(step.response, tuple)
        assert self.attached is not None
        served = step.response[0]
        if isinstance(served, Gap):
            return
        connection = self.attached.request.connection
        connection.resume(room=1)
        self.subject.memory.clock.settle()
        connection.pause()
        found = self.attached.messages()
        if isinstance(served, Bytes):
            expected = [("output", served.start, written(served.start, served.end))]
            yield from compared("messages", expected, [_told(message) for message in found])
        elif isinstance(served, End):
            yield from compared("messages", ["exit"], [message.get("type") for message in found])
            if not self.attached.closed:
                yield "the exit was told, and the connection was not closed"
        else:
            yield from compared("messages", [], found)

    def on_detach(self, step: Step, values: Values) -> Iterator[str]:
        """The client leaves."""
        if self.attached is not None:
            self.attached.request.connection.leave()
            self.attached = None
        return iter(())

    # -- stdin ------------------------------------------------------------------------------------------------

    def on_begin(self, step: Step, values: Values) -> Iterator[str]:
        """A process that reads when the run says so, with somebody attached."""
        value = {"argv": ["scripted"], "stdin": step.event.args["requested"]}
        answer = self.ask("POST", ROOT, value)
        yield from Says(201).differences(answer)
        self.pids["input"] = str(answer.fields().get("pid"))
        self.children["input"] = self.subject.memory.children.all[-1]
        self.children["input"].reads = False
        yield from self._attach("input")

    def on_message(self, step: Step, values: Values) -> Iterator[str]:
        """A message of the client's, and the error that comes of it, if one does."""
        assert self.attached is not None
        size = step.event.args["size"]
        message = {"stdin_eof": True} if size is None else {"stdin": "x" * int(str(size))}
        connection = self.attached.request.connection
        connection.resume()
        connection.send(text(json.dumps(message)))
        self.subject.memory.clock.settle()
        expected = []
        if isinstance(step.response, Fault):
            expected = [f"{next(iter(message))}: {step.response.value}"]
        told = [str(one.get("message")) for one in self.attached.messages()]
        yield from compared("errors", expected, told)

    def on_pump(self, step: Step, values: Values) -> Iterator[str]:
        """The process reads a byte."""
        self.children["input"].read_stdin()
        return iter(())

    on_finish = on_pump

    def on_broken(self, step: Step, values: Values) -> Iterator[str]:
        """The process closes its end."""
        self.children["input"].break_stdin()
        return iter(())

    def on_show(self, step: Step, values: Values) -> Iterator[str]:
        """A look at the process."""
        answer = self.ask("GET", f"{ROOT}/{self.pids['input']}")
        yield from Says(200, fields={"stdin": step.response}).differences(answer)


def _told(message: dict[str, Any]) -> tuple[object, ...]:
    """What a message says of output."""
    return message.get("type"), message.get("offset"), message.get("data")


def written(start: int, end: int) -> str:
    """What the process writes from one offset to another."""
    return "".join(chr(ord("a") + offset) for offset in range(start, end))

"""Writes to a child's stdin, done to a daemon: contract a.5."""

import base64
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

from agentd.rules.stdin import Refusal, Result, Stdin
from checker.model import Event, Model
from checker.models.bootstrap_exec_terms import HOST
from checker.models.stdin import CAP
from checker.replay.adapter import Adapter, compared, install
from checker.replay.memory import MemorySubject
from checker.replay.wire import Says
from checker.result import Step

Values = Mapping[str, Hashable]

ANSWERS: Final[dict[Hashable, Says]] = {
    Refusal.NOT_REQUESTED: Says(409, "stdin_not_requested"),
    Refusal.MALFORMED: Says(400, "malformed_request"),
    Refusal.TOO_LARGE: Says(413, "stdin_write_too_large"),
    Refusal.CLOSED: Says(410, "stdin_closed"),
    Result.TIMED_OUT: Says(408, "stdin_write_timeout", {"written": 0}),
    Result.BROKEN: Says(410, "stdin_closed", {"written": 0}),
    Result.FAILED: Says(500, "stdin_write_failed", {"written": 0}),
}


class StdinWrites(Adapter):
    """The adapter of ``stdin``."""

    subject: Any

    @classmethod
    def settings(cls, model: Model) -> dict[str, Any]:
        """The model's cap."""
        return {"max_stdin_write_bytes": CAP}

    @classmethod
    def can(cls, event: Event, in_memory: bool, variant: str) -> bool:
        """On a socket the child reads all it is sent, and what is too large is the daemon's own to say."""
        if event.kind != "write" or in_memory:
            return super().can(event, in_memory, variant)
        return event.args["result"] is Result.WRITTEN and event.args["size"] != CAP + 1

    def begin(self, model: Model) -> None:
        """With a token."""
        install(self.subject, self.names.token(HOST))

    def on_spawn(self, step: Step, values: Values) -> Iterator[str]:
        """A start of a command that reads until there is no more, and ends when it is told to."""
        command = ["/bin/sh", "-c", "cat >/dev/null; exec sleep 3600"]
        exec_id = self.names.exec("stdin")
        value = {"exec_id": exec_id, "command": command, "stdin": step.event.args["requested"]}
        answer = self.subject.ask("POST", "/v1/exec/start", token=self.names.token(HOST), value=value)
        yield from Says(200, fields={"exec_id": exec_id, "phase": "running"}).differences(answer)

    def on_write(self, step: Step, values: Values) -> Iterator[str]:
        """A write, which the pipe takes as the event says if it gets that far."""
        args, exec_id = step.event.args, self.names.exec("stdin")
        size = args["size"]
        data = "?" if size is None else base64.b64encode(b"x" * int(str(size))).decode()
        if isinstance(self.subject, MemorySubject):
            result = args["result"]
            assert isinstance(result, Result)
            self.subject.child(exec_id).stdin_result = result
        value = {"data_b64": data} | ({} if args["signal"] is None else {"signal": args["signal"]})
        target = f"/v1/exec/{exec_id}/stdin"
        answer = self.subject.ask("POST", target, token=self.names.token(HOST), value=value)
        eof = args["signal"] == "eof"
        written = Says(200, fields={"exec_id": exec_id, "written": size, "eof": eof})
        yield from ANSWERS.get(step.response, written).differences(answer)

    def on_publish(self, step: Step, values: Values) -> Iterator[str]:
        """The child ends, and its pipes with it."""
        self.subject.kill(self.names.exec("stdin"))
        return iter(())

    def state(self, values: Values) -> Iterator[str]:
        """What the daemon knows of the pipe, and the pipe itself."""
        state = values["stdin"]
        if isinstance(self.subject, MemorySubject) and isinstance(state, Stdin):
            job = self.subject.job(self.names.exec("stdin"))
            yield from compared("stdin", state, job.stdin)
            child = self.subject.child(self.names.exec("stdin"))
            yield from compared("the pipe is open", state.open, child.stdin_open)

"""The daemon's own end, done to a daemon in memory: contract a.1, i.7."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from agentd.rules.lifecycle import Lifecycle, TerminateMode
from checker.model import Model
from checker.models.bootstrap_exec_terms import HOST
from checker.replay.adapter import HOOKS, Adapter, compared, install
from checker.replay.memory import Pending
from checker.replay.wire import Says
from checker.result import Step

Values = Mapping[str, Hashable]


class Living(Adapter):
    """What the daemon's life is put through. A request is in flight while the last byte of its body is to come."""

    subject: Any

    @classmethod
    def settings(cls, model: Model) -> dict[str, Any]:
        """The knob that the configuration is about."""
        mode = dict(zip(model.index(), model.initial, strict=True))["mode"]
        assert isinstance(mode, TerminateMode)
        return {"terminate": mode}

    def begin(self, model: Model) -> None:
        """With nothing in flight."""
        super().begin(model)
        self.held: list[Pending] = []
        self.drains: list[Any] = []
        self.stops = 0

    def on_terminate(self, step: Step, values: Values) -> Iterator[str]:
        """The terminate hook, which asks the service to leave once it is answered."""
        answer = self.subject.ask("POST", f"{HOOKS}/terminate")
        yield from Says(200, empty=True).differences(answer)
        if self.subject.memory.stopped > self.stops:
            self.stops = self.subject.memory.stopped
            self._drain()

    def on_signal(self, step: Step, values: Values) -> Iterator[str]:
        """SIGTERM: what the service does then."""
        self._drain()
        return iter(())

    def _drain(self) -> None:
        memory = self.subject.memory
        before = memory.clock.arm()
        memory.site.drain(memory.config.drain_timeout_secs)
        self.drains += [call for call in memory.clock.arm() if call not in before]

    def on_begin(self, step: Step, values: Values) -> Iterator[str]:
        """A request begins, and is not complete."""
        self.held.append(self.subject.begin("POST", f"{HOOKS}/validate", value={}, hold=1))
        if self.held[-1].look() is not None:
            yield "a request was answered before it was complete"

    def on_end(self, step: Step, values: Values) -> Iterator[str]:
        """Its last byte comes, and it is answered, however late."""
        pending = self.held.pop(0)
        pending.connection.send(b"}")
        self.subject.memory.clock.settle()
        answer = pending.look()
        if answer is None:
            yield "the request was not answered"
        else:
            yield from Says(200, empty=True).differences(answer)
            self.subject.done(pending)

    def on_expire(self, step: Step, values: Values) -> Iterator[str]:
        """The drain's deadline passes; without a drain there is none."""
        clock = self.subject.memory.clock
        for call in self.drains:
            if call.active():
                clock.fire(call)
        clock.settle()
        return iter(())


class Life(Living):
    """The adapter of ``lifecycle``."""

    def begin(self, model: Model) -> None:
        """With a token."""
        super().begin(model)
        install(self.subject, self.names.token(HOST))
        self.starts = 0

    def on_start(self, step: Step, values: Values) -> Iterator[str]:
        """A start of something new."""
        self.starts += 1
        value = {"exec_id": self.names.exec(self.starts), "command": ["scripted"]}
        answer = self.subject.ask("POST", "/v1/exec/start", token=self.names.token(HOST), value=value)
        says = Says(200, fields={"phase": "running"}) if step.response else Says(503, "shutting_down")
        yield from says.differences(answer)

    def state(self, values: Values) -> Iterator[str]:
        """The stage, and what is in flight."""
        life = values["life"]
        assert isinstance(life, Lifecycle)
        yield from compared("the daemon's life", life, self.subject.memory.site.state)

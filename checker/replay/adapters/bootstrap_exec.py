"""Bootstrap and execs, done to a daemon: contract a.1 to a.3, a.6, g.2, i.

In memory the state is compared component by component: what is installed, and each exec's record, which is the very
value the rules made. On a socket only answers can be compared.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, ClassVar, Final

from attrs import evolve

from agentd.rules import execs
from agentd.rules.bootstrap import Access, Bootstrap, RunVerdict
from agentd.rules.execs import Ack, Phase, Record, Start
from checker.model import Model
from checker.models.bootstrap_exec import DUE, TTL, UNKNOWN, UNSPAWNED, YOUNG
from checker.models.bootstrap_exec_terms import ACKED_AT, HOST
from checker.replay.adapter import HOOKS, REFUSED, Adapter, compared, run_payload
from checker.replay.memory import MemorySubject
from checker.replay.wire import Says
from checker.result import Step

Values = Mapping[str, Hashable]

RUN: Final[dict[Hashable, Says]] = {
    RunVerdict.INSTALLED: Says(200, empty=True),
    RunVerdict.REPLAYED: Says(200, empty=True),
    RunVerdict.CONFLICT: Says(409, empty=True),
}
ACKS: Final[dict[Hashable, Says]] = {
    Ack.RELEASED: Says(200, fields={"phase": "acked", "exit_code": 0, "timed_out": False}),
    Ack.UNKNOWN: Says(404, "unknown_exec"),
    Ack.STILL_RUNNING: Says(409, "still_running"),
    Ack.ALREADY_ACKED: Says(409, "already_acked"),
}
OUTCOME: Final = frozenset({"exit_code", "signal", "timed_out", "stdout", "stderr", "truncated"})
"""The fields of a poll that come with the outcome alone (contract a.3)."""
NO_PROGRAM: Final = "/nonexistent/agentd-checker"


class BootstrapExec(Adapter):
    """The adapter of ``bootstrap_exec``."""

    memory_only: ClassVar[frozenset[str]] = frozenset({"late_exit", "sweep_young", "sweep_due"})

    refused: ClassVar[Mapping[Hashable, Says]] = REFUSED
    """What is answered to whoever is not let in."""
    printed: ClassVar[Mapping[str, object]] = {"stdout": "", "stderr": "", "truncated": False}
    """What its commands print."""
    subject: Any

    @classmethod
    def settings(cls, model: Model) -> dict[str, Any]:
        """The time that what is acknowledged is kept, of whatever length."""
        return {"exec_ttl_secs": TTL}

    @classmethod
    def begins(cls, model: Model, in_memory: bool) -> Model:
        """On a socket the daemon has been bootstrapped when a run begins: nobody can undo that."""
        if in_memory:
            return model
        installed = (Bootstrap(HOST), "platform")
        components = tuple(
            evolve(part, initial=installed) if part.name == "boot" else part for part in model.components
        )
        return evolve(model, components=components, properties=())

    def begin(self, model: Model) -> None:
        """At the time of every acknowledgement."""
        super().begin(model)
        if isinstance(self.subject, MemorySubject):
            self.subject.memory.clock.rightNow = ACKED_AT

    # -- requests ---------------------------------------------------------------------------------------

    def on_run(self, step: Step, values: Values) -> Iterator[str]:
        """A run hook."""
        token = self.names.token(step.event.args["token"])
        answer = self.subject.ask("POST", f"{HOOKS}/run", value=run_payload(token))
        yield from RUN[step.response].differences(answer)

    def on_probe(self, step: Step, values: Values) -> Iterator[str]:
        """A request for an exec that never was: whoever is let in learns that, nobody else does."""
        header = self._header(step)
        answer = self.subject.ask("GET", f"/v1/exec/{self.names.exec('none')}", authorization=header)
        granted = step.response is Access.GRANTED
        yield from (Says(404, "unknown_exec") if granted else self.refused[step.response]).differences(answer)

    def _header(self, step: Step) -> bytes | None:
        """The header of a probe, whose event is named after it."""
        written = step.event.args["header"]
        if written is None:
            return None
        assert isinstance(written, bytes)
        presents = step.event.args["presents"]
        assert presents is None or isinstance(presents, bytes)
        if presents and presents.strip():
            named = presents.strip()
            return written.replace(named, self.names.token(named))
        return written

    def on_start(self, step: Step, values: Values) -> Iterator[str]:
        """A start of a command that reads a line and ends."""
        yield from self._start(step, values, ["/bin/sh", "-c", 'read -r status && exit "$status"'])

    def on_start_unspawned(self, step: Step, values: Values) -> Iterator[str]:
        """A start of a program that is not there: it fails if it is tried."""
        if isinstance(self.subject, MemorySubject):
            self.subject.memory.children.fails = True
        yield from self._start(step, values, [NO_PROGRAM])
        if isinstance(self.subject, MemorySubject):
            self.subject.memory.children.fails = False

    def _start(self, step: Step, values: Values, command: list[str]) -> Iterator[str]:
        exec_id = self._id(step)
        answer = self.subject.ask(
            "POST",
            "/v1/exec/start",
            token=self._token(step),
            value={"exec_id": exec_id, "command": command, "stdin": True},
        )
        if step.response in (Start.SPAWN, Start.RETRIED):
            record = values[f"exec.{step.event.args['id']}"]
            assert isinstance(record, Record)
            says = Says(200, fields={"exec_id": exec_id, "phase": record.phase.value})
        elif step.response == UNSPAWNED:
            says = Says(500, "spawn_failed")
        else:
            says = self.refused[step.response]
        yield from says.differences(answer)

    def on_poll(self, step: Step, values: Values) -> Iterator[str]:
        """A poll."""
        exec_id = self._id(step)
        answer = self.subject.ask("GET", f"/v1/exec/{exec_id}", token=self._token(step))
        if step.response == UNKNOWN:
            says = Says(404, "unknown_exec")
        elif isinstance(step.response, tuple):
            phase, shown = step.response
            fields: dict[str, object] = {"exec_id": exec_id, "phase": phase.value}
            if shown:
                says = Says(200, fields={**fields, "exit_code": 0, "signal": None, **self.printed})
            else:
                says = Says(200, fields=fields, without=OUTCOME)
        else:
            says = self.refused[step.response]
        yield from says.differences(answer)

    def on_ack(self, step: Step, values: Values) -> Iterator[str]:
        """An acknowledgement."""
        answer = self.subject.ask("POST", f"/v1/exec/{self._id(step)}/ack", token=self._token(step))
        yield from (ACKS.get(step.response) or self.refused[step.response]).differences(answer)

    def on_health(self, step: Step, values: Values) -> Iterator[str]:
        """Health, which tells of all execs together: of this run's alone where nobody else has any."""
        answer = self.subject.ask("GET", "/v1/health")
        boot = values["boot"]
        assert isinstance(boot, tuple)
        records = [value for name, value in values.items() if name.startswith("exec.") and value is not None]
        busy = any(isinstance(record, Record) and execs.busy(record) for record in records)
        fields: dict[str, object] = {"bootstrapped": boot[0].installed}
        if self.subject.in_memory:
            fields |= {"busy": busy, "execs": len(records)}
        elif busy:
            fields["busy"] = True
        yield from Says(200, fields=fields).differences(answer)

    # -- what happens in the VM ---------------------------------------------------------------------------

    def on_exit(self, step: Step, values: Values) -> Iterator[str]:
        """The child ends."""
        self.subject.exit(self._id(step))
        return iter(())

    def on_late_exit(self, step: Step, values: Values) -> Iterator[str]:
        """The daemon hears of the end once more."""
        self.subject.child(self._id(step)).exit()
        return iter(())

    def on_sweep_young(self, step: Step, values: Values) -> Iterator[str]:
        """The sweep comes before the exec's time is over."""
        self._sweep(self._id(step), YOUNG)
        return iter(())

    def on_sweep_due(self, step: Step, values: Values) -> Iterator[str]:
        """The sweep comes at the end of it."""
        self._sweep(self._id(step), DUE)
        return iter(())

    def _sweep(self, exec_id: str, now: float) -> None:
        """Sweep at a time. The model's sweep looks at one exec, and says nothing of when the others were acknowledged:
        so late that their time has not come."""
        memory = self.subject.memory
        others = {entry: entry.record for entry in memory.daemon.execs if entry.exec_id != exec_id}
        for entry, record in others.items():
            if record.acked_at is not None:
                entry.record = evolve(record, acked_at=now)
        memory.clock.rightNow = now
        memory.daemon.execs.sweep()
        memory.clock.rightNow = ACKED_AT
        for entry, record in others.items():
            entry.record = record

    # -- state ------------------------------------------------------------------------------------------

    def state(self, values: Values) -> Iterator[str]:
        """What is installed, and every record."""
        if not isinstance(self.subject, MemorySubject):
            return
        daemon = self.subject.memory.daemon
        boot = values["boot"]
        assert isinstance(boot, tuple)
        if boot[0] != daemon.guest.bootstrap:
            yield "the token that is installed is not the one the model has"
        found = {entry.exec_id: entry.record for entry in daemon.execs}
        for name, value in values.items():
            if name.startswith("exec."):
                record = found.pop(self.names.exec(name.removeprefix("exec.")), None)
                yield from compared(name, value, record)
        for exec_id in found:
            yield f"the daemon has an exec {exec_id} that the model does not have"
        running = sum(isinstance(value, Record) and value.phase is Phase.RUNNING for value in values.values())
        alive = sum(not child.exited for child in self.subject.memory.children.all)
        yield from compared("children that run", running, alive)

    def _id(self, step: Step) -> str:
        return self.names.exec(step.event.args["id"])

    def _token(self, step: Step) -> bytes:
        return self.names.token(step.event.args["token"])

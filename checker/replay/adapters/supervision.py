"""A child's end in every order, done to a daemon in memory: contract a.6, a.7, c.5 to c.7.

Timers are fired by hand, since a model of orders abstracts from durations, and an escalation looks at the group when
the run says so: a `Group.alive` that is asked answers at the next look. How the child ended is decided when it ends
and told by a poll, so every run is played once for each way to end, and polls that tell of another are not made.
"""

import signal
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, ClassVar, Final

from attrs import define, field
from twisted.internet.defer import Deferred

from agentd.process.job import Job
from agentd.rules.execs import Phase, Record
from agentd.rules.supervision import Cause, Escalation, Supervision
from agentd.rules.supervision import Event as Happening
from checker.model import Event, Model
from checker.models.bootstrap_exec_terms import HOST
from checker.models.supervision import ENDS
from checker.models.supervision_terms import GRACE, World
from checker.replay.adapter import Adapter, compared, install
from checker.replay.adapters.bootstrap_exec import ACKS, OUTCOME
from checker.replay.children import ScriptedChild, ScriptedGroup
from checker.replay.memory import Pending
from checker.replay.wire import Answer, Says
from checker.result import Step

Values = Mapping[str, Hashable]

EXEC: Final = "exec-supervised"


@define(eq=False)
class WatchedGroup(ScriptedGroup):
    """A group that answers a look when it is told to."""

    helper: bool = False
    child: bool = True
    asked: "Deferred[bool] | None" = field(init=False, default=None)

    def signal(self, number: int) -> bool:
        """Whoever has not been waited for can be signalled, so that an escalation always begins."""
        self.signals.append(number)
        if number == signal.SIGKILL:
            self.helper = False
        return True

    def alive(self) -> "Deferred[bool]":
        """Answered by `look`."""
        self.asked = Deferred()
        return self.asked

    def look(self) -> None:
        """Answer."""
        asked, self.asked = self.asked, None
        if asked is None:
            raise LookupError("no escalation looks at the group")
        asked.callback(self.child or self.helper)


class Supervised(Adapter):
    """The adapter of ``supervision``."""

    variants: ClassVar[tuple[str, ...]] = tuple(how for how, _, _ in ENDS)
    subject: Any

    @classmethod
    def settings(cls, model: Model) -> dict[str, Any]:
        """A grace, of whatever length: time stands still."""
        return {"kill_grace_secs": GRACE}

    @classmethod
    def can(cls, event: Event, in_memory: bool, variant: str) -> bool:
        """A timer that was cancelled fires no more, and pipes end once; only an exit can be heard of again. Polls of
        another way to end belong to another variant."""
        if not in_memory or event.kind == "stray":
            return False
        if event.kind == "late":
            return event.args["happening"] is Happening.EXITED
        if event.kind == "poll":
            return (event.args["signalled"], event.args["starved"]) == _end(variant)
        return super().can(event, in_memory, variant)

    @classmethod
    def wants(cls, event: Event, variant: str) -> bool:
        """The way a child ends shows in its end and in polls."""
        return variant == cls.variants[0] or event.kind in ("exit", "killed", "poll")

    def begin(self, model: Model) -> None:
        """With a token."""
        install(self.subject, self.names.token(HOST))
        self.kills: list[Pending] = []
        self.tries = 0
        self.ended: tuple[bool, bool] | None = None

    @property
    def job(self) -> Job:
        """The job that the run is about."""
        job: Job = self.subject.job(EXEC)
        return job

    @property
    def group(self) -> WatchedGroup:
        """Its group."""
        group = self.job.child.group
        assert isinstance(group, WatchedGroup)
        return group

    def _ask(self, method: str, target: str, value: object = None) -> Answer:
        answer: Answer = self.subject.ask(method, target, token=self.names.token(HOST), value=value)
        return answer

    def finish(self) -> Iterator[str]:
        """An escalation that runs looks once more, when nobody is left."""
        entry = self.subject.entry(EXEC)
        left = self.subject.close()
        if entry is not None and self.group.asked is not None:
            self.group.child = self.group.helper = False
            self.group.look()
            left = self.subject.close()
        yield from left

    # -- events -----------------------------------------------------------------------------------------

    def on_start(self, step: Step, values: Values) -> Iterator[str]:
        """A start; its child may have left a helper in the group."""
        sup, world = values["sup"], values["world"]
        assert isinstance(sup, Supervision)
        assert isinstance(world, World)
        helper = getattr(values["group"], "helper", False)
        self.subject.memory.children.group = lambda pgid: WatchedGroup(pgid, helper=helper)
        value = {
            "exec_id": EXEC,
            "command": ["scripted"],
            "reap_group_on_exit": sup.reap,
            "timeout_sec": 5.0 if world.deadline else None,
        }
        answer = self._ask("POST", "/v1/exec/start", value)
        yield from Says(200, fields={"phase": "running"}).differences(answer)

    def on_timeout(self, step: Step, values: Values) -> Iterator[str]:
        """A start with a time-out, of an exec of its own."""
        self.tries += 1
        exec_id = f"timeout-{self.tries}"
        value = {"exec_id": exec_id, "command": ["scripted"], "timeout_sec": step.event.args["timeout"]}
        answer = self._ask("POST", "/v1/exec/start", value)
        if step.response is False:
            yield from Says(400, "malformed_request").differences(answer)
            return
        yield from Says(200, fields={"phase": "running"}).differences(answer)
        assert isinstance(step.response, tuple)
        armed = [call.getTime() - self.subject.memory.clock.seconds() for call in self._timers(exec_id)]
        expected = [] if step.response[1] is None else [step.response[1]]
        yield from compared("the deadline, in seconds", expected, armed)
        self.subject.exit(exec_id)

    def on_exit(self, step: Step, values: Values) -> Iterator[str]:
        """The child ends as this variant has it."""
        self._die(*_end(self.variant))
        return iter(())

    def on_killed(self, step: Step, values: Values) -> Iterator[str]:
        """The child is ended by KILL."""
        if signal.SIGKILL not in self.group.signals:
            yield "the group was not sent KILL"
        self._die(True, _end(self.variant)[1])

    def _die(self, signalled: bool, starved: bool) -> None:
        child = self.job.child
        assert isinstance(child, ScriptedChild)
        self.ended = signalled, starved
        if starved:
            self.subject.memory.starved.add(child.pid)
        self.group.child = False
        child.exit(signal=signal.SIGKILL if signalled else None)

    def on_late(self, step: Step, values: Values) -> Iterator[str]:
        """The daemon hears of the end once more."""
        self.subject.child(EXEC).exit()
        return iter(())

    def on_helper(self, step: Step, values: Values) -> Iterator[str]:
        """The helper ends."""
        self.group.helper = False
        return iter(())

    def on_pipes(self, step: Step, values: Values) -> Iterator[str]:
        """Nobody holds the pipes any more."""
        self.subject.child(EXEC).end_pipes()
        return iter(())

    def on_deadline(self, step: Step, values: Values) -> Iterator[str]:
        """The deadline comes."""
        self._fire(deadline=True)
        return iter(())

    def on_linger(self, step: Step, values: Values) -> Iterator[str]:
        """The linger is over."""
        self._fire(deadline=False)
        return iter(())

    def on_kill(self, step: Step, values: Values) -> Iterator[str]:
        """A kill request, answered when the escalation it asks for, or joins, is over."""
        target = f"/v1/exec/{EXEC}/kill"
        self.kills.append(self.subject.begin("POST", target, token=self.names.token(HOST)))
        return iter(())

    def on_look(self, step: Step, values: Values) -> Iterator[str]:
        """The escalation looks at the group, after some time."""
        clock, waited = self.subject.memory.clock, step.event.args["waited"]
        clock.rightNow += waited
        self.group.look()
        clock.rightNow -= waited
        if getattr(step.response, "finished", False):
            for pending in self.kills:
                answer = pending.look()
                if answer is None:
                    yield "the escalation is over, and the kill request was not answered"
                else:
                    yield from Says(200, fields={"exec_id": EXEC, "killed": True}).differences(answer)
            self.kills = []
            return
        # What the daemon does between two looks is wait.
        for call in clock.arm():
            if call.getTime() <= clock.seconds() + waited + GRACE and call not in self._timers(EXEC):
                clock.fire(call)

    def on_poll(self, step: Step, values: Values) -> Iterator[str]:
        """A poll, which tells how the child ended once that is published."""
        answer = self._ask("GET", f"/v1/exec/{EXEC}")
        if isinstance(step.response, Phase):
            fields: dict[str, object] = {"phase": step.response.value}
            yield from Says(200, fields=fields, without=OUTCOME).differences(answer)
            return
        assert isinstance(step.response, Cause)
        signalled, starved = self.ended or (False, False)
        if (signalled, starved) != (step.event.args["signalled"], step.event.args["starved"]):
            return  # the child was killed, which is another way to end than the poll is about
        yield from Says(
            200,
            fields={
                "phase": "exited",
                "cause": step.response.value,
                "exit_code": None if signalled else 0,
                "signal": signal.SIGKILL.value if signalled else None,
            },
        ).differences(answer)

    def on_ack(self, step: Step, values: Values) -> Iterator[str]:
        """An acknowledgement."""
        answer = self._ask("POST", f"/v1/exec/{EXEC}/ack")
        says = ACKS[step.response]
        if says.status == 200:
            says = Says(200, fields={"phase": "acked"})
        yield from says.differences(answer)

    # -- state ------------------------------------------------------------------------------------------

    def state(self, values: Values) -> Iterator[str]:
        """What the rules know, what is armed, and whether the result is out."""
        sup, world, record = values["sup"], values["world"], values["record"]
        if sup is None:
            return
        assert isinstance(sup, Supervision)
        assert isinstance(world, World)
        assert isinstance(record, Record)
        job = self.job
        yield from compared("what is known of the child", sup, job.supervision)
        yield from compared("the record", record, self.subject.entry(EXEC).record)
        yield from compared("the result is published", bool(world.published), job.published)
        armed = self._timers(EXEC)
        yield from compared("timers", world.deadline + world.linger, len(armed))
        looking = self.group.asked is not None
        yield from compared("an escalation looks", sup.escalation is Escalation.RUNNING, looking)

    def _timers(self, exec_id: str) -> list[Any]:
        """The timers of a job, which are its deadline and its linger."""
        job = self.subject.job(exec_id)
        return [
            call for call in self.subject.memory.clock.arm() if getattr(call.func, "__self__", None) is job
        ]

    def _fire(self, deadline: bool) -> None:
        clock = self.subject.memory.clock
        for call in self._timers(EXEC):
            if (Happening.DEADLINE in call.args) is deadline:
                clock.fire(call)
                clock.settle()
                return
        raise LookupError("the timer is not armed")


def _end(variant: str) -> tuple[bool, bool]:
    """Whether a signal ended the child, and whether the kernel killed it for memory."""
    return next((signalled, starved) for how, signalled, starved in ENDS if how == variant)

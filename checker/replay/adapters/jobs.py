"""The worker's background jobs, done to a daemon in memory over its HTTP face.

The worker takes a place and starts a job in one call, and sweeps with every end. So the model's events are put together
as the worker has them together, each still with the model's own effects, and what is replayed is the model of that.
A unit of the model's clock is a second.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cache
from pathlib import Path
from signal import SIGKILL
from typing import Any, ClassVar, Final

from attrs import evolve

from agentd.rules.jobs import Job, Kill, Status, Table
from agentd.rules.supervision import Event as Happening
from checker.model import Event, Model, Values
from checker.models.bootstrap_exec_terms import HOST
from checker.models.jobs import CAP, IDS, LAST, MOST, RETENTION
from checker.replay.adapter import Adapter, compared, install
from checker.replay.children import ScriptedChild
from checker.replay.scratch import directory
from checker.replay.wire import Answer, Says
from checker.replay.world import WALL_CLOCK
from checker.result import Step

State = Mapping[str, Hashable]

FUNCTIONS: Final = "/v1/functions"
BEYOND: Final = LAST + 1000
"""The cap of a job's time in seconds, which is fired by hand."""
FAR: Final = 1e9
"""Seconds that no run gets to."""


@cache
def _seed() -> Path:
    """A file with the worker's settings."""
    settings = {
        "max_concurrent_jobs": CAP,
        "job_retention_secs": RETENTION,
        "max_bg_timeout_ms": BEYOND * 1000,
        "fs": {"allow_unjailed": True},
    }
    seed = directory() / "seed.yaml"
    seed.write_text(json.dumps(settings))
    return seed


def _together(first: Event, second: Event, name: str, kind: str, guard: Callable[..., bool] | None) -> Event:
    """One event after another, unless the first was refused."""
    reads = tuple(dict.fromkeys((*first.reads, *second.reads)))
    writes = tuple(dict.fromkeys((*first.writes, *second.writes)))

    def effect(*values: Hashable) -> tuple[Values, Hashable]:
        now = dict(zip(reads, values, strict=True))
        response: Hashable = None
        for event in (first, second):
            written, told = event.effect(*(now[name] for name in event.reads))
            now |= zip(event.writes, written, strict=True)
            response = told if response is None else response
            if told == "refused":
                break
        return tuple(now[name] for name in writes), response

    def may(*values: Hashable) -> bool:
        now = dict(zip(reads, values, strict=True))
        return guard is None or guard(now)

    return Event(name, kind, first.actor, reads, writes, effect, may, first.args)


class Jobs(Adapter):
    """The adapter of ``jobs``."""

    needs: ClassVar[Mapping[str, str]] = {"re2": "worker", "yaml": "worker"}
    subject: Any

    @classmethod
    def begins(cls, model: Model, in_memory: bool) -> Model:
        """The model with events as the worker has them."""
        by_kind: dict[str, list[Event]] = {}
        for event in model.events:
            by_kind.setdefault(event.kind, []).append(event)
        (reserve,), (spawn,), (abandon,), (sweep,) = (
            by_kind[kind] for kind in ("reserve", "spawn", "abandon", "sweep")
        )
        started = _together(
            reserve, spawn, "a caller starts a job", "start", lambda now: int(str(now["made"])) < len(IDS)
        )
        fails = _together(reserve, abandon, "a caller starts what cannot be", "start_fails", None)
        ends = [
            _together(event, sweep, event.name, "exit", lambda now, id=event.args["id"]: id in now["alive"])
            for event in by_kind["exit"]
        ]
        return evolve(
            model,
            events=(started, fails, *by_kind["kill"], *ends, *by_kind["tick"], sweep),
            properties=(),
        )

    @classmethod
    def settings(cls, model: Model) -> dict[str, Any]:
        """A worker without an engine."""
        from agentd.worker.face import WorkerOptions

        return {"worker": WorkerOptions(None, _seed())}

    def begin(self, model: Model) -> None:
        """With a token, and a worker that serves. It keeps as many ended jobs as the model."""
        from agentd.worker import job_runner

        self.kept = job_runner.MOST_RECORDS
        job_runner.MOST_RECORDS = MOST  # type: ignore[misc]
        self.token = self.names.token(HOST)
        install(self.subject, self.token)
        for begin in self.subject.memory.daemon.at_start:
            begin()
        self.subject.memory.clock.settle()
        self.ids: dict[object, str] = {}
        self.children: dict[object, ScriptedChild] = {}

    def finish(self) -> Iterator[str]:
        """The worker stops, and everything ends."""
        from agentd.worker import job_runner

        job_runner.MOST_RECORDS = self.kept  # type: ignore[misc]
        for begin in self.subject.memory.daemon.at_drain:
            begin()
        yield from super().finish()

    def _call(self, name: str, arguments: object) -> Answer:
        answer: Answer = self.subject.ask(
            "POST", f"{FUNCTIONS}/shell::{name}", token=self.token, value=arguments
        )
        # The worker's own sweeps come when the run says so.
        for call in self.subject.memory.clock.arm():
            if call.func.__name__ == "_swept" and call.getTime() < FAR:
                call.delay(FAR)
        return answer

    # -- events -----------------------------------------------------------------------------------------

    def on_start(self, step: Step, values: State) -> Iterator[str]:
        """A start, if there is a place."""
        answer = self._call("exec_bg", {"command": "scripted"})
        if step.response == "refused":
            yield from _refused(answer, "max concurrent jobs")
            return
        yield from Says(200).differences(answer)
        made = IDS[int(str(values["made"])) - 1]
        self.ids[made] = str(answer.fields().get("job_id"))
        self.children[made] = self.subject.memory.children.all[-1]

    def on_start_fails(self, step: Step, values: State) -> Iterator[str]:
        """A start of what cannot be spawned."""
        children = self.subject.memory.children
        before = children.refused
        children.fails = True
        answer = self._call("exec_bg", {"command": "scripted"})
        children.fails = False
        yield from _refused(answer, "max concurrent jobs" if step.response == "refused" else "S216")
        tried = children.refused - before
        yield from compared("spawns that were tried", int(step.response != "refused"), tried)

    def on_kill(self, step: Step, values: State) -> Iterator[str]:
        """A kill."""
        name = step.event.args["id"]
        child = self.children.get(name)
        sent = [] if child is None else list(child.group.signals)
        answer = self._call("kill", {"job_id": self.ids.get(name, "job-none")})
        if step.response is Kill.UNKNOWN:
            yield from Says(422, fields={"code": "S211"}).differences(answer)
        elif step.response is Kill.NOT_RUNNING:
            yield from Says(200, fields={"killed": False, "reason": "not running"}).differences(answer)
        else:
            yield from Says(200, fields={"killed": True, "status": "killed"}).differences(answer)
            sent.append(SIGKILL)
        if child is not None:
            yield from compared("what the group was sent", sent, child.group.signals)

    def on_exit(self, step: Step, values: State) -> Iterator[str]:
        """A child ends, perhaps because its time was over."""
        args = step.event.args
        child = self.children[args["id"]]
        clock = self.subject.memory.clock
        if args["capped"]:
            for call in clock.arm():
                if getattr(call.func, "__self__", None) is child.protocol and Happening.DEADLINE in call.args:
                    clock.fire(call)
            if SIGKILL not in child.group.signals:
                yield "the time of a job was over, and its group was not sent KILL"
        if args["code"] is None:
            child.exit(signal=SIGKILL)
        else:
            child.exit(int(str(args["code"])))
        child.end_pipes()
        clock.settle()

    def on_tick(self, step: Step, values: State) -> Iterator[str]:
        """Time passes."""
        self.subject.memory.clock.rightNow += 1.0
        return iter(())

    def on_sweep(self, step: Step, values: State) -> Iterator[str]:
        """The sweep, which comes with every list of jobs."""
        answer = self._call("list", {})
        table = values["table"]
        assert isinstance(table, Table)
        yield from Says(200, fields={"count": len(table.jobs)}).differences(answer)

    # -- state ------------------------------------------------------------------------------------------

    def state(self, values: State) -> Iterator[str]:
        """Every job's record, as a caller is told it."""
        table = values["table"]
        assert isinstance(table, Table)
        known = {job.id: job for job in table.jobs}
        for name, real in self.ids.items():
            answer = self._call("status", {"job_id": real})
            job = known.get(str(name))
            if job is None:
                yield from Says(422, fields={"code": "S211"}).differences(answer)
                continue
            yield from Says(200).differences(answer)
            found = answer.fields().get("job", {})
            yield from compared(f"job {name}", _told(job), _found(found))
        alive = sum(not child.exited for child in self.children.values())
        wanted = values["alive"]
        assert isinstance(wanted, frozenset)
        yield from compared("children that live", len(wanted), alive)


def _refused(answer: Answer, why: str) -> Iterator[str]:
    yield from Says(422).differences(answer)
    if why not in str(answer.fields().get("message")):
        yield f"it was not refused for {why}: {answer.fields().get('message')}"


def _told(job: Job) -> tuple[object, ...]:
    """What of a record a caller is told. Until a child is gone its exit code is not known."""
    return job.status, job.started_ms, job.finished_ms, job.exit_code


def _found(record: Mapping[str, Any]) -> tuple[object, ...]:
    """The same of a record on the wire."""

    def units(milliseconds: int | None) -> int | None:
        return None if milliseconds is None else round(milliseconds / 1000 - WALL_CLOCK)

    return (
        Status(record.get("status")),
        units(record.get("started_at_ms")),
        units(record.get("finished_at_ms")),
        record.get("exit_code"),
    )

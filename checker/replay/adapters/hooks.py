"""Lifecycle hooks, their log and their handlers, done to a daemon in memory: contract a.1, g."""

from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from agentd.rules.bootstrap import Bootstrap, RunVerdict
from agentd.rules.hooks import HANDLED, Hook, HookLog
from checker.model import Model
from checker.models.hooks import CAP
from checker.replay.adapter import HOOKS, Adapter, compared, run_payload
from checker.replay.adapters.bootstrap_exec import RUN
from checker.replay.memory import Pending
from checker.replay.scratch import directory
from checker.replay.wire import Says
from checker.replay.world import WALL_CLOCK
from checker.result import Step

Values = Mapping[str, Hashable]

PLAIN: Final = Says(200, empty=True)


@cache
def _handlers() -> Path:
    """A directory with a handler for every hook that runs one."""
    found = directory()
    for hook in HANDLED:
        path = found / hook.value
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    return found


class Hooks(Adapter):
    """The adapter of ``hooks``."""

    subject: Any

    @classmethod
    def settings(cls, model: Model) -> dict[str, Any]:
        """Handlers are found in a directory."""
        return {"hooks_dir": str(_handlers())}

    def begin(self, model: Model) -> None:
        """With a log as small as the model's."""
        self.subject.memory.daemon.guest.hook_log_cap = CAP
        self.waiting: list[Pending] = []

    def on_hook(self, step: Step, values: Values) -> Iterator[str]:
        """An invocation: answered at once, or when its handler is done."""
        hook, token = step.event.args["hook"], step.event.args["token"]
        assert isinstance(hook, Hook)
        verdict, _, handles = cast("tuple[RunVerdict | None, int | None, bool]", step.response)
        value: object = None
        says = PLAIN
        if hook is Hook.RUN:
            value = {} if token is None else run_payload(self.names.token(token))
            says = Says(400) if token is None else RUN[verdict]
        self.subject.memory.clock.rightNow = float(self.posted)
        pending = self.subject.begin("POST", f"{HOOKS}/{hook.value}", value=value)
        if handles:
            self.waiting.append(pending)
            if pending.look() is not None:
                yield "the hook was answered before its handler was done"
            return
        answer = pending.look()
        if answer is None:
            yield "the hook was not answered"
            return
        yield from says.differences(answer)
        self.subject.done(pending)

    @property
    def posted(self) -> int:
        """Invocations so far: their number is their time."""
        log: HookLog[Any] = self.subject.memory.daemon.guest.hook_log
        return len(log.entries) + log.dropped

    def on_handled(self, step: Step, values: Values) -> Iterator[str]:
        """The handler that runs ends, and its hook is answered."""
        for child in [child for child in self.subject.memory.children.all if not child.exited]:
            child.exit()
            child.end_pipes()
        self.subject.memory.clock.settle()
        pending = self.waiting.pop(0)
        answer = pending.look()
        if answer is None:
            yield "the handler is done, and its hook was not answered"
        else:
            yield from PLAIN.differences(answer)
            self.subject.done(pending)

    def state(self, values: Values) -> Iterator[str]:
        """The log, what waits, and what is installed."""
        guest = self.subject.memory.daemon.guest
        log, queue, boot = values["log"], values["queue"], values["boot"]
        assert isinstance(log, HookLog)
        assert isinstance(queue, tuple)
        assert isinstance(boot, Bootstrap)
        yield from compared("the log", _told(log, 0), _told(guest.hook_log, int(WALL_CLOCK)))
        yield from compared("invocations dropped", log.dropped, guest.hook_log.dropped)
        yield from compared("hooks that wait for a handler", len(queue), len(self.waiting))
        running = sum(not child.exited for child in self.subject.memory.children.all)
        yield from compared("handlers that run", min(1, len(queue)), running)
        if boot != guest.bootstrap:
            yield "the token that is installed is not the one the model has"


def _told(log: "HookLog[Any]", since: int) -> list[tuple[Hook, int, bool]]:
    """Each entry: which hook, when, and whether there is an outcome."""
    return [(entry.hook, entry.fired_at - since, entry.outcome is not None) for entry in log.entries]

"""Background processes of an environment, done to a daemon in memory: environments 6, 7 and 8.

A start is under way as long as the pool has not looked up what it needs. Bytes of the model are bytes of the daemon,
whose limits are the model's. What is sent to a process is what its group is sent, and nothing is, once the model says
that the number may be anybody's.
"""

import os
import signal
from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from agentd import config
from agentd.environments import input as input_queue
from agentd.environments.limits import Limits
from agentd.process import follow
from agentd.rules import processes
from agentd.rules.processes import Input
from checker.model import Event, Model
from checker.models.bootstrap_exec_terms import HOST
from checker.models.processes_terms import (
    LIMIT,
    NOWHERE,
    QUEUE,
    REPLY,
    WINDOW,
    Asked,
    Process,
    in_table,
)
from checker.replay.adapter import compared, install
from checker.replay.adapters.processes_readers import MISSING, ROOT, Readers, written
from checker.replay.children import ScriptedChild
from checker.replay.memory import Pending
from checker.replay.scratch import directory
from checker.replay.wire import Answer, Says
from checker.result import Step

Values = Mapping[str, Hashable]

READERS: Final = frozenset({"poll", "expire", "leave", "attach", "attend", "detach", "write"})
"""Kinds of events that concern a reader alone, or nobody yet."""


@cache
def _home() -> Path:
    """An agent user, who is whoever runs this, and their home."""
    found = directory()
    home = found / "home"
    home.mkdir()
    row = f"agent:x:{os.geteuid()}:{os.getegid()}::{home}:/bin/sh\n"
    (found / "passwd").write_text(row)
    (found / "group").write_text("")
    return found


class Processes(Readers):
    """The adapter of ``processes``."""

    left_out: ClassVar[frozenset[str]] = frozenset({"stop"})
    """The daemon stops everything together or nothing."""
    subject: Any

    @classmethod
    def settings(cls, model: Model) -> dict[str, Any]:
        """A small environment."""
        home = _home()
        return {
            "limits": Limits(ring=WINDOW, reply=REPLY, processes=LIMIT, input=QUEUE),
            "passwd_file": str(home / "passwd"),
            "group_file": str(home / "group"),
            "package_env_file": str(home / "none"),
            "platform_env_file": str(home / "none"),
        }

    @classmethod
    def can(cls, event: Event, in_memory: bool, variant: str) -> bool:
        """A read that completes no character changes nothing, and cannot be told from none."""
        if event.kind in cls.left_out or (event.kind == "read" and not event.args["count"]):
            return False
        return super().can(event, in_memory, variant)

    def begin(self, model: Model) -> None:
        """With a token, and with the agent user known."""
        self.token = self.names.token(HOST)
        install(self.subject, self.token)
        self.ask("GET", ROOT)
        self.sizes = follow.BATCH_BYTES, config.PIECE_BYTES, input_queue.WRITE_BYTES
        _resize(1, REPLY, 1)
        self.attached = None
        self.starts: dict[object, Pending] = {}
        self.pids = {}
        self.children = {}
        self.waiting = None
        self.written = 0
        """Bytes of the process that is read."""

    def play(self, step: Step, values: Values) -> Iterator[str]:
        """One step."""
        self.reads = step.event.kind in READERS
        yield from super().play(step, values)

    # -- starts -----------------------------------------------------------------------------------------

    def on_ask(self, step: Step, values: Values) -> Iterator[str]:
        """A request for a start, which the pool has yet to look after."""
        threads = self.subject.memory.threads
        threads.held = True
        pending = self.subject.begin("POST", ROOT, token=self.token, value={"argv": ["scripted"]})
        threads.held = False
        answer = pending.look()
        if step.response is True:
            self.starts[step.event.args["id"]] = pending
            if answer is not None:
                yield f"a start that has a slot was answered with {answer.status} before it was made"
        elif answer is None:
            yield "a start without a slot was not answered"
        else:
            yield from Says(429, "too_many_processes").differences(answer)
            self.subject.done(pending)

    def _go_on(self, step: Step) -> tuple[Pending, Answer | None]:
        """The pool is done with a start."""
        memory, number = self.subject.memory, step.event.args["id"]
        memory.threads.run(list(self.starts).index(number))
        memory.clock.settle()
        pending = self.starts.pop(number)
        return pending, pending.look()

    def on_started(self, step: Step, values: Values) -> Iterator[str]:
        """The start succeeds."""
        number = step.event.args["id"]
        pending, answer = self._go_on(step)
        if answer is None:
            yield "the start was not answered"
            return
        yield from Says(201, fields={"running": True, "exit": None}).differences(answer)
        self.pids[number] = str(answer.fields().get("pid"))
        self.children[number] = self.subject.memory.children.all[-1]
        self.written = 0
        self.subject.done(pending)

    def on_failed(self, step: Step, values: Values) -> Iterator[str]:
        """The start fails."""
        self.subject.memory.children.fails = True
        pending, answer = self._go_on(step)
        self.subject.memory.children.fails = False
        if answer is None:
            yield "the start was not answered"
            return
        yield from Says(503, "exec_failed").differences(answer)
        self.subject.done(pending)

    # -- what happens to a process ------------------------------------------------------------------------

    def on_exit(self, step: Step, values: Values) -> Iterator[str]:
        """The leader exits, which the daemon learns when it reaps it."""
        return iter(())

    def on_killed(self, step: Step, values: Values) -> Iterator[str]:
        """KILL ends the leader."""
        if signal.SIGKILL not in self._child(step).group.signals:
            yield "the group was not sent KILL"

    def on_reap(self, step: Step, values: Values) -> Iterator[str]:
        """The daemon reaps the leader."""
        self._child(step).exit()
        return iter(())

    on_late_reap = on_reap

    def on_let_go(self, step: Step, values: Values) -> Iterator[str]:
        """Nobody knows of a deleted process any more."""
        self.children.pop(step.event.args["id"])
        self.pids.pop(step.event.args["id"])
        return iter(())

    def on_signal(self, step: Step, values: Values) -> Iterator[str]:
        """A signal request, which is answered alike whether anything is sent."""
        sent = list(self._child(step).group.signals)
        target = f"{ROOT}/{self._pid(step)}/signal"
        answer = self.ask("POST", target, {"signal": "KILL"})
        if step.response == NOWHERE:
            yield from MISSING.differences(answer)
        else:
            yield from Says(204, empty=True).differences(answer)
        wanted = [*sent, signal.SIGKILL] if step.response == "sent" else sent
        yield from compared("what the group was sent", wanted, self._child(step).group.signals)

    def on_look(self, step: Step, values: Values) -> Iterator[str]:
        """A look at one process."""
        answer = self.ask("GET", f"{ROOT}/{self._pid(step)}")
        if step.response == NOWHERE:
            yield from MISSING.differences(answer)
        else:
            yield from Says(200, fields={"running": not step.response}).differences(answer)

    def on_delete(self, step: Step, values: Values) -> Iterator[str]:
        """A deletion."""
        sent = list(self._child(step).group.signals)
        answer = self.ask("DELETE", f"{ROOT}/{self._pid(step)}")
        done = step.response[0] if isinstance(step.response, tuple) else step.response
        if done == NOWHERE:
            yield from MISSING.differences(answer)
        else:
            yield from Says(204, empty=True).differences(answer)
        wanted = [*sent, signal.SIGKILL] if done == "killed" else sent
        yield from compared("what the group was sent", wanted, self._child(step).group.signals)
        yield from self.poll_told(step)

    def on_drain(self, step: Step, values: Values) -> Iterator[str]:
        """The pipes end."""
        self._child(step).end_pipes()
        self.subject.memory.clock.settle()
        yield from self.poll_told(step)

    def on_write(self, step: Step, values: Values) -> Iterator[str]:
        """The process writes, which the daemon learns when it reads."""
        return iter(())

    def on_read(self, step: Step, values: Values) -> Iterator[str]:
        """The daemon reads, so that each byte says at which offset it is."""
        count = int(str(step.event.args["count"]))
        self._child(step).write(written(self.written, self.written + count).encode())
        self.written += count
        self.subject.memory.clock.settle()
        yield from self.poll_told(step)

    # -- state ----------------------------------------------------------------------------------------------

    def state(self, values: Values) -> Iterator[str]:
        """Every process that a request finds. Who reads has no part in that, and a look costs as much as a step."""
        asked = values.get("poll")
        if isinstance(asked, Asked) and self.waiting is not None:
            yield from compared("answers to the poll", asked.answers > 0, self.waiting.answer is not None)
        if self.reads:
            return
        answer = self.ask("GET", ROOT)
        state = values.get("input")
        if isinstance(state, Input):
            (shown,) = answer.fields()["processes"]
            yield from compared("stdin", processes.writable(state), shown["stdin"])
            return
        found = {shown["pid"]: shown for shown in answer.fields().get("processes", [])}
        for name, value in values.items():
            number = int(name.removeprefix("proc.")) if name.startswith("proc.") else -1
            if number < 0 or not in_table(value):
                continue
            process = cast("Process", value)
            shown = found.pop(self.pids.get(number), None)
            if shown is None:
                yield f"process {number} is not in the table"
                continue
            assert process.record is not None
            running = not processes.shows_exit(process.record)
            yield from compared(f"process {number} runs", running, shown["running"])
            span = (process.span.start, process.span.total)
            yield from compared("its output", span, (shown["output_start"], shown["output_end"]))
        if found:
            yield f"{len(found)} processes are in the table that the model does not have"

    def finish(self) -> Iterator[str]:
        """Starts that are under way fail, what waits to be read is not, and then everything ends."""
        _resize(*self.sizes)
        memory = self.subject.memory
        memory.children.fails = True
        while memory.threads.waiting:
            memory.threads.run()
        for child in memory.children.all:
            child.break_stdin()
        yield from super().finish()

    def _child(self, step: Step) -> ScriptedChild:
        return self.children[step.event.args["id"]]

    def _pid(self, step: Step) -> str:
        return self.pids[step.event.args["id"]]


def _resize(batch: int, piece: int, write: int) -> None:
    """How many bytes are delivered at once, are in a piece, and are written to a stdin at once: sizes that nothing but
    speed depends on, and that are in the way of small ones."""
    for module, name, size in (
        (follow, "BATCH_BYTES", batch),
        (follow, "PIECE_BYTES", piece),
        (input_queue, "WRITE_BYTES", write),
    ):
        setattr(module, name, size)

"""What these tests share: jobs of real children on the real reactor, and children that follow a script."""

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs
from twisted.internet import reactor as chosen
from twisted.internet import task
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from agentd.process.groups import Groups
from agentd.process.job import Job, JobLimits, JobTools
from agentd.process.spawn import Plan, ProcessSpawner
from agentd.rules.stdin import Result, Written

T = TypeVar("T")
reactor: Any = chosen

DEADLINE_SECS = 30.0
LIMITS = JobLimits(
    max_output_bytes=8 << 20, stream_buffer_bytes=1 << 20, output_linger_secs=5.0, kill_grace_secs=10.0
)


async def soon(waited: Awaitable[T], seconds: float = DEADLINE_SECS) -> T:
    """The result of `waited`, under a deadline."""
    deferred = waited if isinstance(waited, Deferred) else Deferred.fromCoroutine(waited)  # type: ignore[arg-type]
    deferred.addTimeout(seconds, reactor)
    return await deferred  # type: ignore[no-any-return]


LIBRARY_SIGNALS = 1 << 31 | 1 << 32
"""Signals 32 and 33, the C library's own (nptl(7)): posix_spawn leaves the first ignored in whatever it starts."""


def signals_of(mask: str) -> int:
    """A set of signals as the kernel shows it (proc(5)), without those that are nobody's business."""
    return int(mask, 16) & ~LIBRARY_SIGNALS


async def until(look: Callable[[], T], what: str = "") -> T:
    """The first true answer of `look`, under a deadline."""
    end = reactor.seconds() + DEADLINE_SECS
    while True:
        answer = look()
        if answer:
            return answer
        assert reactor.seconds() < end, f"never came to be: {what or look}"
        await task.deferLater(reactor, 0.005)


async def turn() -> None:
    """One turn of the reactor."""
    await task.deferLater(reactor, 0)


def make_groups() -> Groups:
    """Groups of real processes, looked at on the reactor's own pool."""
    return Groups(deferToThread)


def make_tools(
    spawner: Any = None,
    groups: Groups | None = None,
    out_of_memory: Callable[[int], bool] = lambda pid: False,
) -> JobTools:
    """Tools on the real reactor."""
    groups = groups or make_groups()
    return JobTools(
        clock=reactor,
        spawner=spawner or ProcessSpawner(reactor, groups, 5.0),
        run_in_thread=groups.run_in_thread,
        out_of_memory=out_of_memory,
    )


def sh(script: str, **plan: Any) -> Plan:
    """A shell script, with a path and nothing else in its environment."""
    return Plan(("/bin/sh", "-c", script), {"PATH": os.defpath}, **plan)


def python(source: str, *args: str, **plan: Any) -> Plan:
    """A Python program, without what a start of the interpreter need not have."""
    return Plan((sys.executable, "-I", "-S", "-c", source, *args), {}, **plan)


def run(plan: Plan, *, tools: JobTools | None = None, limits: JobLimits = LIMITS, **options: Any) -> Job:
    """A job of a real child."""
    return Job(tools or make_tools(), limits, plan, **options)


def limits(**changes: Any) -> JobLimits:
    """`LIMITS` but for these."""
    return attrs.evolve(LIMITS, **changes)


class Recorder(ProcessProtocol):
    """Writes down what a child does."""

    def __init__(self) -> None:
        self.data = {1: bytearray(), 2: bytearray()}
        self.events: list[str] = []
        self.reason: Any = None
        self.over: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        self.events.append("made")

    def childDataReceived(self, childFD: int, data: Any) -> None:
        self.data[childFD] += data

    def childConnectionLost(self, childFD: int) -> None:
        self.events.append(f"lost {childFD}")

    def processExited(self, reason: Failure) -> None:
        self.events.append("exited")
        self.reason = reason.value

    def processEnded(self, reason: Failure) -> None:
        self.events.append("ended")
        self.over.callback(None)


class ScriptedGroup:
    """A process group that lives as the test says."""

    def __init__(self, pgid: int = 4242) -> None:
        self.pgid = pgid
        self.signals: list[int] = []
        self.exists = True
        """Whether a signal finds anybody."""
        self.living: Callable[[], Deferred[bool] | bool] = lambda: True
        self.looks = 0
        self.released = False

    def signal(self, number: int) -> bool:
        self.signals.append(number)
        return self.exists

    def alive(self) -> "Deferred[bool]":
        self.looks += 1
        return maybeDeferred(self.living)

    def ours(self) -> bool:
        return self.exists

    def leader_reaped(self) -> None:
        pass

    def release(self) -> None:
        self.released = True


class ScriptedChild:
    """A child that does what the test says."""

    def __init__(self, protocol: ProcessProtocol, plan: Plan) -> None:
        self.plan = plan
        self.pid = 4242
        self.group = ScriptedGroup()
        self.usage: Any = None
        self.calls: list[str] = []
        self.rest: Callable[[], None] = lambda: None
        """What is in the pipes when the last look is taken."""
        self.stdin_result: Result = Result.WRITTEN
        self._protocol = protocol

    def write(self, data: bytes, stream: int = 1) -> None:
        self._protocol.childDataReceived(stream, data)

    def end_pipes(self) -> None:
        self._protocol.childConnectionLost(1)
        self._protocol.childConnectionLost(2)

    def exit(self, code: int = 0) -> None:
        reason = ProcessDone(0) if code == 0 else ProcessTerminated(code, None, code << 8)
        self._protocol.processExited(Failure(reason))

    def die(self, signal: int) -> None:
        self._protocol.processExited(Failure(ProcessTerminated(None, signal, signal)))

    def pause_output(self) -> None:
        self.calls.append("pause")

    def resume_output(self) -> None:
        self.calls.append("resume")

    def read_rest(self) -> None:
        self.calls.append("read rest")
        self.rest()

    def stop_output(self) -> None:
        self.calls.append("stop output")

    def discard_output(self) -> None:
        self.calls.append("discard output")

    def stdin_broken(self) -> bool:
        return False

    def write_stdin(self, data: bytes) -> "Deferred[Written]":
        self.calls.append(f"stdin {data!r}")
        return succeed(Written(self.stdin_result, len(data) if self.stdin_result is Result.WRITTEN else 0))

    def close_stdin(self) -> None:
        self.calls.append("close stdin")


class Scene:
    """Scripted children on a virtual clock."""

    def __init__(self) -> None:
        self.clock = task.Clock()
        self.children: list[ScriptedChild] = []
        self.tools = JobTools(
            clock=self.clock,
            spawner=self._spawn,
            run_in_thread=maybeDeferred,
            out_of_memory=lambda pid: False,
        )

    def _spawn(self, protocol: ProcessProtocol, plan: Plan) -> ScriptedChild:
        child = ScriptedChild(protocol, plan)
        self.children.append(child)
        protocol.makeConnection(child)  # type: ignore[arg-type]
        return child

    def job(self, limits: JobLimits = LIMITS, **options: Any) -> tuple[Job, ScriptedChild]:
        job = Job(self.tools, limits, Plan(("scripted",), {}, stdin=options.pop("stdin", False)), **options)
        return job, self.children[-1]


def result_of(deferred: "Deferred[T]") -> T:
    """The result of a Deferred that has one."""
    results: list[T] = []
    deferred.addCallback(results.append)
    assert results, "no result yet"
    return results[0]


def pending(deferred: "Deferred[Any]") -> bool:
    """Whether it has no result yet."""
    return not deferred.called

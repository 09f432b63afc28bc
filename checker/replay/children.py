"""Children that follow a script, for a daemon in memory: they exit, write and close their pipes when they are told."""

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from agentd.process.spawn import Plan, SpawnFailed
from agentd.rules.stdin import Result, Written


@define(eq=False)
class ScriptedGroup:
    """A process group of whom the script says who lives."""

    pgid: int
    signals: list[int] = field(factory=list)
    living: bool = True
    """Whether any member lives."""

    def signal(self, number: int) -> bool:
        """Send a signal; says whether there was anybody."""
        if not self.living:
            return False
        self.signals.append(number)
        return True

    def alive(self) -> "Deferred[bool]":
        """Whether any member lives."""
        return succeed(self.living)

    def ours(self) -> bool:
        """Whether the number still means this group."""
        return self.living

    def leader_reaped(self) -> None:
        """The leader's status was taken."""

    def release(self) -> None:
        """Nobody will ask any more."""


@define(eq=False)
class ScriptedChild:
    """A child that does what it is told, as `agentd.process.spawn.Child`."""

    protocol: ProcessProtocol
    plan: Plan = field(repr=False)
    pid: int
    group: ScriptedGroup
    usage: Any = None
    reading: bool = True
    """Whether the daemon reads its output."""
    pipes: set[int] = field(factory=lambda: {1, 2})
    """The output pipes that have not ended."""
    exited: bool = False
    stdin: bytes = b""
    """What was written to it."""
    stdin_open: bool = False
    stdin_result: Result = Result.WRITTEN
    """How the next write to its stdin ends."""
    reads: bool = True
    """Whether a write to its stdin, or the end of file behind it, is done at once, or when `read_stdin` says so."""
    stdin_waiting: "list[tuple[bytes, Deferred[Written]]]" = field(factory=list)
    """Writes that it has not read."""

    @property
    def ended(self) -> bool:
        """Whether it has exited, and nobody holds its pipes."""
        return self.exited and not self.pipes

    def write(self, data: bytes, stream: int = 1) -> None:
        """It writes, and the daemon reads that."""
        if stream in self.pipes:
            self.protocol.childDataReceived(stream, data)

    def end_pipes(self) -> None:
        """Nobody holds its output pipes any more."""
        for stream in sorted(self.pipes):
            self.pipes.discard(stream)
            self.protocol.childConnectionLost(stream)

    def exit(self, code: int = 0, signal: int | None = None) -> None:
        """It ends, with an exit code or by a signal, and the daemon learns that."""
        self.exited = True
        if signal is not None:
            reason: Any = ProcessTerminated(None, signal, signal)
        elif code:
            reason = ProcessTerminated(code, None, code << 8)
        else:
            reason = ProcessDone(0)
        self.protocol.processExited(Failure(reason))

    # -- Child ------------------------------------------------------------------------------------------

    def pause_output(self) -> None:
        """The daemon stops reading."""
        self.reading = False

    def resume_output(self) -> None:
        """The daemon reads again."""
        self.reading = True

    def read_rest(self) -> None:
        """What is in the pipes now has been read as it was written."""

    def stop_output(self) -> None:
        """The daemon closes its ends."""
        self.end_pipes()

    def discard_output(self) -> None:
        """The daemon reads on for nobody."""

    def stdin_broken(self) -> bool:
        """Whether nobody reads its stdin."""
        return not self.stdin_open

    def write_stdin(self, data: bytes) -> "Deferred[Written]":
        """The daemon writes to its stdin."""
        if not self.reads:
            waiting: Deferred[Written] = Deferred()
            self.stdin_waiting.append((data, waiting))
            return waiting
        done = self.stdin_result is Result.WRITTEN
        if done:
            self.stdin += data
        return succeed(Written(self.stdin_result, len(data) if done else 0))

    def read_stdin(self) -> None:
        """It reads what was written first."""
        data, waiting = self.stdin_waiting.pop(0)
        self.stdin += data
        waiting.callback(Written(Result.WRITTEN, len(data)))

    def break_stdin(self) -> None:
        """It closes its end: what was not read is lost."""
        self.stdin_open = False
        waiting, self.stdin_waiting = self.stdin_waiting, []
        for _, done in waiting:
            done.callback(Written(Result.BROKEN, 0))

    def close_stdin(self) -> None:
        """It reads an end of file."""
        self.stdin_open = False


class Children:
    """The spawner: children that follow a script."""

    def __init__(self) -> None:
        self.all: list[ScriptedChild] = []
        self.fails = False
        """Whether the next spawns fail."""
        self.refused = 0
        """Spawns that failed."""
        self.group: Callable[[int], ScriptedGroup] = ScriptedGroup
        """Makes the group of a child, by its number."""

    def __call__(self, protocol: ProcessProtocol, plan: Plan) -> ScriptedChild:
        """Spawn; see `agentd.process.spawn.Spawner`."""
        if self.fails:
            self.refused += 1
            raise SpawnFailed("no child can be spawned")
        # Numbers that no process of this machine has: whatever asks the kernel about them is told that.
        pid = 2**22 + 1 + len(self.all)
        child = ScriptedChild(protocol, plan, pid, self.group(pid), stdin_open=plan.stdin)
        self.all.append(child)
        protocol.makeConnection(child)
        return child

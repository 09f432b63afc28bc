"""Starting a child in a process group of its own, and hearing of its end.

Theory of operation
-------------------
`subprocess.Popen` without credentials goes through vfork, which costs the same however large the daemon is and
reports a failed exec as an exception in the parent; Twisted's own spawning forks as soon as a path, a user or a
group is given, and then reports a failed exec as text on the child's stderr (measured: twisted-notes 5). So a
child is started with Popen, and from there on it belongs to this module:

* ``start_new_session``: no controlling terminal, and session = group = pid (setsid(2)).
* Its end is a pidfd turning readable (pidfd_open(2)), not a SIGCHLD: one descriptor per child, no scan over all
  children, and no signal handler to share. `wait4` takes status and resource usage together.
* Popen never waits: the reaper here, or `agentd.process.reaper` as PID 1, is the only one.

With credentials Popen forks instead. It changes directory before it changes user, so a directory that must be
entered with the target's rights is opened with those rights first, and `Plan.cwd` names that descriptor
(`agentd.guest.accounts`).
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import field, frozen
from twisted.internet import error
from twisted.internet.interfaces import IProcessTransport, IReadDescriptor
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from agentd.linux import pidfd
from agentd.process.groups import Group, Groups, KernelGroup
from agentd.process.pipes import PipeReader, PipeWriter

STDIN, STDOUT, STDERR = 0, 1, 2


class SpawnFailed(Exception):
    """The child could not be started; the message says why and quotes no environment."""


@frozen
class Credentials:
    """Whom a child runs as. None leaves that part as the daemon's."""

    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None
    """Supplementary groups; None leaves the daemon's."""

    @property
    def any(self) -> bool:
        """Whether anything changes."""
        return self.uid is not None or self.gid is not None or self.groups is not None


SAME = Credentials()


@frozen
class Plan:
    """Everything a spawn needs, resolved and validated."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str | None = None
    """None inherits the daemon's working directory."""
    stdin: bool = False
    credentials: Credentials = SAME


class Child(Protocol):
    """A running child, as the rest of `agentd.process` sees it."""

    @property
    def pid(self) -> int:
        """The child's process id."""

    @property
    def group(self) -> Group:
        """Its process group."""

    @property
    def usage(self) -> Any:
        """`resource.struct_rusage` once it has exited, else None."""

    def pause_output(self) -> None:
        """Let the child block on its pipes."""

    def resume_output(self) -> None:
        """Read on."""

    def stop_output(self) -> None:
        """Close the output pipes whoever still holds their other ends."""

    def write_stdin(self, data: bytes) -> Any:
        """A Deferred `agentd.rules.stdin.Result`."""

    def close_stdin(self) -> None:
        """The child reads its end of file."""


Spawner = Callable[[ProcessProtocol, Plan], Child]
"""Starts a child that reports to a protocol; raises `SpawnFailed`."""


@implementer(IReadDescriptor)
class _ExitWatch:
    """Readable when the child has ended."""

    def __init__(self, fd: int, ended: Callable[[], None]) -> None:
        self._fd = fd
        self._ended = ended

    def fileno(self) -> int:
        return self._fd

    def logPrefix(self) -> str:
        return "agentd.process"

    def doRead(self) -> Any:
        self._ended()

    def connectionLost(self, reason: Any) -> None:
        pass

    def close(self) -> None:
        os.close(self._fd)


@implementer(IProcessTransport)
class GroupProcess:
    """A child in its own process group, as a Twisted process transport."""

    def __init__(self, spawner: "ProcessSpawner", protocol: ProcessProtocol, plan: Plan) -> None:
        self._reactor = spawner.reactor
        self._spawner = spawner
        self.proto = protocol
        self.usage: Any = None
        self._exited = False
        self._outputs_open = 2
        pipes = _Pipes(plan.stdin)
        try:
            self.pid = _popen(plan, pipes)
        except BaseException:
            pipes.close_all()
            raise
        pipes.close_child_ends()
        try:
            self._watch = _ExitWatch(pidfd.open(self.pid), self.reap)
        except OSError as reason:
            # Out of descriptors: a child whose end cannot be seen must not live.
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            pipes.close_all()
            raise SpawnFailed(f"cannot watch the child: {reason.strerror}") from None
        self.group: KernelGroup = spawner.groups.claim(self.pid)
        spawner.children[self.pid] = self
        self._stdin = (
            PipeWriter(self._reactor, pipes.stdin_ours, spawner.stdin_timeout)
            if pipes.stdin_ours is not None
            else None
        )
        self._readers = [
            PipeReader(self._reactor, fd, self._feeder(stream), self._ender(stream))
            for stream, fd in ((STDOUT, pipes.stdout_ours), (STDERR, pipes.stderr_ours))
        ]
        self._reactor.addReader(self._watch)
        protocol.makeConnection(self)

    def _feeder(self, stream: int) -> Callable[[bytes], None]:
        receive = self.proto.childDataReceived
        return lambda data: receive(stream, data)

    def _ender(self, stream: int) -> Callable[[], None]:
        def ended() -> None:
            self.proto.childConnectionLost(stream)
            self._outputs_open -= 1
            self._maybe_ended()

        return ended

    def reap(self) -> None:
        """Take the child's status if it has one; called when its pidfd turns readable, and as PID 1."""
        if self._exited:
            return
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            return
        self._exited = True
        self._reactor.removeReader(self._watch)
        self._watch.close()
        del self._spawner.children[self.pid]
        self.group.leader_reaped()
        self.usage = usage
        self._reason = _exit_reason(status)
        self.proto.processExited(self._reason)
        self._maybe_ended()

    def _maybe_ended(self) -> None:
        if self._exited and self._outputs_open == 0:
            self.close_stdin()
            self.proto.processEnded(self._reason)

    # -- Child -----------------------------------------------------------------------------------------

    def pause_output(self) -> None:
        """Stop reading both pipes."""
        for reader in self._readers:
            reader.pause()

    def resume_output(self) -> None:
        """Read both pipes."""
        for reader in self._readers:
            reader.resume()

    def stop_output(self) -> None:
        """Close both pipes."""
        for reader in self._readers:
            reader.close()
        self._outputs_open = 0

    def write_stdin(self, data: bytes) -> Any:
        """Write to the child's stdin, which the plan must have asked for."""
        if self._stdin is None:
            raise RuntimeError("the child has no stdin pipe")
        return self._stdin.write(data)

    def close_stdin(self) -> None:
        """Close the child's stdin if it has one."""
        if self._stdin is not None:
            self._stdin.close()

    # -- IProcessTransport ------------------------------------------------------------------------------

    def signalProcess(self, signalID: str | int) -> None:
        """Signal the group; raises `ProcessExitedAlready` when nothing is left of it."""
        number = signalID if isinstance(signalID, int) else getattr(signal, f"SIG{signalID}")
        if not self.group.signal(number):
            raise error.ProcessExitedAlready()

    def closeChildFD(self, descriptor: int) -> None:
        """Close the daemon's end of one pipe."""
        if descriptor == STDIN:
            self.close_stdin()
        else:
            self._readers[descriptor - 1].close()

    def writeToChild(self, childFD: int, data: bytes) -> None:
        """Write to stdin."""
        self.write_stdin(data)

    def closeStdin(self) -> None:
        """Close stdin."""
        self.close_stdin()

    def closeStdout(self) -> None:
        """Close stdout."""
        self._readers[0].close()

    def closeStderr(self) -> None:
        """Close stderr."""
        self._readers[1].close()

    def loseConnection(self) -> None:
        """Close every pipe."""
        self.close_stdin()
        self.stop_output()

    def write(self, data: bytes) -> None:
        """Write to stdin."""
        self.write_stdin(data)

    def writeSequence(self, data: list[bytes]) -> None:
        """Write to stdin."""
        self.write_stdin(b"".join(data))

    def getPeer(self) -> None:
        """A child has no address."""

    def getHost(self) -> None:
        """A child has no address."""


class _Pipes:
    """The pipes of a spawn, both ends, until each is where it belongs."""

    def __init__(self, stdin: bool) -> None:
        self._open: set[int] = set()
        self.stdin_ours: int | None = None
        try:
            if stdin:
                self.stdin_theirs, self.stdin_ours = self._pipe()
            else:
                self.stdin_theirs = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                self._open.add(self.stdin_theirs)
            self.stdout_ours, self.stdout_theirs = self._pipe()
            self.stderr_ours, self.stderr_theirs = self._pipe()
        except OSError as reason:
            self.close_all()
            raise SpawnFailed(f"cannot make pipes: {reason.strerror}") from None

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe2(os.O_CLOEXEC)
        self._open.update(ends)
        return ends

    def close_child_ends(self) -> None:
        for fd in (self.stdin_theirs, self.stdout_theirs, self.stderr_theirs):
            os.close(fd)
            self._open.discard(fd)

    def close_all(self) -> None:
        for fd in self._open:
            os.close(fd)
        self._open.clear()


def _popen(plan: Plan, pipes: _Pipes) -> int:
    """The pid of the new child; raises `SpawnFailed`."""
    credentials = plan.credentials
    try:
        process = subprocess.Popen(
            plan.argv,
            env=plan.env,
            cwd=plan.cwd,
            stdin=pipes.stdin_theirs,
            stdout=pipes.stdout_theirs,
            stderr=pipes.stderr_theirs,
            start_new_session=True,
            user=credentials.uid,
            group=credentials.gid,
            extra_groups=credentials.groups,
        )
    except OSError as reason:
        where = plan.cwd if plan.cwd is not None and reason.filename == plan.cwd else plan.argv[0]
        raise SpawnFailed(f"{where}: {reason.strerror}") from None
    except (ValueError, subprocess.SubprocessError, OverflowError) as reason:
        raise SpawnFailed(str(reason)) from None
    # Popen must never wait: with a return code set it believes that the child has been reaped, which is
    # what it will be, here.
    process.returncode = 0
    return process.pid


def _exit_reason(status: int) -> Failure:
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return Failure(error.ProcessDone(status))
    if code > 0:
        return Failure(error.ProcessTerminated(code, None, status))
    return Failure(error.ProcessTerminated(None, -code, status))


class ProcessSpawner:
    """The real `Spawner`: children of this process, by pid."""

    def __init__(self, reactor: Any, groups: Groups, stdin_timeout: float) -> None:
        self.reactor = reactor
        self.groups = groups
        self.stdin_timeout = stdin_timeout
        self.children: dict[int, GroupProcess] = {}

    def __call__(self, protocol: ProcessProtocol, plan: Plan) -> GroupProcess:
        """Start `plan`; see `Spawner`."""
        return GroupProcess(self, protocol, plan)

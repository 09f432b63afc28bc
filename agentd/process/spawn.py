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

With credentials Popen forks instead, and a small process may do that for the daemon (`agentd.process.zygote`). Either
changes directory before it changes user, so a directory that must be entered with the target's rights is opened with
those rights first, and `Plan.cwd` names that descriptor (`agentd.guest.accounts`).
"""

import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from attrs import field, frozen
from twisted.internet import error
from twisted.internet.interfaces import IProcessTransport, IReadDescriptor
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from agentd.linux import oom_score, pidfd
from agentd.process import signals
from agentd.process.groups import Group, Groups, KernelGroup
from agentd.process.pipes import PipeReader, PipeWriter
from agentd.process.zygote import Request, StartFailed, Zygotes

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
    executable: str | None = None
    """The program, when the first word is not it."""
    umask: int | None = None
    """None leaves the daemon's."""
    stdin_timeout: float | None = None
    """Seconds that a write to stdin may wait for the child; None for the spawner's."""


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

    def read_rest(self) -> None:
        """Read what is in the output pipes at this moment, and see their end if it is there."""

    def stop_output(self) -> None:
        """Close the output pipes whoever still holds their other ends."""

    def discard_output(self) -> None:
        """Read the output pipes to their ends, for nobody."""

    def write_stdin(self, data: bytes) -> Any:
        """A Deferred `agentd.rules.stdin.Result`."""

    def close_stdin(self) -> None:
        """The child reads its end of file."""

    def stdin_broken(self) -> bool:
        """Whether nobody can read what is written to stdin."""


Spawner = Callable[[ProcessProtocol, Plan], Child]
"""Starts a child that reports to a protocol; raises `SpawnFailed`."""


@implementer(IReadDescriptor)
class _ExitWatch:
    """Readable when the child has ended."""

    def __init__(self, reactor: Any, fd: int, ended: Callable[[], None]) -> None:
        self._reactor = reactor
        self._fd = fd
        self._ended: Callable[[], None] | None = ended
        reactor.addReader(self)

    def fileno(self) -> int:
        return self._fd

    def logPrefix(self) -> str:
        return "agentd.process"

    def doRead(self) -> Any:
        if self._ended is not None:
            self._ended()

    def doWrite(self) -> Any:
        """An event of an older descriptor of this number."""

    def connectionLost(self, reason: Any) -> None:
        # The reactor saw a hang-up, of this descriptor or of an older one of its number, and stopped watching.
        self.doRead()
        if self._fd >= 0:
            self._reactor.addReader(self)

    def close(self) -> None:
        self._reactor.removeReader(self)
        fd, self._fd = self._fd, -1
        os.close(fd)
        self._ended = None


@implementer(IProcessTransport)
class GroupProcess:
    """A child in its own process group, as a Twisted process transport.

    Once the child has exited and both pipes have ended it lets go of its protocol, so that neither keeps the
    other alive.
    """

    def __init__(self, spawner: "ProcessSpawner", protocol: ProcessProtocol, plan: Plan) -> None:
        self._spawner = spawner
        self._protocol: ProcessProtocol | None = protocol
        self._reason: Failure | None = None
        self.usage: Any = None
        pipes = _Pipes(plan.stdin)
        try:
            self.pid = _start(plan, pipes, spawner.zygotes)
        except BaseException:
            pipes.close_all()
            raise
        pipes.close_child_ends()
        try:
            watched = pidfd.open(self.pid)
        except OSError as reason:
            # Out of descriptors: a child whose end cannot be seen must not live.
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            pipes.close_all()
            raise SpawnFailed(f"cannot watch the child: {reason.strerror}") from None
        self.group: KernelGroup = spawner.groups.claim(self.pid)
        spawner.children[self.pid] = self
        reactor = spawner.reactor
        self._watch = _ExitWatch(reactor, watched, self.reap)
        self._stdin = (
            PipeWriter(
                reactor,
                pipes.stdin_ours,
                spawner.stdin_timeout if plan.stdin_timeout is None else plan.stdin_timeout,
            )
            if pipes.stdin_ours is not None
            else None
        )
        self._readers = [
            PipeReader(reactor, fd, self._feeder(protocol, stream), self._ender(protocol, stream))
            for stream, fd in ((STDOUT, pipes.stdout_ours), (STDERR, pipes.stderr_ours))
        ]
        protocol.makeConnection(self)

    def _feeder(self, protocol: ProcessProtocol, stream: int) -> Callable[[memoryview], None]:
        receive: Callable[[int, Any], None] = protocol.childDataReceived
        return lambda data: receive(stream, data)

    def _ender(self, protocol: ProcessProtocol, stream: int) -> Callable[[], None]:
        def ended() -> None:
            protocol.childConnectionLost(stream)
            self._maybe_ended()

        return ended

    def reap(self) -> None:
        """Take the child's status if it has one; called when its pidfd turns readable, and as PID 1."""
        if self._reason is not None:
            return
        status: int | None = None
        try:
            pid, status, self.usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            pass  # somebody else has waited for it: it has ended, and nobody can say how (contract c.5)
        else:
            if pid == 0:
                self.usage = None
                return
        self._watch.close()
        del self._spawner.children[self.pid]
        self.group.leader_reaped()
        self._reason = _exit_reason(status)
        if self._protocol is not None:
            self._protocol.processExited(self._reason)
        self._maybe_ended()

    def _maybe_ended(self) -> None:
        if self._reason is None or any(reader.open for reader in self._readers):
            return
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            self.close_stdin()
            protocol.processEnded(self._reason)

    # -- Child -----------------------------------------------------------------------------------------

    def pause_output(self) -> None:
        """Stop reading both pipes."""
        for reader in self._readers:
            reader.pause()

    def resume_output(self) -> None:
        """Read both pipes."""
        for reader in self._readers:
            reader.resume()

    def read_rest(self) -> None:
        """Read what is in both pipes now."""
        for reader in self._readers:
            reader.read_rest()

    def stop_output(self) -> None:
        """Close both pipes."""
        for reader in self._readers:
            reader.close()
        self._maybe_ended()

    def discard_output(self) -> None:
        """Read both pipes to their ends, and drop it."""
        for reader in self._readers:
            reader.discard()

    def write_stdin(self, data: bytes) -> Any:
        """Write to the child's stdin, which the plan must have asked for."""
        if self._stdin is None:
            raise RuntimeError("the child has no stdin pipe")
        return self._stdin.write(data)

    def close_stdin(self) -> None:
        """Close the child's stdin if it has one."""
        if self._stdin is not None:
            self._stdin.close()

    def stdin_broken(self) -> bool:
        """Whether the pipe is closed, or nobody has its other end."""
        return self._stdin is None or self._stdin.broken()

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
            self._maybe_ended()

    def writeToChild(self, childFD: int, data: bytes) -> None:
        """Write to stdin."""
        self.write_stdin(data)

    def closeStdin(self) -> None:
        """Close stdin."""
        self.close_stdin()

    def closeStdout(self) -> None:
        """Close stdout."""
        self.closeChildFD(STDOUT)

    def closeStderr(self) -> None:
        """Close stderr."""
        self.closeChildFD(STDERR)

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


def _start(plan: Plan, pipes: _Pipes, zygotes: Zygotes | None) -> int:
    """The pid of the new child, started in the quickest way there is; raises `SpawnFailed`."""
    zygote = zygotes.get() if zygotes is not None and plan.credentials.any else None
    if zygotes is None or zygote is None:
        return _popen(plan, pipes)
    try:
        return zygote.spawn(
            _request(plan),
            (pipes.stdin_theirs, pipes.stdout_theirs, pipes.stderr_theirs),
            _open_directory(plan),
        )
    except StartFailed as reason:
        if reason.errno == errno.ENOSYS:
            zygotes.give_up()
            return _popen(plan, pipes)
        fault = {"cwd": plan.cwd, "program": plan.executable or plan.argv[0]}.get(reason.stage)
        raise SpawnFailed(f"{fault or 'cannot start a child'}: {reason.strerror}") from None
    except (ValueError, OverflowError) as reason:
        raise SpawnFailed(str(reason)) from None


_DESCRIPTORS: Final = "/proc/self/fd/"


def _open_directory(plan: Plan) -> int | None:
    """The descriptor that a plan's working directory is the name of."""
    cwd = plan.cwd or ""
    return int(cwd.removeprefix(_DESCRIPTORS)) if cwd.startswith(_DESCRIPTORS) else None


def _request(plan: Plan) -> Request:
    """A plan for a zygote. Programs are looked for as `subprocess` does, in the child's own PATH."""
    program = os.fsencode(plan.executable or plan.argv[0])
    if os.path.dirname(program):
        programs: tuple[bytes, ...] = (program,)
    else:
        programs = tuple(os.path.join(os.fsencode(place), program) for place in os.get_exec_path(plan.env))
    credentials = plan.credentials
    return Request(
        programs,
        tuple(map(os.fsencode, plan.argv)),
        {os.fsencode(name): os.fsencode(value) for name, value in plan.env.items()},
        plan.cwd,
        credentials.uid,
        credentials.gid,
        credentials.groups,
        plan.umask,
    )


def _popen(plan: Plan, pipes: _Pipes) -> int:
    """The pid of the new child; raises `SpawnFailed`."""
    credentials = plan.credentials
    try:
        process = subprocess.Popen(
            plan.argv,
            executable=plan.executable,
            env=plan.env,
            cwd=plan.cwd,
            stdin=pipes.stdin_theirs,
            stdout=pipes.stdout_theirs,
            stderr=pipes.stderr_theirs,
            start_new_session=True,
            user=credentials.uid,
            group=credentials.gid,
            extra_groups=credentials.groups,
            umask=-1 if plan.umask is None else plan.umask,
        )
    except OSError as reason:
        raise SpawnFailed(f"{_at_fault(reason, plan)}: {reason.strerror}") from None
    except (ValueError, subprocess.SubprocessError, OverflowError) as reason:
        raise SpawnFailed(str(reason)) from None
    # Popen must never wait: with a return code set it believes that the child has been reaped, which is
    # what it will be, here.
    process.returncode = 0
    return process.pid


_IDENTITY_ERRORS = frozenset({errno.EPERM, errno.EINVAL, errno.EAGAIN})
"""What setting ids and groups fails with; changing directory fails with none of these (chdir(2), setresuid(2))."""


def _at_fault(reason: OSError, plan: Plan) -> str:
    """What a failed start is about. Popen names the program, or the directory for everything before the exec."""
    program = plan.executable or plan.argv[0]
    if reason.filename == program:
        return program
    if plan.cwd is None or reason.filename != plan.cwd or reason.errno in _IDENTITY_ERRORS:
        return "cannot start a child"
    return plan.cwd


def _exit_reason(status: int | None) -> Failure:
    if status is None:
        return Failure(error.ProcessTerminated())
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return Failure(error.ProcessDone(status))
    if code > 0:
        return Failure(error.ProcessTerminated(code, None, status))
    return Failure(error.ProcessTerminated(None, -code, status))


class ProcessSpawner:
    """The real `Spawner`: children of this process, by pid."""

    def __init__(
        self, reactor: Any, groups: Groups, stdin_timeout: float, zygotes: Zygotes | None = None
    ) -> None:
        self.reactor = reactor
        self.groups = groups
        self.zygotes = zygotes
        self.stdin_timeout = stdin_timeout
        self.children: dict[int, GroupProcess] = {}
        self._prepared = False

    def __call__(self, protocol: ProcessProtocol, plan: Plan) -> GroupProcess:
        """Start `plan`; see `Spawner`."""
        if not self._prepared:
            self._prepared = True
            signals.keep_from_children()
        child = GroupProcess(self, protocol, plan)
        # A daemon that the kernel is told to spare when memory runs out hands that on, and a child must not keep it:
        # everybody else would pay for what it eats.
        if oom_score.read() < 0:
            oom_score.write(child.pid, 0)
        return child

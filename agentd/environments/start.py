"""From a request to a running child of the agent user (environments 3.1 to 3.4).

What has to be looked up on the machine (the environment files, the working directory) is looked up on a pool
thread. The directory is opened with the agent user's rights, and the child enters through the descriptor, so
that nobody can put another one under the name in between. The child itself is `agentd.process`'s.
"""

import os
import signal
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from agentd.environments import answers, paths, shapes
from agentd.environments.account import Identity
from agentd.environments.answers import Slug
from agentd.environments.context import Environment
from agentd.guest.accounts import Directory
from agentd.guest.accounts import Identity as Own
from agentd.http.query import printable
from agentd.linux import credentials
from agentd.process.job import Job, JobLimits, JobTools, Outcome
from agentd.process.output import Output
from agentd.process.spawn import SAME, Credentials, Plan, SpawnFailed
from agentd.rules import commands, env_file
from agentd.rules.commands import Command, InvalidCommand

_log = Logger()

UMASK: Final = 0o022
FILE_BYTES: Final = 1024 * 1024
"""How much of an environment file is read."""
FOREVER: Final = 1e9
"""Seconds that a write to stdin may wait for the process to read."""
_PLAIN_SIGNALS: Final = 32
"""Signals from this number on are real-time ones, which have no names."""


@frozen
class Request:
    """What both ways to start a command have in common, checked."""

    command: Command
    variables: Mapping[str, str] = field(repr=False)
    cwd: str | None
    timeout: int


def check(asked: shapes.ExecRequest | shapes.SpawnRequest, default: int, least: int, most: int) -> Request:
    """The values of a request whose shape is right; `Refused` with 400 when they cannot be run."""
    variables = asked.env or {}
    timeout = default if asked.timeout_secs is None else asked.timeout_secs
    try:
        command = commands.command(asked.argv, asked.command)
        commands.check_variables(variables)
        commands.check_directory(asked.cwd)
        commands.check_timeout(timeout, least, most)
    except InvalidCommand as reason:
        raise answers.invalid(str(reason)) from None
    return Request(command, variables, asked.cwd, timeout)


@frozen
class Prepared:
    """What a start needs of the machine. A context manager: it holds the working directory open."""

    environment: Mapping[str, str] = field(repr=False)
    directory: Directory
    cwd: str

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.directory.close()


def prepare(identity: Identity, request: Request, package: Path, platform: Path) -> Prepared:
    """Read the files and open the directory. Blocks; raises OSError for a directory that cannot be entered."""
    environment = env_file.layer(
        env_file.base(identity.name, identity.home),
        request.variables,
        read_variables(package),
        read_variables(platform),
    )
    cwd = paths.absolute(identity.home, request.cwd or ".")
    fd = credentials.open_directory_as(cwd, identity.uid, identity.gid, identity.groups)
    return Prepared(environment, Directory(fd), paths.shown(identity.home, cwd))


def read_variables(path: Path) -> Mapping[str, str]:
    """What an environment file sets; nothing when there is none. Blocks. The log names lines, never their text."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return {}
    except OSError as reason:
        _log.warn("{path} cannot be read: {reason}", path=str(path), reason=reason.strerror)
        return {}
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            _log.warn("{path} is no file", path=str(path))
            return {}
        text = file.read(FILE_BYTES + 1)
    if len(text) > FILE_BYTES:
        _log.warn("{path} is longer than {most} bytes; the rest is not read", path=str(path), most=FILE_BYTES)
        text = text[: text.rfind(b"\n", 0, FILE_BYTES) + 1]
    parsed = env_file.parse(text)
    if parsed.malformed:
        _log.warn("{path}: malformed lines skipped: {lines}", path=str(path), lines=parsed.malformed[:20])
    return parsed.variables


class AgentJob(Job):
    """A child of the agent user. It knows when it exited, which is before its output is complete."""

    def __init__(
        self,
        tools: JobTools,
        limits: JobLimits,
        plan: Plan,
        *,
        timeout: float | None,
        output: Output,
        wall_clock: Any,
    ) -> None:
        self._clock = tools.clock
        self._wall_clock = wall_clock
        self.seconds = 0.0
        """From the start to the exit."""
        self.exited_at: datetime | None = None
        super().__init__(tools, limits, plan, timeout=timeout, output=output)
        self.started_at = utc(wall_clock())
        self._started = self._clock.seconds()

    def processExited(self, reason: Failure) -> None:
        """The child has exited."""
        self.seconds = self._clock.seconds() - self._started
        self.exited_at = utc(self._wall_clock())
        super().processExited(reason)


def utc(seconds: float) -> datetime:
    """A wall clock reading, to the millisecond."""
    return datetime.fromtimestamp(int(seconds * 1000) / 1000, UTC)


def job_limits(environment: Environment) -> JobLimits:
    """How a child of this face ends: KILL at once, output until silence, its writers left alone (3.4)."""
    limits = environment.limits
    return JobLimits(
        max_output_bytes=0,
        stream_buffer_bytes=0,
        output_linger_secs=limits.linger,
        kill_grace_secs=None,
        output_quiet_secs=limits.quiet,
        drain_for_ever=True,
    )


async def start(
    environment: Environment, identity: Identity, request: Request, stdin: bool, output: Output
) -> tuple[AgentJob, str]:
    """The running child, and its working directory; or `Refused` with 503."""
    try:
        preparing: Deferred[Prepared] = environment.tools.run_in_thread(
            prepare, identity, request, environment.package_env, environment.platform_env
        )
        prepared = await preparing
    except OSError as reason:
        where = printable(paths.shown(identity.home, request.cwd or "."))
        raise answers.refuse(
            503, Slug.EXEC_FAILED, f"could not enter {where}: {os.strerror(reason.errno or 0)}"
        ) from None
    with prepared:
        plan = Plan(
            request.command.argv,
            prepared.environment,
            prepared.directory.path,
            stdin,
            _credentials(identity),
            executable=request.command.executable,
            umask=UMASK,
            stdin_timeout=FOREVER,
        )
        try:
            job = AgentJob(
                environment.tools,
                job_limits(environment),
                plan,
                timeout=request.timeout or None,
                output=output,
                wall_clock=environment.wall_clock,
            )
        except SpawnFailed as reason:
            program = plan.executable or plan.argv[0]
            detail = str(reason).removeprefix(f"{program}: ")
            raise answers.refuse(
                503, Slug.EXEC_FAILED, f"could not start {printable(program)}: {printable(detail)}"
            ) from None
    return job, prepared.cwd


def _credentials(identity: Identity) -> Credentials:
    """Whom the child has to become; nothing for a daemon that is the agent user already."""
    own = Own.of_daemon()
    same = (identity.uid, identity.gid) == (own.uid, own.gid)
    if same and {identity.gid, *identity.groups} == {own.gid, *own.groups}:
        return SAME
    return Credentials(identity.uid, identity.gid, identity.groups)


def exit_of(outcome: Outcome) -> shapes.ProcessExit:
    """How a child ended, on the wire."""
    return shapes.ProcessExit(outcome.exit_code, signal_name(outcome.signal), outcome.timed_out)


def signal_name(number: int | None) -> str | None:
    """A signal's name without its SIG, or the number of one that has none (3.5)."""
    if number is None:
        return None
    try:
        name = signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
    return name if number < _PLAIN_SIGNALS else str(number)

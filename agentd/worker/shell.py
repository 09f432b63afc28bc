"""`shell::exec`, `exec_bg`, `status`, `list`, `kill`: commands on this machine or in a sandbox (reference B1).

What is asked is judged in a fixed order, so that the first thing wrong with it decides: the words of the command, the
denylist, the target, then the directory and the variables. `exec` fails with codes, `exec_bg` with the same texts as
plain failures.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from attrs import field, frozen
from msgspec import UNSET, Struct, UnsetType

from agentd.files.threads import shielded
from agentd.process.spawn import SpawnFailed
from agentd.rules import words
from agentd.rules.jobs import Kill
from agentd.worker.errors import Coded, Misfit, Plain
from agentd.worker.expressions import compile_expression
from agentd.worker.function import Call, Function
from agentd.worker.jail import Directory
from agentd.worker.job_runner import Command, Ended, Record, Text, TooManyJobs
from agentd.worker.sandbox import GRACE_SECS, sandbox_of
from agentd.worker.settings import Settings

_REFUSED_FAMILIES: Final = ("LD_", "DYLD_")
_REFUSED: Final = frozenset(
    {
        "PATH",
        "IFS",
        "HOME",
        "GCONV_PATH",
        "GETCONF_DIR",
        "HOSTALIASES",
        "NIS_PATH",
        "MALLOC_TRACE",
        "RES_OPTIONS",
        "LOCALDOMAIN",
        "BASH_ENV",
        "ENV",
        "PYTHONSTARTUP",
        "PERL5OPT",
        "RUBYOPT",
        "NODE_OPTIONS",
    }
)
"""Variables of a loader, a look-up or an interpreter's start: whoever sets one chooses what else is run."""


# -- requests ------------------------------------------------------------------------------------------------------


@frozen
class ExecRequest:
    """What to run, with the types it must have."""

    command: str
    args: tuple[str, ...] | None = None
    timeout_ms: int | None = None
    cwd: str | None = None
    env: Mapping[str, str] | None = field(default=None, repr=False)
    stdin: str | None = field(default=None, repr=False)
    sandbox: str | None = None
    """None for this machine."""


def parse_exec(data: object) -> ExecRequest:
    """Raises `Misfit` naming the field."""
    given = _object(data)
    if "command" not in given:
        raise Misfit("missing field `command`")
    command = given["command"]
    if not isinstance(command, str):
        hint = "; put the program here and its arguments in 'args'" if isinstance(command, list) else ""
        raise Misfit(f"'command' must be a string (got {_kind(command)}){hint}")
    try:
        sandbox = sandbox_of(given.get("target"))
    except ValueError as reason:
        raise Misfit(str(reason)) from None
    return ExecRequest(
        command,
        _args(given.get("args")),
        _timeout(given.get("timeout_ms")),
        _text(given, "cwd"),
        _env(given.get("env")),
        _text(given, "stdin"),
        sandbox,
    )


def _object(data: object) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise Misfit(f"the request must be an object (got {_kind(data)})")
    return data


def _kind(value: object) -> str:
    """A JSON type's name."""
    if value is None:
        return "null"
    names: tuple[tuple[type, str], ...] = (
        (bool, "boolean"),
        (str, "string"),
        (int, "number"),
        (float, "number"),
        (list, "array"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "object")


def _args(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise Misfit(f"'args' must be an array of strings (got {_kind(value)})")
    for at, item in enumerate(value):
        if not isinstance(item, str):
            raise Misfit(f"'args[{at}]' must be a string (got {_kind(item)})")
    return tuple(value)


def _timeout(value: object) -> int | None:
    """What is no whole number counts as left out (reference B1)."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise Misfit(f"'{name}' must be a string (got {_kind(value)})")
    return value


def _env(value: object) -> Mapping[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise Misfit(f"'env' must be an object of strings (got {_kind(value)})")
    for name, text in value.items():
        if not isinstance(text, str):
            raise Misfit(f"'env.{name}' must be a string (got {_kind(text)})")
    return value


def parse_job(data: object) -> str:
    """The id of a job. Raises `Misfit`."""
    given = _object(data)
    if "job_id" not in given:
        raise Misfit("missing field `job_id`")
    if not isinstance(given["job_id"], str):
        raise Misfit(f"'job_id' must be a string (got {_kind(given['job_id'])})")
    return str(given["job_id"])


def parse_nothing(data: object) -> None:
    """A function without arguments looks at none."""


# -- judging -------------------------------------------------------------------------------------------------------


def argv(request: ExecRequest) -> tuple[str, ...]:
    """The words to run. Raises `Plain`."""
    if request.args is not None:
        return (request.command, *request.args)
    try:
        found = words.split(request.command)
    except words.Unbalanced as reason:
        raise Plain(f"parse command: {reason}") from None
    if not found:
        raise Plain("empty command")
    return found


def check_denylist(settings: Settings, found: tuple[str, ...]) -> None:
    """Raises `Plain` for a command that a pattern of the denylist is found in."""
    line = " ".join(found).encode("utf-8", "replace")
    for pattern in settings.denylist_patterns:
        if compile_expression(pattern).search(line):
            raise Plain(f"the command is refused by the denylist: it matches {pattern}")


def check_variables(env: Mapping[str, str]) -> None:
    """Raises `Coded` S210 for a variable that a call may not set."""
    for name in env:
        if name in _REFUSED or name.startswith(_REFUSED_FAMILIES):
            raise Coded("S210", f"env: {name} may not be set by a call")
        if not name or "=" in name or "\0" in name:
            raise Coded("S210", f"env: {name!r} is no name of a variable")


def check_host_only(request: ExecRequest) -> None:
    """Raises `Coded` S210 for what a sandbox cannot be given."""
    for name in ("cwd", "env", "stdin"):
        if getattr(request, name) is not None:
            raise Coded("S210", f"'{name}' is for the host alone and cannot be used with a sandbox target")


def timeout_of(settings: Settings, asked: int | None) -> int:
    """Milliseconds that a command in the foreground may take."""
    return min(settings.default_timeout_ms if asked is None else asked, settings.max_timeout_ms)


# -- results -------------------------------------------------------------------------------------------------------


class ExecResult(Struct, frozen=True):
    """The result of `shell::exec`."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    stdout_truncated: bool
    stderr_truncated: bool
    duration_ms: int


class Started(Struct, frozen=True):
    """The result of `shell::exec_bg`."""

    job_id: str
    argv: tuple[str, ...]


class Summary(Struct, frozen=True):
    """A job without what may be confidential of it."""

    id: str
    status: str
    started_at_ms: int
    finished_at_ms: int | None
    exit_code: int | None
    stdout_truncated: bool
    stderr_truncated: bool


class JobRecord(Summary, frozen=True):
    """A whole job."""

    argv: tuple[str, ...]
    stdout: str
    stderr: str


class StatusResult(Struct, frozen=True):
    """The result of `shell::status`."""

    job: JobRecord


class ListResult(Struct, frozen=True):
    """The result of `shell::list`."""

    jobs: list[Summary]
    count: int


class KillResult(Struct, frozen=True, omit_defaults=True):
    """The result of `shell::kill`."""

    job_id: str
    killed: bool
    status: str
    reason: str | UnsetType = UNSET


# -- functions -----------------------------------------------------------------------------------------------------


async def execute(call: Call, request: ExecRequest) -> ExecResult:
    """Run in the foreground."""
    found = argv(request)
    check_denylist(call.settings, found)
    timeout_ms = timeout_of(call.settings, request.timeout_ms)
    if request.sandbox is not None:
        check_host_only(request)
        return _result(await _in_sandbox(call, request.sandbox, found, timeout_ms))
    check_variables(request.env or {})
    return _result(
        await _on_host(
            call, request, found, lambda command: call.jobs.run(call.settings, command, timeout_ms)
        )
    )


async def execute_bg(call: Call, request: ExecRequest) -> Started:
    """Start a job."""
    try:
        return Started(*await _start(call, request))
    except Coded as reason:
        raise Plain(f"{reason.code}: {reason.message}") from None
    except TooManyJobs as reason:
        raise Plain(str(reason)) from None


async def _start(call: Call, request: ExecRequest) -> tuple[str, tuple[str, ...]]:
    found = argv(request)
    settings = call.settings
    check_denylist(settings, found)
    if request.sandbox is not None:
        check_host_only(request)
        call.sandbox.check(settings)
        sandbox, timeout_ms = request.sandbox, timeout_of(settings, request.timeout_ms)
        return call.jobs.start_call(
            settings, found, lambda: _in_sandbox(call, sandbox, found, timeout_ms)
        ), found
    check_variables(request.env or {})

    async def start(command: Command) -> str:
        return call.jobs.start(settings, command)

    return await _on_host(call, request, found, start), found


async def _on_host(
    call: Call,
    request: ExecRequest,
    found: tuple[str, ...],
    run: Callable[[Command], Awaitable[Any]],
) -> Any:
    """What `run` gives for the command, in the directory that the request names."""
    try:
        if request.cwd is None:
            return await run(Command(found, request.env or {}, None, request.stdin))
        # A descriptor that comes too late for its caller is closed.
        opening = call.run_in_thread(call.jail.directory, request.cwd)
        directory = await shielded(opening, Directory.close)
        try:
            return await run(Command(found, request.env or {}, directory.path, request.stdin))
        finally:
            directory.close()
    except SpawnFailed as reason:
        raise Coded("S216", f"spawn: {reason}") from None


async def _in_sandbox(call: Call, sandbox: str, found: tuple[str, ...], timeout_ms: int) -> Ended:
    arguments = {"cmd": found[0], "args": list(found[1:]), "timeout_ms": timeout_ms}
    result = await call.sandbox.forward(
        call.settings, sandbox, "exec", arguments, timeout_ms / 1000 + GRACE_SECS
    )
    try:
        answer = msgspec.convert(result, SandboxResult)
    except msgspec.ValidationError as reason:
        raise Coded("S216", f"sandbox: an answer that is not understood: {reason}") from None
    return Ended(
        answer.exit_code,
        answer.timed_out,
        Text(answer.stdout, answer.stdout_truncated),
        Text(answer.stderr, answer.stderr_truncated),
        answer.duration_ms,
    )


class SandboxResult(Struct, frozen=True):
    """What `sandbox::exec` answers; other keys are not looked at."""

    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    duration_ms: int = 0


def _result(ended: Ended) -> ExecResult:
    return ExecResult(
        exit_code=ended.exit_code,
        stdout=ended.stdout.text,
        stderr=ended.stderr.text,
        timed_out=ended.timed_out,
        stdout_truncated=ended.stdout.truncated,
        stderr_truncated=ended.stderr.truncated,
        duration_ms=ended.duration_ms,
    )


async def status(call: Call, id: str) -> StatusResult:
    """One job's record."""
    record = await call.jobs.record(id)
    if record is None:
        raise _no_job(id)
    return StatusResult(_record(record))


def _record(record: Record) -> JobRecord:
    job = record.job
    return JobRecord(
        id=job.id,
        status=job.status.value,
        started_at_ms=job.started_ms,
        finished_at_ms=job.finished_ms,
        exit_code=job.exit_code,
        stdout_truncated=record.stdout.truncated,
        stderr_truncated=record.stderr.truncated,
        argv=record.argv,
        stdout=record.stdout.text,
        stderr=record.stderr.text,
    )


def _no_job(id: str) -> Coded:
    return Coded("S211", f"no such job: {id}")


async def list_jobs(call: Call, nothing: None) -> ListResult:
    """Every job, summed up."""
    found = [
        Summary(job.id, job.status.value, job.started_ms, job.finished_ms, job.exit_code, out, err)
        for job, out, err in call.jobs.list()
    ]
    return ListResult(found, len(found))


async def kill(call: Call, id: str) -> KillResult:
    """End a job."""
    killed = call.jobs.kill(id)
    if killed is None:
        raise _no_job(id)
    if killed.verdict is not Kill.KILLED:
        return KillResult(id, False, killed.status.value, "not running")
    reason: str | UnsetType = UNSET
    if killed.sandbox:
        reason = (
            "the record is ended, but what sandbox::exec runs goes on in the sandbox until its timeout_ms"
        )
    return KillResult(id, True, killed.status.value, reason)


FUNCTIONS: Final = (
    Function("shell::exec", "Run a command to its end.", parse_exec, execute),
    Function("shell::exec_bg", "Start a command as a background job.", parse_exec, execute_bg),
    Function("shell::status", "The record of a background job.", parse_job, status),
    Function("shell::list", "All background jobs, summed up.", parse_nothing, list_jobs),
    Function("shell::kill", "End a background job.", parse_job, kill),
)

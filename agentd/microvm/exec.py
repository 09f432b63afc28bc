"""The exec routes of protocol v1: start, poll, stdin, ack, kill, procs (contract a.2 to a.8)."""

import base64
import binascii
from typing import Final

from twisted.internet.defer import Deferred

from agentd.guest.accounts import PreparedStart, StartRequest, resolve_start
from agentd.http import prefer
from agentd.http.messages import Answer, Problem, Refused, Response, as_json, problem, refuse
from agentd.http.query import JsonBody
from agentd.http.reading import malformed, read_json
from agentd.http.request import AgentRequest
from agentd.http.shield import shielded
from agentd.microvm import shapes
from agentd.microvm.context import Daemon
from agentd.process.job import Job, Outcome
from agentd.process.output import STDERR, STDOUT
from agentd.process.spawn import Credentials, Plan, SpawnFailed
from agentd.process.table import Exec
from agentd.rules import execs, lifecycle, resolution, supervision
from agentd.rules.execs import Ack
from agentd.rules.resolution import Refusal as StartRefusal
from agentd.rules.stdin import Refusal, Result

START: Final = JsonBody(shapes.StartRequest)
STDIN: Final = JsonBody(shapes.StdinRequest)

LARGE_OUTPUT: Final = 512 * 1024
"""Output beyond which a poll's JSON is made on a pool thread, in bytes."""

_UNKNOWN = {
    resolution.UnknownUser: "unknown_user",
    resolution.UnknownGroup: "unknown_group",
    resolution.UnknownShell: "unknown_shell",
}
_STDIN_STATUS = {
    Refusal.NOT_REQUESTED: (409, "the exec was started without stdin"),
    Refusal.MALFORMED: (400, "data_b64 must be standard base64, and signal eof or absent"),
    Refusal.TOO_LARGE: (413, "the write is larger than max_stdin_write_bytes"),
    Refusal.CLOSED: (410, "stdin is closed"),
}
_WRITE_STATUS = {
    Result.TIMED_OUT: (
        408,
        "stdin_write_timeout",
        "the child did not read in time; `written` bytes are in the pipe",
    ),
    Result.BROKEN: (410, "stdin_closed", "stdin is closed: the child does not read any more"),
    Result.FAILED: (500, "stdin_write_failed", "the write to the pipe failed"),
}


class WriteProblem(Problem, frozen=True):
    """The error body of a stdin write that was begun: `written` is how many of its bytes are in the pipe."""

    written: int


def usage(outcome: Outcome) -> shapes.ExecUsage | None:
    """An outcome's usage on the wire."""
    used = outcome.usage
    if used is None:
        return None
    return shapes.ExecUsage(used.user_seconds, used.system_seconds, used.max_rss_bytes)


class ExecRoutes:
    """The handlers, one method a route."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    # -- start -----------------------------------------------------------------------------------------

    async def start(self, request: AgentRequest) -> Answer:
        """``POST /v1/exec/start``. The order of checks is the contract's (a.2)."""
        daemon = self._daemon
        asked: shapes.StartRequest = await read_json(request, START, daemon.config.max_json_bytes)
        if not asked.exec_id:
            raise malformed("exec_id must not be empty")
        if not supervision.valid_timeout(asked.timeout_sec):
            raise malformed("timeout_sec must be a positive number of seconds, below 18446744073709551615")
        prepared = await self._resolve(asked)
        with prepared:
            if not asked.command and prepared.shell is None:
                raise malformed("command must not be empty without a shell")
            known = daemon.execs.get(asked.exec_id)
            if known is None and not lifecycle.may_start(daemon.life()):
                raise refuse(503, "shutting_down", "the daemon is shutting down and starts nothing new")
            entry = self._spawn(asked, prepared)
        wait = self._wait(request)
        if wait is None:
            return as_json(shapes.StartResponse(entry.exec_id, entry.record.phase))
        return await self._hold(request, entry, wait)

    async def _resolve(self, asked: shapes.StartRequest) -> PreparedStart:
        daemon = self._daemon
        wanted = StartRequest(
            asked.user, asked.group, asked.shell, asked.cwd, asked.env, asked.inherit_image_env
        )
        arguments = (wanted, daemon.guest.launch_env, daemon.guest.image_environ, daemon.accounts)
        found: PreparedStart | StartRefusal
        if wanted.may_block:
            found = await daemon.tools.run_in_thread(resolve_start, *arguments)
        else:
            found = resolve_start(*arguments)
        if isinstance(found, PreparedStart):
            return found
        if isinstance(found, resolution.Malformed):
            raise malformed("shell must not be an empty string")
        raise refuse(400, _UNKNOWN[type(found)], f"there is no {found.value!r} here")

    def _spawn(self, asked: shapes.StartRequest, prepared: PreparedStart) -> Exec:
        argv = tuple(asked.command)
        if prepared.shell is not None:
            argv = (prepared.shell, "-c", "\n".join(argv))

        def run() -> Job:
            if prepared.fault is not None:
                raise SpawnFailed(f"{asked.cwd}: {prepared.fault.strerror}")
            credentials = Credentials(prepared.uid, prepared.gid, prepared.groups)
            return Job(
                self._daemon.tools,
                self._daemon.limits,
                Plan(argv, prepared.environment, prepared.cwd, asked.stdin, credentials),
                timeout=asked.timeout_sec,
                reap_group=asked.reap_group_on_exit,
                digest=asked.digest,
            )

        try:
            return self._daemon.execs.start(asked.exec_id, run, asked.reap_group_on_exit)
        except SpawnFailed as reason:
            raise refuse(500, "spawn_failed", str(reason)) from None

    # -- poll ------------------------------------------------------------------------------------------

    async def poll(self, request: AgentRequest, id: str) -> Answer:
        """``GET /v1/exec/{id}``. Changes nothing."""
        entry = self._find(id)
        wait = self._wait(request)
        if wait is None:
            return await self._state(entry)
        return await self._hold(request, entry, wait)

    def _wait(self, request: AgentRequest) -> float | None:
        lines = request.requestHeaders.getRawHeaders(b"prefer")
        return prefer.wait_seconds(lines, self._daemon.config.max_wait_secs) if lines else None

    async def _hold(self, request: AgentRequest, entry: Exec, seconds: float) -> Answer:
        """The poll answer, once the result is published or `seconds` have passed (RFC 7240 4.3)."""
        published = entry.job.when_published()
        if not published.called and seconds > 0:
            await _at_most(published, seconds, self._daemon.clock)
        answer = await self._state(entry)
        return Response(
            answer.status, answer.body, answer.content_type, (*answer.headers, prefer.applied(seconds))
        )

    async def _state(self, entry: Exec) -> Response:
        entry.record, shown = execs.poll(entry.record)
        if not shown:
            return as_json(shapes.PollResponse(entry.exec_id, entry.record.phase))
        return await self._outcome(entry)

    async def _outcome(self, entry: Exec) -> Response:
        """The poll shape with the outcome and output as they are now."""
        job, outcome = entry.job, entry.job.outcome
        assert outcome is not None
        phase = entry.record.phase
        stdout, stderr = job.output.head(STDOUT), job.output.head(STDERR)

        def encode() -> Response:
            return as_json(
                shapes.PollResponse(
                    exec_id=entry.exec_id,
                    phase=phase,
                    exit_code=outcome.exit_code,
                    signal=outcome.signal,
                    timed_out=outcome.timed_out,
                    stdout=stdout.decode("utf-8", "replace"),
                    stderr=stderr.decode("utf-8", "replace"),
                    truncated=job.output.truncated,
                    writers_may_be_alive=outcome.writers_may_be_alive,
                    cause=outcome.cause,
                    usage=usage(outcome),
                )
            )

        if len(stdout) + len(stderr) <= LARGE_OUTPUT:
            return encode()
        response: Response = await self._daemon.tools.run_in_thread(encode)
        return response

    def _find(self, exec_id: str) -> Exec:
        entry = self._daemon.execs.get(exec_id)
        if entry is None:
            raise unknown(exec_id)
        return entry

    # -- stdin, ack, kill, procs -------------------------------------------------------------------------

    async def stdin(self, request: AgentRequest, id: str) -> Answer:
        """``POST /v1/exec/{id}/stdin``. The order of checks is the contract's (a.5)."""
        cap = self._daemon.config.max_stdin_write_bytes
        asked: shapes.StdinRequest = await read_json(
            request, STDIN, max(self._daemon.config.max_json_bytes, 2 * cap)
        )
        job = self._find(id).job
        data, size = _decode(asked.data_b64)
        refusal = job.judge_stdin(asked.signal, size, cap)
        if refusal is not None:
            status, detail = _STDIN_STATUS[refusal]
            raise refuse(status, refusal.value, detail)
        eof = asked.signal is not None
        # The write belongs to the job: a caller that leaves does not take half of it along.
        written = await shielded(job.write_stdin(data, eof))
        if written.result is not Result.WRITTEN:
            status, slug, detail = _WRITE_STATUS[written.result]
            raise Refused(as_json(WriteProblem(slug, detail, written.accepted), status))
        return as_json(shapes.StdinResponse(id, len(data), eof))

    async def ack(self, request: AgentRequest, id: str) -> Answer:
        """``POST /v1/exec/{id}/ack``."""
        entry, verdict = self._daemon.execs.ack(id)
        if verdict is Ack.UNKNOWN or entry is None:
            raise unknown(id)
        if verdict is not Ack.RELEASED:
            text = "has not exited" if verdict is Ack.STILL_RUNNING else "was acknowledged before"
            raise refuse(409, verdict.value, f"{id} {text}")
        answering = self._outcome(entry)
        try:
            return await answering
        finally:
            entry.job.output.release_head()

    async def kill(self, request: AgentRequest, id: str) -> Answer:
        """``POST /v1/exec/{id}/kill``. Answers when the escalation is over."""
        killed = await self._find(id).job.kill()
        return as_json(shapes.KillResponse(id, killed))

    async def procs(self, request: AgentRequest) -> Answer:
        """``GET /v1/procs``."""
        entries = list(self._daemon.execs)
        members = await self._daemon.groups.members([entry.job.pgid for entry in entries])
        return as_json(
            shapes.ProcsResponse(
                [
                    shapes.ProcGroup(
                        exec_id=entry.exec_id,
                        pgid=entry.job.pgid,
                        started_at=entry.started_at,
                        child_exited=entry.job.published,
                        reap=entry.reap,
                        pids=members.get(entry.job.pgid, []) if entry.job.owns_group else [],
                    )
                    for entry in entries
                ]
            )
        )


def unknown(exec_id: str) -> Refused:
    """404: no exec of that id. The detail is the id."""
    return Refused(problem(404, "unknown_exec", exec_id))


def _decode(data_b64: str | None) -> tuple[bytes, int | None]:
    """The bytes of a stdin request and how many they are; None when they are not base64."""
    if data_b64 is None:
        return b"", 0
    try:
        data = base64.b64decode(data_b64, validate=True)
    except (binascii.Error, ValueError):
        return b"", None
    # The decoder takes more padding than there should be, and bits that belong to no byte; the contract does not.
    return (data, len(data)) if base64.b64encode(data) == data_b64.encode() else (b"", None)


async def _at_most(waited: "Deferred[Outcome]", seconds: float, clock: object) -> None:
    """Wait for `waited`, `seconds` at the longest; then it is cancelled."""
    waited.addTimeout(seconds, clock, onTimeoutCancel=lambda result, _: None)  # type: ignore[arg-type]
    await waited

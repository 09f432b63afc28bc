"""Commands on this machine for the worker: in the foreground to their end, and background jobs by id.

`agentd.rules.jobs` decides who may start, what a kill does and who is forgotten; `agentd.process.job` supervises each
child. What is kept of an output are its first bytes, counted one further than is shown, which tells whether there was
more; the rest is read and dropped, so that a child neither blocks nor gets SIGPIPE (reference B1).
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final
from uuid import uuid4

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from agentd.process.job import Job, JobLimits, JobTools, Outcome
from agentd.process.output import STDERR, STDOUT, Output
from agentd.process.spawn import Plan
from agentd.rules import jobs as rules
from agentd.rules.jobs import Kill, Status, Table
from agentd.worker.settings import Settings

_log = Logger()

LINGER_SECS: Final = 10.0
"""How long after a child's exit its pipes are read while something else holds them (reference B1)."""
FOREVER: Final = 1e9
"""Seconds that a child may take to read its stdin: its own timeout comes first."""
STOP_SECS: Final = 3.0
"""How long a stopping worker waits for the end of what it killed (reference B1)."""
MOST_RECORDS: Final = 4096
"""Ended jobs that are kept at most, however young."""
KEPT_BYTES: Final = 256 * 1024 * 1024
"""Output of ended jobs that is kept at most, of all together; the newest job's stays in any case."""
LARGE_OUTPUT: Final = 256 * 1024
"""Output from which on it is decoded on a pool thread, in bytes."""


@frozen
class Command:
    """What to run, judged already."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(factory=dict, repr=False)
    """On top of what the settings pass on."""
    cwd: str | None = None
    stdin: str | None = field(default=None, repr=False)


@frozen
class Text:
    """What is kept of an output stream."""

    text: str = field(default="", repr=False)
    truncated: bool = False


@frozen
class Ended:
    """A command in the foreground, at its end."""

    exit_code: int | None
    timed_out: bool
    stdout: Text
    stderr: Text
    duration_ms: int


@frozen
class Record:
    """A job, as it is now."""

    job: rules.Job
    argv: tuple[str, ...]
    stdout: Text
    stderr: Text


@frozen
class Killed:
    """What became of a request to kill a job."""

    verdict: Kill
    status: Status
    sandbox: bool
    """The job runs in a sandbox, where it goes on until its own timeout."""


@frozen
class _Kept:
    """The first bytes of a stream, and whether there were more."""

    data: bytes = field(default=b"", repr=False)
    truncated: bool = False

    def text(self) -> Text:
        return Text(self.data.decode("utf-8", "replace"), self.truncated)


@define(eq=False)
class _Entry:
    """Beside a job's record: what runs it, and what it wrote once that is complete."""

    argv: tuple[str, ...]
    job: Job | None = None
    call: "Deferred[None] | None" = None
    stdout: _Kept = _Kept()
    stderr: _Kept = _Kept()


class TooManyJobs(Exception):
    """The cap on running jobs is reached."""

    def __init__(self, running: int, cap: int) -> None:
        super().__init__(f"max concurrent jobs reached: {running} running, {cap} allowed")


class JobRunner:
    """Runs commands. `settings` gives the live settings, `environ` is the worker's own environment."""

    def __init__(
        self,
        tools: JobTools,
        wall_clock: Callable[[], float],
        environ: Mapping[str, str],
        settings: Callable[[], Settings],
    ) -> None:
        self._tools = tools
        self._wall_clock = wall_clock
        self._environ = dict(environ)
        self._settings = settings
        self._table = Table()
        self._entries: dict[str, _Entry] = {}
        self._running: set[Job] = set()
        self._sweeper: Any = None
        self._stopped = False

    # -- in the foreground -------------------------------------------------------------------------------

    async def run(self, settings: Settings, command: Command, timeout_ms: int) -> Ended:
        """Run to the end, or `timeout_ms` at most. A caller who leaves takes the command along.

        Raises `agentd.process.spawn.SpawnFailed`.
        """
        started = self._tools.clock.seconds()
        job = self._spawn(settings, command, timeout_ms / 1000)
        try:
            outcome = await job.when_published()
        except CancelledError:
            job.kill()
            raise
        milliseconds = int((self._tools.clock.seconds() - started) * 1000)
        stdout, stderr = _kept(job, outcome, settings.max_output_bytes)
        return Ended(
            None if outcome.timed_out else outcome.exit_code,
            outcome.timed_out,
            *await self._texts(stdout, stderr),
            milliseconds,
        )

    def _spawn(self, settings: Settings, command: Command, timeout: float | None) -> Job:
        """The running child. Raises `SpawnFailed`."""
        plan = Plan(
            command.argv,
            {**self.environment(settings), **command.env},
            command.cwd or settings.working_dir,
            command.stdin is not None,
            stdin_timeout=FOREVER,
        )
        cap = settings.max_output_bytes + 1
        limits = JobLimits(
            max_output_bytes=cap,
            stream_buffer_bytes=0,
            output_linger_secs=LINGER_SECS,
            kill_grace_secs=None,
            drain_for_ever=True,
        )
        job = Job(self._tools, limits, plan, timeout=timeout, output=Output(cap, 0))
        self._running.add(job)
        job.when_published().addCallback(self._over, job)
        if command.stdin is not None:
            # What the command does not read is its own affair.
            Deferred.fromCoroutine(job.write_stdin(command.stdin.encode("utf-8", "replace"), True))
        return job

    def _over(self, outcome: Outcome, job: Job) -> None:
        self._running.discard(job)
        job.forget()

    def environment(self, settings: Settings) -> Mapping[str, str]:
        """The variables that commands get from the worker."""
        if settings.env.inherit:
            return self._environ
        return {name: self._environ[name] for name in settings.env.allow if name in self._environ}

    async def _texts(self, stdout: _Kept, stderr: _Kept) -> tuple[Text, Text]:
        if len(stdout.data) + len(stderr.data) < LARGE_OUTPUT:
            return stdout.text(), stderr.text()
        texts: tuple[Text, Text] = await self._tools.run_in_thread(lambda: (stdout.text(), stderr.text()))
        return texts

    # -- in the background -------------------------------------------------------------------------------

    def start(self, settings: Settings, command: Command) -> str:
        """The id of a new job. Raises `TooManyJobs` and `SpawnFailed`."""
        self._reserve(settings)
        cap = settings.max_bg_timeout_ms
        try:
            job = self._spawn(settings, command, cap / 1000 if cap else None)
        except BaseException:
            self._table = rules.abandoned(self._table)
            raise
        id = self._enter(_Entry(command.argv, job=job))
        job.when_published().addCallback(self._published, id, job, settings)
        return id

    def start_call(
        self, settings: Settings, argv: tuple[str, ...], call: Callable[[], Coroutine[Any, Any, Ended]]
    ) -> str:
        """The id of a new job that another worker runs. Raises `TooManyJobs`."""
        self._reserve(settings)
        entry = _Entry(argv)
        id = self._enter(entry)
        entry.call = Deferred.fromCoroutine(call()).addCallbacks(
            self._answered, self._failed, callbackArgs=(id,), errbackArgs=(id,)
        )
        return id

    def _reserve(self, settings: Settings) -> None:
        self._table, free = rules.reserve(self._table, settings.max_concurrent_jobs)
        if not free:
            raise TooManyJobs(rules.running(self._table), settings.max_concurrent_jobs)

    def _enter(self, entry: _Entry) -> str:
        id = f"job-{uuid4()}"
        self._entries[id] = entry
        self._table = rules.spawned(self._table, id, self._now())
        self._schedule()
        return id

    def _published(self, outcome: Outcome, id: str, job: Job, settings: Settings) -> None:
        stdout, stderr = _kept(job, outcome, settings.max_output_bytes)
        if outcome.timed_out:
            note = f"\nkilled: it ran longer than max_bg_timeout_ms = {settings.max_bg_timeout_ms} ms\n"
            stderr = _Kept(stderr.data + note.encode(), stderr.truncated)
        self._finish(id, outcome.exit_code, outcome.timed_out, stdout, stderr)

    def _answered(self, ended: Ended, id: str) -> None:
        out, err = ended.stdout, ended.stderr
        self._finish(
            id,
            ended.exit_code,
            ended.timed_out,
            _Kept(out.text.encode("utf-8", "replace"), out.truncated),
            _Kept(err.text.encode("utf-8", "replace"), err.truncated),
        )

    def _failed(self, reason: Failure, id: str) -> None:
        text = "" if reason.check(CancelledError) else f"{reason.value}\n"
        self._finish(id, None, False, _Kept(), _Kept(text.encode("utf-8", "replace")))

    def _finish(self, id: str, exit_code: int | None, capped: bool, stdout: _Kept, stderr: _Kept) -> None:
        self._table = rules.finished(self._table, id, exit_code, capped, self._now())
        entry = self._entries.get(id)
        if entry is not None:
            entry.job = None
            entry.stdout, entry.stderr = stdout, stderr
        self.sweep()

    async def record(self, id: str) -> Record | None:
        """The job of that id, with its output once it is complete."""
        job = rules.find(self._table, id)
        if job is None:
            return None
        entry = self._entries[id]
        return Record(job, entry.argv, *await self._texts(entry.stdout, entry.stderr))

    def list(self) -> list[tuple[rules.Job, bool, bool]]:
        """Every job, and whether its stdout and its stderr are truncated."""
        self.sweep()
        found = []
        for job in self._table.jobs:
            entry = self._entries[job.id]
            found.append((job, entry.stdout.truncated, entry.stderr.truncated))
        return found

    def kill(self, id: str) -> Killed | None:
        """End a job; None for one that is not known."""
        self._table, verdict = rules.kill(self._table, id, self._now())
        job = rules.find(self._table, id)
        if job is None:
            return None
        entry = self._entries[id]
        if verdict is Kill.KILLED and entry.job is not None:
            entry.job.kill()
        return Killed(verdict, job.status, entry.call is not None)

    # -- time ---------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return int(self._wall_clock() * 1000)

    def _schedule(self) -> None:
        if self._sweeper is None and self._table.jobs and not self._stopped:
            pause = rules.sweep_pause(self._settings().job_retention_secs)
            self._sweeper = self._tools.clock.callLater(pause, self._swept)

    def _swept(self) -> None:
        self._sweeper = None
        self.sweep()
        self._schedule()

    def sweep(self) -> None:
        """Forget what is old, or too much."""
        retention = self._settings().job_retention_secs * 1000
        self._table = rules.sweep(self._table, self._now(), retention, self._most())
        if len(self._table.jobs) < len(self._entries):
            known = {job.id for job in self._table.jobs}
            self._entries = {id: entry for id, entry in self._entries.items() if id in known}

    def _most(self) -> int:
        """How many ended jobs can be kept: the newest whose output fits."""
        left = KEPT_BYTES
        most = 0
        for job in reversed(self._table.jobs):
            if job.finished_ms is None:
                continue
            entry = self._entries[job.id]
            left -= len(entry.stdout.data) + len(entry.stderr.data)
            if most and (left < 0 or most >= MOST_RECORDS):
                break
            most += 1
        return most

    def stop(self) -> "Deferred[Any]":
        """Kill everything that runs here; fires when it has ended, or after 3 s."""
        self._stopped = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for entry in list(self._entries.values()):
            if entry.call is not None:
                entry.call.cancel()
        running = list(self._running)
        for job in running:
            job.kill()
        ended = DeferredList([job.when_published() for job in running])
        ended.addTimeout(STOP_SECS, self._tools.clock, onTimeoutCancel=lambda result, _: [])
        return ended


def _kept(job: Job, outcome: Outcome, cap: int) -> tuple[_Kept, _Kept]:
    """What is shown of a job's output. One byte more than that was kept, to tell whether there was more."""
    kept = []
    for stream in (STDOUT, STDERR):
        data = job.output.head(stream)
        kept.append(_Kept(data[:cap], len(data) > cap or outcome.writers_may_be_alive))
    job.output.release_head()
    return kept[0], kept[1]

"""``POST /exec``: run a command to its end and answer with what it wrote (environments 3)."""

from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList

from agentd.environments import answers, reading, shapes
from agentd.environments.account import Identity
from agentd.environments.admission import admit
from agentd.environments.answers import Slug
from agentd.environments.context import Environment
from agentd.environments.start import AgentJob, Request, check, exit_of, start
from agentd.http.messages import Answer, Response, as_json
from agentd.http.request import AgentRequest
from agentd.http.shield import shielded
from agentd.process.job import Outcome
from agentd.process.output import STDERR, STDOUT, Output
from agentd.rules.utf8 import decoded

LARGE_OUTPUT: Final = 256 * 1024
"""Output from which on the answer is made on a pool thread, in bytes."""


class ExecRoute:
    """The handler, and the commands that run for it now."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._running: set[AgentJob] = set()

    async def exec(self, request: AgentRequest, id: str) -> Answer:
        """Answers when the command has exited and its output has been read, or 30 s after a timeout at the latest."""
        environment = self._environment
        limits = environment.limits
        identity = await admit(environment, id)
        asked = await reading.read_json(
            request, shapes.ExecRequest, limits.json, environment.tools.run_in_thread
        )
        wanted = check(asked, limits.default_timeout, 1, limits.max_timeout)
        # A caller that leaves does not take the command along.
        job = await shielded(self._start(identity, wanted, asked.stdin))
        outcome = await self._published(job, wanted.timeout + limits.exec_grace)
        if outcome is None:
            raise answers.refuse(503, Slug.EXEC_TIMEOUT, "the process did not end after its timeout")
        return await self._answer(job, outcome)

    async def _start(self, identity: Identity, wanted: Request, stdin: str | None) -> AgentJob:
        # One byte more than is shown tells whether there was one.
        output = Output(self._environment.limits.output_cap + 1, 0)
        job, _ = await start(self._environment, identity, wanted, stdin is not None, output)
        self._running.add(job)
        job.when_published().addCallback(self._over, job)
        if stdin is not None:
            # What the command does not read is its own affair.
            Deferred.fromCoroutine(job.write_stdin(stdin.encode(), True))
        return job

    def _over(self, outcome: Outcome, job: AgentJob) -> None:
        self._running.discard(job)
        job.forget()

    async def _published(self, job: AgentJob, seconds: float) -> Outcome | None:
        waiting: Deferred[Outcome | None] = job.when_published()  # type: ignore[assignment]  # invariance
        waiting.addTimeout(seconds, self._environment.clock, onTimeoutCancel=lambda result, _: None)
        return await waiting

    async def _answer(self, job: AgentJob, outcome: Outcome) -> Response:
        cap = self._environment.limits.output_cap
        stdout, stderr = job.output.head(STDOUT), job.output.head(STDERR)
        job.output.release_head()
        ended = exit_of(outcome)
        milliseconds = int(job.seconds * 1000)

        def encode() -> Response:
            return as_json(
                shapes.ExecResult(
                    exit_code=ended.exit_code,
                    signal=ended.signal,
                    timed_out=ended.timed_out,
                    stdout=decoded(stdout[:cap], len(stdout) > cap),
                    stderr=decoded(stderr[:cap], len(stderr) > cap),
                    stdout_truncated=len(stdout) > cap,
                    stderr_truncated=len(stderr) > cap,
                    duration_ms=milliseconds,
                )
            )

        if len(stdout) + len(stderr) < LARGE_OUTPUT:
            return encode()
        response: Response = await self._environment.tools.run_in_thread(encode)
        return response

    def stop(self) -> "Deferred[Any]":
        """The daemon stops: what runs is killed, and its callers are answered; fires when all has ended."""
        running = list(self._running)
        for job in running:
            job.kill()
        return DeferredList([job.when_published() for job in running])

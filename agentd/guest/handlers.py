"""Running a workload's handler for a lifecycle hook (contract g.4).

The image may carry ``<hooks dir>/<hook>``, an executable that runs before the hook is answered, so that a workload
can, say, close its connections before a suspend. One runs at a time in the whole daemon; its budget ends with
SIGKILL to its group, because the platform's own clock is ticking; whatever happens, the hook is answered 200. What
it printed goes to the log, first bytes only, and never to a caller.
"""

import os
import signal
import stat
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from agentd.config import HANDLER_OUTPUT_BYTES
from agentd.process.job import Job, JobLimits, JobTools
from agentd.process.output import STDERR, STDOUT
from agentd.process.spawn import Plan, SpawnFailed
from agentd.rules.hooks import Hook

_log = Logger()
_LIMITS = JobLimits(
    max_output_bytes=HANDLER_OUTPUT_BYTES,
    stream_buffer_bytes=0,
    # A child the handler left behind may hold its pipes; the hook's answer must not wait for that.
    output_linger_secs=0.25,
    kill_grace_secs=0.0,
)


@frozen
class HandlerResult:
    """What one handler did, as health shows it."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_ms: int
    error: str | None = None


def _fault(path: str) -> str | None:
    """Why `path` cannot be run; "" when there is no handler at all. Runs on a pool thread."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    if not found.st_mode & 0o111:
        return "not executable"
    return None


class HandlerRunner:
    """Runs handlers, one at a time."""

    def __init__(self, tools: JobTools, directory: str, budget: float, environ: Mapping[str, str]) -> None:
        self._tools = tools
        self._directory = directory
        self._budget = budget
        self._environ = environ
        self._turn = DeferredLock()

    async def run(self, hook: Hook, launch_env: Mapping[str, str]) -> HandlerResult | None:
        """Run the handler of `hook` if the image has one; None when it has none."""
        path = os.path.join(self._directory, hook.value)
        fault = await self._tools.run_in_thread(_fault, path)
        if fault == "":
            return None
        if fault is not None:
            return HandlerResult(None, None, False, 0, fault)
        await self._turn.acquire()
        try:
            return await self._run(hook, path, launch_env)
        finally:
            self._turn.release()

    async def _run(self, hook: Hook, path: str, launch_env: Mapping[str, str]) -> HandlerResult:
        clock: Any = self._tools.clock
        started = clock.seconds()
        env = {**self._environ, **launch_env, "AGENTD_HOOK": hook.value}
        try:
            job = Job(self._tools, _LIMITS, Plan((path,), env, cwd="/"))
        except SpawnFailed as reason:
            return HandlerResult(None, None, False, 0, f"spawn failed: {reason}")
        over = False

        def stop() -> None:
            nonlocal over
            if not job.exited:  # else it was in time, and only its output is still awaited
                over = True
                job.child.group.signal(signal.SIGKILL)

        timer = clock.callLater(self._budget, stop)
        outcome = await job.when_published()
        if timer.active():
            timer.cancel()
        job.forget()
        result = HandlerResult(
            outcome.exit_code, outcome.signal, over, int((clock.seconds() - started) * 1000)
        )
        _log.info(
            "handler of {hook} ended: exit {exit_code}, signal {signal}, {duration_ms} ms",
            hook=hook.value,
            exit_code=result.exit_code,
            signal=result.signal,
            timed_out=result.timed_out,
            duration_ms=result.duration_ms,
            stdout=job.output.head(STDOUT).decode("utf-8", "replace"),
            stderr=job.output.head(STDERR).decode("utf-8", "replace"),
        )
        return result

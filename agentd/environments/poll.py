"""One long poll: it waits for a change of a log without a thread, and for no longer than it may (environments 7.3)."""

from typing import Any

from twisted.internet.defer import Deferred

from agentd.environments.limits import Limits
from agentd.environments.table import Process
from agentd.rules import processes
from agentd.rules.processes import Poll, Verdict


class LongPoll:
    """Waits at `poll`; `result` fires with ANSWER or NOT_FOUND. Cancelling it leaves nothing behind."""

    def __init__(self, process: Process, poll: Poll, seconds: float, clock: Any, limits: Limits) -> None:
        self._process = process
        self._poll = poll
        self._clock = clock
        self._limits = limits
        self.result: Deferred[Verdict] = Deferred(self._cancelled)
        self._timer = clock.callLater(seconds, self._expired)
        process.waiters.add(self)
        process.log.watch(self._changed)

    def _changed(self) -> None:
        self._poll, verdict = processes.changed(self._poll, self._process.log.span, self._limits.reply)
        if verdict is Verdict.COLLECT:
            self._timer.cancel()
            self._timer = self._clock.callLater(self._limits.collect, self._expired)
        elif verdict is Verdict.ANSWER:
            # In a turn of its own: whoever wrote is not kept waiting by a thousand readers.
            self._timer.cancel()
            self._timer = self._clock.callLater(0, self._finish, verdict)

    def _expired(self) -> None:
        self._decided(*processes.expired(self._poll))

    def forgotten(self) -> None:
        """The process was deleted."""
        self._decided(*processes.forgotten(self._poll))

    def stop(self) -> None:
        """The daemon stops: answer with what there is."""
        self._decided(*processes.expired(self._poll))

    def _decided(self, poll: Poll, verdict: Verdict) -> None:
        self._poll = poll
        if verdict is not Verdict.WAIT:
            self._finish(verdict)

    def _finish(self, verdict: Verdict) -> None:
        self._leave()
        self.result.callback(verdict)

    def _leave(self) -> None:
        if self._timer.active():
            self._timer.cancel()
        self._process.waiters.discard(self)
        self._process.log.unwatch(self._changed)

    def _cancelled(self, _: "Deferred[Verdict]") -> None:
        self._leave()

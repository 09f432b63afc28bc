"""One supervised child: spawn, output, deadline, kill, linger, published outcome.

`agentd.rules.supervision` decides; this module does what it says. It is the `ProcessProtocol` of the child and
knows its process group. Whoever started a job (an exec, an environment process, a worker's job, a hook
handler) holds no timer and reads no pipe of its own.
"""

from collections.abc import Callable
from signal import SIGKILL
from typing import Any, ClassVar

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from agentd.process import escalation
from agentd.process.digest import StreamDigest
from agentd.process.groups import RunInThread
from agentd.process.output import STDERR, STDOUT, Output
from agentd.process.spawn import Child, Plan, Spawner
from agentd.rules import stdin as stdin_rules
from agentd.rules import supervision
from agentd.rules.stdin import Refusal, Stdin, Written
from agentd.rules.supervision import Action, Cause, Event, Supervision

_log = Logger()


@frozen
class Usage:
    """What the child, and the descendants it waited for, used (getrusage(2))."""

    user_seconds: float
    system_seconds: float
    max_rss_bytes: int
    """The peak of the largest of them. A child begins as an image of the daemon, and Linux counts that: it is never
    less than what the daemon itself held at the spawn."""


@frozen
class Outcome:
    """How a job ended."""

    exit_code: int | None
    """None when a signal ended it, or, with `signal` None too, when somebody else took its status."""
    signal: int | None
    timed_out: bool
    writers_may_be_alive: bool
    """Something still held the pipes when the linger ran out; what it writes later is lost."""
    cause: Cause
    usage: Usage | None


@frozen
class JobLimits:
    """Bytes and seconds; see `agentd.config.Config` for what each is."""

    max_output_bytes: int
    stream_buffer_bytes: int
    output_linger_secs: float
    kill_grace_secs: float | None
    """None: KILL at once, without a TERM."""
    output_quiet_secs: float | None = None
    """The linger is also over when nothing came for so long."""
    drain_for_ever: bool = False
    """Pipes that outlive the linger are read on and dropped, instead of closed: who writes to them may live."""


@frozen
class JobTools:
    """What every job needs of the world."""

    clock: Any
    """`IReactorTime` on the monotonic clock."""
    spawner: Spawner
    run_in_thread: RunInThread
    out_of_memory: Callable[[int], bool]
    """Whether the kernel killed this pid for lack of memory."""


class Job(ProcessProtocol):
    """A running or finished child. Raises `SpawnFailed` from the constructor when it cannot start."""

    def __init__(
        self,
        tools: JobTools,
        limits: JobLimits,
        plan: Plan,
        *,
        timeout: float | None = None,
        reap_group: bool = False,
        digest: bool = False,
        output: Output | None = None,
    ) -> None:
        self._tools = tools
        self._limits = limits
        self._state = Supervision(reap=reap_group)
        self._pipes_open = 2
        self._deadline: Any = None
        self._linger: Any = None
        self._quiet: Any = None
        self._received = 0
        self._escalation: Deferred[bool] | None = None
        self._waiting: list[Deferred[Outcome]] = []
        self._status: tuple[int | None, int | None] = (None, None)
        self._digest: StreamDigest | None = None
        self.stdin = Stdin.at_spawn(plan.stdin)
        self.output = output or Output(limits.max_output_bytes, limits.stream_buffer_bytes)
        self.outcome: Outcome | None = None
        self.sha256: str | None = None
        self.child: Child = tools.spawner(self, plan)
        self.pgid: int = self.child.group.pgid
        if digest:
            self._digest = StreamDigest(
                tools.run_in_thread, self.child.pause_output, self.child.resume_output
            )
        seconds = supervision.deadline(timeout)
        if seconds is not None:
            self._deadline = tools.clock.callLater(seconds, self._step, Event.DEADLINE)

    # -- what its owner asks ----------------------------------------------------------------------------

    @property
    def supervision(self) -> Supervision:
        """What the rules know of the child."""
        return self._state

    @property
    def published(self) -> bool:
        """Whether the outcome is known."""
        return self.outcome is not None

    @property
    def exited(self) -> bool:
        """Whether the child has exited; its output may still be coming in."""
        return self._state.exited

    @property
    def owns_group(self) -> bool:
        """Whether the group's number is still this job's, so that what is found under it may be shown."""
        return self.child.group.ours()

    def when_published(self) -> "Deferred[Outcome]":
        """The outcome, now or later. Cancelling it affects nobody else."""
        if self.outcome is not None:
            return succeed(self.outcome)
        done: Deferred[Outcome] = Deferred(self._waiting.remove)
        self._waiting.append(done)
        return done

    def kill(self) -> "Deferred[bool]":
        """Bring the group down; fires when that is over, with whether there was a group to signal."""
        self._step(Event.KILL)
        return self._when_escalated()

    def _when_escalated(self) -> "Deferred[bool]":
        answer: Deferred[bool] = Deferred()

        def pass_on(result: bool) -> bool:
            answer.callback(result)
            return result

        assert self._escalation is not None
        self._escalation.addCallback(pass_on)
        return answer

    def judge_stdin(self, signal: str | None, size: int | None, cap: int) -> Refusal | None:
        """`agentd.rules.stdin.judge` on this job's stdin."""
        return stdin_rules.judge(self.stdin, signal, size, cap)

    async def write_stdin(self, data: bytes, eof: bool) -> Written:
        """Write, then close if `eof`. Writes of one job are served in the order they were asked for."""
        # An empty write takes its turn too, so that an end of file never overtakes what was sent before it.
        written: Written = await self.child.write_stdin(data)
        self.stdin = stdin_rules.written(self.stdin, written.result, eof)
        if not self.stdin.open:
            self.child.close_stdin()
        return written

    def forget(self) -> None:
        """Nobody will ask about this job again."""
        self.child.group.release()

    # -- ProcessProtocol --------------------------------------------------------------------------------

    def childDataReceived(self, childFD: int, data: bytes | memoryview) -> None:
        """The child wrote. `data` may be a view that is good only for this call."""
        self._received += len(data)
        self.output.feed(STDOUT if childFD == 1 else STDERR, data)
        if self._quiet is not None:
            self._quiet.reset(self._limits.output_quiet_secs)
        if self._digest is not None:
            self._digest.update(bytes(data))

    def childConnectionLost(self, childFD: int) -> None:
        """One of the child's output pipes has ended."""
        self.output.end(STDOUT if childFD == 1 else STDERR)
        self._pipes_open -= 1
        if self._pipes_open == 0:
            self._step(Event.PIPES_ENDED)

    def processExited(self, reason: Failure) -> None:
        """The child has exited."""
        error = reason.value
        if self._state.exited:
            pass  # how it ended has been told
        elif isinstance(error, ProcessTerminated):
            self._status = (error.exitCode, error.signal)
        else:
            self._status = (0, None)
        self._step(Event.EXITED)

    # -- doing what the rules say -----------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        self._state, actions = supervision.step(self._state, event)
        for action in actions:
            self._actions[action](self)

    def _escalate(self) -> None:
        grace = self._limits.kill_grace_secs
        running = Deferred.fromCoroutine(escalation.bring_down(self.child.group, self._tools.clock, grace))
        self._escalation = running

        def ended(result: bool) -> bool:
            self._step(Event.ESCALATION_ENDED)
            return result

        def failed(reason: Failure) -> bool:
            # Whatever went wrong, nobody may wait for ever.
            _log.failure("bringing down process group {pgid} failed", reason, pgid=self.pgid)
            return False

        running.addErrback(failed).addCallback(ended)

    def _start_linger(self) -> None:
        self._linger = self._tools.clock.callLater(self._limits.output_linger_secs, self._linger_over)
        self._await_silence()

    def _await_silence(self) -> None:
        if self._limits.output_quiet_secs is not None:
            self._quiet = self._tools.clock.callLater(self._limits.output_quiet_secs, self._fell_silent)

    def _fell_silent(self) -> None:
        # The silence must be that of the pipes: a reactor that was busy has not heard what is in them.
        self._quiet = None
        heard = self._received
        self.child.read_rest()
        if self._state.published:
            return
        if self._received > heard:
            self._await_silence()
        else:
            self._step(Event.LINGER_EXPIRED)

    def _linger_over(self) -> None:
        # The reactor runs timers before it looks at descriptors, so after a stall (a VM that was paused) the end
        # of the pipes may have been there all along.
        self.child.read_rest()
        self._step(Event.LINGER_EXPIRED)

    def _stop_reading(self) -> None:
        if self._limits.drain_for_ever:
            self.child.discard_output()
        else:
            self.child.stop_output()

    def _cancel_timers(self) -> None:
        for timer in (self._deadline, self._linger, self._quiet):
            if timer is not None and timer.active():
                timer.cancel()
        self._deadline = self._linger = self._quiet = None

    def _publish(self) -> None:
        if self._digest is None:
            self._complete(None)
        else:
            self._digest.finish().addCallback(self._complete)

    def _complete(self, sha256: str | None) -> None:
        exit_code, signal = self._status
        killed_for_memory = signal == SIGKILL and self._tools.out_of_memory(self.child.pid)
        usage = self.child.usage
        self.sha256 = sha256
        self.outcome = Outcome(
            exit_code=exit_code,
            signal=signal,
            timed_out=self._state.timed_out,
            writers_may_be_alive=self._state.writers_may_be_alive,
            cause=supervision.cause(self._state, signal is not None, killed_for_memory),
            usage=usage and Usage(usage.ru_utime, usage.ru_stime, usage.ru_maxrss * 1024),
        )
        self.stdin = stdin_rules.closed(self.stdin)
        self.child.close_stdin()
        # Owners first, then streams: whoever hears the end of a stream finds the outcome in the record.
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(self.outcome)
        self.output.close()

    _actions: ClassVar[dict[Action, Callable[["Job"], None]]] = {
        Action.ESCALATE: _escalate,
        Action.START_LINGER: _start_linger,
        Action.STOP_READING: _stop_reading,
        Action.CANCEL_TIMERS: _cancel_timers,
        Action.PUBLISH: _publish,
    }

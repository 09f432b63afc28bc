"""Supervised children: real ones in every way they end, and scripted ones in every order of events."""

import gc
import hashlib
import os
import resource
import signal
import weakref
from itertools import permutations, product
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred, fail

from agentd.process.digest import HIGH_BYTES, LOW_BYTES, StreamDigest
from agentd.process.job import Job, JobTools, Outcome
from agentd.process.output import STDERR, STDOUT
from agentd.process.pipes import READ_BYTES
from agentd.process.spawn import Plan, SpawnFailed
from agentd.rules.stdin import Refusal, Result
from agentd.rules.supervision import Cause
from tests.process.support import (
    DEADLINE_SECS,
    LIMITS,
    Scene,
    limits,
    make_tools,
    pending,
    reactor,
    result_of,
    run,
    sh,
    soon,
    turn,
    until,
)


async def outcome(job: Job) -> Outcome:
    found = await soon(job.when_published())
    job.forget()
    return found


async def gone(job: Job) -> None:
    """Nobody lives in the job's group any more."""
    end = reactor.seconds() + DEADLINE_SECS
    while await soon(job.child.group.alive()):
        assert reactor.seconds() < end, "somebody of the group lives on"
        await turn()


TRAP = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done"
DEAF = "trap '' TERM; echo ready; while :; do sleep 0.02; done"


# -- how real children end -----------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_an_exit() -> None:
    job = run(sh("echo out; echo err >&2; exit 3"))
    assert (job.published, job.exited) == (False, False)
    found = await outcome(job)
    assert (found.exit_code, found.signal, found.cause) == (3, None, Cause.EXIT)
    assert (found.timed_out, found.writers_may_be_alive) == (False, False)
    assert found.usage is not None
    assert found.usage.max_rss_bytes > 0
    assert (job.output.head(STDOUT), job.output.head(STDERR)) == (b"out\n", b"err\n")
    assert (job.published, job.exited) == (True, True)
    await turn()  # owners hear before the streams do
    assert job.output.span.closed


@pytest_twisted.ensureDeferred
async def test_a_signal_of_its_own() -> None:
    found = await outcome(run(sh("kill -KILL $$")))
    assert (found.exit_code, found.signal, found.cause) == (None, signal.SIGKILL, Cause.SIGNAL)


@pytest_twisted.ensureDeferred
async def test_a_status_that_somebody_else_took() -> None:
    job = run(sh("exit 3"))
    os.waitpid(job.child.pid, 0)
    found = await outcome(job)
    assert (found.exit_code, found.signal, found.usage) == (None, None, None)


@pytest_twisted.ensureDeferred
async def test_a_deadline() -> None:
    job = run(sh("echo before; sleep 60"), timeout=0.2)
    found = await outcome(job)
    assert (found.signal, found.timed_out, found.cause) == (signal.SIGTERM, True, Cause.TIMEOUT)
    assert job.output.head(STDOUT) == b"before\n"
    await gone(job)


@pytest_twisted.ensureDeferred
async def test_a_deadline_that_the_child_answers_with_success_is_a_timeout_all_the_same() -> None:
    job = run(sh(TRAP), timeout=0.2)
    found = await outcome(job)
    assert (found.exit_code, found.signal) == (0, None)
    assert (found.timed_out, found.cause) == (True, Cause.TIMEOUT)


@pytest_twisted.ensureDeferred
async def test_a_deadline_that_the_child_ignores_ends_with_a_kill() -> None:
    job = run(sh(DEAF), timeout=0.2, limits=limits(kill_grace_secs=0.3))
    found = await outcome(job)
    assert (found.signal, found.timed_out, found.cause) == (signal.SIGKILL, True, Cause.TIMEOUT)
    await gone(job)


@pytest_twisted.ensureDeferred
async def test_a_deadline_takes_the_whole_group() -> None:
    job = run(sh("sleep 60 & sleep 60 & wait"), timeout=0.2)
    assert (await outcome(job)).timed_out
    await gone(job)


@pytest.mark.parametrize("seconds", [1e6, 9e18, 9.2e18, 1.8e19])
@pytest_twisted.ensureDeferred
async def test_a_deadline_far_away_disturbs_nobody(seconds: float) -> None:
    found = await outcome(run(sh("exit 4"), timeout=seconds))
    assert (found.exit_code, found.timed_out) == (4, False)


@pytest_twisted.ensureDeferred
async def test_a_kill() -> None:
    job = run(sh("sleep 60 & echo ready; sleep 60"))
    await until(lambda: job.output.head(STDOUT))
    assert await soon(job.kill()) is True
    await gone(job)
    found = await outcome(job)
    assert (found.signal, found.cause, found.timed_out) == (signal.SIGTERM, Cause.KILLED, False)


@pytest_twisted.ensureDeferred
async def test_a_kill_of_a_child_that_ignores_term_ends_after_the_grace() -> None:
    job = run(sh(DEAF), limits=limits(kill_grace_secs=0.3))
    await until(lambda: job.output.head(STDOUT))
    began = reactor.seconds()
    assert await soon(job.kill()) is True
    assert reactor.seconds() - began >= 0.3
    found = await outcome(job)
    assert (found.signal, found.cause) == (signal.SIGKILL, Cause.KILLED)


@pytest_twisted.ensureDeferred
async def test_a_kill_does_not_wait_longer_than_the_group_lives() -> None:
    """Ten seconds of grace, and an answer as soon as nobody lives."""
    job = run(sh(TRAP))
    await until(lambda: job.output.head(STDOUT))
    assert await soon(job.kill(), 5.0) is True
    found = await outcome(job)
    assert (found.exit_code, found.cause) == (0, Cause.KILLED)


@pytest_twisted.ensureDeferred
async def test_a_kill_of_a_group_whose_leader_has_exited() -> None:
    job = run(sh("sleep 60 & exit 6"))
    await until(lambda: job.exited)
    assert await soon(job.kill()) is True
    found = await outcome(job)
    assert (found.exit_code, found.cause) == (6, Cause.EXIT)
    assert not found.writers_may_be_alive  # the kill has freed the pipes
    await gone(job)


@pytest_twisted.ensureDeferred
async def test_a_kill_when_nobody_is_left() -> None:
    job = run(sh("exit 0"))
    await soon(job.when_published())
    assert await soon(job.kill()) is False
    assert await soon(job.kill()) is False
    job.forget()


@pytest_twisted.ensureDeferred
async def test_two_kills_at_once_are_one_escalation() -> None:
    job = run(sh(DEAF), limits=limits(kill_grace_secs=0.2))
    await until(lambda: job.output.head(STDOUT))
    first, second = job.kill(), job.kill()
    assert (await soon(first), await soon(second)) == (True, True)
    await outcome(job)


@pytest_twisted.ensureDeferred
async def test_a_kill_whose_caller_leaves_goes_on() -> None:
    job = run(sh(DEAF), limits=limits(kill_grace_secs=0.1))
    await until(lambda: job.output.head(STDOUT))
    leaving = job.kill()
    leaving.addErrback(lambda reason: None)
    leaving.cancel()
    assert (await outcome(job)).signal == signal.SIGKILL


@pytest_twisted.ensureDeferred
async def test_what_leaves_the_group_escapes_and_is_owned_up_to() -> None:
    script = "setsid sh -c 'echo $$; exec sleep 60' & read line"
    job = run(sh(script, stdin=True), limits=limits(output_linger_secs=0.2))
    escaped = int(await until(lambda: job.output.head(STDOUT)))
    try:
        await soon(job.kill())
        found = await outcome(job)
        assert found.writers_may_be_alive
        assert os.getpgid(escaped) == escaped
    finally:
        os.kill(escaped, signal.SIGKILL)


# -- the linger ----------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_a_background_writer_is_waited_for_and_then_given_up() -> None:
    job = run(
        sh("(while :; do echo more; sleep 0.02; done) & echo ok"), limits=limits(output_linger_secs=0.3)
    )
    found = await outcome(job)
    assert (found.exit_code, found.writers_may_be_alive) == (0, True)
    head = job.output.head(STDOUT)
    assert b"ok\n" in head
    assert head.count(b"more\n") > 1  # it was read as long as the linger lasted
    await gone(job)  # the writer met a broken pipe
    assert job.output.head(STDOUT) == head


@pytest_twisted.ensureDeferred
async def test_a_background_writer_that_ends_in_time() -> None:
    job = run(sh("(sleep 0.2; echo late) & echo ok"))
    found = await outcome(job)
    assert not found.writers_may_be_alive
    assert job.output.head(STDOUT) == b"ok\nlate\n"


@pytest_twisted.ensureDeferred
async def test_reap_takes_what_was_left_in_the_group() -> None:
    job = run(sh("sleep 60 & echo ok"), reap_group=True)
    found = await outcome(job)
    assert (found.exit_code, found.signal, found.cause) == (0, None, Cause.EXIT)
    assert not found.writers_may_be_alive
    await gone(job)


@pytest_twisted.ensureDeferred
async def test_what_the_reap_flushes_out_is_still_read() -> None:
    job = run(
        sh("(trap 'echo flushed; exit' TERM; echo up; while :; do sleep 0.02; done) & read line", stdin=True),
        reap_group=True,
    )
    await until(lambda: job.output.head(STDOUT) == b"up\n")
    await soon(job.write_stdin(b"\n", False))
    await outcome(job)
    assert job.output.head(STDOUT) == b"up\nflushed\n"


@pytest_twisted.ensureDeferred
async def test_reap_of_a_child_that_left_nobody_costs_nothing() -> None:
    found = await soon(run(sh("exit 2"), reap_group=True).when_published(), 5.0)
    assert found.exit_code == 2


# -- out of memory -------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_the_kernels_word_is_asked_for_kills_alone() -> None:
    asked: list[int] = []
    tools = make_tools(out_of_memory=lambda pid: asked.append(pid) or True)  # type: ignore[func-returns-value]
    assert (await outcome(run(sh("exit 137"), tools=tools))).cause is Cause.EXIT
    assert (await outcome(run(sh("kill -TERM $$"), tools=tools))).cause is Cause.SIGNAL
    job = run(sh("kill -KILL $$"), tools=tools)
    assert (await outcome(job)).cause is Cause.OUT_OF_MEMORY
    assert asked == [job.child.pid]


# -- stdin ---------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_stdin_reaches_the_child_and_ends() -> None:
    job = run(Plan(("/bin/cat",), {}, stdin=True))
    assert (await soon(job.write_stdin(b"hello ", False))).result is Result.WRITTEN
    assert (await soon(job.write_stdin(b"world", True))).result is Result.WRITTEN
    assert job.judge_stdin(None, 0, 10) is Refusal.CLOSED
    assert (await outcome(job)).exit_code == 0
    assert job.output.head(STDOUT) == b"hello world"


@pytest_twisted.ensureDeferred
async def test_an_end_never_overtakes_what_was_sent_before_it() -> None:
    data = os.urandom(600_000)
    job = run(Plan(("/usr/bin/sha256sum",), {}, stdin=True))
    pieces = [data[at : at + 100_000] for at in range(0, len(data), 100_000)]
    writes = [Deferred.fromCoroutine(job.write_stdin(piece, False)) for piece in pieces]
    end = Deferred.fromCoroutine(job.write_stdin(b"", True))
    late = Deferred.fromCoroutine(job.write_stdin(b"late", False))
    await until(lambda: not pending(late))
    assert {result_of(each).result for each in writes} == {Result.WRITTEN}
    assert (result_of(end).result, result_of(late).result) == (Result.WRITTEN, Result.BROKEN)
    await outcome(job)
    assert job.output.head(STDOUT).split()[0].decode() == hashlib.sha256(data).hexdigest()


@pytest_twisted.ensureDeferred
async def test_a_child_that_closed_its_stdin() -> None:
    job = run(sh("exec <&-; echo closed; sleep 60", stdin=True))
    await until(lambda: job.output.head(STDOUT))
    assert (await soon(job.write_stdin(b"x", False))).result is Result.BROKEN
    assert job.judge_stdin(None, 1, 10) is Refusal.CLOSED
    await soon(job.kill())
    await outcome(job)


@pytest_twisted.ensureDeferred
async def test_the_published_result_closes_stdin_for_whoever_inherited_it() -> None:
    job = run(sh("cat >/dev/null 2>&1 & exit 0", stdin=True))
    await outcome(job)
    assert job.judge_stdin(None, 0, 10) is Refusal.CLOSED
    await gone(job)


# -- the digest ----------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_the_digest_is_of_every_byte_in_the_order_of_reading() -> None:
    size = 32 << 20
    job = run(
        Plan(("/bin/dd", "if=/dev/urandom", f"count={size >> 16}", "bs=65536", "status=none"), {}),
        digest=True,
        limits=limits(max_output_bytes=size),
    )
    await outcome(job)
    assert len(job.output.head(STDOUT)) == size
    assert job.sha256 == hashlib.sha256(job.output.head(STDOUT)).hexdigest()


@pytest.mark.parametrize("script", ["true", "echo out; echo err >&2"])
@pytest_twisted.ensureDeferred
async def test_the_digest_of_little(script: str) -> None:
    job = run(sh(script), digest=True)
    await outcome(job)
    total = job.output.span.total
    published = b""
    while len(published) < total:
        published += job.output.piece(len(published), total)[1]
    assert job.sha256 == hashlib.sha256(published).hexdigest()


@pytest_twisted.ensureDeferred
async def test_without_being_asked_there_is_no_digest() -> None:
    job = run(sh("echo x"))
    await outcome(job)
    assert job.sha256 is None


class SlowPool:
    """A pool that works when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Deferred[Any], Any]] = []

    def __call__(self, function: Any, *args: Any) -> "Deferred[Any]":
        done: Deferred[Any] = Deferred()
        self.waiting.append((done, lambda: function(*args)))
        return done

    def work(self) -> None:
        done, function = self.waiting.pop(0)
        done.callback(function())


def test_what_waits_to_be_hashed_is_bounded_by_holding_back_the_child() -> None:
    pool, calls = SlowPool(), []
    digest = StreamDigest(pool, lambda: calls.append("pause"), lambda: calls.append("resume"))
    chunk, written = bytes(256 * 1024), 0
    while "pause" not in calls:
        digest.update(chunk)
        written += len(chunk)
    assert written <= HIGH_BYTES + len(chunk)
    assert len(pool.waiting) == 1  # one batch at a time, in order
    pool.work()
    assert calls == ["pause"]  # the rest of it still waits
    pool.work()
    assert calls == ["pause", "resume"]
    done = digest.finish()
    assert result_of(done) == hashlib.sha256(bytes(written)).hexdigest()
    assert LOW_BYTES < HIGH_BYTES


def test_the_end_waits_for_what_is_being_hashed() -> None:
    pool = SlowPool()
    digest = StreamDigest(pool, lambda: None, lambda: None)
    digest.update(b"a")
    digest.update(b"b")
    done = digest.finish()
    pool.work()
    assert pending(done)
    pool.work()
    assert result_of(done) == hashlib.sha256(b"ab").hexdigest()


@pytest_twisted.ensureDeferred
async def test_a_child_that_writes_faster_than_it_is_hashed_is_held_back() -> None:
    """Nothing but the child waits: what is in memory stays bounded however much it would write."""
    pool, tools = SlowPool(), make_tools()
    job = Job(
        JobTools(tools.clock, tools.spawner, pool, tools.out_of_memory),
        LIMITS,
        Plan(("/bin/dd", "if=/dev/zero", "bs=65536", "status=none"), {}),
        digest=True,
    )
    await until(lambda: job.output.span.total > HIGH_BYTES)
    for _ in range(20):
        await turn()
    held = job.output.span.total
    assert held <= HIGH_BYTES + READ_BYTES
    for _ in range(20):
        await turn()
    assert job.output.span.total == held
    pool.work()
    pool.work()
    await until(lambda: job.output.span.total > held)
    job.child.group.signal(signal.SIGKILL)
    await until(lambda: pool.waiting and (pool.work(), job.published)[1])
    assert job.sha256 == hashlib.sha256(bytes(job.output.span.total)).hexdigest()
    job.forget()


@pytest_twisted.ensureDeferred
async def test_a_result_with_a_digest_comes_when_the_digest_does() -> None:
    pool = SlowPool()
    scene = Scene()
    job = Job(
        JobTools(scene.clock, scene.tools.spawner, pool, lambda pid: False),
        LIMITS,
        Plan(("scripted",), {}),
        digest=True,
    )
    child = scene.children[0]
    child.write(b"x")
    child.end_pipes()
    child.exit()
    assert not job.published
    assert not job.output.span.closed
    pool.work()
    assert job.published
    assert job.sha256 == hashlib.sha256(b"x").hexdigest()


# -- much output ---------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_output_that_nobody_reads_is_drained_and_bounded() -> None:
    size = 64 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    job = run(
        Plan(("/bin/dd", "if=/dev/zero", f"count={size >> 18}", "bs=262144", "status=none"), {}),
        limits=limits(max_output_bytes=1 << 20),
    )
    assert (await outcome(job)).exit_code == 0
    assert job.output.span.total == size
    assert job.output.span.start == size - LIMITS.stream_buffer_bytes
    assert job.output.truncated
    assert job.output.head_size() == 1 << 20
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 16 << 20


@pytest_twisted.ensureDeferred
async def test_the_last_byte_needs_no_newline() -> None:
    job = run(Plan(("/usr/bin/printf", "abc"), {}))
    await outcome(job)
    assert job.output.head(STDOUT) == b"abc"


@pytest_twisted.ensureDeferred
async def test_two_hundred_at_once_keep_their_exits_and_outputs_apart() -> None:
    tools = make_tools()
    jobs = [run(sh(f"echo {number}; exit {number % 256}"), tools=tools) for number in range(200)]
    for number, job in enumerate(jobs):
        assert (await outcome(job)).exit_code == number % 256
        assert job.output.head(STDOUT) == b"%d\n" % number


# -- it keeps nothing ----------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_a_finished_job_is_freed_with_its_last_reference() -> None:
    """Not some time later, by the collector: there are megabytes in it."""
    gc.collect()
    gc.disable()
    try:
        job = run(sh("echo x; sleep 0.05 & exit 1"), timeout=60.0, digest=True)
        kept = weakref.ref(job)
        await outcome(job)
        await soon(job.kill())
        del job
        await turn()
        await turn()
        assert kept() is None
    finally:
        gc.enable()


def test_a_child_that_cannot_start_raises_and_leaves_no_timer() -> None:
    with pytest.raises(SpawnFailed):
        run(Plan(("/nope",), {}), timeout=5.0)


def test_secrets_of_the_environment_are_in_no_repr() -> None:
    plan = Plan(("x",), {"TOKEN": "very-secret"})
    assert "very-secret" not in repr(plan)


@pytest_twisted.ensureDeferred
async def test_whoever_stops_waiting_disturbs_nobody() -> None:
    job = run(sh("read line", stdin=True))
    first, second = job.when_published(), job.when_published()
    first.addErrback(lambda reason: None)
    first.cancel()
    await soon(job.write_stdin(b"", True))
    assert (await soon(second)).exit_code == 1
    assert result_of(job.when_published()) == job.outcome
    job.forget()


# -- every order of events, with a scripted child ------------------------------------------------------------------


def test_owners_hear_before_streams_do() -> None:
    """Whoever sees the end of a stream finds the outcome there."""
    scene = Scene()
    job, child = scene.job()
    heard: list[str] = []
    job.when_published().addCallback(lambda _: heard.append("owner"))
    job.output.watch(lambda: heard.append(f"stream, published {job.published}"))
    child.exit()
    child.end_pipes()
    assert heard == ["owner", "stream, published True"]


def test_the_linger_starts_at_the_exit_and_ends_on_time() -> None:
    scene = Scene()
    job, child = scene.job()
    scene.clock.advance(100.0)
    child.exit()
    scene.clock.advance(4.999)
    assert not job.published
    scene.clock.advance(0.001)
    assert job.outcome is not None
    assert job.outcome.writers_may_be_alive
    assert child.calls == ["read rest", "stop output", "close stdin"]
    assert scene.clock.getDelayedCalls() == []


def test_an_end_that_was_there_all_along_is_seen_at_the_end_of_the_linger() -> None:
    """A VM that was paused wakes with its timers due and its pipes unread."""
    scene = Scene()
    job, child = scene.job()
    child.exit()

    def rest() -> None:
        child.write(b"tail")
        child.end_pipes()

    child.rest = rest
    scene.clock.advance(5.0)
    assert job.outcome is not None
    assert not job.outcome.writers_may_be_alive
    assert job.output.head(STDOUT) == b"tail"
    assert "stop output" not in child.calls


def test_what_is_in_the_pipe_when_the_linger_ends_is_not_lost() -> None:
    scene = Scene()
    job, child = scene.job()
    child.exit()
    child.rest = lambda: child.write(b"tail")
    scene.clock.advance(5.0)
    assert job.outcome is not None
    assert job.outcome.writers_may_be_alive
    assert job.output.head(STDOUT) == b"tail"


def test_the_linger_starts_anew_after_the_escalation_of_a_deadline() -> None:
    scene = Scene()
    job, child = scene.job(timeout=3.0)
    scene.clock.advance(3.0)
    child.die(signal.SIGTERM)
    child.group.living = lambda: False
    scene.clock.pump([0.05] * 20)
    assert not job.published
    scene.clock.pump([0.05] * 100)
    assert job.outcome is not None
    assert job.outcome.timed_out


def test_an_escalation_that_goes_wrong_holds_nobody_up() -> None:
    scene = Scene()
    job, child = scene.job(reap_group=True)
    child.group.living = lambda: fail(RuntimeError("broken"))
    killing = job.kill()
    assert result_of(killing) is False
    child.exit()
    child.end_pipes()
    assert job.published


@pytest.mark.parametrize("reap", [False, True])
@pytest.mark.parametrize("timeout", [None, 2.0])
@pytest.mark.parametrize("order", list(permutations(["exit", "pipes", "kill", "time"])))
def test_every_order_publishes_once_and_leaves_no_timer(
    order: tuple[str, ...], timeout: float | None, reap: bool
) -> None:
    scene = Scene()
    job, child = scene.job(timeout=timeout, reap_group=reap)
    published: list[Outcome] = []
    job.when_published().addCallback(published.append)
    happen = {
        "exit": lambda: child.die(signal.SIGTERM),
        "pipes": child.end_pipes,
        "kill": job.kill,
        "time": lambda: scene.clock.advance(2.0),
    }
    for name in order:
        happen[name]()
        if not job.exited:
            assert published == []
    child.group.exists = False
    child.group.living = lambda: False
    scene.clock.pump([0.05] * 400)
    assert published == [job.outcome]
    assert scene.clock.getDelayedCalls() == []
    assert job.output.span.closed
    assert child.group.signals.count(signal.SIGTERM) <= 2
    job.forget()
    assert child.group.released


@pytest.mark.parametrize("results", list(product(Result, repeat=2)))
def test_stdin_follows_the_rules(results: tuple[Result, ...]) -> None:
    scene = Scene()
    job, child = scene.job(stdin=True)
    still_open = True
    for result in results:
        child.stdin_result = result
        assert result_of(Deferred.fromCoroutine(job.write_stdin(b"x", False))).result is result
        still_open = still_open and result is not Result.BROKEN
        assert job.stdin.open is still_open
    child.stdin_result = Result.WRITTEN
    result_of(Deferred.fromCoroutine(job.write_stdin(b"", True)))
    assert not job.stdin.open
    assert child.calls[-1] == "close stdin"

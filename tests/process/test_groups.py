"""Process groups that may have become somebody else's, and bringing one down (contract c.6)."""

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from agentd.linux import procfs
from agentd.process import escalation
from agentd.process.groups import Groups, KernelGroup
from tests.process.support import ScriptedGroup, make_groups, pending, result_of, soon


class Leader:
    """A child that leads a group, and helpers in it."""

    def __init__(self, script: str) -> None:
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f"{script}; read line"],
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pgid = self.process.pid

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def end(self) -> None:
        """End it, and take its status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)

    def clean(self) -> None:
        try:
            os.killpg(self.pgid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait(30)


@pytest.fixture
def leaders() -> Iterator[Any]:
    """Starts leaders, and ends their groups after the test."""
    started: list[Leader] = []

    def make(script: str = "true") -> Leader:
        started.append(Leader(script))
        return started[-1]

    yield make
    for leader in started:
        leader.clean()


def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Every signal that is sent from here on, instead of being sent."""
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda pgid, number: signals.append((pgid, number)))
    return signals


# -- is it still ours? -------------------------------------------------------------------------------------------


def test_a_living_group_is_signalled(leaders: Any) -> None:
    leader = leaders()
    group = make_groups().claim(leader.pgid)
    assert group.ours()
    assert group.signal(0)
    assert group.signal(signal.SIGKILL)
    leader.process.wait(30)
    assert leader.process.returncode == -signal.SIGKILL


def test_a_group_that_is_empty_when_its_leader_is_reaped_is_gone_for_good(
    leaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = leaders()
    group = make_groups().claim(leader.pgid)
    leader.end()
    group.leader_reaped()
    signals = sent(monkeypatch)  # from here on the number would find somebody
    assert not group.ours()
    assert not group.signal(signal.SIGTERM)
    assert signals == []


def test_a_group_that_outlives_its_leader_is_ours_until_it_is_found_empty() -> None:
    leader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, process_group=0)
    helper = subprocess.Popen(["sleep", "60"], process_group=leader.pid)
    group = make_groups().claim(leader.pid)
    leader.communicate(timeout=30)
    group.leader_reaped()
    assert group.ours()
    assert group.signal(signal.SIGKILL)
    os.waitid(os.P_PID, helper.pid, os.WEXITED | os.WNOWAIT)
    assert group.signal(0)  # the number is taken as long as the zombie is there
    assert group.ours()
    helper.wait(30)
    assert not group.signal(0)
    assert not group.ours()


def test_a_process_with_the_reaped_leaders_pid_is_somebody_elses(
    leaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = leaders()
    group = KernelGroup(stranger.pgid, make_groups())
    assert group.ours()  # as long as our leader has not been reaped it is our leader
    group.leader_reaped()
    signals = sent(monkeypatch)
    assert not group.ours()
    assert not group.signal(signal.SIGKILL)
    assert signals == []


def test_a_new_child_with_the_number_shows_that_the_old_group_is_gone(
    leaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = leaders()
    groups = make_groups()
    older = groups.claim(leader.pgid)
    newer = groups.claim(leader.pgid)
    signals = sent(monkeypatch)
    assert not older.signal(signal.SIGKILL)
    assert newer.signal(signal.SIGTERM)
    assert signals == [(leader.pgid, signal.SIGTERM)]


def test_a_forgotten_group_does_not_take_its_successor_along() -> None:
    groups = make_groups()
    older = groups.claim(4242)
    newer = groups.claim(4242)
    older.release()
    older.release()
    third = groups.claim(4242)
    assert newer._gone  # it was still known
    assert not third._gone
    third.release()
    assert groups._by_pgid == {}


def test_a_group_that_may_not_be_signalled_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(pgid: int, number: int) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "killpg", denied)
    group = KernelGroup(4242, make_groups())
    assert not group.signal(signal.SIGTERM)
    assert group.ours()


# -- does anybody in it live? ------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_alive_until_the_last_member_is_dead(leaders: Any) -> None:
    leader = leaders()
    group = make_groups().claim(leader.pgid)
    assert await soon(group.alive())
    os.killpg(leader.pgid, signal.SIGKILL)
    os.waitid(os.P_PID, leader.pgid, os.WEXITED | os.WNOWAIT)
    assert group.signal(0)  # the zombie is a member
    assert not await soon(group.alive())  # and does not live
    leader.end()
    assert not await soon(group.alive())


@pytest_twisted.ensureDeferred
async def test_a_group_that_cannot_be_looked_at_counts_as_alive(
    leaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of descriptors, say: an escalation must go on to its KILL, not stop half way."""

    def full(pgid: int) -> bool:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(procfs, "group_alive", full)
    assert await soon(make_groups().claim(leaders().pgid).alive())


@pytest_twisted.ensureDeferred
async def test_members_of_several_groups_from_one_look(leaders: Any) -> None:
    first, second = leaders("sleep 60 & echo $!"), leaders()
    helper = int(first.line())
    found = await soon(Groups(make_groups().run_in_thread).members([first.pgid, second.pgid, 999_999]))
    assert found == {first.pgid: [first.pgid, helper], second.pgid: [second.pgid], 999_999: []}


# -- bringing one down, on a virtual clock -----------------------------------------------------------------------


def bring_down(group: ScriptedGroup, clock: Clock, grace: float) -> "Deferred[bool]":
    return Deferred.fromCoroutine(escalation.bring_down(group, clock, grace))


def test_nobody_to_signal() -> None:
    group, clock = ScriptedGroup(), Clock()
    group.exists = False
    assert result_of(bring_down(group, clock, 10.0)) is False
    assert group.signals == [signal.SIGTERM]
    assert group.looks == 0


def test_gone_at_the_first_look() -> None:
    group, clock = ScriptedGroup(), Clock()
    group.living = lambda: False
    assert result_of(bring_down(group, clock, 10.0)) is True
    assert group.signals == [signal.SIGTERM]
    assert clock.getDelayedCalls() == []


def test_gone_during_the_grace() -> None:
    group, clock = ScriptedGroup(), Clock()
    group.living = lambda: clock.seconds() < 3.0
    done = bring_down(group, clock, 10.0)
    while pending(done):
        clock.advance(0.01)
    assert clock.seconds() == pytest.approx(3.0, abs=escalation.LOOK_SECS + 0.01)
    assert group.signals == [signal.SIGTERM]


def test_killed_exactly_when_the_grace_is_over() -> None:
    group, clock = ScriptedGroup(), Clock()
    done = bring_down(group, clock, 10.0)
    clock.pump([0.01] * 999)
    assert pending(done)
    assert group.signals == [signal.SIGTERM]
    clock.advance(0.02)
    assert result_of(done) is True
    assert group.signals == [signal.SIGTERM, signal.SIGKILL]
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize("grace", [0.0, 0.003, 0.04])
def test_a_grace_shorter_than_a_look(grace: float) -> None:
    group, clock = ScriptedGroup(), Clock()
    done = bring_down(group, clock, grace)
    for _ in range(50):
        if pending(done):
            clock.advance(0.001)
    assert result_of(done) is True
    assert group.signals == [signal.SIGTERM, signal.SIGKILL]
    assert clock.seconds() == pytest.approx(grace, abs=0.0011)


def test_looks_come_soon_and_then_every_fifty_milliseconds() -> None:
    group, clock = ScriptedGroup(), Clock()
    times: list[float] = []
    group.living = lambda: times.append(round(clock.seconds(), 3)) or True
    done = bring_down(group, clock, 1.0)
    while pending(done):
        clock.advance(0.001)
    assert times[:5] == [0.0, 0.005, 0.015, 0.035, 0.075]
    assert {round(after - before, 3) for before, after in pairwise(times[4:-1])} == {0.05}


def test_a_look_that_takes_its_time_is_waited_for() -> None:
    group, clock = ScriptedGroup(), Clock()
    look: Deferred[bool] = Deferred()
    group.living = lambda: look
    done = bring_down(group, clock, 1.0)
    clock.advance(5.0)
    assert pending(done)
    look.callback(True)
    assert result_of(done) is True  # the grace was over long ago
    assert group.signals == [signal.SIGTERM, signal.SIGKILL]


def test_the_wall_clock_has_no_say() -> None:
    """Every time is asked of the clock that was injected, which starts where it likes."""
    group, clock = ScriptedGroup(), Clock()
    clock.advance(1e9)
    group.living = lambda: succeed(True)
    done = bring_down(group, clock, 2.0)
    clock.pump([0.05] * 39)
    assert pending(done)
    clock.pump([0.05] * 2)
    assert result_of(done) is True


def test_a_look_that_fails_is_not_swallowed() -> None:
    group, clock = ScriptedGroup(), Clock()
    group.living = lambda: fail(ValueError("broken"))
    done = bring_down(group, clock, 2.0)
    failed: list[object] = []
    done.addErrback(lambda reason: failed.append(reason.type))
    assert failed == [ValueError]

"""The names of Twisted and Python that `agentd.process` relies on beyond what is documented.

A release that changes one of them fails here, and says what rests on it.
"""

import ast
import inspect
import os
import signal
import subprocess
import textwrap
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import _signals, process
from twisted.internet.defer import Deferred
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.posixbase import _PollLikeMixin

from agentd.process import reaper, signals
from tests.process.support import reactor, soon, until


def test_the_reactor_looks_the_reaper_up_when_a_child_has_ended() -> None:
    """`agentd.process.reaper` puts its sweep in the place of this function of the module."""
    assert callable(process.reapAllProcesses)
    assert list(inspect.signature(process.reapAllProcesses).parameters) == []
    source = textwrap.dedent(inspect.getsource(_signals._SIGCHLDWaker.doRead))
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    assert "process.reapAllProcesses" in [ast.unparse(call) for call in calls]
    assert _signals.process is process


@pytest_twisted.ensureDeferred
async def test_sigchld_reaches_the_replaced_function(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[bool] = []
    stock = process.reapAllProcesses
    monkeypatch.setattr(process, "reapAllProcesses", lambda: (called.append(True), stock()))
    signal.raise_signal(signal.SIGCHLD)
    await until(lambda: called)


@pytest_twisted.ensureDeferred
async def test_stock_leaves_orphans_which_is_why_there_is_a_sweep() -> None:
    """If Twisted comes to reap what it does not know, `agentd.process.reaper` has to learn of it."""
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    process.reapAllProcesses()
    assert child.wait(30) == 0
    assert reaper.install.__module__ == "agentd.process.reaper"


def test_what_the_reactor_does_about_a_hang_up() -> None:
    """`agentd.process.pipes` and `spawn` expect it as a call of `connectionLost`, once nothing watches any more."""

    class Reactor(_PollLikeMixin):
        _POLL_DISCONNECTED, _POLL_IN, _POLL_OUT = 8, 1, 4

        def __init__(self) -> None:
            self._reads: set[int] = set()
            self.lost: list[tuple[Any, bool]] = []

        def _disconnectSelectable(
            self, selectable: Any, why: Any, isRead: bool, faildict: Any = None
        ) -> None:
            self.lost.append((why, isRead))

    class Selectable:
        def __init__(self) -> None:
            self.events: list[str] = []

        def fileno(self) -> int:
            return 7

        def doRead(self) -> None:
            self.events.append("read")

        def doWrite(self) -> None:
            self.events.append("write")

    polled, selectable = Reactor(), Selectable()
    polled._reads.add(7)
    polled._doReadOrWrite(selectable, 7, 8 | 1)
    assert (selectable.events, polled.lost) == (["read"], [])  # bytes first
    polled._doReadOrWrite(selectable, 7, 8)
    assert polled.lost == [(CONNECTION_DONE, True)]
    polled._reads.clear()
    polled._doReadOrWrite(selectable, 7, 8 | 4)
    assert polled.lost[-1] == (CONNECTION_LOST, False)


def test_popen_believes_a_return_code_that_is_set() -> None:
    """`agentd.process.spawn` sets it, so that nothing of `subprocess` ever waits for the child."""
    child = subprocess.Popen(["sh", "-c", "exit 5"], start_new_session=True)
    pid = child.pid
    child.returncode = 0
    assert child.poll() == 0
    del child
    assert pid not in [each.pid for each in subprocess._active]  # type: ignore[attr-defined]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5


def test_popen_puts_back_what_python_ignores() -> None:
    """`agentd.process.signals` leaves exactly these to it."""
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    shown = subprocess.run(
        ["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True, check=True
    ).stdout
    mask = int(shown.split()[1], 16)
    for number in signals.RESTORED:
        assert not mask & 1 << number - 1


def test_popen_can_use_vfork() -> None:
    """A start is to cost the same however large the daemon is."""
    assert subprocess._USE_VFORK  # type: ignore[attr-defined]


@pytest_twisted.ensureDeferred
async def test_the_reactor_is_one_that_watches_pidfds() -> None:
    """A pidfd can be waited for with epoll and poll; `reactor.addReader` must take any descriptor."""
    child = subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE)
    fd = os.pidfd_open(child.pid)
    readable: Deferred[None] = Deferred()

    class Watch:
        def fileno(self) -> int:
            return fd

        def logPrefix(self) -> str:
            return "test"

        def doRead(self) -> None:
            reactor.removeReader(self)
            readable.callback(None)

        def connectionLost(self, reason: object) -> None:
            raise AssertionError(reason)

    reactor.addReader(Watch())
    child.communicate(timeout=30)
    await soon(readable)
    os.close(fd)

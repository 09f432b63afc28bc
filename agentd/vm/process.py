"""The QEMU process: a child that dies with this process, or one that stays when this process has gone.

An attached machine is started through ``setpriv --pdeathsig``: whatever becomes of this process, a SIGKILL included,
the kernel ends the machine too. A detached one is what ``-daemonize`` leaves behind; its pid is in a file, and is only
believed while /proc shows that this process is that machine.
"""

import os
import signal
from pathlib import Path
from typing import Any, Final

from twisted.internet import error
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater

SAID_BYTES: Final = 64 * 1024
LOOK_SECONDS: Final = 0.02


class NotStarted(Exception):
    """QEMU did not start; the message is its own last line."""


class Attached(ProcessProtocol):
    """A machine as a child of this process."""

    def __init__(self, reactor: Any, words: list[str], directory: Path) -> None:
        self._said = b""
        self.ended: Deferred[None] = Deferred()
        command = ["setpriv", "--pdeathsig", "KILL", *words]
        # AGENTD_TOKEN is among what agentctl may have been given, and none of QEMU's business.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENTD_")}
        self._transport = reactor.spawnProcess(
            self,
            command[0],
            command,
            env=environment,
            path=str(directory),
            childFDs={0: "w", 1: "r", 2: "r"},
        )
        self._transport.closeStdin()
        self.pid: int = self._transport.pid

    def outReceived(self, data: bytes) -> None:
        self._said = (self._said + data)[-SAID_BYTES:]

    errReceived = outReceived

    def processEnded(self, reason: Any) -> None:
        self.ended.callback(None)

    @property
    def said(self) -> str:
        """The last line that QEMU printed."""
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "no word from QEMU"

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.ended.called

    def signal(self, number: int) -> None:
        """Send it a signal; nothing when it has ended."""
        try:
            self._transport.signalProcess(number)
        except error.ProcessExitedAlready:
            pass


class Detached:
    """A machine that runs on its own, found by the pid that it wrote down."""

    def __init__(self, reactor: Any, pid: int, directory: Path) -> None:
        """Raises `NotStarted` when there is no such machine any more."""
        self._reactor = reactor
        self.pid = pid
        self.said = "QEMU has gone"
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise NotStarted(self.said) from None
        if str(directory / "qmp").encode() not in _command_line(pid):
            os.close(self._fd)
            raise NotStarted(self.said)
        self.ended: Deferred[None] = Deferred.fromCoroutine(self._watch())

    async def _watch(self) -> None:
        while not _has_ended(self.pid, self._fd):
            await deferLater(self._reactor, LOOK_SECONDS)
        os.close(self._fd)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.ended.called

    def signal(self, number: int) -> None:
        """Send it a signal; nothing when it has ended."""
        if not self.over:
            try:
                signal.pidfd_send_signal(self._fd, number)
            except ProcessLookupError:
                pass

    def forget(self) -> None:
        """Stop watching; the machine goes on."""
        if not self.over:
            self.ended.addErrback(lambda _: None)
            self.ended.cancel()
            os.close(self._fd)


async def detach(reactor: Any, words: list[str], directory: Path) -> Detached:
    """Start a machine that stays. Raises `NotStarted`."""
    starting = Attached(reactor, [*words, "-daemonize", "-pidfile", str(directory / "pid")], directory)
    try:
        await starting.ended
    except BaseException:
        starting.signal(signal.SIGKILL)
        raise
    return find(reactor, directory, starting.said)


def find(reactor: Any, directory: Path, otherwise: str = "QEMU has gone") -> Detached:
    """The machine that was started in `directory` and stays. Raises `NotStarted`."""
    try:
        pid = int((directory / "pid").read_text())
    except (OSError, ValueError):
        raise NotStarted(otherwise) from None
    return Detached(reactor, pid, directory)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _has_ended(pid: int, fd: int) -> bool:
    try:
        signal.pidfd_send_signal(fd, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    # A zombie can still be signalled; nobody here is its parent.
    return not _command_line(pid)

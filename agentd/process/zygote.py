"""Children that run as somebody else, forked by a process that is small.

Theory of operation
-------------------
A child that changes its user cannot be started through vfork: between the two it would run in the daemon's memory with
the other's rights. It has to be forked, and a fork copies the page tables of the process and makes both write to copies
of their pages for a while. Of a daemon of 45 MiB that takes five milliseconds, in which it does nothing else
(``docs/performance.md``); of a process that has imported nearly nothing, one.

So the first child of that kind starts a *zygote* (the term is Android's) and is forked as ever; when the zygote
is there, it forks the others. They are the daemon's children all the same (``CLONE_PARENT``, clone(2)): it waits for
them and gets their usage. The zygote ends with the daemon, whose end of their socket is the only one.

What goes wrong with a zygote costs at most the one start it was busy with, which fails; the next is forked by the
daemon, and a new zygote started beside it. Where there is no clone3(2), everything is as without one.
"""

import errno
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.logger import Logger

_log = Logger()

_PROGRAM: Final = Path(__file__).with_name("zygote_main.py")
_HEAD: Final = 8
_ANSWER_SECS: Final = 10.0
"""How long a zygote may take to fork, or a child to get to its program."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""A larger request is not made: the kernel takes no arguments and variables of that size (execve(2), E2BIG)."""


class StartFailed(OSError):
    """The child did not get to its program. `stage` is how far it came: ``start``, ``cwd`` or ``program``."""

    def __init__(self, number: int, stage: str) -> None:
        super().__init__(number, os.strerror(number))
        self.stage = stage


@frozen
class Request:
    """One child. What is None stays the daemon's."""

    programs: tuple[bytes, ...]
    """Where its program may be, in the order to try."""
    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    cwd: str | None
    uid: int | None
    gid: int | None
    groups: tuple[int, ...] | None
    umask: int | None

    def encoded(self) -> bytes:
        """As the zygote reads it."""
        return marshal.dumps(
            (self.programs, self.argv, self.env, self.cwd, self.uid, self.gid, self.groups, self.umask)
        )


class Zygote:
    """A zygote that is being started, or is there, or has gone."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._ready = False
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError:
            self._ours.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked now or soon."""
        return self._process.poll() is None

    def ready(self) -> bool:
        """Whether it can be asked now. It says so itself; nobody waits for it."""
        if not self._ready:
            self._ours.setblocking(False)
            try:
                self._ready = self._ours.recv(1) == b"!"
            except OSError:
                return False
            self._ours.settimeout(_ANSWER_SECS)
        return self._ready and self.alive

    def spawn(self, request: Request, fds: Sequence[int], directory: int | None) -> int:
        """Start a child with `fds` as its first three descriptors; its pid.

        `directory` is the descriptor of its working directory, when that is open already. Raises `StartFailed`.
        """
        body = request.encoded()
        if len(body) > MOST_BYTES:
            raise StartFailed(errno.E2BIG, "program")
        failure, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            passed = [*fds, theirs, *([] if directory is None else [directory])]
            try:
                head = len(body).to_bytes(_HEAD, sys.byteorder)
                socket.send_fds(self._ours, [head], passed)
                self._ours.sendall(body)
                answer = self._ours.recv(_HEAD, socket.MSG_WAITALL)
            except OSError:
                answer = b""
            finally:
                os.close(theirs)
            if len(answer) < _HEAD:
                self.close()
                raise StartFailed(errno.EIO, "start")
            pid = int.from_bytes(answer, sys.byteorder, signed=True)
            if pid < 0:
                raise StartFailed(-pid, "start")
            # As Popen does: until the exec has closed the other end, or has failed.
            if report := os.read(failure, 100):
                os.waitpid(pid, 0)
                stage, number = marshal.loads(report)
                raise StartFailed(number, stage)
            return pid
        finally:
            os.close(failure)

    def close(self) -> None:
        """End it; may be repeated."""
        self._ready = False
        self._ours.close()
        self._process.kill()
        self._process.wait()


class Zygotes:
    """The zygote of a daemon: one at a time, from the first time that it is wanted until `close`."""

    def __init__(self) -> None:
        self._zygote: Zygote | None = None
        self._useless = False

    def get(self) -> Zygote | None:
        """One that can be asked now; None while there is none, and the daemon forks by itself."""
        if self._useless:
            return None
        if self._zygote is None or not self._zygote.alive:
            self.close()
            try:
                self._zygote = Zygote()
            except OSError as reason:
                _log.warn("no zygote can be started: {reason}", reason=reason.strerror)
                self._useless = True
                return None
        return self._zygote if self._zygote.ready() else None

    def give_up(self) -> None:
        """The kernel does not do what a zygote needs: from now on there is none."""
        self._useless = True
        self.close()

    def close(self) -> None:
        """End it if it is there."""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()

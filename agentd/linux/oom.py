"""Whom the kernel killed for lack of memory (/dev/kmsg in dev-kmsg of the kernel's ABI, proc(5)).

A victim just shows signal 9, like any killed process. The kernel log says more: for each kill it writes

    oom-kill:constraint=…,task=<name>,pid=<pid>,uid=<uid>                 before the signal, rate-limited
    <Memory cgroup o|O>ut of memory: Killed process <pid> (<name>) …      after the signal, always

Either suffices here. Whoever waits for a child may reap it just before the second line is there, when the first
was suppressed; nothing but asking again a moment later can tell then.

How far the answer is to be trusted:

* Names are chosen by programs, so the patterns are held to the place where the kernel writes the pid and never
  look inside a name. Root can write to the log, but its records do not carry the kernel's facility, and are
  ignored.
* The pids are those of the machine's first pid namespace. A process inside another would see other numbers, so
  there the log is not used.
* The log is a ring. When it was overrun between two calls the victims in the lost part stay unknown.
* Without the log there is only ``oom_kill`` of /proc/vmstat: how many were killed on the whole machine, not whom.
"""

import errno
import os
import re
from typing import Final, Self

_LOG: Final = "/dev/kmsg"
_COUNTERS: Final = "/proc/vmstat"
_RECORD_BYTES: Final = 8192
"""The longest record the kernel hands out; a shorter buffer would be EINVAL."""
_RECORDS_AT_ONCE: Final = 16384
"""More than a log of the usual size holds, so that a flood of records cannot hold up the caller for ever."""
_FIRST_PID_NAMESPACE: Final = 0xEFFFFFFC
"""The inode of the first pid namespace (PROC_PID_INIT_INO of the kernel)."""

_KILLED: Final = re.compile(
    rb"(?:Out of memory|Memory cgroup out of memory)[^:]{0,64}: Kill(?:ed)? process (\d+) \("
)
_CHOSEN: Final = re.compile(rb"oom-kill:constraint=.*,pid=(\d+),uid=\d+\Z", re.DOTALL)


class OomLog:
    """The kernel's reports of memory kills from now on. Neither method ever blocks.

    Open it once, before the first child starts. `precise` tells whether victims can be named; without it only
    `kills` says anything. Not for use by several threads at once.
    """

    def __init__(self) -> None:
        """Start at the present end of the log. Never raises: without a log, `precise` is False."""
        self._fd = _open_log() if _in_first_pid_namespace() else None
        self._counted = oom_kills() or 0

    @property
    def precise(self) -> bool:
        """Whether the log can be read, so that `victims` names every victim it reports on."""
        return self._fd is not None

    def victims(self) -> set[int]:
        """The pids killed since the last call, as reported so far; always empty when not `precise`.

        A pid stands for its process only until it is reaped and used again, so ask when a child has ended,
        and remember the answer for other children that end at the same moment.
        """
        pids: set[int] = set()
        if self._fd is None:
            return pids
        for _ in range(_RECORDS_AT_ONCE):
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # overrun: reading goes on at the oldest record left
                    continue
                self.close()
                break
            pid = victim(record)
            if pid is not None:
                pids.add(pid)
        return pids

    def kills(self) -> int:
        """How many processes the kernel killed since the last call, machine-wide; 0 when it does not count."""
        total = oom_kills()
        if total is None:
            return 0
        grown = total - self._counted
        self._counted = total
        return grown

    def close(self) -> None:
        """Let go of the log; `victims` is empty from now on. May be repeated."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def victim(record: bytes) -> int | None:
    """The pid that one /dev/kmsg record reports killed, or None when it reports something else.

    A record is ``<priority>,<sequence>,<time>,<flags>[,…];<text>``, then lines of key and value.
    """
    prefix, _, text = record.partition(b";")
    priority = prefix.partition(b",")[0]
    if not priority.isdigit() or len(priority) != 1 or priority > b"7":  # 8 and up: not the kernel's facility
        return None
    message = text.partition(b"\n")[0]
    found = _KILLED.match(message) or _CHOSEN.match(message)
    return int(found[1]) if found else None


def oom_kills() -> int | None:
    """How many processes the kernel has killed for memory since boot; None when it does not say (Linux < 4.13)."""
    try:
        with open(_COUNTERS, "rb") as counters:
            for line in counters:
                name, _, value = line.partition(b" ")
                if name == b"oom_kill":
                    return int(value)
    except OSError:
        pass
    return None


def _open_log() -> int | None:
    try:
        fd = os.open(_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.lseek(fd, 0, os.SEEK_END)
    except OSError:
        os.close(fd)
        return None
    return fd


def _in_first_pid_namespace() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False

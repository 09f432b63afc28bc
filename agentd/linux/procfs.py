"""Which processes of a process group are alive, read from /proc (contract a.8 and c.6, proc(5)).

A signal to a group says only whether the group has a member, and an unreaped zombie is a member. So
liveness is read from ``/proc/<pid>/stat``, whose fields are

    pid (comm) state ppid pgrp …

`comm` is the program's own choice: it may hold spaces, closing parentheses and bytes that are no text, so the
fields are counted from the *last* parenthesis and nothing is decoded.

Reading `stat` costs the kernel some ten microseconds a process; getpgid(2) costs a fraction of one. A scan
therefore asks getpgid first and reads `stat` of the few that may belong, which stays the authority: the pid
may have changed hands in between. Processes come and go during a scan, and one that is gone is skipped.

The state of a process is that of its first thread, which may have ended while others run. Such a process
shows ``Z`` and still runs code, so a zombie that counts more than one thread counts as alive.
"""

import os
from collections.abc import Collection, Iterator
from typing import Final

_DEAD: Final = frozenset({b"Z", b"X", b"x"})
_STAT_BYTES: Final = 1024
"""Longer than the part of a stat line read here can be (about 50 integers and a name of at most 64 bytes)."""
_THREADS_FIELD: Final = 17
"""Where `num_threads` stands, counted from `state` as 0."""


def group_members(pgid: int) -> list[int]:
    """The live pids of process group `pgid`, ascending; empty when there is none.

    Raises `ValueError` unless `pgid` is positive, and `OSError` when /proc cannot be listed.
    """
    return groups_members((pgid,))[pgid]


def groups_members(pgids: Collection[int]) -> dict[int, list[int]]:
    """The live pids of each group in `pgids`, ascending, from one pass over /proc.

    Every group asked for is a key of the answer. Raises as `group_members` does.
    """
    found: dict[int, list[int]] = {_checked(pgid): [] for pgid in pgids}
    if not found:
        return found
    for pid in _pids():
        if _may_belong(pid, found):
            pgid = _live_group(pid)
            if pgid in found:
                found[pgid].append(pid)
    for members in found.values():
        members.sort()
    return found


def group_alive(pgid: int) -> bool:
    """Whether group `pgid` has a live member, as cheaply as can be told (contract c.6).

    No member at all is known from one signal 0; otherwise the leader is looked at first, then the rest of
    /proc until one is found. Raises as `group_members` does.
    """
    _checked(pgid)
    if pgid > 1:  # kill(-1) would mean every process there is
        try:
            os.killpg(pgid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # members of another user: they exist, and /proc shows them
    if _live_group(pgid) == pgid:
        return True
    wanted = {pgid: None}
    return any(_may_belong(pid, wanted) and _live_group(pid) == pgid for pid in _pids())


def _checked(pgid: int) -> int:
    if pgid <= 0:
        raise ValueError(f"a process group id is positive, not {pgid}")
    return pgid


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _may_belong(pid: int, groups: Collection[int]) -> bool:
    try:
        return os.getpgid(pid) in groups
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # a security module hides it from getpgid; stat decides


def _live_group(pid: int) -> int | None:
    """The group of `pid`, or None when it is dead, gone or hidden."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    try:
        line = os.read(fd, _STAT_BYTES)
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    fields = line[line.rfind(b")") + 1 :].split(None, _THREADS_FIELD + 1)
    if len(fields) <= _THREADS_FIELD:
        return None
    if fields[0] in _DEAD and (fields[0] != b"Z" or fields[_THREADS_FIELD] in (b"0", b"1")):
        return None
    return int(fields[2])

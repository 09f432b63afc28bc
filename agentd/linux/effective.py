"""Acting as another user, whole: the effective ids of one thread, while the daemon stays itself.

Theory of operation
-------------------
`agentd.linux.credentials.as_user` changes what decides about files on a disk: the file system ids and groups. That is
not all that the kernel asks. What stands below ``/proc/sys`` is guarded by the *effective* user id, whatever the file
system id says (proc_sys_permission of the kernel), so a thread of root with the file system id of another user still
writes ``/proc/sys/kernel/core_pattern``, which is root's whole power. And it keeps every capability that is not about
files.

Where a caller chooses the path, the thread therefore takes on the user's effective ids: the file system ids follow
them, and with the effective user id leaving 0 the kernel empties the thread's effective capabilities
(capabilities(7)). The real and the saved id stay the daemon's, so that the thread can return, and so that the user
may not signal or trace it (kill(2), ptrace(2) look at those).

The raw calls change one thread; the C library's would change all of them (nptl(7)). Every switch is read back, and
one that cannot be undone ends the process, as in `agentd.linux.credentials`.
"""

import ctypes
import errno
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from agentd.linux import credentials, libc
from agentd.linux.credentials import NO_ID, FileSystemCredentials

_UNCHANGED: Final = NO_ID

_setresuid = libc.system_call("setresuid", ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)
_setresgid = libc.system_call("setresgid", ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)
_setgroups = libc.system_call("setgroups", ctypes.c_size_t, ctypes.c_void_p)


@contextmanager
def acting_as(uid: int, gid: int, groups: Collection[int]) -> Iterator[None]:
    """Be `uid`, `gid` and `groups` within the block, on the calling thread only.

    For pool threads: never wait for another thread inside, and start neither threads nor processes. A process of
    no privilege may act as what it already is.

    Raises `PermissionError` when the switch did not take effect, and `OSError` (EINVAL) for the id
    ``0xFFFFFFFF``; the thread then has the rights it came with. Does not return when they cannot be restored.
    """
    if NO_ID in (uid, gid) or NO_ID in groups:
        raise OSError(errno.EINVAL, "4294967295 is no user or group")
    before = credentials.current()
    if _same(before, uid, gid, groups):
        yield
        return
    try:
        _become(FileSystemCredentials(uid=uid, gid=gid, groups=frozenset(groups)), before)
        yield
    finally:
        _return(before)


def _become(wanted: FileSystemCredentials, before: FileSystemCredentials) -> None:
    # The user id last: with it goes the right to change the others.
    _set_groups(wanted.groups)
    _checked(_setresgid(_UNCHANGED, wanted.gid, _UNCHANGED))
    _checked(_setresuid(_UNCHANGED, wanted.uid, _UNCHANGED))
    if credentials.current() != wanted:
        raise PermissionError(errno.EPERM, "the thread may not take on the user's rights")
    if wanted.uid not in (0, before.uid) and credentials.effective_capabilities():
        raise PermissionError(errno.EPERM, "the thread keeps privileges the user does not have")


def _return(before: FileSystemCredentials) -> None:
    try:
        if credentials.current() != before:
            _checked(_setresuid(_UNCHANGED, before.uid, _UNCHANGED))
            _checked(_setresgid(_UNCHANGED, before.gid, _UNCHANGED))
            _set_groups(before.groups)
        if credentials.current() != before:
            raise PermissionError(errno.EPERM, "the thread could not return")
    except BaseException:
        credentials.end_process()


def _set_groups(groups: Collection[int]) -> None:
    listed = (ctypes.c_uint32 * len(groups))(*sorted(groups))
    _checked(_setgroups(len(listed), listed))


def _checked(result: int) -> None:
    if result < 0:
        libc.raise_errno()


def may_act_as(uid: int, gid: int, groups: Collection[int]) -> bool:
    """Whether this process can act as that user: it is root, or it is that user."""
    return os.geteuid() == 0 or _same(credentials.current(), uid, gid, groups)


def _same(mine: FileSystemCredentials, uid: int, gid: int, groups: Collection[int]) -> bool:
    """Whether nothing would change; membership in the group one runs with anyway adds nothing."""
    return (uid, gid, {gid, *groups}) == (mine.uid, mine.gid, {mine.gid, *mine.groups})

"""File system rights of one thread: acting on files as another user, while the daemon stays itself.

Theory of operation
-------------------
Linux keeps credentials per thread. Three of them decide file access (path_resolution(7)): the file system
user id, the file system group id and the supplementary groups. Changing those three alone, with the raw calls,
leaves the rest of the process as it was; the C library's `setgroups` would change every thread (nptl(7)).

Root's right to ignore permission bits is a set of capabilities. When the file system user id goes from 0 to
another, the kernel takes them out of the thread's effective set, and puts them back on return
(capabilities(7), "Effect of user ID changes on capabilities"). A process configured otherwise (securebits) would
keep them, so their absence is checked rather than assumed.

`setfsuid` reports no errors (setfsuid(2)), so every switch is read back. A switch that did not take is undone and
raised; a switch that cannot be undone ends the process, because a pool thread with the wrong rights would go
on to serve somebody else.
"""

import ctypes
import errno
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from attrs import frozen

from agentd.linux import libc

NO_ID: Final = 0xFFFF_FFFF
"""The id that is none: to the kernel it means "leave unchanged", so nobody can be it."""

_UNRESTORABLE: Final = 70
"""The exit status of a process that could not take its rights back (EX_SOFTWARE of sysexits.h)."""

_setfsuid = libc.system_call("setfsuid", ctypes.c_ulong)
_setfsgid = libc.system_call("setfsgid", ctypes.c_ulong)
_getgroups = libc.system_call("getgroups", ctypes.c_int, ctypes.c_void_p)
_setgroups = libc.system_call("setgroups", ctypes.c_size_t, ctypes.c_void_p)
_capget = libc.system_call("capget", ctypes.c_void_p, ctypes.c_void_p)

_FS_CAPABILITIES: Final = sum(1 << bit for bit in (0, 1, 2, 3, 4, 9, 27, 32))
"""CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, LINUX_IMMUTABLE, MKNOD, MAC_OVERRIDE."""

_CAPABILITY_VERSION_3: Final = 0x20080522


@frozen
class FileSystemCredentials:
    """What one thread accesses files as."""

    uid: int
    gid: int
    groups: frozenset[int]


def current() -> FileSystemCredentials:
    """The calling thread's file system credentials."""
    return FileSystemCredentials(uid=_setfsuid(NO_ID), gid=_setfsgid(NO_ID), groups=_groups())


@contextmanager
def as_user(uid: int, gid: int, groups: Collection[int]) -> Iterator[None]:
    """Access files as `uid`, `gid` and `groups` within the block, on the calling thread only.

    For pool threads: never wait for another thread inside, and start neither threads nor processes, which
    would inherit the rights. A process of no privilege may "switch" to what it already is.

    Raises `PermissionError` when the switch did not take effect, and `OSError` (EINVAL) for the id
    ``0xFFFFFFFF``; the thread then has the rights it came with. Does not return when they cannot be restored.
    """
    if NO_ID in (uid, gid) or NO_ID in groups:
        raise OSError(errno.EINVAL, "4294967295 is no user or group")
    before = current()
    try:
        _assume(FileSystemCredentials(uid=uid, gid=gid, groups=frozenset(groups)), before)
        yield
    finally:
        _restore(before)


def open_directory_as(path: str | bytes, uid: int, gid: int, groups: Collection[int]) -> int:
    """Open directory `path` as a user who may enter it: an O_PATH descriptor, close-on-exec.

    The path is walked with that user's rights, and search permission on the directory itself is required as
    chdir(2) requires it (O_PATH alone would not ask). A child then enters through ``/proc/self/fd/N``, and
    cannot end up elsewhere whatever has since happened to the path.

    Raises `OSError` naming `path`: what chdir(2) would have said to that user, EINVAL for a path no system
    call can express, or what `as_user` raises.
    """
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        raise OSError(errno.EINVAL, "the path cannot be encoded", path) from None
    if b"\0" in name:
        raise OSError(errno.EINVAL, "the path holds a NUL byte", path)
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    with as_user(uid, gid, groups):
        try:
            directory = os.open(name, flags)
            try:
                return os.open(b".", flags, dir_fd=directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None


def _groups() -> frozenset[int]:
    while True:
        count = _getgroups(0, None)
        if count < 0:
            libc.raise_errno()
        room = (ctypes.c_uint32 * count)()
        filled = _getgroups(count, room) if count else 0
        if filled >= 0:
            return frozenset(room[:filled])
        if ctypes.get_errno() != errno.EINVAL:  # EINVAL: the set grew since it was counted
            libc.raise_errno()


def _assume(wanted: FileSystemCredentials, before: FileSystemCredentials) -> None:
    """Become `wanted` and prove it. Groups are left alone when they are right, which needs no privilege."""
    if wanted.groups != _groups():
        listed = (ctypes.c_uint32 * len(wanted.groups))(*sorted(wanted.groups))
        if _setgroups(len(listed), listed) < 0:
            libc.raise_errno()
    _setfsgid(wanted.gid)
    _setfsuid(wanted.uid)
    if current() != wanted:
        raise PermissionError(errno.EPERM, "the thread may not take on the user's rights")
    if wanted.uid not in (0, before.uid) and effective_capabilities() & _FS_CAPABILITIES:
        raise PermissionError(errno.EPERM, "the thread keeps privileges the user does not have")


def _restore(before: FileSystemCredentials) -> None:
    try:
        _assume(before, before)
    except BaseException:
        end_process()


def effective_capabilities() -> int:
    """The calling thread's effective capabilities, a bit each (capget(2))."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then the same of bits 32 and up
    if _capget(header, sets) < 0:
        libc.raise_errno()
    return int(sets[0]) | int(sets[3]) << 32


def end_process() -> NoReturn:
    """What is left when a thread cannot take its rights back."""
    try:
        os.write(2, b"agentd: a thread cannot take its rights back\n")
    finally:
        os._exit(_UNRESTORABLE)

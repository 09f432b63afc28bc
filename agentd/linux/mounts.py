"""Showing one file in the place of another, and taking it away again (mount(2), umount(2)).

Both need CAP_SYS_ADMIN and act on the mount namespace of the calling process.
"""

import ctypes
import os
from typing import Final

from agentd.linux import libc

MNT_DETACH: Final = 2
"""Take the mount out of sight at once, and drop it when nobody uses it any more."""

_MS_BIND: Final = 4096

_mount = libc.library_call(
    "mount", ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_void_p
)
_umount2 = libc.library_call("umount2", ctypes.c_char_p, ctypes.c_int)


def bind(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Make `source` appear at `target`: both files, or both directories.

    Raises `OSError` naming the target: EPERM without the privilege, ENOENT when either is missing, ENOTDIR
    when one is a file and the other is not.
    """
    where = os.fsencode(target)
    if _mount(os.fsencode(source), where, None, _MS_BIND, None) < 0:
        libc.raise_errno(os.fspath(target))


def unmount(target: str | os.PathLike[str], flags: int = 0) -> None:
    """Remove the topmost mount at `target`; `flags` may be `MNT_DETACH`.

    Raises `OSError` naming the target: EINVAL when nothing is mounted there, EBUSY while it is in use.
    """
    if _umount2(os.fsencode(target), flags) < 0:
        libc.raise_errno(os.fspath(target))

"""Opening a name strictly beneath a directory (openat2(2), Linux 5.6).

The kernel enforces the limits of `resolve` on every component while it walks, so there is no moment between a
check and its use that another process could win. There is no imitation of it here: without the call, ENOSYS.
"""

import ctypes
import errno
import struct
from typing import Final

from agentd.linux import libc

RESOLVE_NO_MAGICLINKS: Final = 0x02
"""Refuse (ELOOP) links of /proc that jump to an open file instead of naming a path."""
RESOLVE_NO_SYMLINKS: Final = 0x04
"""Refuse (ELOOP) symbolic links in every component, the last one too."""
RESOLVE_BENEATH: Final = 0x08
"""Refuse (EXDEV) absolute paths and whatever leads out of the starting directory."""

_open_how = struct.Struct("=QQQ")

_openat2 = libc.system_call("openat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)


def openat2(dirfd: int, path: bytes, flags: int, mode: int, resolve: int) -> int:
    """Open `path`, relative to directory `dirfd`, under the RESOLVE_ limits: a descriptor.

    `flags` are those of open(2); add O_CLOEXEC. `mode` must be 0 unless a file may be created.

    Raises `OSError` with `path` as its filename: EXDEV and ELOOP for a broken limit, EAGAIN when ``..`` raced
    with a rename (try again), ENOSYS before Linux 5.6, or whatever open(2) says. A path with a NUL byte is a
    `ValueError`, as for `os.open`: the kernel would see only what stands before it.
    """
    if b"\0" in path:
        raise ValueError("embedded null byte")
    how = _open_how.pack(flags, mode, resolve)
    while True:
        fd = _openat2(dirfd, path, how, _open_how.size)
        if fd >= 0:
            return fd
        if ctypes.get_errno() != errno.EINTR:
            libc.raise_errno(path)

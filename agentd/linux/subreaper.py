"""Who becomes the parent of orphans, and who dies with its parent (prctl(2)).

A daemon that is process 1 inherits every orphan of the VM. Anywhere else it inherits those of its own
descendants only after it has asked to.
"""

import ctypes
from typing import Final

from agentd.linux import libc

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37

_prctl = libc.library_call(
    "prctl", ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong
)


def become_subreaper() -> None:
    """Inherit the orphans among this process's descendants from now on. Children do not inherit this."""
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0:
        libc.raise_errno()


def is_subreaper() -> bool:
    """Whether `become_subreaper` holds for this process."""
    answer = ctypes.c_int()
    if _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer), 0, 0, 0) < 0:
        libc.raise_errno()
    return answer.value != 0


def die_with_parent(number: int) -> None:
    """Have the kernel send this process signal `number` when the *thread* that started it ends; 0 for never.

    Lost over fork and over the execution of a set-user-id program. A parent that ended before the call goes
    unnoticed, so compare `os.getppid()` afterwards. Raises `OSError` (EINVAL) for no signal.
    """
    if _prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) < 0:
        libc.raise_errno()

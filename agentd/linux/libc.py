"""How a call that Python does not wrap is made: the C library through ctypes.

Two habits make this sound. `errno` is the calling thread's own copy (`use_errno`), read right after the call,
so that pool threads cannot see each other's. And every wrapper owns its function object, so the argument
types it declares hold for that call alone: an undeclared Python integer would be passed as a 32-bit `int`.

Raw numbers (`syscall(2)`) are used where the C library has no wrapper, or where its wrapper does more than
the call: since POSIX credentials belong to a process, it spreads a change to every thread (nptl(7)).
"""

import ctypes
import os
import platform
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)

_NUMBERS: Final = {
    "x86_64": {
        "getgroups": 115,
        "setgroups": 116,
        "setresuid": 117,
        "setresgid": 119,
        "setfsuid": 122,
        "setfsgid": 123,
        "capget": 125,
    },
    "aarch64": {
        "capget": 90,
        "setresuid": 147,
        "setresgid": 149,
        "setfsuid": 151,
        "setfsgid": 152,
        "getgroups": 158,
        "setgroups": 159,
    },
}
_EVERYWHERE: Final = {"openat2": 437}
"""Calls added since Linux 5.1 have one number on every architecture."""

_NO_CALL: Final = -1
"""A number no kernel has: the answer is ENOSYS, as for any call this kernel lacks."""


def system_call(name: str, *argtypes: Any) -> Callable[..., int]:
    """The raw system call `name`, as a function of arguments of the given ctypes types.

    It returns what the kernel returned, or -1 with `errno` set, as `syscall(2)` does. On a machine whose
    numbers are not listed here it always fails with ENOSYS.
    """
    number = _EVERYWHERE.get(name) or _NUMBERS.get(platform.machine(), {}).get(name, _NO_CALL)
    function = _LIBRARY["syscall"]
    function.restype = ctypes.c_long
    function.argtypes = [ctypes.c_long, *argtypes]
    return partial(function, number)


def library_call(name: str, *argtypes: Any) -> Callable[..., int]:
    """The C library's own `name`, as a function of arguments of the given ctypes types, answering an int."""
    function = _LIBRARY[name]
    function.restype = ctypes.c_int
    function.argtypes = list(argtypes)
    return function


def raise_errno(filename: str | bytes | None = None) -> NoReturn:
    """Raise the `OSError` of this thread's last failed call, as the subclass that fits its errno."""
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), filename)

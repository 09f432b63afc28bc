"""The ways a raw call is made."""

import ctypes
import errno
import os
import threading

import pytest

from agentd.linux import libc


def test_a_call_no_kernel_has_is_enosys() -> None:
    call = libc.system_call("agentd_no_such_call")
    assert call() == -1
    with pytest.raises(OSError, match="not implemented") as raised:
        libc.raise_errno("/x")
    assert raised.value.errno == errno.ENOSYS
    assert raised.value.filename == "/x"


def test_errno_belongs_to_the_thread_that_failed() -> None:
    failing = libc.library_call("close", ctypes.c_int)
    assert failing(-1) == -1
    seen: list[int] = []

    def elsewhere() -> None:
        libc.library_call("chdir", ctypes.c_char_p)(b"/agentd-no-such-directory")
        seen.append(ctypes.get_errno())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [errno.ENOENT]
    assert ctypes.get_errno() == errno.EBADF


def test_arguments_keep_the_type_they_were_declared_with() -> None:
    groups = libc.system_call("getgroups", ctypes.c_int, ctypes.c_void_p)
    other = libc.system_call("getgroups", ctypes.c_long)
    assert groups(0, None) == len(os.getgroups())
    with pytest.raises(ctypes.ArgumentError):
        other("no number")

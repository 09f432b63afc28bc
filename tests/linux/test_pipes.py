"""The capacity of pipes."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from agentd.linux import pipes
from tests.linux.support import run_program

UNPRIVILEGED = """
import fcntl, os
from agentd.linux import pipes
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(61001, 61001, 61001); os.setresuid(61001, 61001, 61001)
read, write = os.pipe()
before = fcntl.fcntl(read, fcntl.F_GETPIPE_SZ)
limit = int(open("/proc/sys/fs/pipe-max-size").read())
print(pipes.grow(write, 4 * limit) == before, fcntl.fcntl(write, fcntl.F_GETPIPE_SZ) == before)
"""


def test_a_pipe_grows() -> None:
    read, write = os.pipe()
    try:
        assert pipes.grow(read, 200_000) == 262_144
        assert fcntl.fcntl(write, fcntl.F_GETPIPE_SZ) == 262_144
    finally:
        os.close(read)
        os.close(write)


def test_a_pipe_that_may_not_grow_stays_as_it_is() -> None:
    done = run_program(UNPRIVILEGED)
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr


def test_only_pipes_have_a_capacity(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        with pytest.raises(OSError, match=r".") as raised:
            pipes.grow(fd, 65536)
        assert raised.value.errno == errno.EBADF
    finally:
        os.close(fd)

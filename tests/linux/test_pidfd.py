"""Descriptors of processes."""

import errno
import os
import select
import signal
import subprocess
import sys

import pytest

from agentd.linux import pidfd
from tests.linux.support import DEADLINE_SECONDS, program


def test_a_signal_reaches_the_process_and_its_end_shows() -> None:
    with program("import sys; sys.stdin.read()") as process:
        fd = pidfd.open(process.pid)
        try:
            assert not os.get_inheritable(fd)
            assert select.select([fd], [], [], 0)[0] == []
            pidfd.send_signal(fd, signal.SIGTERM)
            assert select.select([fd], [], [], DEADLINE_SECONDS)[0] == [fd]
            assert process.wait() == -signal.SIGTERM
            with pytest.raises(ProcessLookupError):
                pidfd.send_signal(fd, signal.SIGTERM)
        finally:
            os.close(fd)


def test_there_is_no_descriptor_of_nobody() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ProcessLookupError):
        pidfd.open(process.pid)
    with pytest.raises(OSError, match="Invalid argument") as raised:
        pidfd.open(-1)
    assert raised.value.errno == errno.EINVAL

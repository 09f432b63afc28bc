"""Orphans, and processes that end with their parent."""

import os
import select

import pytest

from agentd.linux import pidfd, subreaper
from tests.linux.support import DEADLINE_SECONDS, program, run_program

ADOPTS = """
import os, subprocess
from agentd.linux import subreaper
assert not subreaper.is_subreaper()
subreaper.become_subreaper()
assert subreaper.is_subreaper()
waits_on, lets_go = os.pipe()
script = f"(read line <&{waits_on}; exit 7) & echo $!"
parent = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, pass_fds=[waits_on])
orphan = int(parent.stdout.readline())
parent.wait()
os.close(lets_go)
pid, status = os.waitpid(orphan, 0)
print(pid == orphan, os.waitstatus_to_exitcode(status))
"""

DIES_WITH_ITS_PARENT = """
import subprocess, sys
CHILD = '''
import signal, sys
from agentd.linux import subreaper
subreaper.die_with_parent(signal.SIGKILL)
print("ready", flush=True)
sys.stdin.read()
'''
child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert child.stdout.readline() == b"ready\\n"
print(child.pid, flush=True)
sys.stdin.readline()
"""


def test_a_subreaper_inherits_orphans_and_their_status() -> None:
    done = run_program(ADOPTS)
    assert (done.returncode, done.stdout) == (0, "True 7\n"), done.stderr


def test_a_child_ends_with_its_parent() -> None:
    with program(DIES_WITH_ITS_PARENT) as parent:
        assert parent.stdout is not None
        fd = pidfd.open(int(parent.stdout.readline()))
        try:
            assert select.select([fd], [], [], 0)[0] == []
            parent.kill()
            assert select.select([fd], [], [], DEADLINE_SECONDS)[0] == [fd]
        finally:
            os.close(fd)


def test_no_signal_has_such_a_number() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        subreaper.die_with_parent(4096)

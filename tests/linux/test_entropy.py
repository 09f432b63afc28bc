"""Reseeding the kernel's generator."""

import pytest

from agentd.linux import entropy
from tests.linux.support import run_program

UNPRIVILEGED = """
import os
from agentd.linux import entropy
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(61001, 61001, 61001); os.setresuid(61001, 61001, 61001)
try:
    entropy.reseed(b"material")
except PermissionError:
    print("refused", len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.root
def test_root_reseeds_the_generator() -> None:
    entropy.reseed(b"what no twin has")


def test_others_may_not() -> None:
    done = run_program(UNPRIVILEGED)
    assert (done.returncode, done.stdout) == (0, "refused 4\n"), done.stderr

"""Freed memory goes back to the kernel."""

import pytest

from agentd.linux import libc, malloc
from tests.linux.support import run_program

PROGRAM = """
import sys
from agentd.linux import malloc
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
if sys.argv[1] == "fixed" and not malloc.give_back_large_blocks():
    sys.exit("not glibc")
bytes(8 << 20)  # freed at once: this is what moves the size
before = resident()
held = [b"x" * (4 << 20) for _ in range(8)]
pin = b"y" * (1 << 20)  # behind the large ones, so that a heap they are in cannot shrink
del held
print(resident() - before)
"""


def left(mode: str) -> int:
    done = run_program(PROGRAM, mode)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_large_blocks_go_back_when_they_are_freed() -> None:
    assert left("fixed") < 2 << 20


def test_left_to_itself_the_library_keeps_them() -> None:
    """Which is why it is told; if this fails, nothing needs to be said any more."""
    assert left("stock") > 16 << 20


def test_a_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *argtypes: object) -> None:
        raise AttributeError(name)

    monkeypatch.setattr(libc, "library_call", missing)
    assert malloc.give_back_large_blocks() is False

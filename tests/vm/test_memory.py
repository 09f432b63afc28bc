"""A guest of 256 MiB that runs out of memory: the command that ate it pays, and nobody else."""

import pytest_twisted

from tests.vm.conftest import Clone
from tests.vm.support import until

EATER = """
eaten = []
while True:
    eaten.append(bytearray(4 * 1024 * 1024))
    for each in range(0, len(eaten[-1]), 4096):
        eaten[-1][each] = 1
"""
SLOWEST = 20.0
"""Seconds that health may take while the kernel looks for memory, under software emulation."""


@pytest_twisted.ensureDeferred
async def test_the_command_that_eats_all_memory_is_killed_alone(clone: Clone) -> None:
    """By the kernel, which the outcome says; health answers throughout and the others go on."""
    guest = await clone()
    assert int(await guest.sh("awk '/MemTotal/ {print $2}' /proc/meminfo")) < 256 * 1024
    other = await guest.client.start(["sh", "-c", "while :; do echo tick; sleep 0.5; done"])
    eater = await guest.client.start(["python3", "-c", EATER])
    answers = 0

    async def over() -> bool:
        nonlocal answers
        health = await guest.client.health()
        assert health.bootstrapped
        answers += 1
        return (await eater.poll()).phase == "exited"

    await until(over)
    outcome = await eater.wait()
    assert (outcome.signal, outcome.cause) == (9, "out_of_memory")
    assert answers >= 1
    assert (await other.poll()).phase == "running"
    assert await other.kill()
    ticks = (await other.wait()).stdout or ""
    assert ticks.count("tick") > 1
    assert await guest.sh("echo still here") == "still here\n"
    assert "Out of memory: Killed process" in await guest.sh("dmesg")

"""agentd as process 1 and under a small init: orphans, signals, crashes."""

import pytest
import pytest_twisted
from twisted.internet import reactor

from agentd.client.errors import UnknownExec
from agentd.vm import platform
from agentd.vm.machine import Machine
from tests.vm.conftest import Clone, Start
from tests.vm.support import Guest, status_of, until

ORPHANS = 'for n in 1 2 3 4 5; do (sh -c "sleep 0.1; exit $n" &); done'
ZOMBIES = "cat /proc/[0-9]*/stat 2>/dev/null | awk '$3 == \"Z\"' | wc -l"
DAEMON = "echo $PPID"
"""In a command of its own, of which the daemon is the parent."""


async def no_zombies(guest: Guest) -> None:
    """Orphans are made, and are gone soon."""
    await guest.sh(ORPHANS)

    async def none_left() -> bool:
        return await guest.sh(f"sleep 0.2; {ZOMBIES}") == "0\n"

    await until(none_left)


@pytest_twisted.ensureDeferred
async def test_process_1_reaps_orphans_and_powers_off_on_sigterm(clone: Clone) -> None:
    """The signal is what an orderly stop of a whole machine sends."""
    guest = await clone()
    assert await guest.sh("tr '\\0' ' ' </proc/1/cmdline") == "/usr/bin/python3 -I /lib/agentd/pid1.py "
    await no_zombies(guest)
    await guest.client.start(["sleep", "600"])
    await guest.client.run(["sh", "-c", "kill -TERM 1"])
    await guest.client.close()
    assert (await guest.machine.ended()).in_order


@pytest_twisted.ensureDeferred
async def test_a_panic_is_not_taken_for_a_power_off(clone: Clone) -> None:
    """QEMU exits with 0 for both."""
    guest = await clone()
    try:
        await guest.client.start(["sh", "-c", "echo c >/proc/sysrq-trigger"])
    except Exception:
        pass  # the machine has gone before it could answer
    end = await guest.machine.ended()
    assert end.panicked
    assert not end.in_order


@pytest_twisted.ensureDeferred
async def test_a_daemon_that_dies_under_an_init_is_started_again_and_says_so(start: Start) -> None:
    """What the dead one ran is unknown to the next, goes on, and is the init's."""
    machine = await start(words=("init=/sbin/agentd-supervised",))
    await platform.prepare(reactor, machine)
    guest = Guest(machine)
    await guest.launch()
    assert (await guest.sh("cat /proc/1/comm")) == "tini\n"
    await no_zombies(guest)
    assert (await guest.health())["restarts"] == 0
    assert await guest.sh("sleep 0.2; cat /proc/$PPID/oom_score_adj /proc/self/oom_score_adj") == "-500\n0\n"
    await guest.client.start(["sh", "-c", "echo $$ >/tmp/pid; exec sleep 600"], exec_id="lost")
    old = int(await guest.sh(DAEMON))
    await guest.client.start(["sh", "-c", f"sleep 0.5; kill -KILL {old}"])

    await until(lambda: _restarted(machine))
    health = await guest.health()
    assert (health["restarts"], health["bootstrapped"], health["execs"]) == (1, False, 0)
    assert await status_of(machine, guest.token) == 503
    with pytest.raises(platform.HookFailed):
        await platform.launch(reactor, machine, "somebody else's token")
    await guest.launch()
    assert not (await guest.health())["identity_degraded"]
    assert int(await guest.sh(DAEMON)) != old
    with pytest.raises(UnknownExec):
        await guest.client.exec("lost").poll()
    assert await guest.sh("cat /proc/$(cat /tmp/pid)/comm; grep PPid /proc/$(cat /tmp/pid)/status") == (
        "sleep\nPPid:\t1\n"
    )
    await no_zombies(guest)
    await guest.client.close()
    end = await guest.end()
    assert end.in_order, machine.console


async def _restarted(machine: Machine) -> bool:
    health = await machine.ready()
    found = await Guest(machine).health() if health.execs == 0 else {"restarts": 0}
    return bool(found["restarts"] == 1)

"""One saved state, several machines: each with a token and an identity of its own (contract g.5)."""

from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults

from agentd.vm import platform
from tests.vm.conftest import Clone, Start
from tests.vm.support import Guest, Saved, pause, status_of

DRAW = """
import os, random, uuid
print(os.getrandom(16).hex())
print(os.urandom(16).hex())
print(uuid.uuid4())
print(random.getrandbits(128))
print(open("/proc/sys/kernel/random/uuid").read().strip())
"""
WHO = "cat /etc/machine-id; cat /proc/sys/kernel/random/boot_id; hostname"
STEPS = {
    "machine-id": "repaired",
    "hostname": "repaired",
    "boot-id": "repaired",
    "random-seed": "not_applicable",
    "cached-credential": "not_applicable",
    "random-generator": "repaired",
}


@pytest_twisted.ensureDeferred
async def test_two_clones_are_two_machines(clone: Clone) -> None:
    """Other identity, other token, and neither takes the other's."""
    one, two = await clone(env={"NAME": "one"}), await clone(env={"NAME": "two"})
    assert one.token != two.token
    for guest, other in ((one, two), (two, one)):
        assert await status_of(guest.machine, guest.token) == 200
        assert await status_of(guest.machine, other.token) == 401
        with pytest.raises(platform.HookFailed):
            await platform.launch(reactor, guest.machine, other.token)
        health = await guest.health()
        assert {step["name"]: step["outcome"] for step in health["identity_steps"]} == STEPS
        assert (health["identity_repaired"], health["identity_degraded"]) == (True, False)
    assert [await guest.sh("echo $NAME") for guest in (one, two)] == ["one\n", "two\n"]
    first, second = [(await guest.sh(WHO)).split() for guest in (one, two)]
    assert not set(first) & set(second)
    for machine_id, boot_id, hostname in (first, second):
        assert boot_id.replace("-", "") == machine_id
        assert hostname == f"microvm-{machine_id[:12]}"
    await one.client.files.write("/home/agent/mine", b"one")
    assert await two.sh("ls /home/agent") == ""


@pytest.mark.parametrize("age", [0.0, 0.2, 0.6])
@pytest_twisted.ensureDeferred
async def test_clones_draw_different_random_bytes_at_once(
    clone: Clone, start: Start, saved: Saved, tmp_path: Path, age: float
) -> None:
    """Over several snapshots: the kernel's own next reseed, after some seconds, must not be what parts them."""
    source = await start(state=saved.state)
    await source.ready()
    await pause(age)
    await source.save(tmp_path / "state")
    await source.kill()
    one, two = await clone(state=tmp_path / "state"), await clone(state=tmp_path / "state")
    drawn = await gatherResults(
        [Deferred.fromCoroutine(each.client.run(["python3", "-c", DRAW])) for each in (one, two)]
    )
    first, second = [set((outcome.stdout or "").split()) for outcome in drawn]
    assert (len(first), len(second)) == (5, 5)
    assert not first & second


@pytest_twisted.ensureDeferred
async def test_a_clone_of_a_launched_machine_keeps_its_token(
    clone: Clone, start: Start, tmp_path: Path
) -> None:
    """The daemon takes one token in its life: such a clone is its source once more, commands and all."""
    source = await clone()
    handle = await source.client.start(["sleep", "600"], exec_id="sleeper")
    await source.machine.save(tmp_path / "state")
    await source.machine.kill()
    twin = Guest(await start(state=tmp_path / "state"), source.token)
    await twin.machine.ready()
    await platform.post(reactor, twin.machine.url, "resume")
    assert await status_of(twin.machine, source.token) == 200
    with pytest.raises(platform.HookFailed):
        await platform.launch(reactor, twin.machine, "another")
    assert (await twin.client.exec("sleeper").poll()).phase == "running"
    assert await twin.client.exec("sleeper").kill()
    await twin.client.close()
    assert handle.exec_id == "sleeper"

"""`agentctl vm` as a person uses it: each command a process of its own."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted

from agentd.vm.image import Image
from tests.cli.support import Agentctl, Ran, start
from tests.vm.support import until

LIMIT = 120.0
Vm = Callable[..., Any]


def machines_below(directory: Path) -> set[int]:
    """The QEMU processes whose sockets are in `directory`."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if line.startswith(b"qemu-system") and str(directory).encode() in line:
                found.add(int(name))
    return found


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    """`vm(word, …)`: agentctl vm, started; whatever it leaves running is ended, and held against the test."""
    begun: list[Agentctl] = []

    def begin(*words: str) -> Agentctl:
        environment = {"AGENTD_VM_DIR": str(tmp_path / "vms"), "TMPDIR": str(tmp_path)}
        begun.append(start("vm", *words, url=None, token=None, env=environment))
        begun[-1].process.closeStdin()
        return begun[-1]

    yield begin
    for each in begun:
        each.stop()
    left = machines_below(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


async def done(run: Agentctl) -> Ran:
    """Its end, which must be a success."""
    run.ended.addTimeout(LIMIT, _reactor())
    status = await run.ended
    assert status == 0, run.err.decode()
    return Ran(status, run.out, run.err)


def _reactor() -> Any:
    from twisted.internet import reactor

    return reactor


@pytest_twisted.ensureDeferred
async def test_run_is_the_whole_life_of_a_machine(vm: Vm, image: Image, tmp_path: Path) -> None:
    """The command's output and status, and nothing left."""
    run = vm("run", str(image.directory), "--memory", "224", "--", "sh", "-c", "echo from inside; exit 7")
    status = await run.ended.addTimeout(LIMIT, _reactor())
    assert (status, run.out) == (7, b"from inside\n"), run.err
    assert machines_below(tmp_path) == set()
    assert list(tmp_path.glob("agentd-vm-*")) == []


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (("run", "--", "true"), signal.SIGTERM),
        (("run", "--", "true"), signal.SIGKILL),
        (("up",), signal.SIGTERM),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_machine_does_not_outlive_what_was_to_wait_for_it(
    vm: Vm, image: Image, tmp_path: Path, words: tuple[str, ...], number: int
) -> None:
    """Whatever ends it, in the middle of a boot; `up` can clean up only where it is told to end."""
    run = vm(words[0], str(image.directory), *words[1:])

    async def started() -> bool:
        return bool(machines_below(tmp_path))

    await until(started)
    run.signal(number)
    await run.ended.addTimeout(LIMIT, _reactor())

    async def gone() -> bool:
        return not machines_below(tmp_path)

    await until(gone)
    assert not (tmp_path / "vms").exists() or list((tmp_path / "vms").iterdir()) == []


@pytest_twisted.ensureDeferred
async def test_up_suspend_resume_snapshot_clone_down(vm: Vm, image: Image, tmp_path: Path) -> None:
    """A closed machine is saved and cloned twice; a clone is suspended and resumed; all of them end."""
    made = await done(vm("up", str(image.directory), "--name", "source", "--closed", "--json"))
    assert json.loads(made.text)["token"] is None
    taken = await done(vm("snapshot", "source", str(tmp_path / "saved")))
    assert "MiB" in taken.text
    assert (await done(vm("down", "source"))).text == "powered off\n"
    clones = []
    for name in ("one", "two"):
        made = await done(
            vm("clone", str(tmp_path / "saved"), "--name", name, "--json", "--forward", "0:9000")
        )
        clones.append(json.loads(made.text))
    one, two = clones
    assert one["token"] != two["token"]
    assert one["url"] != two["url"]
    assert one["forwards"][0][0] > 0
    assert (await done(vm("ls"))).text == "one\ntwo\n"
    token_file = tmp_path / "vms/one/token"
    assert token_file.read_text() == one["token"]
    assert token_file.stat().st_mode & 0o077 == 0
    assert (await done(vm("suspend", "one"))).text == "suspended\n"
    assert (await done(vm("resume", "one"))).text == "running\n"
    inside = start("run", "--", "hostname", url=one["url"], token=one["token"])
    inside.process.closeStdin()
    assert (await inside.result()).text.startswith("microvm-")
    again = vm("clone", str(tmp_path / "saved"), "--name", "one")
    assert await again.ended == 2
    assert b"there is a machine one already" in again.err
    for name in ("one", "two"):
        assert (await done(vm("down", name))).text == "powered off\n"
    assert machines_below(tmp_path) == set()
    assert list((tmp_path / "vms").iterdir()) == []

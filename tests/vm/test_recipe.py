"""The recipe: a function of the commit, and everything in the image that belongs there."""

import json
import os
from pathlib import Path

import pytest_twisted
from twisted.internet import reactor

from agentd.vm import machine as machines
from agentd.vm import platform
from agentd.vm.command import Forward, Settings, Shape
from agentd.vm.image import Image, load
from tests.conftest import REPOSITORY
from tests.vm.conftest import Clone, build_image
from tests.vm.support import Guest

LIMIT_MIB = {"kernel": 16, "initrd": 2, "root": 140}


def test_two_builds_of_one_commit_are_equal(image: Image, source: Path, tmp_path: Path) -> None:
    """To the byte, manifests included."""
    given = "AGENTD_VM_IMAGE" in os.environ  # that one may be of another commit
    first = build_image(tmp_path / "first", source) if given else image.directory
    again = build_image(tmp_path / "again", source)
    one, two = (json.loads((path / "manifest.json").read_text()) for path in (first, again))
    assert one == two
    for name in one["files"]:
        assert (first / name).read_bytes() == (again / name).read_bytes()


def test_the_manifest_says_what_is_inside(image: Image) -> None:
    """Sizes that are right and within bounds, versions, and the two things that make a start quick."""
    manifest = json.loads((image.directory / "manifest.json").read_text())
    for part, limit in LIMIT_MIB.items():
        name = manifest["boot"][part]
        size = (image.directory / name).stat().st_size
        assert manifest["files"][name]["bytes"] == size < limit * 2**20
    assert (manifest["byte_compiled"], manifest["plugin_cache"]) == (True, True)
    assert {"bash", "busybox-static", "libc6", "python3.11-minimal", "tini"} <= set(manifest["debian"])
    assert {"agentd", "twisted", "klein", "autobahn", "attrs", "msgspec"} <= set(manifest["python"])
    assert not {"treq", "click", "rich", "numpy"} & set(manifest["python"])
    assert manifest["kernel"]["version"].startswith("6.")


@pytest_twisted.ensureDeferred
async def test_a_machine_without_a_disk_and_with_handlers(source: Path, tmp_path: Path) -> None:
    """Everything in the initrd, the example handlers too: built, booted, driven through its hooks, powered off."""
    hooks = f"--hooks={REPOSITORY / 'image/hooks.d'}"
    image = load(build_image(tmp_path / "image", source, "--root=initrd", hooks))
    assert image.root is None
    settings = Settings(image, Shape(image.memory_mib), (Forward(0, image.port),))
    machine = await machines.start(reactor, settings, tmp_path / "machine")
    guest = Guest(machine)
    try:
        await platform.prepare(reactor, machine)
        await guest.launch(env={"WORKLOAD": "an example"})
        assert await guest.sh("cat /run/workload-host /run/workload-name; hostname") == (
            "{0}\nan example\n{0}\n".format((await guest.sh("hostname")).strip())
        )
        await platform.suspend(reactor, machine)
        await platform.resume(reactor, machine)
        hooks_seen = [
            (hook["hook"], hook.get("handler", {}).get("exit_code"))
            for hook in (await guest.health())["hooks"]
        ]
        assert hooks_seen == [("ready", None), ("validate", None), ("run", 0), ("suspend", 0), ("resume", 0)]
        assert (await guest.end()).in_order, machine.console
    finally:
        await guest.client.close()
        await machine.kill()


@pytest_twisted.ensureDeferred
async def test_the_guest_compiles_nothing_and_writes_no_cache(clone: Clone) -> None:
    """Every module has its compiled file, `twistd` finds the plugin, and neither leaves anything behind."""
    guest = await clone()
    written = "find / -xdev -newer /etc/hostname '(' -name '*.pyc' -o -name dropin.cache ')'"
    before = await guest.sh(written)
    assert "agentd" in await guest.sh("/usr/local/bin/twistd --help")
    missing = (
        "find /usr/lib/python3.11 /usr/local/lib/python3.11 -name '*.py' | while read -r source; do "
        'name=${source##*/}; [ -e "${source%/*}/__pycache__/${name%.py}.cpython-311.pyc" ] || echo "$source"; done'
    )
    assert await guest.sh(missing) == ""
    assert await guest.sh(written) == before

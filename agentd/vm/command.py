"""QEMU's command line for one machine (qemu-system-x86_64(1)).

One processor: under software emulation a second makes the start slower. User networking, closed to everything outside
(`restrict=on`) but for the forwarded ports, which are on loopback alone. The root is read-only and may be shared. No
display, no defaults, no option ROMs; the serial console goes to a file, the only witness of an early failure.

A saved state fits a machine of the same shape: memory, processor model, devices. `Shape` is that, and goes with it.
"""

from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import Final

from attrs import evolve, field, frozen

from agentd.vm.image import Image

QEMU: Final = "qemu-system-x86_64"
LOOPBACK: Final = "127.0.0.1"
TCG, KVM = "tcg", "kvm"
PROCESSORS: Final = {TCG: "max", KVM: "host"}


@frozen
class Forward:
    """A port of this machine that leads to one of the guest's."""

    local: int
    remote: int


@frozen
class Shape:
    """What a saved state depends on."""

    memory_mib: int
    accelerator: str = TCG


@frozen
class Settings:
    """One machine to be started."""

    image: Image
    shape: Shape
    forwards: tuple[Forward, ...] = ()
    """The daemon's port first."""
    words: tuple[str, ...] = field(default=())
    """More for the kernel's line."""

    def forwarding(self, forwards: Iterable[Forward]) -> "Settings":
        """The same machine behind other ports."""
        return evolve(self, forwards=tuple(forwards))

    @property
    def port(self) -> int:
        """Where the daemon is reached from here."""
        return self.forwards[0].local


def arguments(settings: Settings, directory: Path, state: Path | None = None) -> list[str]:
    """The words that start the machine, with its sockets and its console in `directory`.

    `state` is a file to resume from instead of booting.
    """
    image, shape = settings.image, settings.shape
    rules = "".join(
        f",hostfwd=tcp:{LOOPBACK}:{forward.local}-:{forward.remote}" for forward in settings.forwards
    )
    words = [QEMU, "-accel", shape.accelerator, "-M", "pc", "-cpu", PROCESSORS[shape.accelerator]]
    words += ["-smp", "1", "-m", str(shape.memory_mib)]
    words += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    words += ["-kernel", str(image.kernel), "-initrd", str(image.initrd)]
    words += ["-append", " ".join((image.line, *settings.words))]
    if image.root is not None:
        words += ["-drive", f"file={_escaped(image.root)},if=none,id=root,format=raw,readonly=on"]
        words += ["-device", "virtio-blk-pci,drive=root"]
    words += ["-netdev", f"user,id=net,restrict=on{rules}", "-device", "virtio-net-pci,netdev=net,romfile="]
    words += ["-serial", f"file:{directory / 'console'}"]
    words += ["-qmp", f"unix:{_escaped(directory / 'qmp')},server=on,wait=off"]
    if state is not None:
        words += ["-incoming", f"exec:cat {quote(str(state))}"]
    return words


def _escaped(path: Path) -> str:
    """A path within an option's list of words, where a comma would end it."""
    return str(path).replace(",", ",,")

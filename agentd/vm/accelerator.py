"""Whether this host accelerates virtual machines: tried, not looked up.

The device can be there and the guest hang all the same, as within a virtual machine that only claims the feature. So a
kernel without anything to start is booted under a time limit: it panics, which ends the machine, within a second where
the hardware helps. Everywhere else the answer is software emulation.
"""

import os
import tempfile
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from agentd.vm import machine
from agentd.vm.command import KVM, TCG, Settings, Shape
from agentd.vm.image import Image
from agentd.vm.machine import MachineFailed
from agentd.vm.process import NotStarted

DEVICE: Final = "/dev/kvm"
TRIAL_SECONDS: Final = 8.0


async def choose(reactor: Any, image: Image) -> str:
    """``kvm`` where a kernel was seen to run under it, else ``tcg``."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return TCG
    nothing = evolve(image, root=None, line="console=ttyS0 panic=-1 quiet rdinit=/none")
    with tempfile.TemporaryDirectory(prefix="agentd-vm-") as directory:
        try:
            trial = await machine.start(
                reactor, Settings(nothing, Shape(image.memory_mib, KVM)), Path(directory)
            )
        except NotStarted:
            return TCG
        try:
            return KVM if (await trial.ended(TRIAL_SECONDS)).panicked else TCG
        except MachineFailed:
            return TCG
        finally:
            await trial.kill()

"""Making every random generator of this machine its own (random(4); contract g.5, beyond its five steps).

Machines resumed from one snapshot continue with one state of everything: the kernel's generator, Python's, OpenSSL's.
Until a generator is seeded anew it deals all of them the same "random" bytes, from which keys, ids and nonces are made.
What sets two such machines apart is what each was told by its own run hook, and the time that has passed outside: both
are hashed together, fed to the kernel, which is told to use it at once, and then to the generators of this process.

The tunnels' OpenSSL is another one, inside `cryptography`, and seeds itself at its first use; no tunnel opens before
there is a token.

What stays shared: the seed of Python's string hashes, which a process gets once, and whatever a program of the image
has drawn before the snapshot and kept. A generator in another process is that process's business: the workload's
handler for the run hook is the place for it.
"""

import hashlib
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attrs import frozen

from agentd.linux import entropy

RTC: Final = Path("/sys/class/rtc/rtc0/since_epoch")
"""The machine's battery clock, which goes on while the machine is paused (rtc(4), in the kernel's sysfs-class-rtc)."""


def clocks(rtc: Path = RTC) -> bytes:
    """Every clock there is, as it stands now. Two machines of one snapshot differ at least in the time outside."""
    readings = [
        time.time_ns(),
        time.monotonic_ns(),
        time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        time.thread_time_ns(),
    ]
    try:
        readings.append(int(rtc.read_bytes()))
    except (OSError, ValueError):
        pass
    return b",".join(b"%d" % reading for reading in readings)


def reseed_process(material: bytes) -> None:
    """Seed the generators of this process: Python's `random`, and OpenSSL's where Python has loaded it."""
    random.seed(hashlib.blake2b(os.urandom(64), key=material, person=b"agentd-python").digest())
    ssl = sys.modules.get("ssl")
    if ssl is not None:
        ssl.RAND_add(hashlib.blake2b(material, person=b"agentd-openssl").digest(), 0.0)


@frozen
class Generators:
    """What is seeded, and what the material is mixed with. The default is this machine's."""

    clocks: Callable[[], bytes] = clocks
    kernel: Callable[[bytes], None] = entropy.reseed
    process: Callable[[bytes], None] = reseed_process

    def reseed(self, told: bytes) -> None:
        """Seed everything from `told`, which no other machine was told, and from the clocks.

        The process's own generators are seeded even if the kernel refuses. Raises what the kernel does: OSError, EPERM
        without CAP_SYS_ADMIN, EINVAL before Linux 4.14.
        """
        material = hashlib.blake2b(
            told, key=hashlib.blake2b(self.clocks()).digest(), person=b"agentd-reseed"
        ).digest()
        try:
            self.kernel(material)
        finally:
            self.process(material)

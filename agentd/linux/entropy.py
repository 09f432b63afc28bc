"""Telling the kernel's random generator that this machine is not its twin (random(4)).

Machines resumed from one snapshot resume with one generator state: until its next periodic reseeding, every
one of them draws the *same* "random" bytes. Writing to /dev/urandom alone does not help, as it only feeds the
input pool; the generator takes from that pool when it is told to reseed.
"""

import fcntl
import os
from typing import Final

_RNDRESEEDCRNG: Final = 0x5207


def reseed(material: bytes) -> None:
    """Mix `material`, which no twin has, into the kernel's generator and make it count at once.

    Nothing is taken away from the generator: known or worthless material does no harm. Raises `OSError`: EPERM
    without CAP_SYS_ADMIN, EINVAL before Linux 4.14, ENODATA when the generator was never seeded.
    """
    fd = os.open("/dev/urandom", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, material)
        fcntl.ioctl(fd, _RNDRESEEDCRNG)
    finally:
        os.close(fd)

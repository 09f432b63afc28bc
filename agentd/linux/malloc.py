"""Memory that is freed goes back to the kernel (mallopt(3)).

glibc serves large blocks with mmap(2) and gives them back when they are freed; but each such block that is freed
raises the size from which it does so, up to 32 MiB, and from then on blocks of that size come from a heap that
shrinks only at its end. A daemon that now and then holds eight megabytes for a minute would keep some tens of them
for ever (measured: five captured outputs of 8 MiB, acknowledged, left 40 MiB; with the size fixed, 5). A size that
is set does not move.
"""

import ctypes
from typing import Final

from agentd.linux import libc

LARGE_BYTES: Final = 1024 * 1024
"""Blocks of so many bytes are mapped, and unmapped when they are freed. Smaller than an output or an archive that is
kept for long, larger than what is read and written at a time: a new mapping costs a fault for each of its pages, and
a body received in mapped blocks took twice the processor time."""
SPARE_BYTES: Final = 8 * 1024 * 1024
"""How much free memory at the end of the heap is kept for the next blocks. Setting one of the two sizes stops the
library from adapting the other, whose fixed 128 KiB would have a heap shrink and grow with every block."""

_M_MMAP_THRESHOLD: Final = -3
_M_TRIM_THRESHOLD: Final = -1


def give_back_large_blocks(size: int = LARGE_BYTES, spare: int = SPARE_BYTES) -> bool:
    """Fix the size from which a block is mapped on its own, and what a heap keeps; False where that cannot be set."""
    try:
        mallopt = libc.library_call("mallopt", ctypes.c_int, ctypes.c_int)
    except AttributeError:
        return False
    return mallopt(_M_MMAP_THRESHOLD, size) == 1 and mallopt(_M_TRIM_THRESHOLD, spare) == 1

"""Bytes from one descriptor to another without passing through the interpreter where the kernel can do it.

copy_file_range(2) shares blocks where the file system can and copies inside the page cache where it cannot;
between file systems of different kinds it answers EXDEV, and pseudo file systems refuse or come up short.
Then the copy goes on through a buffer, which any two descriptors can do.
"""

import errno
import os
from collections.abc import Generator

PIECE_BYTES = 8 * 1024 * 1024
"""Bytes between two yields of a copy, so between two looks at the clock and at the disk guard."""
BUFFER_BYTES = 1024 * 1024

_KERNEL_CANNOT = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.ETXTBSY}
)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data` at the descriptor's own offset."""
    written = os.write(fd, data)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(data):
        written += os.write(fd, view[written:])


def write_batch(fd: int, batch: list[bytes]) -> list[bytes]:
    """Write chunks with one writev(2), which takes at most 1,024; returns what was not written."""
    written = os.writev(fd, batch if len(batch) <= 256 else [b"".join(batch)])
    for index, chunk in enumerate(batch):
        if written < len(chunk):
            return [chunk[written:], *batch[index + 1 :]]
        written -= len(chunk)
    return []


def copy(source: int, offset: int, target: int, count: int) -> Generator[int, None, int]:
    """Copy `count` bytes from `offset` of `source` to where `target` stands.

    Yields the size of each piece copied, at most `PIECE_BYTES`; returns the total, which is less than `count`
    only if the source ended early. Raises OSError.
    """
    end = offset + count
    position = offset
    kernel = True
    while position < end:
        want = min(PIECE_BYTES, end - position)
        copied = 0
        if kernel:
            try:
                copied = os.copy_file_range(source, target, want, position)
            except OSError as error:
                if error.errno not in _KERNEL_CANNOT:
                    raise
            # 0 bytes may be the end, or a file whose size is not what its content is (procfs): a read tells.
            kernel = copied > 0
        if not kernel:
            data = os.pread(source, min(BUFFER_BYTES, want), position)
            if not data:
                break
            write_all(target, data)
            copied = len(data)
        position += copied
        yield copied
    return position - offset

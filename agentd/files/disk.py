"""The disk guard and the spool: no transfer may fill the disk, and nothing spooled outlives its descriptor.

The guard compares what is free at a path with a configured reserve (contract e.4). It is asked before a
write begins and again behind each full 8 MiB. A spool is an unlinked file: the kernel frees it with the last
descriptor, also when the daemon is killed, so there is nothing to sweep at the next start.
"""

import errno
import os
import tempfile
from collections.abc import Callable

from attrs import field, frozen

from agentd.files.errors import FilesError, Kind, failure
from agentd.linux.statvfs import available_bytes
from agentd.rules.members import shown
from agentd.rules.writes import DISK_CHECK_BYTES, disk_refuses

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@frozen
class DiskGuard:
    """Refuses writes that would leave less than `reserve` bytes free; 0 turns it off."""

    reserve: int
    available: Callable[[bytes], int] = available_bytes

    def check(self, path: bytes, needed: int = 0) -> None:
        """Raise a `NO_SPACE` error when less than the reserve would be free at `path` with `needed` bytes gone.

        What is known to be needed must be there even when the reserve is 0. Blocks on the file system of
        `path`, which need not exist; one that cannot be measured refuses nothing.
        """
        if self.reserve == 0 and needed == 0:
            return
        try:
            available = self.available(path)
        except OSError:
            return
        if available == 0 and _has_no_blocks(path):
            return
        if available < needed or disk_refuses(available - needed, self.reserve):
            extra = f" and {needed} needed" if needed else ""
            raise FilesError(
                Kind.NO_SPACE,
                f"not enough disk space at {shown(path)}: {available} bytes available{extra}, "
                f"{self.reserve} kept in reserve",
            )

    def meter(self, path: bytes) -> "Meter":
        """A meter for one write at `path`."""
        return Meter(self, path)


def _has_no_blocks(path: bytes) -> bool:
    """Whether `path` is on a file system that stores nothing, such as procfs, and so cannot get full."""
    try:
        return os.statvfs(path).f_blocks == 0
    except OSError:
        return False


class Meter:
    """Asks the guard again behind each full 8 MiB of one write."""

    def __init__(self, guard: DiskGuard, path: bytes) -> None:
        self._guard = guard
        self._path = path
        self._unchecked = 0

    def wrote(self, count: int) -> None:
        """Account for `count` bytes written. Raises `NO_SPACE`."""
        self._unchecked += count
        if self._unchecked >= DISK_CHECK_BYTES:
            self._unchecked %= DISK_CHECK_BYTES
            self._guard.check(self._path)


def write_failure(verb: str, path: bytes, error: OSError) -> FilesError:
    """As `failure`, but a full disk or an exhausted quota is `NO_SPACE` whatever the reserve."""
    return failure(verb, path, error, Kind.NO_SPACE if error.errno in DISK_FULL else Kind.FAILED)


def _default_directory() -> bytes:
    return os.fsencode(tempfile.gettempdir())


@frozen
class Spool:
    """Makes unlinked files under `directory`, which is made again should somebody have removed it."""

    directory: bytes = field(factory=_default_directory)

    def open(self) -> int:
        """A descriptor, read and write, of a new file without a name. Raises `FilesError`."""
        try:
            try:
                return self._open()
            except FileNotFoundError:
                os.makedirs(self.directory, exist_ok=True)
                # It was the temporary directory of everybody, so that is what it has to be again.
                os.chmod(self.directory, 0o1777)
                return self._open()
        except OSError as error:
            raise write_failure("spool in", self.directory, error) from error

    def _open(self) -> int:
        try:
            return os.open(self.directory, os.O_RDWR | os.O_CLOEXEC | os.O_TMPFILE, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
                raise
        fd, name = tempfile.mkstemp(prefix=b".agentd-", dir=self.directory)
        os.unlink(name)
        return fd

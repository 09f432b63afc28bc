"""File work as another user: the same operations, on the same threads, with that user's rights and no others.

Everything in this package that blocks goes through a `RunInThread`. `acting` makes one whose functions run as a
given user, so a whole operation, from the first look at a path to the last byte, is decided by the kernel for
that user. Nothing is checked by root and then done by root, so there is no moment between the two.

What differs from the daemon's own reads and writes is what an unprivileged user expects: only regular files,
parents only when asked for, and modes that do not depend on a daemon's umask (environments 5.3, 5.4).
"""

import codecs
import errno
import os
import stat
from collections.abc import Callable
from typing import Any

from attrs import frozen

from agentd.files.disk import DiskGuard, Spool
from agentd.files.errors import Kind, failure
from agentd.files.read import Content, open_content
from agentd.files.target import Destination, Found, find
from agentd.files.threads import RunInThread
from agentd.linux.effective import acting_as
from agentd.rules.writes import Way

# Codecs are imported when they are first used, which as another user may find the interpreter's files closed.
codecs.lookup("unicode_escape")

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755


@frozen
class Actor:
    """Whom to act as."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def acting(run_in_thread: RunInThread, actor: Actor) -> RunInThread:
    """A `RunInThread` whose functions run with the rights of `actor`."""

    def run(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return run_in_thread(_act, actor, function, args, kwargs)

    return run


def _act(actor: Actor, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    with acting_as(actor.uid, actor.gid, actor.groups):
        return function(*args, **kwargs)


def open_regular(path: bytes) -> Content:
    """Open a regular file to be sent. Blocks, though not on a FIFO or device.

    Raises `FilesError` with the errno of what the system said: EISDIR for a directory, ENXIO for what is neither.
    """
    content = open_content(path, None, None)
    if not stat.S_ISREG(os.fstat(content.fd).st_mode):
        content.close()
        raise failure("read", path, OSError(errno.ENXIO, ""), Kind.BAD_REQUEST)
    return content


class PlainDestination(Destination):
    """One write to a regular file at `path`; `parents` makes what is missing above it."""

    def __init__(self, path: bytes, parents: bool, guard: DiskGuard, spool: Spool) -> None:
        super().__init__(path, None, guard, spool)
        self._parents = parents
        self.replaces: tuple[int, int] | None = None
        """Device and inode of the file that was there when the write began."""

    def _find(self) -> Found:
        head, name = os.path.split(self._path)
        if not name:
            raise OSError(errno.EISDIR, "", self._path)
        try:
            return find(self._path)
        except FileNotFoundError:
            if not self._parents:
                raise
            make_directories(head)
            return find(self._path)

    def _open(self, found: Found) -> None:
        if found.plan.way is Way.STREAM:
            raise OSError(errno.ENXIO, "", self._path)
        if found.status is not None:
            self.replaces = found.status.st_dev, found.status.st_ino
        super()._open(found)

    def _take_name(self, found: Found) -> None:
        if found.status is None:
            os.fchmod(self.fd, FILE_MODE)
        super()._take_name(found)


def make_directories(path: bytes) -> None:
    """Make `path` and what is missing above it, whatever the umask. Blocks; raises OSError, ENOTDIR for a file."""
    missing: list[bytes] = []
    here = path
    while here and not os.path.isdir(here):
        missing.append(here)
        above = os.path.dirname(here.rstrip(b"/"))
        if above == here:
            break
        here = above
    for directory in reversed(missing):
        try:
            os.mkdir(directory, DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise OSError(errno.ENOTDIR, "", directory) from None
        else:
            _set_mode(directory)


def _set_mode(directory: bytes) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o777 != DIRECTORY_MODE:
            os.fchmod(fd, DIRECTORY_MODE)
    finally:
        os.close(fd)

"""Removing an entry, or a tree: descriptor by descriptor, never through a link, in bounded memory.

Theory of operation
-------------------
A path is resolved once, to the directory that holds the entry. From there on nothing is: each directory is opened from
its parent's descriptor without following a link, emptied, and removed by its name in that descriptor. So swapping a
directory for a link while its tree goes away leads nowhere but to the removal of the link.

The way down is as deep as the tree, and a process may hold some thousand descriptors. So only the lowest `KEPT`
directories stay open; above them the way back is ``..``, taken only if what is found there is the very
directory that was left (device and inode), since somebody may have moved what is being removed to another place
meanwhile.

Of a directory at most `BATCH` names are held. It is read again from its beginning after each subdirectory,
which costs one read, because what came before is gone by then. The first failure ends it, with what was removed
staying removed.
"""

import errno
import os
import stat
from collections.abc import Generator
from itertools import islice
from typing import Final

from attrs import define

BATCH: Final = 512
KEPT: Final = 64

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PATH: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class Protected(Exception):
    """The path is a directory that must stay: the root, or the user's home."""


@define
class _Level:
    """A directory on the way down, by the name it has in the one above."""

    name: bytes
    device: int
    inode: int
    fd: int = -1


def remove(path: bytes, recursive: bool, keep: tuple[bytes, ...]) -> Generator[None, None, None]:
    """Remove what `path` names, itself and not what a link leads to. For `run_sliced`; blocks.

    `keep` are directories that are never removed. Raises OSError (EISDIR for a directory without `recursive`, EINVAL
    for a path that ends in ``.`` or ``..``), or `Protected`.
    """
    path = path.rstrip(b"/") or b"/"
    head, name = os.path.split(path)
    if not name:
        raise Protected
    parent = os.open(head or b".", _PATH)
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=parent)
            return
        if any(_same(status, place) for place in keep):
            raise Protected
        if name in (b".", b".."):
            raise OSError(errno.EINVAL, "", path)
        if not recursive:
            raise OSError(errno.EISDIR, "", path)
        yield from _remove_tree(parent, name, keep)
    finally:
        os.close(parent)


def _same(status: os.stat_result, place: bytes) -> bool:
    try:
        return os.path.samestat(status, os.stat(place))
    except OSError:
        return False


def _remove_tree(parent: int, name: bytes, keep: tuple[bytes, ...]) -> Generator[None, None, None]:
    way: list[_Level] = []
    try:
        top = _open(parent, name)
        if top is None:
            return
        way.append(top)
        # Looked at again through the descriptor: the name may have changed hands since.
        if any(_same(os.fstat(top.fd), place) for place in keep):
            raise Protected
        while way:
            below = yield from _empty(way[-1].fd)
            if below is not None:
                way.append(below)
                if len(way) > KEPT:
                    _close(way[-KEPT - 1])
                continue
            above = parent if len(way) == 1 else _back(way[-2], way[-1])
            done = way.pop()
            _close(done)
            try:
                os.rmdir(done.name, dir_fd=above)
            except FileNotFoundError:
                pass
            except NotADirectoryError:
                _unlink(above, done.name)  # something else took the name of what is gone
            yield
    finally:
        for level in way:
            _close(level)


def _open(directory: int, name: bytes) -> _Level | None:
    """Go down to `name`, or remove it if it is not a directory any more; None when nothing is left of it."""
    try:
        fd = os.open(name, _OPEN, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        _unlink(directory, name)
        return None
    try:
        status = os.fstat(fd)
    except BaseException:
        os.close(fd)
        raise
    return _Level(name, status.st_dev, status.st_ino, fd)


def _empty(directory: int) -> Generator[None, None, _Level | None]:
    """Remove what is in a directory until it is empty (None), or until there is a directory to go down to."""
    while True:
        with os.scandir(directory) as entries:
            names = [(os.fsencode(entry.name), _is_directory(entry)) for entry in islice(entries, BATCH)]
        if not names:
            return None
        for name, is_directory in names:
            if is_directory or not _unlink(directory, name):
                below = _open(directory, name)
                if below is not None:
                    return below
        yield


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _unlink(directory: int, name: bytes) -> bool:
    """Remove what is no directory; False if it is one."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        return False
    return True


def _back(level: _Level, below: _Level) -> int:
    """The descriptor of `level`, found through `below` if it was let go of."""
    if level.fd < 0:
        fd = os.open(b"..", _OPEN, dir_fd=below.fd)
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != (level.device, level.inode):
            os.close(fd)
            raise OSError(errno.EBUSY, "the tree was moved while it was removed")
        level.fd = fd
    return level.fd


def _close(level: _Level) -> None:
    if level.fd >= 0:
        fd, level.fd = level.fd, -1
        os.close(fd)

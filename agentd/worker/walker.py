"""One walk over a tree, for grep, sed, search, tree and whatever is recursive: by descriptors, never through a link.

Theory of operation
-------------------
The top is opened once (`agentd.worker.reach`). Below it a directory is opened by its name in its parent's descriptor
without following links, so a swap leads nowhere; `agentd.files.beneath` keeps the most recently used of these
descriptors and no more. What comes out are entries: a name, the descriptor of the directory it is in, and the path
from the top.

A walk is a generator for `agentd.files.threads.run_sliced`: it runs in a pool thread, a slice of time per visit, so
that other work gets its turn, and it is closed when the caller goes away. It gives None where nothing was found for
a while, so that it can be suspended there.

Entries come sorted by the bytes of their names, a directory before what is in it. Of a very large directory only
`SORTED` entries at a time are sorted, and held.
"""

import errno
import os
import stat
from collections.abc import Callable, Generator
from enum import StrEnum, unique
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

from agentd.files.beneath import Beneath, Blocked
from agentd.rules.members import Parts
from agentd.worker import reach

SORTED: Final = 16_384
_PAUSE_EVERY: Final = 512
_GONE: Final = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EXDEV})
"""What opening an entry says when it was removed, or replaced, since it was listed."""


@unique
class Kind(StrEnum):
    """What an entry is, as the coder functions call it."""

    FILE = "file"
    DIRECTORY = "dir"
    SYMLINK = "symlink"
    OTHER = "other"


def kind_of(mode: int) -> Kind:
    """The kind of what has this `st_mode`."""
    return _KINDS.get(stat.S_IFMT(mode), Kind.OTHER)


_KINDS: Final = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.DIRECTORY, stat.S_IFLNK: Kind.SYMLINK}


class Entry(NamedTuple):
    """One thing met: `name` in the open `directory`, `path` from the top of the walk.

    The descriptor is good until the walk goes on.
    """

    directory: int
    name: bytes
    path: bytes
    kind: Kind

    def status(self) -> os.stat_result:
        """What it is, a link for itself. Raises OSError."""
        return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)

    def open(self, flags: int = reach.READ) -> int:
        """A descriptor of it, not through a link. Raises OSError; see `is_gone`."""
        return os.open(self.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.directory)


def is_gone(error: OSError) -> bool:
    """Whether an entry could not be opened because it is not there any more, or is something else."""
    return error.errno in _GONE


def _everything(_: bytes) -> bool:
    return True


def _raised(_: bytes, error: OSError) -> None:
    raise error


class Tree:
    """The directories at and below a canonical one, each opened when it is listed. Close it."""

    def __init__(self, top: bytes) -> None:
        self._opened = Beneath(reach.open_path(top, reach.LIST), os.O_RDONLY)

    def entries(self, parts: Parts) -> Generator[Entry | None, None, None]:
        """The entries of the directory at `parts` from the top. Raises OSError."""
        try:
            directory = self._opened.directory(parts)
        except Blocked as reason:
            raise reason.error from None
        prefix = b"/".join((*parts, b""))
        with os.scandir(directory) as entries:
            while batch := list(islice(entries, SORTED)):
                found = sorted(((os.fsencode(entry.name), entry) for entry in batch), key=itemgetter(0))
                for number, (name, entry) in enumerate(found, 1):
                    yield Entry(directory, name, prefix + name, _kind(entry))
                    if number % _PAUSE_EVERY == 0:
                        yield None

    def close(self) -> None:
        """Close everything opened."""
        self._opened.close()


def walk(
    top: bytes,
    *,
    enter: Callable[[bytes], bool] = _everything,
    unreadable: Callable[[bytes, OSError], None] = _raised,
) -> Generator[Entry | None, None, None]:
    """Every entry below the canonical directory `top`, which is none itself; None is a good moment to pause.

    `enter` is asked with the path from the top before a directory is gone into; its entry comes either way.
    `unreadable` is told of a directory that cannot be listed; by default that ends the walk. Raises OSError.
    """
    tree = Tree(top)
    try:
        pending: list[Parts] = [()]
        while pending:
            parts = pending.pop()
            below: list[Parts] = []
            try:
                for entry in tree.entries(parts):
                    yield entry
                    if entry is not None and entry.kind is Kind.DIRECTORY and enter(entry.path):
                        below.append((*parts, entry.name))
            except OSError as error:
                if not is_gone(error) or not parts:
                    unreadable(b"/".join(parts), error)
            pending += reversed(below)
            yield None
    finally:
        tree.close()


def _kind(entry: "os.DirEntry[str]") -> Kind:
    try:
        if entry.is_file(follow_symlinks=False):
            return Kind.FILE
        if entry.is_dir(follow_symlinks=False):
            return Kind.DIRECTORY
        return Kind.SYMLINK if entry.is_symlink() else Kind.OTHER
    except OSError:
        return Kind.OTHER

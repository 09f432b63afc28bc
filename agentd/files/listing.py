"""One level of a directory: the first entries in the order of their names' bytes, in bounded memory.

A directory is read in whatever order the file system keeps it, and may hold millions of entries; what is wanted is
the first `most` of the sorted names. So names are gathered and cut back to what can still be among the first
whenever twice as many have come. Only those that remain are looked at, each without following it.

A descriptor stands for the directory throughout, so that what is listed is one directory even if its path changes.
"""

import errno
import os
import stat
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from attrs import frozen

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC


class Entry(NamedTuple):
    """One entry, itself. `status` is None when it may not be looked at, and `type` then what the directory says.

    A tuple, because one is made for each of thousands of entries.
    """

    name: bytes
    type: str
    """file, directory, symlink or other."""
    status: os.stat_result | None
    target: bytes | None
    """What a symbolic link holds."""


@frozen
class Listing:
    """The first entries, and whether there were more."""

    entries: list[Entry]
    truncated: bool


def list_directory(path: bytes, most: int) -> Listing:
    """List the directory at `path`. Blocks; raises OSError: ENOTDIR only for what is something else itself.

    A file in place of a directory *above* the last component is ENOENT, as nothing of that path exists.
    """
    try:
        directory = os.open(path, _DIRECTORY)
    except NotADirectoryError:
        if _exists(path):
            raise
        raise FileNotFoundError(errno.ENOENT, "", path) from None
    try:
        found, truncated = _first(directory, most)
        return Listing(list(_entries(directory, found)), truncated)
    finally:
        os.close(directory)


def _exists(path: bytes) -> bool:
    try:
        os.stat(path)
    except OSError:
        return False
    return True


def _first(directory: int, most: int) -> "tuple[list[tuple[bytes, os.DirEntry[str]]], bool]":
    """The first `most` names with their entries, and whether there were more."""
    kept: dict[bytes, os.DirEntry[str]] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            kept[entry.name.encode("utf-8", "surrogateescape")] = entry
            if len(kept) > 2 * most + 1000:
                kept = {name: kept[name] for name in sorted(kept)[: most + 1]}
    names = sorted(kept)
    return [(name, kept[name]) for name in names[:most]], len(names) > most


def _hint(entry: "os.DirEntry[str]") -> str:
    """What the directory itself says of an entry's type, of one that may not be looked at."""
    try:
        if entry.is_symlink():
            return "symlink"
        if entry.is_dir(follow_symlinks=False):
            return "directory"
        return "file" if entry.is_file(follow_symlinks=False) else "other"
    except OSError:
        return "other"


def _entries(directory: int, found: "list[tuple[bytes, os.DirEntry[str]]]") -> Iterator[Entry]:
    for name, entry in found:
        try:
            # Through the descriptor, which the entry remembers.
            status = entry.stat(follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            yield Entry(name, _hint(entry), None, None)
            continue
        kind = _type(status.st_mode)
        yield Entry(name, kind, status, _target(directory, name) if kind == "symlink" else None)


@cache
def _type(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def _target(directory: int, name: bytes) -> bytes | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:
        return None

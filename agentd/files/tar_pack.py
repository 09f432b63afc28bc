"""Packing a tree into an archive: measured first, then written to a spool, never following a link.

Runs in pool threads, as generators for `run_sliced`. A tree that others go on using changes while it is packed.
An entry that is gone, or has become something else, when its turn comes is left out and counted; a file that became
shorter is filled up with zeros to the length its header promised, as tar does, and counted too. What cannot be
read, and sockets, fail the whole archive (contract e.6).

Format: GNU, `./` first, names `./…` in byte order of each directory, hard links as independent copies, sparse
files with their holes.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

from attrs import define, field, frozen

from agentd.files.beneath import Beneath, Blocked
from agentd.files.errors import FilesError, Kind, failure
from agentd.files.tar_format import BLOCK, END, encode, encode_sparse_map, padded
from agentd.rules.members import Caps, Parts, over, shown

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LIST = os.O_RDONLY
_SMALL_BYTES = 64 * 1024
"""Files up to this size are read at once, and never stored as sparse."""
_YIELD_EVERY = 16
"""Entries between two looks at the clock."""
_MAX_PACKED_EXTENTS = 16 * 1024
"""Pieces of a sparse file above which its holes are written out."""
_ZEROS = bytes(1024 * 1024)
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
_SPECIAL = {stat.S_IFCHR: b"3", stat.S_IFBLK: b"4", stat.S_IFIFO: b"6"}


class Output(Protocol):
    """Where an archive goes."""

    def write(self, data: bytes) -> None: ...
    def copy(self, source: int, offset: int, count: int) -> Generator[int, None, int]:
        """Append bytes of a file; yields and returns as `agentd.files.copy.copy`."""
        ...


@frozen
class Packed:
    """A finished archive: entries without the root, bytes of files, entries that vanished, files that shrank."""

    members: int
    bytes: int
    vanished: int
    shrunk: int


def open_tree(root: bytes) -> int:
    """Open the directory to pack; links are followed. Raises `FilesError`: `NOT_FOUND` (ENOENT), `BAD_REQUEST`."""
    try:
        return os.open(root, _LIST | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        kinds = {errno.ENOENT: Kind.NOT_FOUND, errno.ENOTDIR: Kind.BAD_REQUEST}
        if error.errno == errno.ENOTDIR and not os.path.exists(root):
            kinds = {}  # something on the way is no directory
        raise failure("pack", root, error, kinds.get(error.errno or 0, Kind.FAILED)) from error


@define(eq=False)
class Tree:
    """A measured tree: what `pack` will put into the archive, so that what is gone by then is noticed."""

    members: int = 0
    total: int = 0
    listings: dict[bytes, bytes] = field(factory=dict)
    """By path below the root: the names in a directory, sorted, each with its kind, joined by slashes. A few bytes
    an entry, where objects would be a hundred."""


_FILE, _DIRECTORY, _OTHER = b"\0f", b"\0d", b"\0o"


def measure(root: bytes, caps: Caps) -> Generator[None, None, Tree]:
    """List what is below `root` and count entries and bytes of files. Raises `TOO_LARGE`, or as `pack`."""
    tree = Tree()
    beneath = Beneath(open_tree(root), _LIST)
    pending: list[Parts] = [()]
    try:
        while pending:
            parts = pending.pop()
            try:
                directory = beneath.directory(parts)
            except Blocked as stopped:
                if stopped.error.errno in _GONE:
                    continue
                raise stopped.error from stopped
            names = []
            with os.scandir(directory) as entries:
                for entry in entries:
                    kind = _OTHER
                    if entry.is_file(follow_symlinks=False):
                        kind = _FILE
                        with suppress(FileNotFoundError):
                            tree.total += entry.stat(follow_symlinks=False).st_size
                    elif entry.is_dir(follow_symlinks=False):
                        kind = _DIRECTORY
                        pending.append((*parts, os.fsencode(entry.name)))
                    names.append(os.fsencode(entry.name) + kind)
                    tree.members += 1
                    _check_caps(tree.members, tree.total, caps)
                    if not tree.members % _YIELD_EVERY:
                        yield
            names.sort()
            tree.listings[b"/".join(parts)] = b"/".join(names)
    except OSError as error:
        raise failure("pack", root, error) from error
    finally:
        beneath.close()
    return tree


def pack(root: bytes, tree: Tree, caps: Caps, output: Output) -> Generator[None, None, Packed]:
    """Write the measured `tree` at `root` to `output` as an archive.

    Raises `FilesError`: `NOT_FOUND`, `BAD_REQUEST` (no directory), `TOO_LARGE`, `FAILED`, or what `output` raises.
    """
    beneath = Beneath(open_tree(root), _LIST)
    try:
        packing = _Packing(root, beneath, tree, caps, output)
        yield from packing.run()
        return packing.packed()
    finally:
        beneath.close()


@define(eq=False)
class _Level:
    """A directory that is being packed: its path, as components and as in the archive, and what is left of it."""

    parts: Parts
    path: bytes
    left: Iterator[bytes]


class _Packing:
    def __init__(self, root: bytes, beneath: Beneath, tree: Tree, caps: Caps, output: Output) -> None:
        self._root = root
        self._beneath = beneath
        self._tree = tree
        self._caps = caps
        self._output = output
        self._members = 0
        self._bytes = 0
        self._vanished = 0
        self._shrunk = 0

    def packed(self) -> Packed:
        return Packed(self._members, self._bytes, self._vanished, self._shrunk)

    def run(self) -> Generator[None, None, None]:
        """Every entry, a directory before what is in it."""
        self._output.write(self._header(b"./", b"5", os.fstat(self._beneath.root), 0))
        levels = [self._level((), b"./")]
        while levels:
            level = levels[-1]
            try:
                # Valid until another directory is asked for, which is when another level is entered.
                directory = self._beneath.directory(level.parts)
            except Blocked as stopped:
                self._gone(stopped.error, level.path, sum(1 for _ in level.left))
            for entry in level.left:
                name, kind = entry[:-2], entry[-2:]
                path = level.path + name
                try:
                    if kind == _FILE:
                        yield from self._file(directory, name, path)
                    else:
                        self._other(directory, name, path)
                    if not self._members % _YIELD_EVERY:
                        yield
                except OSError as error:
                    self._gone(error, path)
                else:
                    if kind == _DIRECTORY:
                        levels.append(self._level((*level.parts, name), path + b"/"))
                        break
            else:
                levels.pop()
        self._output.write(END)

    def _level(self, parts: Parts, path: bytes) -> _Level:
        names = self._tree.listings.pop(b"/".join(parts), b"")
        return _Level(parts, path, iter(names.split(b"/") if names else ()))

    def _gone(self, error: OSError, path: bytes, entries: int = 1) -> None:
        if error.errno not in _GONE:
            raise failure("pack", self._root + path[1:], error) from error
        self._vanished += entries

    def _header(self, path: bytes, flag: bytes, status: os.stat_result, size: int, **more: Any) -> bytes:
        mode, _, _, _, uid, gid, _, _, mtime, _ = status
        return encode(path, flag, mode & 0o7777, uid, gid, size, int(mtime), **more)

    def _count(self, size: int) -> None:
        self._members += 1
        self._bytes += size
        _check_caps(self._members, self._bytes, self._caps)

    def _other(self, directory: int, name: bytes, path: bytes) -> None:
        """A directory, a symbolic link, or what is neither those nor a file."""
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFSOCK:
            raise FilesError(
                Kind.FAILED, f"{shown(self._root + path[1:])} is a socket, which no archive holds"
            )
        if kind == stat.S_IFREG:
            raise OSError(errno.ESTALE, "")
        self._count(0)
        if kind == stat.S_IFDIR:
            self._output.write(self._header(path + b"/", b"5", status, 0))
        elif kind == stat.S_IFLNK:
            self._output.write(self._header(path, b"2", status, 0, link=os.readlink(name, dir_fd=directory)))
        else:
            device = (os.major(status.st_rdev), os.minor(status.st_rdev))
            self._output.write(self._header(path, _SPECIAL[kind], status, 0, device=device))

    def _file(self, directory: int, name: bytes, path: bytes) -> Iterable[None]:
        """Pack one file; a long one is left to the steps that are returned."""
        file = os.open(name, _READ, dir_fd=directory)
        steps: Iterable[None] = ()
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.ESTALE, "")
            size = status.st_size
            if size <= _SMALL_BYTES:
                data = os.read(file, size) if size else b""
                if len(data) < size:
                    data += _read(file, size - len(data))
                    size = len(data)
                self._count(size)
                header = self._header(path, b"0", status, size)
                self._output.write(header + data.ljust(-(-size // BLOCK) * BLOCK, b"\0") if size else header)
            else:
                self._count(size)
                steps = self._long_file(file, path, status)
        finally:
            if steps == ():
                os.close(file)
        return steps

    def _long_file(self, file: int, path: bytes, status: os.stat_result) -> Generator[None, None, None]:
        """A long file, with its holes if it has any. Closes it."""
        try:
            size = status.st_size
            holes = _extents(file, size) if status.st_blocks * 512 < size else None
            if holes is None:
                pieces = [(0, size)]
                self._output.write(self._header(path, b"0", status, size))
            else:
                pieces = holes
                tail, extension = encode_sparse_map(pieces, size)
                stored = sum(length for _, length in pieces)
                self._output.write(self._header(path, b"S", status, stored, tail=tail) + extension)
            yield from self._pieces(file, pieces)
        finally:
            os.close(file)

    def _pieces(self, file: int, pieces: list[tuple[int, int]]) -> Generator[None, None, None]:
        stored = missing = 0
        for offset, length in pieces:
            copying = self._output.copy(file, offset, length)
            copied = 0
            for piece in copying:
                copied += piece
                yield
            for at in range(copied, length, len(_ZEROS)):
                self._output.write(_ZEROS[: length - at])
                yield
            stored += length
            missing += length - copied
        self._shrunk += bool(missing)
        self._output.write(bytes(padded(stored) - stored))


def _read(file: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(file, size - len(data))):
        data += more
    return data


def _extents(file: int, size: int) -> list[tuple[int, int]] | None:
    """Where the data of a sparse file is; None when it has no holes, too many, or a file system that cannot say."""
    pieces: list[tuple[int, int]] = []
    at = 0
    while at < size:
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
            at = min(os.lseek(file, begin, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return pieces
            return None
        if begin >= size:
            break
        pieces.append((begin, at - begin))
        if len(pieces) > _MAX_PACKED_EXTENTS:
            return None
    return None if pieces == [(0, size)] else pieces


def _check_caps(members: int, total: int, caps: Caps) -> None:
    refused = over(members, total, caps)
    if refused is not None:
        raise FilesError(Kind.TOO_LARGE, f"the tree has {refused.reason}")

"""Reaching a canonical path without ever following a link, so that what was judged is what is used.

A canonical path has no symbolic link in it. Somebody may put one there after it was judged; openat2(2) with
RESOLVE_NO_SYMLINKS then refuses to walk it (ELOOP). So nothing here takes a path to more than its directory:
that is opened once under this limit, and everything else happens by a name in that descriptor, not following it.
Whoever swaps a component meanwhile gets an error out of us, and no file elsewhere.

All of it blocks: pool threads only. Errors are OSError.
"""

import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from attrs import define, field

from agentd.linux.openat2 import RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, openat2
from agentd.rules.jail import PATH_MAX_BYTES, join, normalise

_NO_LINKS: Final = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
_AT_FDCWD: Final = -100
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NAME_KEPT_BYTES: Final = 200
"""How much of a target's name goes into that of its temporary file, so that the latter is not too long."""
READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Dangling(Exception):
    """A link on the way leads nowhere, or in a circle."""


def canonical(path: bytes) -> bytes:
    """What the absolute `path` really is, with every link followed; what does not exist yet is taken as text.

    Raises `Dangling`, or OSError: ENAMETOOLONG, EACCES.
    """
    if len(path) > PATH_MAX_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path[:64])
    real = _existing(path)
    if real is not None:
        return real
    head, missing = path.rstrip(b"/"), [b""]
    while real is None:
        head, name = os.path.split(head.rstrip(b"/"))
        missing.append(name)
        real = _existing(head or b"/")
    rest = [name for name in reversed(missing) if name not in (b"", b".")]
    if b".." in rest:
        # As text the way may lead back to what exists, and to links there.
        return canonical(normalise(b"/".join((real, *rest))))
    for name in rest:
        real = join(real, name)
        try:
            status = os.lstat(real)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(status.st_mode):
            raise Dangling
    return real


def _existing(path: bytes) -> bytes | None:
    try:
        return os.path.realpath(path, strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Dangling from None
        raise


def open_path(path: bytes, flags: int) -> int:
    """Open a canonical path; ELOOP if a link has got into it."""
    return openat2(_AT_FDCWD, path, flags | os.O_CLOEXEC, 0, _NO_LINKS)


@contextmanager
def opened(path: bytes, flags: int) -> Iterator[int]:
    """`open_path`, closed again."""
    fd = open_path(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def split(path: bytes) -> tuple[bytes, bytes]:
    """A canonical path's directory, and its name in there; ``.`` for the root."""
    head, name = os.path.split(path)
    return head, name or b"."


def open_directory(path: bytes, make: bool = False) -> int:
    """A descriptor of the directory at a canonical path, good for names in it; missing ones are made on demand."""
    missing: list[bytes] = []
    here = path
    while True:
        try:
            fd = open_path(here, _DIRECTORY)
            break
        except FileNotFoundError:
            if not make:
                raise
        here, name = os.path.split(here)
        missing.append(name)
    try:
        for name in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
            below = openat2(fd, name, _DIRECTORY, 0, _NO_LINKS)
            os.close(fd)
            fd = below
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def parent_of(path: bytes, make: bool = False) -> Iterator[tuple[int, bytes]]:
    """The directory of a canonical path, as a descriptor, and the name in it."""
    head, name = split(path)
    fd = open_directory(head, make)
    try:
        yield fd, name
    finally:
        os.close(fd)


def lstat(directory: int, name: bytes) -> os.stat_result:
    """What stands at `name`, a link for itself."""
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def status_of(path: bytes) -> os.stat_result | None:
    """What stands at a canonical path, None for nothing."""
    try:
        with parent_of(path) as (directory, name):
            return lstat(directory, name)
    except FileNotFoundError:
        return None


def handle(fd: int, name: bytes = b"") -> bytes:
    """A path by which the system finds what `fd` is, or `name` in it, whatever has become of its own path."""
    return b"/proc/self/fd/%d" % fd + (b"/" + name if name else b"")


# -- new content -------------------------------------------------------------------------------------------------


@define
class NewFile:
    """A file that is completed under a temporary name and then takes its own (rename(2)).

    Use: `begin`, `write` …, then `publish` or `discard`; both close it. Until then the target is as it was. One may
    come while another is still at work in a thread that cannot be interrupted: it waits.
    """

    _directory: int
    _name: bytes
    _temporary: bytes
    _fd: int
    size: int = field(default=0, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False, repr=False, eq=False)

    @classmethod
    def begin(cls, path: bytes, parents: bool = False) -> "NewFile":
        """For a canonical path: absent, or a regular file. Raises OSError: EISDIR, EEXIST for what is neither."""
        head, name = split(path)
        directory = open_directory(head, parents)
        try:
            _refuse_special(directory, name)
            temporary = name[:_NAME_KEPT_BYTES] + b".tmp." + secrets.token_hex(8).encode()
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o600, dir_fd=directory)
        except BaseException:
            os.close(directory)
            raise
        return cls(directory, name, temporary, fd)

    def write(self, data: bytes | bytearray) -> None:
        """Append."""
        with self._lock:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            self.size += len(data)

    def publish(self, mode: int, like: os.stat_result | None = None, replace: bool = True) -> None:
        """Take the target's name with permission bits `mode`, and the owner of `like` where that is allowed.

        Not to `replace`: FileExistsError if something is there. On failure the target is as it was.
        """
        with self._lock:
            try:
                os.fsync(self._fd)
                if like is not None:
                    with suppress(PermissionError):
                        os.fchown(self._fd, like.st_uid, like.st_gid)
                os.fchmod(self._fd, mode)
                _refuse_special(self._directory, self._name)
                if replace or not self._link():
                    self._rename(replace)
            finally:
                self.discard()

    def _rename(self, replace: bool) -> None:
        here = self._directory
        if not replace and exists(here, self._name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._name)
        os.rename(self._temporary, self._name, src_dir_fd=here, dst_dir_fd=here)
        self._temporary = b""

    def _link(self) -> bool:
        """Take the name only if it is free; False where the file system has no links."""
        try:
            os.link(
                self._temporary,
                self._name,
                src_dir_fd=self._directory,
                dst_dir_fd=self._directory,
                follow_symlinks=False,
            )
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                return False
            raise
        return True

    def discard(self) -> None:
        """Remove what was not published, and close. May be called more than once."""
        with self._lock:
            if self._fd < 0:
                return
            try:
                if self._temporary:
                    with suppress(FileNotFoundError):
                        os.unlink(self._temporary, dir_fd=self._directory)
            finally:
                fd, self._fd = self._fd, -1
                os.close(fd)
                os.close(self._directory)


def exists(directory: int, name: bytes) -> bool:
    """Whether something stands at `name`."""
    try:
        lstat(directory, name)
    except FileNotFoundError:
        return False
    return True


def _refuse_special(directory: int, name: bytes) -> None:
    try:
        kind = lstat(directory, name).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, "not a regular file", name)

"""Extraction of an archive beneath a root: the verdicts of `agentd.rules.members`, carried out by descriptors.

Runs in pool threads, as a generator for `run_sliced`. Every object is made or opened by its last component's
name in a directory from `Beneath`, with calls that do not follow a link in that place, so no member can reach
outside whatever is on disk and whoever changes it meanwhile (contract e.5). Two ways out are not paths at all, and
are closed here: a file that already exists may be a second name of one outside, so a file with several names is
replaced instead of overwritten; and modes, which are applied when all content is there, go only to the very
inode that this extraction wrote, found again by device and number.

Not transactional: what came before a refused member stays, without its mode.
"""

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress

from attrs import frozen
from twisted.logger import Logger

from agentd.files.beneath import CONFINED, Beneath, Blocked
from agentd.files.copy import copy, write_all
from agentd.files.disk import DiskGuard, write_failure
from agentd.files.errors import FilesError, Kind
from agentd.files.tar_reader import CorruptArchive, Member, TarReader
from agentd.linux.openat2 import RESOLVE_NO_MAGICLINKS, openat2
from agentd.rules.members import (
    MODE_MASK,
    Action,
    Caps,
    Parts,
    Placed,
    Refused,
    blocked,
    judge,
    over,
    shown,
)

_AT_FDCWD = -100
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_REOPEN = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOOK = os.O_PATH | os.O_CLOEXEC
_ATTEMPTS = 8
"""How often a name that somebody else keeps changing is tried."""
_SMALL_BYTES = 64 * 1024
"""Content up to this size is taken from the reader's window, longer content is copied by the kernel."""

_YIELD_EVERY = 16
"""Small members between two looks at the clock."""

_log = Logger()


@frozen
class Extracted:
    """A finished extraction: members of the archive, and the sum of its files' sizes."""

    members: int
    bytes: int


def open_root(root: bytes) -> int:
    """Make the directory `root` and its parents where missing, and open it; links on the way are followed."""
    os.makedirs(root, exist_ok=True)
    return openat2(_AT_FDCWD, root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, RESOLVE_NO_MAGICLINKS)


def extract(
    root: bytes, spool: int, reader: TarReader, caps: Caps, guard: DiskGuard
) -> Generator[None, None, Extracted]:
    """Extract the archive of `reader`, whose bytes are in `spool`, beneath the absolute path `root`.

    Raises `FilesError`: `BAD_REQUEST` for a refused member or a corrupt archive, `TOO_LARGE` for a cap,
    `NO_SPACE`, else `FAILED`.
    """
    try:
        beneath = Beneath(open_root(root))
    except OSError as error:
        raise write_failure("extract into", root, error) from error
    try:
        return (yield from _Extraction(root, beneath, spool, reader, caps, guard).run())
    finally:
        beneath.close()


class _Extraction:
    def __init__(
        self, root: bytes, beneath: Beneath, spool: int, reader: TarReader, caps: Caps, guard: DiskGuard
    ) -> None:
        self._beneath = beneath
        self._spool = spool
        self._reader = reader
        self._caps = caps
        self._meter = guard.meter(root)
        self._modes: dict[bytes, tuple[int, int, int]] = {}
        """By path: the mode still to be applied, and the device and inode it is meant for."""
        self._fresh_in: Parts | None = None
        self._fresh_mode = -1
        """The directory that a file was last made in, and the mode that it got there."""

    def run(self) -> Generator[None, None, Extracted]:
        members = total = 0
        try:
            while (member := self._reader.next()) is not None:
                members += 1
                total += member.size
                check_caps(members, total, self._caps)
                yield from self._extract(member)
                if not members % _YIELD_EVERY:
                    yield
        except CorruptArchive as error:
            raise FilesError(Kind.BAD_REQUEST, str(error)) from error
        yield from self._apply_modes()
        return Extracted(members, total)

    def _extract(self, member: Member) -> Iterable[None]:
        """Carry out one member; a long file is left to the steps that are returned."""
        verdict = judge(member.name, member.type, member.link)
        if isinstance(verdict, Refused):
            raise _refusal(member, verdict.reason)
        action, parts, _ = verdict
        try:
            if action is Action.FILE:
                if member.stored > _SMALL_BYTES or member.sparse is not None:
                    return self._long_file(member, parts)
                self._small_file(member, parts)
            elif action is Action.DIRECTORY:
                self._later(parts, member.mode, os.fstat(self._beneath.directory(parts, make=True)))
            elif action is Action.SYMLINK:
                self._link(parts, lambda name, at: os.symlink(member.link, name, dir_fd=at))
            elif action is Action.HARD_LINK:
                self._hard_link(member, verdict)
        except (Blocked, OSError) as error:
            raise _failure(member, error, parts[-1]) from error
        if self._beneath.made > self._caps.members:
            raise FilesError(Kind.TOO_LARGE, f"more than {self._caps.members} directories to be made")
        return ()

    # -- files ---------------------------------------------------------------------------------------------

    def _small_file(self, member: Member, parts: Parts) -> None:
        above = parts[:-1]
        directory = self._beneath.directory(above, make=True)
        fresh = True
        try:
            file = openat2(directory, parts[-1], _CREATE, 0o666, CONFINED)
        except FileExistsError:
            file = self._create(directory, parts[-1])
            fresh = False
        try:
            # All files made in one directory get the same mode, from the umask or the directory's default ACL.
            if not fresh or member.mode & MODE_MASK != self._fresh_mode or above != self._fresh_in:
                status = os.fstat(file)
                self._later(parts, member.mode, status)
                if fresh:
                    self._fresh_in, self._fresh_mode = above, stat.S_IMODE(status.st_mode)
            if member.stored:
                write_all(file, self._reader.bytes_at(member.data, member.stored))
                self._meter.wrote(member.stored)
        except BaseException:
            self._remove_half(file, directory, parts[-1])
            raise
        finally:
            os.close(file)

    def _long_file(self, member: Member, parts: Parts) -> Generator[None, None, None]:
        """A long file, or a sparse one."""
        try:
            directory = self._beneath.directory(parts[:-1], make=True)
            file = self._create(directory, parts[-1])
            try:
                self._later(parts, member.mode, os.fstat(file))
                position = member.data
                for offset, length in member.sparse or ((0, member.stored),):
                    os.lseek(file, offset, os.SEEK_SET)
                    for copied in copy(self._spool, position, file, length):
                        self._meter.wrote(copied)
                        yield
                    position += length
                if member.sparse is not None:
                    os.ftruncate(file, member.size)
            except BaseException:
                self._remove_half(file, directory, parts[-1])
                raise
            finally:
                os.close(file)
        except (Blocked, OSError) as error:
            raise _failure(member, error, parts[-1]) from error

    def _remove_half(self, file: int, directory: int, name: bytes) -> None:
        """Rather no file than half of one."""
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), _status(directory, name)):
                os.unlink(name, dir_fd=directory)

    def _create(self, directory: int, name: bytes) -> int:
        """Open a file to be written from its beginning: a new one, or one that is there and has no other name."""
        for _ in range(_ATTEMPTS):
            try:
                return openat2(directory, name, _CREATE, 0o666, CONFINED)
            except FileExistsError:
                pass
            try:
                # Looking first: opening a device for writing may do something by itself.
                there = _status(directory, name)
                if stat.S_ISDIR(there.st_mode):
                    raise OSError(errno.EISDIR, "")
                if not stat.S_ISREG(there.st_mode):
                    raise OSError(errno.EEXIST, "")
                if there.st_nlink > 1:
                    os.unlink(name, dir_fd=directory)
                    continue
                file = openat2(directory, name, _REOPEN, 0, CONFINED)
            except FileNotFoundError:
                continue
            now = os.fstat(file)
            if os.path.samestat(now, there) and now.st_nlink == 1:
                os.ftruncate(file, 0)
                return file
            os.close(file)
        raise OSError(errno.EAGAIN, "")

    # -- directories and links -----------------------------------------------------------------------------

    def _hard_link(self, member: Member, verdict: Placed) -> None:
        *above, source = verdict.source
        try:
            # Asking for the second directory may close the first.
            origin = os.dup(self._beneath.directory(tuple(above)))
        except Blocked as stopped:
            raise _failure(member, stopped, source, member.link) from stopped
        try:
            if verdict.parts == verdict.source:
                os.stat(source, dir_fd=origin, follow_symlinks=False)
                return
            self._link(
                verdict.parts,
                lambda name, at: os.link(
                    source, name, src_dir_fd=origin, dst_dir_fd=at, follow_symlinks=False
                ),
            )
        except OSError as error:
            raise _failure(member, error, source, member.link) from error
        finally:
            os.close(origin)

    def _link(self, parts: Parts, make: Callable[[bytes, int], None]) -> None:
        """Make a link by `make`, in the place of whatever is there, unless that is a directory."""
        directory = self._beneath.directory(parts[:-1], make=True)
        for _ in range(_ATTEMPTS):
            try:
                make(parts[-1], directory)
                self._modes.pop(b"/".join(parts), None)
                return
            except FileExistsError:
                pass
            try:
                os.unlink(parts[-1], dir_fd=directory)
            except FileNotFoundError:
                pass
        raise OSError(errno.EAGAIN, "")

    # -- modes ---------------------------------------------------------------------------------------------

    def _later(self, parts: Parts, mode: int, status: os.stat_result) -> None:
        """Remember the mode of the file or directory at `parts`; the last member for a path decides."""
        mode &= MODE_MASK
        if stat.S_IMODE(status.st_mode) != mode:
            self._modes[b"/".join(parts)] = (mode, status.st_dev, status.st_ino)
        elif self._modes:
            self._modes.pop(b"/".join(parts), None)

    def _apply_modes(self) -> Generator[None, None, None]:
        for path in sorted(self._modes, key=lambda path: -path.count(b"/")):
            *above, name = path.split(b"/")
            mode, device, inode = self._modes[path]
            try:
                directory = self._beneath.directory(tuple(above))
                file = openat2(directory, name, _LOOK, 0, CONFINED)
                try:
                    status = os.fstat(file)
                    if (status.st_dev, status.st_ino) != (device, inode):
                        raise OSError(errno.ESTALE, "somebody else put another file here")
                    # A descriptor that only names a file takes no fchmod(2); its entry in proc(5) does.
                    os.chmod(b"/proc/self/fd/%d" % file, mode)
                finally:
                    os.close(file)
            except (OSError, Blocked) as error:
                _log.warn(
                    "mode {mode} not applied to {path}: {error}",
                    mode=oct(mode),
                    path=shown(path),
                    error=error,
                )
            yield


def check_caps(members: int, total: int, caps: Caps) -> None:
    """Raise a `TOO_LARGE` error when so many members and bytes of files are over a cap."""
    refused = over(members, total, caps)
    if refused is not None:
        raise FilesError(Kind.TOO_LARGE, refused.reason)


def _status(directory: int, name: bytes) -> os.stat_result:
    """What is at `name`; a symbolic link is refused (ELOOP), not looked at."""
    file = openat2(directory, name, _LOOK, 0, CONFINED)
    try:
        return os.fstat(file)
    finally:
        os.close(file)


def _refusal(member: Member, reason: str) -> FilesError:
    return FilesError(Kind.BAD_REQUEST, f"refused tar member {shown(member.name)}: {reason}")


def _failure(
    member: Member, error: Blocked | OSError, component: bytes, target: bytes | None = None
) -> FilesError:
    """The refusal of a member, or the failure to carry it out, that an error met at `component` stands for."""
    cause = error.error if isinstance(error, Blocked) else error
    verdict = blocked(cause.errno or 0, error.component if isinstance(error, Blocked) else component)
    if verdict is None:
        return write_failure("extract", member.name, cause)
    prefix = "" if target is None else f"{shown(target)}: "
    return _refusal(member, prefix + verdict.reason)

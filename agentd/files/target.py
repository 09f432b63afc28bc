"""Where a file write puts its bytes, and how they get their name. Everything here blocks: pool threads only.

A `Destination` is used in this order, each step in a thread, never two at once:

    open ──► write … write ──► publish          the target has the new content
                          └──► discard          the target is as it was

Except for devices and FIFOs the bytes are always completed out of sight first, in a file without a name
beside the target (O_TMPFILE, open(2)), so that a broken upload, a wrong digest, a full disk or a killed daemon
leave the old file and nothing else. A file system without O_TMPFILE gets a hidden file instead. Publishing
gives the content the target's name; `agentd.rules.writes` says where that may not or cannot be done, and
there the finished content is copied into the file that is there.

linkat(2) cannot replace a name, so an existing target is replaced by a link under a hidden name and a
rename(2): two adjacent calls, and the only moment at which a killed daemon could leave a hidden file.

Nothing is synced to the disk: like a shell's `>` the content survives the daemon, not a power cut. File systems
that care order the data before the rename.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator
from contextlib import suppress

from attrs import define, frozen

from agentd.files.copy import copy, write_batch
from agentd.files.disk import DiskGuard, Meter, Spool, write_failure
from agentd.files.errors import FilesError, Kind, failure
from agentd.rules.writes import FileType, Plan, Target, Way, may_fall_back, way

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_LINKS = 40
_NO_TMPFILE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS})
# What a new content must not inherit, or what writing in place would have removed as well.
_DROPPED_ATTRIBUTES = frozenset({"security.capability", "security.ima", "security.evm"})


@frozen
class Published:
    """How the content got in place: atomically or not, why not, and whether the target is new."""

    atomic: bool
    reason: str
    created: bool


@define
class Found:
    """What stands at a path: the directory and name behind its last symbolic link, and its status if any."""

    directory: int
    name: bytes
    status: os.stat_result | None
    plan: Plan

    def close(self) -> None:
        os.close(self.directory)


def find(path: bytes) -> Found:
    """Look at `path`, following links; the directory must exist. Raises OSError; the caller closes the result."""
    directory, name = _open_parent(None, path)
    try:
        known = _lstat(directory, name)
        for _ in range(_MAX_LINKS):
            if known is None or not stat.S_ISLNK(known.st_mode):
                break
            if known.st_dev == _device_of_proc():
                known = None  # such a link leads to an open file; its text is no path to it
                break
            above, name = _open_parent(directory, os.readlink(name, dir_fd=directory))
            os.close(directory)
            directory = above
            known = _lstat(directory, name)
        else:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        try:
            status = os.stat(path)
        except FileNotFoundError:
            status = None
        same = status is None or (known is not None and os.path.samestat(status, known))
        return Found(directory, name, status, way(_target(path, status, same)))
    except BaseException:
        os.close(directory)
        raise


def _target(path: bytes, status: os.stat_result | None, name_known: bool) -> Target:
    if status is None:
        return Target(FileType.ABSENT)
    if stat.S_ISDIR(status.st_mode):
        return Target(FileType.DIRECTORY)
    if not stat.S_ISREG(status.st_mode):
        return Target(FileType.OTHER)
    writable = os.access(path, os.W_OK, effective_ids=True)
    return Target(FileType.REGULAR, status.st_nlink, name_known, writable)


def _open_parent(start: int | None, path: bytes) -> tuple[int, bytes]:
    head, name = os.path.split(path)
    if not name:
        # A trailing slash names a directory, whatever is or is not there.
        raise OSError(errno.EISDIR if path else errno.ENOENT, "", path)
    return os.open(head or b".", _DIRECTORY, dir_fd=start), name


def _device_of_proc() -> int:
    try:
        return os.stat("/proc").st_dev
    except FileNotFoundError:
        return -1


def _lstat(directory: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


class Destination:
    """One write to `path` with permission bits `mode` (None: keep those that are there, else the umask's)."""

    def __init__(self, path: bytes, mode: int | None, guard: DiskGuard, spool: Spool) -> None:
        self._path = path
        self._mode = mode
        self._guard = guard
        self._spool = spool
        self._meter = Meter(guard, path)
        self._streaming = False
        self._directory = -1
        """The directory of the hidden file while it has a name."""
        self._hidden = b""
        self._size = 0
        self.fd = -1

    # -- opening -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Check the disk, make the parents, and open what the bytes go to. Raises `FilesError`."""
        self._guard.check(self._path)
        try:
            found = self._find()
        except OSError as error:
            raise write_failure("write", self._path, error) from error
        try:
            self._open(found)
        except OSError as error:
            self.discard()
            raise write_failure("write", self._path, error) from error
        except BaseException:
            self.discard()
            raise
        finally:
            found.close()

    def _find(self) -> Found:
        try:
            return find(self._path)
        except FileNotFoundError:
            parent = os.path.dirname(self._path)
            if not parent or os.path.isdir(parent):
                raise
            os.makedirs(parent, exist_ok=True)
            return find(self._path)

    def _open(self, found: Found) -> None:
        if found.plan.way is Way.IS_DIRECTORY:
            raise OSError(errno.EISDIR, "", self._path)
        if found.plan.way is Way.NOT_WRITABLE:
            raise OSError(errno.EACCES, "", self._path)
        if found.plan.way is Way.STREAM:
            # Without O_NONBLOCK a FIFO that nobody reads would hold a pool thread for ever; so it is ENXIO.
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            self.fd = os.open(self._path, flags)
            self._streaming = True
            return
        private = self._mode is not None or found.status is not None
        try:
            self._open_beside(found.directory, 0o600 if private else 0o666, found.plan.way is Way.REPLACE)
        except OSError as error:
            if found.status is None or error.errno == errno.ENOSPC:
                raise
            # The file may be changed and its directory may not: procfs, a file bound into a read-only tree.
            self.fd = self._spool.open()
            self._meter = Meter(self._guard, self._spool.directory)

    def _open_beside(self, directory: int, mode: int, named: bool) -> None:
        here = b"/proc/self/fd/%d" % directory
        flags = os.O_RDWR | os.O_CLOEXEC
        if os.path.exists(here):
            try:
                self.fd = os.open(b".", flags | os.O_TMPFILE, mode, dir_fd=directory)
                return
            except OSError as error:
                if error.errno not in _NO_TMPFILE:
                    raise
        hidden = _hidden_name()
        self.fd = os.open(hidden, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=directory)
        self._directory, self._hidden = os.dup(directory), hidden
        if named:
            # Whether names can be changed here at all is better known before gigabytes than after.
            self._hidden = _hidden_name()
            try:
                os.rename(hidden, self._hidden, src_dir_fd=directory, dst_dir_fd=directory)
                return
            except OSError as error:
                self._hidden = hidden
                if not may_fall_back(error.errno or 0):
                    raise
        self._drop_name()

    def _drop_name(self) -> None:
        if self._directory >= 0:
            with suppress(FileNotFoundError):
                os.unlink(self._hidden, dir_fd=self._directory)
            os.close(self._directory)
            self._directory = -1

    # -- writing -------------------------------------------------------------------------------------------

    def write(self, batch: list[bytes]) -> list[bytes]:
        """Append a batch; returns what a FIFO would not take yet. Raises `FilesError`."""
        before = sum(map(len, batch))
        while batch:
            try:
                batch = write_batch(self.fd, batch)
            except BlockingIOError:
                break
            except OSError as error:
                raise write_failure("write", self._path, error) from error
        written = before - sum(map(len, batch))
        self._size += written
        self._meter.wrote(written)
        return batch

    # -- the end -------------------------------------------------------------------------------------------

    def publish(self) -> Generator[None, None, Published]:
        """Put the completed content in place; on failure the target is as it was. Raises `FilesError`.

        A generator for `run_sliced`, because a copy may be long. Always closes the descriptor.
        """
        try:
            if self._streaming:
                if self._mode is not None:
                    os.fchmod(self.fd, self._mode)
                return Published(False, "the target is no regular file", False)
            return (yield from self._publish())
        except OSError as error:
            raise write_failure("write", self._path, error) from error
        finally:
            self.discard()

    def _publish(self) -> Generator[None, None, Published]:
        # What is at the target may have changed since the body began; the present owner and mode are kept.
        found = find(self._path)
        try:
            created = found.status is None
            plan = found.plan
            if plan.way is Way.REPLACE:
                plan = self._replace(found)
            if plan.way is Way.REPLACE:
                return Published(True, "", created)
            if plan.way is Way.COPY:
                yield from self._copy(found.status)
                return Published(False, plan.reason, created)
            raise FilesError(Kind.FAILED, f"the target changed while it was written: {plan.way.value}")
        finally:
            found.close()

    def _replace(self, found: Found) -> Plan:
        """Take the target's name, or say why it has to be a copy."""
        try:
            if found.status is not None:
                self._dress(found.status)
            if self._mode is not None:
                os.fchmod(self.fd, self._mode)
            self._take_name(found)
        except OSError as error:
            if not may_fall_back(error.errno or 0):
                raise
            return Plan(Way.COPY, f"the target cannot be replaced: {os.strerror(error.errno or 0)}")
        return Plan(Way.REPLACE)

    def _dress(self, old: os.stat_result) -> None:
        """Give the new content the owner, attributes and mode of the old."""
        new = os.fstat(self.fd)
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            os.fchown(self.fd, old.st_uid, old.st_gid)
        for name in _attributes(self._path):
            os.setxattr(self.fd, name, os.getxattr(self._path, name))
        os.fchmod(self.fd, stat.S_IMODE(old.st_mode))

    def _take_name(self, found: Found) -> None:
        if self._directory < 0:
            own_name = b"/proc/self/fd/%d" % self.fd
            # Given a directory descriptor, os.link passes AT_SYMLINK_FOLLOW: proc(5) is followed to the file.
            if found.status is None:
                try:
                    os.link(own_name, found.name, dst_dir_fd=found.directory)
                    return
                except FileExistsError:
                    pass
            self._hidden = _hidden_name()
            os.link(own_name, self._hidden, dst_dir_fd=found.directory)
            self._directory = os.dup(found.directory)
        os.rename(self._hidden, found.name, src_dir_fd=self._directory, dst_dir_fd=found.directory)
        os.close(self._directory)
        self._directory = -1

    def _copy(self, old: os.stat_result | None) -> Generator[None, None, None]:
        """Copy the finished content into the target itself: not atomic, so look for room before touching it."""
        self._drop_name()
        self._guard.check(self._path, max(0, self._size - (old.st_size if old else 0)))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        target = os.open(self._path, flags, 0o666 if self._mode is None else self._mode)
        try:
            if not stat.S_ISREG(os.fstat(target).st_mode):
                raise FilesError(
                    Kind.FAILED, "the target changed while it was written: it is no regular file"
                )
            for _ in copy(self.fd, 0, target, self._size):
                yield
            if self._mode is not None:
                os.fchmod(target, self._mode)
        finally:
            os.close(target)

    def discard(self) -> None:
        """Close and forget everything that was not published. May be called at any time, more than once."""
        try:
            self._drop_name()
        except OSError as error:
            raise failure("remove a temporary file beside", self._path, error) from error
        finally:
            if self.fd >= 0:
                fd, self.fd = self.fd, -1
                os.close(fd)


def _hidden_name() -> bytes:
    return b".agentd-" + secrets.token_hex(8).encode("ascii")


def _attributes(path: bytes) -> Iterator[str]:
    try:
        names = os.listxattr(path)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            return
        raise
    yield from (name for name in names if name not in _DROPPED_ATTRIBUTES)

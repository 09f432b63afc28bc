"""`shell::fs::ls`, `stat`, `mkdir`, `rm`, `chmod`, `mv`: entries of directories (reference B2).

Each function judges its path in a pool thread and uses it there, by descriptors. `rm`, `chmod` and `mv` act on a link
itself. The roots of the jail stay where they are.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import suppress
from typing import Annotated

from msgspec import Meta, Struct

from agentd.files.removal import Protected, remove
from agentd.files.threads import run_sliced
from agentd.worker import reach
from agentd.worker.errors import Coded
from agentd.worker.fs_common import fs_function, parse_mode, shown_mode
from agentd.worker.function import Call
from agentd.worker.jail import Jail, Place, brief, fs_error, shown_path
from agentd.worker.settings import Settings
from agentd.worker.walker import Kind, walk

Id = Annotated[int, Meta(ge=0, le=2**32 - 1)]
_PAUSE_EVERY = 256
_COPY_BYTES = 1 << 20


class LsRequest(Struct):
    """The directory to list."""

    path: str


class FsEntry(Struct, gc=False):
    """What an entry is, a link for itself."""

    name: str
    is_dir: bool
    is_symlink: bool
    size: int
    mode: str
    mtime: int


class LsResult(Struct):
    """The entries, in the order in which the directory has them."""

    entries: list[FsEntry]


class StatRequest(Struct):
    """The path to look at."""

    path: str


class MkdirRequest(Struct):
    """The directory to make."""

    path: str
    mode: str = "0755"
    parents: bool = False


class MkdirResult(Struct):
    """What became of it."""

    created: bool
    path: str = ""
    already_existed: bool = False


class RmRequest(Struct):
    """What to remove."""

    path: str
    recursive: bool = False


class RmResult(Struct):
    """What became of it."""

    removed: bool
    path: str = ""
    was_present: bool = False


class ChmodRequest(Struct):
    """The mode, and perhaps the owner, to give."""

    path: str
    mode: str
    uid: Id | None = None
    gid: Id | None = None
    recursive: bool = False


class ChmodResult(Struct):
    """How many entries were changed."""

    entries_changed: int
    path: str = ""
    recursive: bool = False


class MvRequest(Struct):
    """From where to where."""

    src: str
    dst: str
    overwrite: bool = False


class MvResult(Struct):
    """What became of it."""

    moved: bool
    src: str = ""
    dst: str = ""
    overwrote: bool = False


def _described(name: bytes, status: os.stat_result) -> FsEntry:
    return FsEntry(
        name=shown_path(name),
        is_dir=stat.S_ISDIR(status.st_mode),
        is_symlink=stat.S_ISLNK(status.st_mode),
        size=status.st_size,
        mode=shown_mode(status.st_mode),
        mtime=int(status.st_mtime),
    )


# -- looking -----------------------------------------------------------------------------------------------------


async def ls(call: Call, request: LsRequest) -> LsResult:
    """The entries of a directory."""
    return await run_sliced(call.run_in_thread, _ls(call.jail, request.path))


def _ls(jail: Jail, path: str) -> Generator[None, None, LsResult]:
    place = jail.resolve(path)
    try:
        with reach.opened(place.path, os.O_RDONLY | os.O_NONBLOCK) as fd:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                raise Coded("S212", f"{brief(path)} is not a directory")
            found: list[FsEntry] = []
            with os.scandir(fd) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    with suppress(FileNotFoundError):
                        found.append(_described(name, reach.lstat(fd, name)))
                    if len(found) % _PAUSE_EVERY == 0:
                        yield
            return LsResult(found)
    except OSError as reason:
        raise fs_error(path, reason) from None


async def stat_path(call: Call, request: StatRequest) -> FsEntry:
    """What a path leads to."""
    return await call.run_in_thread(_stat, call.jail, request.path)


def _stat(jail: Jail, path: str) -> FsEntry:
    place = jail.resolve(path)
    try:
        with reach.parent_of(place.path) as (directory, name):
            status = reach.lstat(directory, name)
    except OSError as reason:
        raise fs_error(path, reason) from None
    return _described(os.path.basename(place.path) or b"/", status)


# -- making ------------------------------------------------------------------------------------------------------


async def mkdir(call: Call, request: MkdirRequest) -> MkdirResult:
    """Make a directory."""
    return await call.run_in_thread(_mkdir, call.settings, call.jail, request)


def _mkdir(settings: Settings, jail: Jail, request: MkdirRequest) -> MkdirResult:
    mode = parse_mode(request.mode, settings)
    place = jail.resolve(request.path)
    try:
        with reach.parent_of(place.path, request.parents) as (directory, name):
            try:
                os.mkdir(name, mode, dir_fd=directory)
            except FileExistsError:
                if request.parents and stat.S_ISDIR(reach.lstat(directory, name).st_mode):
                    return MkdirResult(created=False, path=request.path, already_existed=True)
                raise
            fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            try:
                os.chmod(reach.handle(fd), mode)
            finally:
                os.close(fd)
    except OSError as reason:
        raise fs_error(request.path, reason) from None
    return MkdirResult(created=True, path=request.path)


# -- removing ----------------------------------------------------------------------------------------------------


async def rm(call: Call, request: RmRequest) -> RmResult:
    """Remove an entry, or a tree."""
    return await run_sliced(call.run_in_thread, _rm(call.jail, request))


def _rm(jail: Jail, request: RmRequest) -> Generator[None, None, RmResult]:
    place = jail.entry(request.path)
    _keep(jail, place)
    try:
        with reach.parent_of(place.path) as (directory, name):
            if not stat.S_ISDIR(reach.lstat(directory, name).st_mode):
                os.unlink(name, dir_fd=directory)
            elif request.recursive:
                yield from remove(reach.handle(directory, name), True, (b"/", *jail.roots))
            else:
                os.rmdir(name, dir_fd=directory)
    except Protected:
        raise Coded("S215", f"{brief(request.path)} is a root, and stays") from None
    except OSError as reason:
        raise fs_error(request.path, reason) from None
    return RmResult(removed=True, path=request.path, was_present=True)


def _keep(jail: Jail, place: Place) -> None:
    """Raises `Coded` S215 for what must stay, because of itself or of what is in it."""
    if jail.is_root(place.path):
        raise Coded("S215", f"{brief(place.given)} is a root, or holds one, and stays")
    if jail.holds_denied(place.path):
        raise Coded("S215", f"{brief(place.given)} holds something on the denylist (fs.denylist_paths)")


# -- modes -------------------------------------------------------------------------------------------------------


async def chmod(call: Call, request: ChmodRequest) -> ChmodResult:
    """Set the mode, and the owner."""
    changed = await run_sliced(call.run_in_thread, _chmod(call.settings, call.jail, request))
    return ChmodResult(entries_changed=changed, path=request.path, recursive=request.recursive)


def _chmod(settings: Settings, jail: Jail, request: ChmodRequest) -> Generator[None, None, int]:
    mode = parse_mode(request.mode, settings)
    try:
        if not request.recursive:
            _change(reach.open_path(jail.resolve(request.path).path, os.O_PATH), mode, request)
            return 1
        place = jail.entry(request.path)
        with reach.parent_of(place.path) as (directory, name):
            status = reach.lstat(directory, name)
        if stat.S_ISLNK(status.st_mode):
            raise Coded("S212", f"{brief(request.path)} is a link: a recursive change does not start at one")
        _change(reach.open_path(place.path, os.O_PATH), mode, request)
        changed = 1
        if stat.S_ISDIR(status.st_mode):
            for entry in walk(place.path):
                yield
                if entry is None or entry.kind is Kind.SYMLINK:
                    continue
                with suppress(FileNotFoundError):
                    changed += _change(entry.open(os.O_PATH), mode, request)
        return changed
    except OSError as reason:
        raise fs_error(request.path, reason) from None


def _change(fd: int, mode: int, request: ChmodRequest) -> int:
    """Change what `fd` stands for, which is closed; a link that has got there is let alone."""
    try:
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            return 0
        # The descriptor was opened for its place alone, so that files which may not be read can be changed.
        here = reach.handle(fd)
        os.chmod(here, mode)
        if request.uid is not None or request.gid is not None:
            os.chown(here, *(-1 if each is None else each for each in (request.uid, request.gid)))
            if mode & 0o6000:
                os.chmod(here, mode)  # giving a file away takes these bits from it
        return 1
    finally:
        os.close(fd)


# -- moving ------------------------------------------------------------------------------------------------------


async def mv(call: Call, request: MvRequest) -> MvResult:
    """Move or rename an entry."""
    return await run_sliced(call.run_in_thread, _mv(call.jail, request))


def _mv(jail: Jail, request: MvRequest) -> Generator[None, None, MvResult]:
    source = jail.entry(request.src)
    target = jail.entry(request.dst)
    _keep(jail, source)
    _keep(jail, target)
    try:
        with reach.parent_of(source.path) as (from_directory, from_name):
            status = reach.lstat(from_directory, from_name)
            if stat.S_ISDIR(status.st_mode):
                # In its new place what is protected in it might not be.
                hidden = jail.hidden_below(source.path)
                for entry in walk(source.path):
                    if entry is not None and hidden(entry.path):
                        raise Coded("S215", f"{brief(request.src)} holds something protected")
                    yield
            try:
                with reach.parent_of(target.path) as (to_directory, to_name):
                    overwrote = reach.exists(to_directory, to_name)
                    if overwrote and not request.overwrite:
                        raise Coded(
                            "S213", f"{brief(request.dst)} exists; pass overwrite: true to replace it"
                        )
                    try:
                        os.rename(from_name, to_name, src_dir_fd=from_directory, dst_dir_fd=to_directory)
                    except OSError as reason:
                        if reason.errno != errno.EXDEV:
                            raise
                        yield from _copy_over(request, status, from_directory, from_name, target)
            except OSError as reason:
                raise fs_error(request.dst, reason) from None
    except OSError as reason:
        raise fs_error(request.src, reason) from None
    return MvResult(moved=True, src=request.src, dst=request.dst, overwrote=overwrote)


def _copy_over(
    request: MvRequest, status: os.stat_result, directory: int, name: bytes, target: Place
) -> Generator[None, None, None]:
    """Move a file to another file system: its copy takes the target's name, then it goes."""
    if not stat.S_ISREG(status.st_mode):
        raise Coded("S216", f"{brief(request.src)}: only files can be moved to another file system")
    source = os.open(name, reach.READ | os.O_NOFOLLOW, dir_fd=directory)
    try:
        yield from copy_content(source, target.path, status)
    finally:
        os.close(source)
    os.unlink(name, dir_fd=directory)


def copy_content(source: int, target: bytes, like: os.stat_result) -> Generator[None, None, int]:
    """Copy an open file to a canonical path, with the mode and owner of `like`: how many bytes. Raises OSError."""
    new = reach.NewFile.begin(target)
    try:
        while data := os.read(source, _COPY_BYTES):
            new.write(data)
            yield
        new.publish(stat.S_IMODE(like.st_mode), like)
    finally:
        new.discard()
    return new.size


FUNCTIONS = (
    fs_function("ls", "List a directory.", LsRequest, LsResult, ls),
    fs_function("stat", "Tell what a path leads to.", StatRequest, FsEntry, stat_path),
    fs_function("mkdir", "Make a directory.", MkdirRequest, MkdirResult, mkdir),
    fs_function("rm", "Remove a file, a link, or a directory.", RmRequest, RmResult, rm),
    fs_function("chmod", "Set permissions, and the owner.", ChmodRequest, ChmodResult, chmod),
    fs_function("mv", "Move or rename a path.", MvRequest, MvResult, mv),
)

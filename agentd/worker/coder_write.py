"""`coder::create-file`, `delete-file`, `move`: changing which files there are (reference B4).

Each takes a batch, whose entries fail by themselves. Only a path outside the jail fails the call, before anything
is changed. A directory that holds something protected is neither removed nor moved: its new place might not be.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import suppress
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec import field as wire

from agentd.files.removal import Protected, remove
from agentd.files.threads import run_sliced
from agentd.rules.jail import join
from agentd.worker import coder_update, reach
from agentd.worker.coder_common import EntryError, coder_function, refuse_empty, resolve_all
from agentd.worker.coder_paths import CoderPaths, CoderPlace, coder_error, missing
from agentd.worker.errors import CoderError
from agentd.worker.fs_common import octal
from agentd.worker.fs_entries import copy_content
from agentd.worker.function import Call
from agentd.worker.jail import brief, shown_path
from agentd.worker.settings import CodeSettings
from agentd.worker.walker import walk

_SPECIAL_BITS: Final = 0o7000


# -- create-file -------------------------------------------------------------------------------------------------


class CreateSpec(Struct):
    """One file to write."""

    path: str
    content: str
    mode: str = "0644"
    overwrite: bool = False
    parents: bool = True


class CreateRequest(Struct):
    """The files to write."""

    files: tuple[CreateSpec, ...]


class Created(Struct):
    """What became of one."""

    path: str
    success: bool
    bytes_written: int = 0
    error: EntryError | UnsetType = UNSET


class CreateResult(Struct):
    """What became of each."""

    results: list[Created]


async def create_file(call: Call, request: CreateRequest) -> CreateResult:
    """Write files."""
    return await run_sliced(call.run_in_thread, _create_all(call, request.files))


def _create_all(call: Call, files: tuple[CreateSpec, ...]) -> Generator[None, None, CreateResult]:
    refuse_empty(files, "files")
    resolved = resolve_all(call.coder, (spec.path for spec in files))
    results = []
    for spec, where in zip(files, resolved, strict=True):
        yield
        try:
            written = _create(call.settings.code, spec, where.usable())
        except CoderError as reason:
            results.append(Created(where.shown, False, 0, EntryError.of(reason)))
        else:
            results.append(Created(where.shown, True, written))
    return CreateResult(results)


def _create(code: CodeSettings, spec: CreateSpec, place: CoderPlace) -> int:
    mode = octal(spec.mode)
    if mode is None or mode & _SPECIAL_BITS:
        raise CoderError("C210", f"bad mode {spec.mode[:32]!r}: it must be an octal number up to 0777")
    try:
        data = spec.content.encode()
    except UnicodeEncodeError:
        raise CoderError("C210", "the content is not valid Unicode") from None
    try:
        status = _status(place)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise CoderError("C210", f"{brief(spec.path)} is a directory")
        if status is not None and not spec.overwrite:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if len(data) > code.max_write_bytes:
            raise CoderError(
                "C213",
                f"{brief(spec.path)}: the content has {len(data)} bytes, more than max_write_bytes, "
                f"{code.max_write_bytes}",
            )
        new = reach.NewFile.begin(place.path, spec.parents)
        try:
            new.write(data)
            new.publish(mode, replace=spec.overwrite)
        finally:
            new.discard()
    except OSError as reason:
        raise coder_error(spec.path, reason) from None
    return len(data)


def _status(place: CoderPlace) -> os.stat_result | None:
    try:
        return reach.status_of(place.path)
    except NotADirectoryError:
        return None


# -- delete-file -------------------------------------------------------------------------------------------------


class DeleteRequest(Struct):
    """What to remove."""

    paths: tuple[str, ...]
    recursive: bool = False


class Deleted(Struct):
    """What became of one."""

    path: str
    success: bool
    removed: bool
    error: EntryError | UnsetType = UNSET


class DeleteResult(Struct):
    """What became of each."""

    results: list[Deleted]


async def delete_file(call: Call, request: DeleteRequest) -> DeleteResult:
    """Remove files and directories."""
    return await run_sliced(call.run_in_thread, _delete_all(call.coder, request))


def _delete_all(paths: CoderPaths, request: DeleteRequest) -> Generator[None, None, DeleteResult]:
    refuse_empty(request.paths, "paths")
    results = []
    for where in resolve_all(paths, request.paths):
        yield
        try:
            removed = yield from _delete(paths, where.usable(), request.recursive)
        except CoderError as reason:
            results.append(Deleted(where.shown, False, False, EntryError.of(reason)))
        else:
            results.append(Deleted(where.shown, True, removed))
    return DeleteResult(results)


def _delete(paths: CoderPaths, place: CoderPlace, recursive: bool) -> Generator[None, None, bool]:
    if paths.is_root(place.path):
        raise CoderError("C210", f"{brief(place.given)} is an allowed root, or holds one, and stays")
    try:
        status = _status(place)
        if status is None:
            return False
        is_directory = stat.S_ISDIR(status.st_mode)
        if is_directory and recursive:
            yield from _refuse_hidden(paths, place)
        with reach.parent_of(place.path) as (directory, name):
            if not is_directory:
                os.unlink(name, dir_fd=directory)
            elif recursive:
                yield from remove(reach.handle(directory, name), True, paths.roots)
            else:
                os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    except Protected:
        raise CoderError("C210", f"{brief(place.given)} is an allowed root, and stays") from None
    except OSError as reason:
        if reason.errno == errno.ENOTEMPTY and not recursive:
            raise CoderError(
                "C216", f"{brief(place.given)} is not empty; pass recursive: true to remove what is in it too"
            ) from None
        raise coder_error(place.given, reason) from None
    return True


def _refuse_hidden(paths: CoderPaths, place: CoderPlace) -> Generator[None, None, None]:
    """Raises `CoderError` C211 if something below a directory must not be seen; without saying what."""
    hidden = paths.hidden_below(place.path)
    for entry in walk(place.path):
        if entry is not None and hidden(entry.path):
            raise missing(place.given)
        yield


# -- move --------------------------------------------------------------------------------------------------------


class MoveSpec(Struct):
    """One thing to move."""

    source: str = wire(name="from")
    target: str = wire(name="to")
    overwrite: bool = False
    parents: bool = True


class MoveRequest(Struct):
    """What to move."""

    files: tuple[MoveSpec, ...]


class Moved(Struct):
    """What became of one."""

    source: str = wire(name="from")
    target: str = wire(name="to")
    success: bool
    moved: bool
    error: EntryError | UnsetType = UNSET


class MoveResult(Struct):
    """What became of each."""

    results: list[Moved]


async def move(call: Call, request: MoveRequest) -> MoveResult:
    """Move files and directories."""
    return await run_sliced(call.run_in_thread, _move_all(call.coder, request.files))


def _move_all(paths: CoderPaths, files: tuple[MoveSpec, ...]) -> Generator[None, None, MoveResult]:
    refuse_empty(files, "files")
    sources = resolve_all(paths, (spec.source for spec in files))
    targets = resolve_all(paths, (spec.target for spec in files))
    results = []
    for spec, source, target in zip(files, sources, targets, strict=True):
        yield
        try:
            moved = yield from _move(paths, spec, source.usable(), target.usable())
        except CoderError as reason:
            results.append(Moved(source.shown, target.shown, False, False, EntryError.of(reason)))
        else:
            results.append(Moved(source.shown, target.shown, True, moved))
    return MoveResult(results)


def _move(
    paths: CoderPaths, spec: MoveSpec, source: CoderPlace, target: CoderPlace
) -> Generator[None, None, bool]:
    try:
        status = _status(source)
    except OSError as reason:
        raise coder_error(spec.source, reason) from None
    if status is None:
        raise missing(spec.source)
    if source.path == target.path:
        return False
    for place in (source, target):
        if paths.is_root(place.path):
            raise CoderError("C210", f"{brief(place.given)} is an allowed root, or holds one, and stays")
    try:
        yield from _check_move(paths, spec, source, target, stat.S_ISDIR(status.st_mode))
        with reach.parent_of(target.path, spec.parents) as (to_directory, to_name):
            try:
                with reach.parent_of(source.path) as (from_directory, from_name):
                    if source.root == target.root:
                        os.rename(from_name, to_name, src_dir_fd=from_directory, dst_dir_fd=to_directory)
                        return True
            except OSError as reason:
                if reason.errno != errno.EXDEV:
                    raise
        yield from _copy_over(spec, source, target, status)
    except OSError as reason:
        raise coder_error(spec.target, reason) from None
    return True


def _check_move(
    paths: CoderPaths, spec: MoveSpec, source: CoderPlace, target: CoderPlace, is_directory: bool
) -> Generator[None, None, None]:
    """Raises `CoderError` for a move that must not be; nothing is changed yet."""
    if is_directory:
        if source.root != target.root:
            raise CoderError(
                "C210",
                f"{brief(spec.source)} is a directory, and those stay within their root; move its files",
            )
        yield from _refuse_hidden(paths, source)
    there = _status(target)
    if there is None:
        return
    if stat.S_ISDIR(there.st_mode) and not is_directory:
        inside = shown_path(join(target.path, os.path.basename(source.path)))
        raise CoderError(
            "C210", f"{brief(spec.target)} is a directory; to move the file into it, pass {inside}"
        )
    if not spec.overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _copy_over(
    spec: MoveSpec, source: CoderPlace, target: CoderPlace, status: os.stat_result
) -> Generator[None, None, None]:
    """Move a file to another root or device: copy, compare, remove; undone if the last fails. Raises OSError."""
    if not stat.S_ISREG(status.st_mode):
        raise CoderError("C210", f"{brief(spec.source)}: only files can be moved to another root or device")
    fd = reach.open_path(source.path, reach.READ)
    try:
        copied = yield from copy_content(fd, target.path, status)
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    if copied != size:
        with suppress(OSError):
            _unlink(target)
        raise CoderError(
            "C216",
            f"{brief(spec.source)} changed while it was copied; the move was rolled back, it is unchanged",
        )
    try:
        _unlink(source)
    except OSError as reason:
        said = os.strerror(reason.errno or 0)
        try:
            _unlink(target)
        except OSError as second:
            raise CoderError(
                "C216",
                f"the move is half done: {source.shown} could not be removed ({said}), and neither could its copy "
                f"{target.shown} ({os.strerror(second.errno or 0)}); remove one of them by hand",
            ) from None
        raise CoderError(
            "C216",
            f"{brief(spec.source)} could not be removed ({said}); the move was rolled back, the source is unchanged",
        ) from None


def _unlink(place: CoderPlace) -> None:
    with reach.parent_of(place.path) as (directory, name):
        os.unlink(name, dir_fd=directory)


FUNCTIONS = (
    coder_function("create-file", "Write files.", CreateRequest, create_file),
    coder_function("delete-file", "Remove files and folders.", DeleteRequest, delete_file),
    coder_function("move", "Move files and folders.", MoveRequest, move),
    *coder_update.FUNCTIONS,
)

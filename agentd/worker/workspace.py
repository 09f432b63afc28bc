"""`shell::workspace::*`: what a console needs to let its operator choose a directory (reference B3).

An operator may look at the directories of the whole machine: the jail does not hold here, the denylist does.
"""

import os
from collections.abc import Awaitable, Callable, Generator
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from agentd.files.threads import run_sliced
from agentd.rules.jail import join
from agentd.worker import reach
from agentd.worker.errors import Coded
from agentd.worker.function import Call, Function
from agentd.worker.jail import Jail, brief, fs_error, shown_path

T = TypeVar("T", bound=Struct)

PAGE: Final = 200
MAX_PAGE: Final = 1000
_PAUSE_EVERY: Final = 256


class RootsRequest(Struct):
    """Nothing is asked."""


class RootsResult(Struct):
    """Where to begin to look."""

    roots: list[str]


class ValidateRequest(Struct):
    """The directory to look at."""

    path: str


class ValidateResult(Struct):
    """What it really is called."""

    path: str


class WorkspaceListRequest(Struct):
    """The directory to look into."""

    path: str
    page_size: Annotated[int, Meta(ge=0)] | None = None


class WorkspaceEntry(Struct):
    """A directory in it."""

    name: str
    path: str
    kind: str = "dir"


class WorkspaceListResult(Struct):
    """The directories in it."""

    path: str
    entries: list[WorkspaceEntry]


async def roots(call: Call, _: RootsRequest) -> RootsResult:
    """Directories to begin at."""
    return RootsResult(await call.run_in_thread(_roots, call.jail))


def _roots(jail: Jail) -> list[str]:
    found = set()
    for path in (*jail.roots, jail.cwd, os.fsencode(os.environ.get("HOME", "")), b"/"):
        if not path.startswith(b"/"):
            continue
        try:
            real = reach.canonical(path)
        except (OSError, reach.Dangling):
            continue
        if os.path.isdir(real) and not jail.denies(real):
            found.add(shown_path(real))
    return sorted(found)


async def validate(call: Call, request: ValidateRequest) -> ValidateResult:
    """The canonical path of a directory."""
    return ValidateResult(shown_path(await call.run_in_thread(_directory, call.jail, request.path)))


def _directory(jail: Jail, path: str) -> bytes:
    """The canonical path of a directory that is there. Raises `Coded`."""
    if not path:
        raise Coded("S210", "the path is empty")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise Coded("S210", "the path is not valid Unicode") from None
    if b"\0" in encoded:
        raise Coded("S210", "the path has a NUL byte in it")
    if not encoded.startswith(b"/"):
        raise Coded("S210", f"the path must be absolute: {brief(path)}")
    try:
        real = reach.canonical(encoded)
        if jail.denies(real):
            raise Coded("S215", f"{brief(path)} is on the denylist (fs.denylist_paths)")
        with reach.opened(real, reach.LIST):
            return real
    except NotADirectoryError:
        raise Coded("S212", f"{brief(path)} is not a directory") from None
    except reach.Dangling:
        raise Coded("S211", f"{brief(path)} leads through a link that does not lead to a directory") from None
    except OSError as reason:
        raise fs_error(path, reason) from None


async def list_directories(call: Call, request: WorkspaceListRequest) -> WorkspaceListResult:
    """The directories in a directory, the first page of them."""
    size = PAGE if request.page_size is None else min(max(request.page_size, 1), MAX_PAGE)
    return await run_sliced(call.run_in_thread, _list(call.jail, request.path, size))


def _list(jail: Jail, path: str, size: int) -> Generator[None, None, WorkspaceListResult]:
    real = _directory(jail, path)
    names: list[bytes] = []
    try:
        with reach.opened(real, reach.LIST) as fd, os.scandir(fd) as entries:
            for number, entry in enumerate(entries, 1):
                if number % _PAUSE_EVERY == 0:
                    yield
                if _is_directory(entry):
                    names.append(os.fsencode(entry.name))
    except OSError as reason:
        raise fs_error(path, reason) from None
    found: list[WorkspaceEntry] = []
    for name in sorted(names):
        yield
        try:
            target = reach.canonical(join(real, name))
        except (OSError, reach.Dangling):
            continue
        if not jail.denies(target):
            found.append(WorkspaceEntry(shown_path(name), shown_path(target)))
        if len(found) == size:
            break
    return WorkspaceListResult(shown_path(real), found)


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _function(
    name: str, description: str, request: type[T], run: Callable[[Call, T], Awaitable[Any]]
) -> Function:
    def parse(data: object) -> T:
        try:
            return msgspec.convert({} if data is None else data, request)
        except (ValueError, RecursionError) as reason:
            raise Coded("S210", f"bad {name} payload: {reason}") from None

    return Function(f"shell::workspace::{name}", description, parse, run)


FUNCTIONS = (
    _function("roots", "Tell where an operator may begin to look.", RootsRequest, roots),
    _function("validate", "Tell what a directory really is called.", ValidateRequest, validate),
    _function("list", "List the directories in a directory.", WorkspaceListRequest, list_directories),
)

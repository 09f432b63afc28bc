"""`coder::list-folder` and `tree`: what directories hold (reference B4).

A page of a listing costs the names of the directory, and a look at the entries of the page alone. A tree goes down
with `agentd.worker.walker.Tree`, so never through a link; how deep, and how much of each directory, the caller says.
How much in all, `MAX_NODES` says: the answer must not be as large as a caller likes.
"""

import errno
import os
import stat
from collections.abc import Generator
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from agentd.files.threads import run_sliced
from agentd.rules.members import Parts
from agentd.worker import reach
from agentd.worker.coder_common import Small, coder_function
from agentd.worker.coder_paths import CoderPaths, CoderPlace, coder_error
from agentd.worker.errors import CoderError
from agentd.worker.function import Call
from agentd.worker.jail import brief, shown_path
from agentd.worker.walker import Entry, Kind, Tree, kind_of

MAX_NODES: Final = 100_000
MAX_DEPTH: Final = 100
"""A tree nests as deep as its JSON, which readers do not follow for ever."""
_PAUSE_EVERY: Final = 256


# -- list-folder -------------------------------------------------------------------------------------------------


class ListRequest(Struct):
    """The directory, and which page of it."""

    path: str = "."
    page: Small = 1
    page_size: Small | None = None


class ListedEntry(Struct, gc=False):
    """One entry; a link for itself."""

    name: str
    kind: Kind
    size: int
    mtime: int
    non_accessible: bool


class ListResult(Struct):
    """A page of entries."""

    path: str
    entries: list[ListedEntry]
    page: int
    page_size: int
    total: int
    has_more: bool


async def list_folder(call: Call, request: ListRequest) -> ListResult:
    """A page of a directory's entries."""
    return await run_sliced(call.run_in_thread, _list_folder(call, request))


def _list_folder(call: Call, request: ListRequest) -> Generator[None, None, ListResult]:
    code = call.settings.code
    asked = code.list_default_page_size if request.page_size is None else request.page_size
    size = min(max(asked, 1), max(code.list_max_page_size, 1))
    page = max(request.page, 1)
    place = _folder(call.coder, request.path)
    try:
        with reach.opened(place.path, reach.LIST) as fd:
            hidden = call.coder.hidden_below(place.path)
            names = sorted(map(os.fsencode, os.listdir(fd)))
            yield
            entries = []
            for name in names[(page - 1) * size : page * size]:
                try:
                    status = reach.lstat(fd, name)
                except FileNotFoundError:
                    continue
                entries.append(_listed(name, status, hidden(name)))
                if len(entries) % _PAUSE_EVERY == 0:
                    yield
    except OSError as reason:
        raise coder_error(request.path, reason) from None
    return ListResult(
        path=place.shown,
        entries=entries,
        page=page,
        page_size=size,
        total=len(names),
        has_more=page * size < len(names),
    )


def _listed(name: bytes, status: os.stat_result, hidden: bool) -> ListedEntry:
    return ListedEntry(
        name=shown_path(name),
        kind=kind_of(status.st_mode),
        size=status.st_size,
        mtime=int(status.st_mtime),
        non_accessible=hidden,
    )


def _folder(paths: CoderPaths, given: str) -> CoderPlace:
    """A directory that the caller named. Raises `CoderError`."""
    place = paths.resolve(given)
    paths.check(place)
    try:
        status = reach.status_of(place.path)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except OSError as reason:
        raise coder_error(given, reason) from None
    if not stat.S_ISDIR(status.st_mode):
        raise CoderError("C210", f"{brief(given)} is not a directory; coder::read-file reads files")
    return place


# -- tree --------------------------------------------------------------------------------------------------------


class TreeRequest(Struct):
    """Where from, how deep, and how much of each directory."""

    path: str = "."
    max_depth: Small | None = None
    per_folder_limit: Small | None = None
    use_default_excludes: bool = True


class TruncationInfo(Struct, omit_defaults=True):
    """Why not all of a directory is shown, and what to do about it."""

    reason: str
    shown: int
    hint: str
    total: int | UnsetType = UNSET


class TreeNode(Struct, gc=False):
    """An entry, and what is in it."""

    name: str
    kind: Kind
    size: int
    mtime: int
    non_accessible: bool
    children: "list[TreeNode] | UnsetType" = UNSET
    truncated: TruncationInfo | UnsetType = UNSET


class TreeResult(Struct):
    """The tree below a directory."""

    path: str
    root: TreeNode


async def tree(call: Call, request: TreeRequest) -> TreeResult:
    """What is in a directory, and in what is in it."""
    code = call.settings.code
    depth = code.tree_default_depth if request.max_depth is None else request.max_depth
    limit = code.tree_per_folder_limit if request.per_folder_limit is None else request.per_folder_limit
    return await run_sliced(
        call.run_in_thread,
        _tree(call.coder, request.path, min(depth, MAX_DEPTH), limit, request.use_default_excludes),
    )


def _tree(
    paths: CoderPaths, given: str, depth: int, limit: int, filtered: bool
) -> Generator[None, None, TreeResult]:
    place = _folder(paths, given)
    try:
        with reach.opened(place.path, os.O_PATH) as fd:
            status = os.fstat(fd)
        opened = Tree(place.path)
    except OSError as reason:
        raise coder_error(given, reason) from None
    growing = _Growing(paths, place, opened, limit, filtered and not paths.is_noise(place, place.relative))
    try:
        root = _node(os.path.basename(place.path) or b"/", status, False)
        pending: list[tuple[TreeNode, Parts]] = [(root, ())]
        while pending:
            node, parts = pending.pop()
            if len(parts) >= depth:
                node.truncated = TruncationInfo(
                    "max_depth", 0, "pass a larger max_depth, or this folder's own path as path"
                )
            elif growing.nodes >= MAX_NODES:
                node.truncated = TruncationInfo(
                    "node_limit",
                    0,
                    f"a tree has at most {MAX_NODES} nodes: pass this folder's own path as path",
                )
            else:
                pending += reversed((yield from growing.grow(node, parts)))
            yield
        return TreeResult(place.shown, root)
    finally:
        opened.close()


class _Growing:
    """A tree under way."""

    def __init__(
        self, paths: CoderPaths, place: CoderPlace, opened: Tree, limit: int, filtered: bool
    ) -> None:
        self._paths = paths
        self._place = place
        self._opened = opened
        self._hidden = paths.hidden_below(place.path)
        self._plain = paths.plain_below(place)
        self._prefix = place.relative + b"/" if place.relative else b""
        self._limit = limit
        self._filtered = filtered
        self.nodes = 1

    def grow(self, node: TreeNode, parts: Parts) -> Generator[None, None, list[tuple[TreeNode, Parts]]]:
        """Give `node` its children; those among them that are to be grown themselves."""
        children: list[TreeNode] = []
        below: list[tuple[TreeNode, Parts]] = []
        total = 0
        try:
            for entry in self._opened.entries(parts):
                if entry is None:
                    yield
                    continue
                is_folder = entry.kind is Kind.DIRECTORY
                plain = not is_folder and self._plain(entry.path)
                noise = not plain and self._filtered and self._is_noise(entry)
                if noise and not is_folder:
                    continue
                total += 1
                if len(children) >= self._limit or self.nodes >= MAX_NODES:
                    continue
                child = self._child(entry, plain)
                if child is None:
                    total -= 1
                    continue
                children.append(child)
                self.nodes += 1
                if noise:
                    child.truncated = TruncationInfo(
                        "default_exclude", 0, "pass use_default_excludes: false to look inside"
                    )
                elif is_folder and not child.non_accessible:
                    below.append((child, (*parts, entry.name)))
        except OSError:
            node.truncated = TruncationInfo("io_error", len(children), "the folder could not be read")
        else:
            if total > len(children):
                node.truncated = TruncationInfo(
                    "per_folder_limit", len(children), "coder::list-folder gives all entries in pages", total
                )
        node.children = children
        return below

    def _is_noise(self, entry: Entry) -> bool:
        relative = self._prefix + entry.path
        if entry.kind is Kind.DIRECTORY:
            return self._paths.is_noise(self._place, relative)
        return self._paths.noise.matches(relative)

    def _child(self, entry: Entry, plain: bool) -> TreeNode | None:
        try:
            status = entry.status()
        except FileNotFoundError:
            return None
        return _node(entry.name, status, not plain and self._hidden(entry.path))


def _node(name: bytes, status: os.stat_result, hidden: bool) -> TreeNode:
    return TreeNode(
        name=shown_path(name),
        kind=kind_of(status.st_mode),
        size=status.st_size,
        mtime=int(status.st_mtime),
        non_accessible=hidden,
    )


FUNCTIONS = (
    coder_function("list-folder", "List a folder in pages.", ListRequest, list_folder),
    coder_function("tree", "Show a folder and what is below it.", TreeRequest, tree),
)

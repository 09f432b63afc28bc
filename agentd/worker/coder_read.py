"""`coder::info` and `read-file`: what may be reached, and what is in it (reference B4).

What of a file is returned is decided by `agentd.rules.windows`. Here files are opened, checked in the order that the
contract fixes (where it is, whether it may be seen, what it is, whether it fits), and read in slices.
"""

import os
import stat
from collections.abc import Generator, Iterator

from attrs import frozen
from msgspec import UNSET, Struct, UnsetType

from agentd import __version__
from agentd.files.threads import run_sliced
from agentd.rules.lines import LineWindow
from agentd.rules.windows import (
    WHOLE,
    BadWindow,
    Gathered,
    count_lines,
    gather,
    window_of,
)
from agentd.worker import coder_folders, reach
from agentd.worker.coder_common import Count, EntryError, Resolved, coder_function, refuse_empty, resolve_all
from agentd.worker.coder_paths import CoderPlace, coder_error
from agentd.worker.errors import CoderError
from agentd.worker.function import Call
from agentd.worker.jail import brief, shown_path
from agentd.worker.line_search import BLOCK_BYTES, is_utf8
from agentd.worker.settings import CodeSettings

# -- info --------------------------------------------------------------------------------------------------------


class InfoRequest(Struct):
    """Nothing is asked."""


class InfoResult(Struct):
    """The roots, the limits, and the filters."""

    base_paths: list[str]
    primary_root: str
    version: str
    max_read_bytes: int
    max_write_bytes: int
    max_output_bytes: int
    batch_read_budget_bytes: int
    search_response_budget_bytes: int
    search_default_max_matches: int
    search_default_max_line_bytes: int
    list_default_page_size: int
    list_max_page_size: int
    tree_default_depth: int
    tree_per_folder_limit: int
    non_accessible_globs: tuple[str, ...]
    default_exclude_globs: tuple[str, ...]


async def info(call: Call, _: InfoRequest) -> InfoResult:
    """What the coder functions may reach, and how much at once."""
    roots = [shown_path(root) for root in call.coder.roots]
    if not roots:
        raise CoderError("C210", "no root of the coder functions can be reached; see fs.host_roots")
    code = call.settings.code
    return InfoResult(
        base_paths=roots,
        primary_root=roots[0],
        version=__version__,
        max_read_bytes=code.max_read_bytes,
        max_write_bytes=code.max_write_bytes,
        max_output_bytes=code.max_output_bytes,
        batch_read_budget_bytes=code.batch_read_budget_bytes,
        search_response_budget_bytes=code.search_response_budget_bytes,
        search_default_max_matches=code.search_default_max_matches,
        search_default_max_line_bytes=code.search_default_max_line_bytes,
        list_default_page_size=code.list_default_page_size,
        list_max_page_size=code.list_max_page_size,
        tree_default_depth=code.tree_default_depth,
        tree_per_folder_limit=code.tree_per_folder_limit,
        non_accessible_globs=code.non_accessible_globs,
        default_exclude_globs=code.default_exclude_globs,
    )


# -- read-file ---------------------------------------------------------------------------------------------------


class ReadSpec(Struct):
    """One file of a batch, or a window of it."""

    path: str
    line_from: Count | None = None
    line_to: Count | None = None
    numbered: bool = False
    stat: bool = False


class ReadFileRequest(Struct):
    """One file or several."""

    path: str | None = None
    paths: tuple[str | ReadSpec, ...] | None = None
    line_from: Count | None = None
    line_to: Count | None = None
    max_output_bytes: Count | None = None
    numbered: bool = False
    stat: bool = False


class ReadFileResult(Struct):
    """One file: what was read of it; or the `results` of several."""

    path: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    is_utf8: bool | UnsetType = UNSET
    lines_returned: int | UnsetType = UNSET
    more_lines: bool | UnsetType = UNSET
    total_lines: int | UnsetType = UNSET
    size: int | UnsetType = UNSET
    mode: int | UnsetType = UNSET
    mtime: int | UnsetType = UNSET
    results: "list[ReadEntry] | UnsetType" = UNSET


class ReadEntry(ReadFileResult, kw_only=True):
    """One file of a batch."""

    path: str
    success: bool
    error: EntryError | UnsetType = UNSET


@frozen
class _Wanted:
    """What is wanted of one file."""

    window: LineWindow | None
    numbered: bool
    stat: bool

    @classmethod
    def of(cls, asked: ReadFileRequest | ReadSpec) -> "_Wanted":
        """Raises `CoderError` C210 for what contradicts itself."""
        try:
            window = window_of(asked.line_from, asked.line_to)
        except BadWindow as reason:
            raise CoderError("C210", str(reason)) from None
        if asked.stat and (window is not None or asked.numbered):
            raise CoderError(
                "C210", "stat returns no content: give it without line_from, line_to and numbered"
            )
        return cls(window, asked.numbered, asked.stat)


async def read_file(call: Call, request: ReadFileRequest) -> ReadFileResult:
    """Read one file, or several."""
    if (request.path is None) == (request.paths is None):
        raise CoderError("C210", "give either path or paths")
    steps = _read_one(call, request) if request.paths is None else _read_batch(call, request.paths)
    return await run_sliced(call.run_in_thread, steps)


def _read_one(call: Call, request: ReadFileRequest) -> Generator[None, None, ReadFileResult]:
    wanted = _Wanted.of(request)
    if request.max_output_bytes is not None and (request.stat or wanted.window is not None):
        raise CoderError(
            "C210", "max_output_bytes is for reads of a whole file; a window is bounded by its lines"
        )
    place = call.coder.resolve(request.path or "")
    call.coder.check(place)
    code = call.settings.code
    with _File(place) as file:
        if wanted.stat:
            return (yield from file.probe(code))
        if wanted.window is not None:
            gathered = yield from gather(file.chunks(), wanted.window, wanted.numbered, code.max_read_bytes)
            return file.result(gathered)
        budget = code.max_output_bytes if request.max_output_bytes is None else request.max_output_bytes
        return (yield from file.whole(code, wanted.numbered, min(budget, code.max_read_bytes)))


def _read_batch(call: Call, specs: tuple[str | ReadSpec, ...]) -> Generator[None, None, ReadFileResult]:
    refuse_empty(specs, "paths")
    asked = [ReadSpec(spec) if isinstance(spec, str) else spec for spec in specs]
    resolved = resolve_all(call.coder, (spec.path for spec in asked))
    code = call.settings.code
    remaining = code.batch_read_budget_bytes
    results = []
    for spec, where in zip(asked, resolved, strict=True):
        try:
            entry, used = yield from _read_entry(code, spec, where, remaining)
        except CoderError as reason:
            results.append(ReadEntry(path=where.shown, success=False, error=EntryError.of(reason)))
        else:
            results.append(entry)
            remaining -= used
        yield
    return ReadFileResult(results=results)


def _read_entry(
    code: CodeSettings, spec: ReadSpec, where: Resolved, remaining: int
) -> Generator[None, None, tuple[ReadEntry, int]]:
    """One entry of a batch, and how much of the budget it took. Raises `CoderError`."""
    wanted = _Wanted.of(spec)
    with _File(where.usable()) as file:
        if wanted.stat:
            return file.entry((yield from file.probe(code))), 0
        if remaining <= 0:
            raise CoderError(
                "C213",
                f"{brief(spec.path)}: batch_read_budget_bytes ({code.batch_read_budget_bytes}) is used up by the "
                "entries before it; read it in a call of its own, or a window of it with line_from and line_to",
            )
        gathered = yield from gather(
            file.chunks(), wanted.window or WHOLE, wanted.numbered, min(remaining, code.max_read_bytes)
        )
        return file.entry(file.result(gathered)), gathered.size


class _File:
    """A regular file, opened. Raises `CoderError`."""

    def __init__(self, place: CoderPlace) -> None:
        self._place = place
        try:
            self._fd = reach.open_path(place.path, reach.READ)
        except OSError as reason:
            raise coder_error(place.given, reason) from None
        self.status = os.fstat(self._fd)
        if not stat.S_ISREG(self.status.st_mode):
            os.close(self._fd)
            what = "a directory" if stat.S_ISDIR(self.status.st_mode) else "not a regular file"
            raise CoderError("C210", f"{brief(place.given)} is {what}; coder::list-folder lists directories")

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def chunks(self) -> Iterator[bytes]:
        """What is in it, piece by piece. Raises `CoderError`."""
        try:
            while data := os.read(self._fd, BLOCK_BYTES):
                yield data
        except OSError as reason:
            raise coder_error(self._place.given, reason) from None

    def whole(self, code: CodeSettings, numbered: bool, budget: int) -> Generator[None, None, ReadFileResult]:
        """All of it, if it fits."""
        self._refuse_large(code)
        gathered = yield from gather(self.chunks(), WHOLE, numbered, budget)
        if not gathered.more:
            return self.result(gathered)
        os.lseek(self._fd, 0, os.SEEK_SET)
        lines, ended = 0, True
        for data in self.chunks():
            lines += data.count(b"\n")
            ended = data.endswith(b"\n")
            yield
        lines += not ended
        raise CoderError(
            "C213",
            f"{brief(self._place.given)} has {self.status.st_size} bytes in {lines} lines, and its "
            f"content is more than the {budget} bytes of max_output_bytes; read a window of it with line_from and "
            "line_to, probe it with stat: true, or pass a larger max_output_bytes "
            f"(up to max_read_bytes, {code.max_read_bytes})",
        )

    def _refuse_large(self, code: CodeSettings) -> None:
        if self.status.st_size > code.max_read_bytes:
            raise CoderError(
                "C213",
                f"{brief(self._place.given)} has {self.status.st_size} bytes, more than max_read_bytes, "
                f"{code.max_read_bytes}; read a window of it with line_from and line_to",
            )

    def probe(self, code: CodeSettings) -> Generator[None, None, ReadFileResult]:
        """What it is, without content."""
        result = self._described()
        result.lines_returned = 0
        result.more_lines = False
        if self.status.st_size <= code.max_read_bytes:
            data = bytearray()
            for chunk in self.chunks():
                data += chunk
                if len(data) > code.max_read_bytes:
                    return result
                yield
            result.total_lines = count_lines(bytes(data))
            result.is_utf8 = is_utf8(bytes(data))
        return result

    def result(self, gathered: Gathered) -> ReadFileResult:
        """A result with content."""
        result = self._described()
        result.content = gathered.content
        result.is_utf8 = gathered.utf8
        result.lines_returned = gathered.lines
        result.more_lines = gathered.more
        result.total_lines = UNSET if gathered.total_lines is None else gathered.total_lines
        return result

    def _described(self) -> ReadFileResult:
        return ReadFileResult(
            path=self._place.shown,
            size=self.status.st_size,
            mode=self.status.st_mode & 0o777,
            mtime=int(self.status.st_mtime),
        )

    def entry(self, result: ReadFileResult) -> ReadEntry:
        """A result as an entry of a batch."""
        return ReadEntry(
            path=self._place.shown,
            success=True,
            content=result.content,
            is_utf8=result.is_utf8,
            lines_returned=result.lines_returned,
            more_lines=result.more_lines,
            total_lines=result.total_lines,
            size=result.size,
            mode=result.mode,
            mtime=result.mtime,
        )


FUNCTIONS = (
    coder_function("info", "Tell what the coder functions may reach.", InfoRequest, info),
    coder_function("read-file", "Read files, or windows of them.", ReadFileRequest, read_file),
    *coder_folders.FUNCTIONS,
)

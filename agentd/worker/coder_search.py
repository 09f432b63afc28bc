"""`coder::search`: finding in what files are called, and in what is in them (reference B4).

The walk is `agentd.worker.walker`'s, the looking for lines `agentd.worker.line_search`'s. A line is cut to what the
caller wants of it before it is searched. The answer has a budget: it ends with the first match that does not fit.
"""

import os
import stat
from collections.abc import Generator, Iterator
from typing import Final

from attrs import field, frozen
from msgspec import UNSET, Struct, UnsetType

from agentd.files.threads import run_sliced
from agentd.rules.jail import join
from agentd.worker import reach
from agentd.worker.coder_common import Small, coder_function
from agentd.worker.coder_paths import CoderPlace, coder_error, missing
from agentd.worker.errors import CoderError
from agentd.worker.function import Call
from agentd.worker.globs import BadGlob, Globs, globset
from agentd.worker.jail import brief, shown_path
from agentd.worker.line_search import LineSearch, cut_line, read_all, repaired
from agentd.worker.patterns import BadPattern
from agentd.worker.walker import Entry, Kind, walk

MAX_CONTEXT_LINES: Final = 10
_PAUSE_EVERY: Final = 256


class SearchRequest(Struct):
    """What to look for, and where."""

    query: str
    path: str = "."
    regex: bool = False
    ignore_case: bool = False
    search_content: bool = True
    search_paths: bool = True
    include_globs: tuple[str, ...] = ()
    exclude_globs: tuple[str, ...] = ()
    max_matches: Small | None = None
    max_line_bytes: Small | None = None
    context_lines_before: Small | None = None
    context_lines_after: Small | None = None
    use_default_excludes: bool = True


class ContentMatch(Struct):
    """A line in which the query was found, and lines around it."""

    path: str
    line: int
    column: int
    text: str
    before: list[str] | UnsetType = UNSET
    after: list[str] | UnsetType = UNSET


class PathMatch(Struct):
    """A path in which the query was found."""

    path: str


class SearchResult(Struct):
    """What was found; `truncated` when there may be more."""

    content_matches: list[ContentMatch]
    path_matches: list[PathMatch]
    truncated: bool


@frozen
class _Wanted:
    """A request, checked."""

    search: LineSearch
    content: bool
    paths: bool
    include: Globs
    exclude: Globs
    most: int
    line_bytes: int
    before: int
    after: int


class _Full(Exception):
    """The answer has no room for another match."""


@frozen
class _Found:
    """The answer under way."""

    most: int
    budget: int
    content: list[ContentMatch] = field(factory=list)
    paths: list[PathMatch] = field(factory=list)
    _spent: list[int] = field(factory=lambda: [0])

    def add_path(self, path: str) -> None:
        """Raises `_Full`."""
        self._spend(len(path.encode()))
        self.paths.append(PathMatch(path))
        if len(self.paths) >= self.most:
            raise _Full

    def add_content(self, match: ContentMatch) -> None:
        """Raises `_Full`."""
        texts = [match.path, match.text]
        for lines in (match.before, match.after):
            texts += [] if lines is UNSET else lines
        self._spend(sum(len(text.encode()) for text in texts))
        self.content.append(match)
        if len(self.content) >= self.most:
            raise _Full

    def _spend(self, count: int) -> None:
        if self._spent[0] + count > self.budget:
            raise _Full
        self._spent[0] += count


async def search(call: Call, request: SearchRequest) -> SearchResult:
    """Paths and lines in which the query is found."""
    return await run_sliced(call.run_in_thread, _search(call, request))


def _checked(call: Call, request: SearchRequest) -> _Wanted:
    if not request.query:
        raise CoderError("C210", "the query is empty")
    if not request.search_content and not request.search_paths:
        raise CoderError("C210", "search_content and search_paths are both false: there is nothing to search")
    context = request.context_lines_before or 0, request.context_lines_after or 0
    if max(context) > MAX_CONTEXT_LINES:
        raise CoderError("C210", f"at most {MAX_CONTEXT_LINES} context lines can be asked for")
    try:
        found = LineSearch.of(request.query, regex=request.regex, ignore_case=request.ignore_case)
        include, exclude = globset(request.include_globs), globset(request.exclude_globs)
    except BadPattern as reason:
        raise CoderError("C210", f"bad query: {reason}") from None
    except BadGlob as reason:
        raise CoderError("C210", str(reason)) from None
    code = call.settings.code
    most = code.search_default_max_matches if request.max_matches is None else request.max_matches
    line_bytes = (
        code.search_default_max_line_bytes if request.max_line_bytes is None else request.max_line_bytes
    )
    return _Wanted(
        found, request.search_content, request.search_paths, include, exclude, most, line_bytes, *context
    )


def _search(call: Call, request: SearchRequest) -> Generator[None, None, SearchResult]:
    wanted = _checked(call, request)
    paths = call.coder
    place = paths.resolve(request.path)
    paths.check(place)
    _refuse_no_folder(place)
    filtered = request.use_default_excludes and not paths.is_noise(place, place.relative)
    found = _Found(wanted.most, call.settings.code.search_response_budget_bytes)
    hidden, plain = paths.hidden_below(place.path), paths.plain_below(place)
    prefix = place.relative + b"/" if place.relative else b""

    def enter(path: bytes) -> bool:
        if filtered and paths.is_noise(place, prefix + path):
            return False
        return not hidden(path)

    truncated = wanted.most == 0
    try:
        for entry in () if truncated else walk(place.path, enter=enter, unreadable=lambda *_: None):
            yield
            if entry is None or entry.kind is not Kind.FILE:
                continue
            relative = prefix + entry.path
            if wanted.include and not wanted.include.matches(relative):
                continue
            if wanted.exclude.matches(relative):
                continue
            if not plain(entry.path) and (hidden(entry.path) or (filtered and paths.noise.matches(relative))):
                continue
            path = join(place.path, entry.path)
            if wanted.paths and wanted.search.find(repaired(relative)) >= 0:
                found.add_path(shown_path(path))
            if wanted.content:
                yield from _in_file(entry, path, wanted, call.settings.code.max_read_bytes, found)
    except _Full:
        truncated = True
    except OSError as reason:
        raise coder_error(request.path, reason) from None
    return SearchResult(found.content, found.paths, truncated)


def _refuse_no_folder(place: CoderPlace) -> None:
    try:
        status = reach.status_of(place.path)
    except OSError as reason:
        raise coder_error(place.given, reason) from None
    if status is None:
        raise missing(place.given)
    if not stat.S_ISDIR(status.st_mode):
        raise CoderError("C210", f"{brief(place.given)} is not a directory")


def _in_file(
    entry: Entry, path: bytes, wanted: _Wanted, most: int, found: _Found
) -> Generator[None, None, None]:
    """Add what is found in one file; one that cannot be read, is too large or is binary is passed over."""
    try:
        fd = entry.open()
    except OSError:
        return
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            return
        data = read_all(fd, most, status.st_size)
    except OSError:
        return
    finally:
        os.close(fd)
    if data is None or b"\0" in data or wanted.search.is_absent(data):
        return
    shown = shown_path(path)
    number, counted = 1, 0
    for tried, (begin, end) in enumerate(wanted.search.candidates(data), 1):
        if tried % _PAUSE_EVERY == 0:
            yield
        line = _line(data[begin:end], wanted.line_bytes)
        column = wanted.search.find(line)
        if column < 0:
            continue
        number += data.count(b"\n", counted, begin)
        counted = begin
        match = ContentMatch(shown, number, column + 1, line.decode())
        if wanted.before and begin:
            match.before = [*_before(data, begin, wanted.before, wanted.line_bytes)]
        if wanted.after and end + 1 < len(data):
            match.after = [*_after(data, end + 1, wanted.after, wanted.line_bytes)]
        found.add_content(match)


def _line(line: bytes, limit: int) -> bytes:
    """A line as it is searched and shown: without its end, cut, in UTF-8."""
    whole = line.removesuffix(b"\r")
    if len(whole) <= limit:
        return repaired(whole)
    return cut_line(repaired(whole[: limit + 4]), limit)


def _before(data: bytes, begin: int, count: int, limit: int) -> Iterator[str]:
    """The lines before the one that begins at `begin`."""
    start = begin
    for _ in range(count):
        if start == 0:
            break
        start = data.rfind(b"\n", 0, start - 1) + 1
    for line in data[start : begin - 1].split(b"\n"):
        yield _line(line, limit).decode()


def _after(data: bytes, begin: int, count: int, limit: int) -> Iterator[str]:
    """The lines from `begin` on."""
    for _ in range(count):
        if begin >= len(data):
            return
        end = data.find(b"\n", begin)
        end = len(data) if end < 0 else end
        yield _line(data[begin:end], limit).decode()
        begin = end + 1


FUNCTIONS = (coder_function("search", "Find in paths and in files.", SearchRequest, search),)

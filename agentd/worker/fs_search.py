"""`shell::fs::grep` and `sed`: finding and replacing in files, line by line (reference B2).

Both walk with `agentd.worker.walker` and look for lines with `agentd.worker.line_search`. They differ in what a line
is: grep's ends before its LF or CR LF, sed's includes it, so that a replacement may take it away; and in what a
protected file does: grep passes over it, sed refuses the whole call before it has written anything.
"""

import os
import stat
from collections.abc import Callable, Generator, Iterator
from typing import Annotated, Final

from attrs import frozen
from msgspec import Meta, Struct

from agentd.files.threads import run_sliced
from agentd.rules.jail import join
from agentd.worker import reach
from agentd.worker.errors import Coded
from agentd.worker.expressions import Expression, Replacement, literal_replacement, parse_replacement
from agentd.worker.fs_common import fs_function
from agentd.worker.function import Call
from agentd.worker.globs import BadGlob, walk_globs
from agentd.worker.jail import Jail, Place, brief, fs_error, shown_path
from agentd.worker.line_search import LineSearch, blocks, cut_line, is_utf8, read_all, repaired
from agentd.worker.patterns import BadPattern
from agentd.worker.settings import Settings
from agentd.worker.walker import Entry, Kind, is_gone, walk

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

MAX_PATTERN_BYTES: Final = 4096
MAX_COMPILED_BYTES: Final = 256 * 1024
MAX_MATCHES: Final = 10_000
MAX_LINE_BYTES: Final = 4096
MAX_RESULT_BYTES: Final = 8 << 20
"""Of all matches together: what a caller asks for must not decide what the worker holds."""
_SED_BYTES: Final = 16 << 20
"""Largest file that sed reads, and writes, where the settings have no limit."""
_BINARY_BYTES: Final = 8192
"""A NUL in the first so many bytes makes a file binary."""
_FIRST_BYTES: Final = 64 * 1024
_PAUSE_EVERY: Final = 256


class GrepRequest(Struct):
    """What to look for, and where."""

    path: str
    pattern: str
    recursive: bool = True
    ignore_case: bool = False
    include_glob: tuple[str, ...] = ()
    exclude_glob: tuple[str, ...] = ()
    max_matches: Count = MAX_MATCHES
    max_line_bytes: Count = MAX_LINE_BYTES


class FsMatch(Struct, gc=False):
    """A line in which the pattern was found."""

    path: str
    line: int
    content: str


class GrepResult(Struct):
    """The lines found; `truncated` when there may be more."""

    matches: list[FsMatch]
    truncated: bool


class SedRequest(Struct):
    """What to replace by what, in `files` or below `path`."""

    pattern: str
    replacement: str
    files: tuple[str, ...] = ()
    path: str | None = None
    recursive: bool = True
    include_glob: tuple[str, ...] = ()
    exclude_glob: tuple[str, ...] = ()
    regex: bool = True
    first_only: bool = False
    ignore_case: bool = False


class SedFile(Struct):
    """What became of one file."""

    path: str
    replacements: int
    success: bool
    error: str | None


class SedResult(Struct):
    """What became of each file."""

    results: list[SedFile]
    total_replacements: int


def _search(pattern: str, regex: bool, ignore_case: bool) -> LineSearch:
    if len(pattern.encode("utf-8", "surrogatepass")) > MAX_PATTERN_BYTES:
        raise Coded("S210", f"the pattern is longer than {MAX_PATTERN_BYTES} bytes")
    try:
        return LineSearch.of(
            pattern, regex=regex, ignore_case=ignore_case, max_program_bytes=MAX_COMPILED_BYTES
        )
    except BadPattern as reason:
        raise Coded("S217", f"bad regex: {reason}") from None


def _chosen(include: tuple[str, ...], exclude: tuple[str, ...]) -> Callable[[bytes], bool]:
    """Whether a path relative to where the walk begins is to be looked at."""
    try:
        included, excluded = walk_globs(include), walk_globs(exclude)
    except BadGlob as reason:
        raise Coded("S210", str(reason)) from None
    if not included and not excluded:
        return lambda path: True
    return lambda path: (not included or included.matches(path)) and not excluded.matches(path)


def _files(
    place: Place, recursive: bool, chosen: Callable[[bytes], bool], hidden: Callable[[bytes], bool]
) -> Generator[Entry | None, None, None]:
    """The files that a call is about: the one named, whose path is empty, or those below a directory."""
    try:
        with reach.parent_of(place.path) as (directory, name):
            mode = reach.lstat(directory, name).st_mode
            if not stat.S_ISDIR(mode):
                yield Entry(directory, name, b"", Kind.FILE)
                return
        if not recursive:
            raise Coded("S210", f"{brief(place.given)} is a directory; pass recursive: true")
        for entry in walk(place.path, enter=lambda path: not hidden(path)):
            if entry is None or entry.kind is not Kind.FILE or not chosen(entry.path):
                yield None
            else:
                yield entry
    except OSError as reason:
        raise fs_error(place.given, reason) from None


# -- grep --------------------------------------------------------------------------------------------------------


async def grep(call: Call, request: GrepRequest) -> GrepResult:
    """The lines that a pattern is found in."""
    return await run_sliced(call.run_in_thread, _grep(call.jail, request))


def _grep(jail: Jail, request: GrepRequest) -> Generator[None, None, GrepResult]:
    search = _search(request.pattern, True, request.ignore_case)
    chosen = _chosen(request.include_glob, request.exclude_glob)
    place = jail.resolve(request.path)
    most = request.max_matches or MAX_MATCHES
    limit = request.max_line_bytes or MAX_LINE_BYTES
    matches: list[FsMatch] = []
    room = MAX_RESULT_BYTES
    hidden = jail.hidden_below(place.path)
    for entry in _files(place, request.recursive, chosen, hidden):
        yield
        if entry is None or hidden(entry.path):
            continue
        path = join(place.path, entry.path)
        try:
            fd = entry.open()
        except OSError as reason:
            if is_gone(reason):
                continue
            raise fs_error(shown_path(path), reason) from None
        try:
            for match in _lines_found(fd, search, limit):
                if match is None:
                    yield
                    continue
                number, line = match
                matches.append(FsMatch(shown_path(path), number, line))
                room -= len(path) + len(line) + 32
                if len(matches) >= most or room <= 0:
                    return GrepResult(matches, True)
        except OSError as reason:
            raise fs_error(shown_path(path), reason) from None
        finally:
            os.close(fd)
    return GrepResult(matches, False)


def _lines_found(fd: int, search: LineSearch, limit: int) -> Iterator[tuple[int, str] | None]:
    """Number and text of the lines of an open file that `search` finds; None now and then."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        return
    size = status.st_size
    first = os.read(fd, min(size + 1, _FIRST_BYTES) if size else _FIRST_BYTES)
    whole = len(first) == size
    if first.find(b"\0", 0, _BINARY_BYTES) >= 0 or (whole and search.is_absent(first)):
        return
    number, counted, before = 1, 0, b""
    for block in blocks(fd, first, whole):
        # Lines are counted when there is a use for it, which in most files there is not.
        number += before.count(b"\n", counted)
        before, counted = block, 0
        for tried, (begin, end) in enumerate(search.candidates(block), 1):
            if tried % _PAUSE_EVERY == 0:
                yield None
            line = repaired(block[begin:end].removesuffix(b"\r"))
            if search.find(line) < 0:
                continue
            number += block.count(b"\n", counted, begin)
            counted = begin
            cut = cut_line(line, limit)
            yield number, cut.decode() + ("…" if len(cut) < len(line) else "")
        yield None


# -- sed ---------------------------------------------------------------------------------------------------------


@frozen
class _Change:
    """What is done to each line."""

    search: LineSearch
    replacement: Replacement
    first_only: bool


async def sed(call: Call, request: SedRequest) -> SedResult:
    """Replace in files."""
    return await run_sliced(call.run_in_thread, _sed(call.settings, call.jail, request))


def _sed(settings: Settings, jail: Jail, request: SedRequest) -> Generator[None, None, SedResult]:
    if bool(request.files) == (request.path is not None):
        raise Coded("S210", "give either files or path")
    if not request.pattern and not request.regex:
        raise Coded("S210", "a literal pattern must not be empty")
    search = _search(request.pattern, request.regex, request.ignore_case)
    change = _Change(search, _replacement(request, search.expression), request.first_only)
    chosen = _chosen(request.include_glob, request.exclude_glob)
    targets: list[tuple[str, bytes]] = []
    # Everything is judged before anything is written.
    for given in request.files:
        targets.append((given, _named(jail, given).path))
        yield
    if request.path is not None:
        place = _named(jail, request.path)
        hidden = jail.hidden_below(place.path)
        for entry in _files(place, request.recursive, chosen, lambda _: False):
            yield
            if entry is None:
                continue
            path = join(place.path, entry.path)
            if hidden(entry.path):
                raise Coded("S215", f"{brief(shown_path(path))} is protected or denied; nothing was changed")
            targets.append((shown_path(path), path))
    results = []
    for shown, path in targets:
        try:
            count = yield from _rewrite(settings, path, change)
        except _Unchanged as reason:
            results.append(SedFile(shown, 0, False, str(reason)))
        except OSError as reason:
            results.append(SedFile(shown, 0, False, fs_error(shown, reason).message))
        else:
            results.append(SedFile(shown, count, True, None))
    return SedResult(results, sum(result.replacements for result in results))


def _replacement(request: SedRequest, expression: Expression) -> Replacement:
    try:
        if request.regex:
            return parse_replacement(request.replacement, expression)
        return literal_replacement(request.replacement)
    except UnicodeEncodeError:
        raise Coded("S210", "the replacement is not valid Unicode") from None


def _named(jail: Jail, path: str) -> Place:
    """A path that the caller named; it must exist."""
    place = jail.entry(path)
    try:
        with reach.parent_of(place.path) as (directory, name):
            reach.lstat(directory, name)
    except OSError as reason:
        raise fs_error(path, reason) from None
    return place


class _Unchanged(Exception):
    """A file is left as it is; the text says why."""


def _rewrite(settings: Settings, path: bytes, change: _Change) -> Generator[None, None, int]:
    """Replace in one file: how many times. Raises `_Unchanged`, OSError."""
    with reach.parent_of(path) as (directory, name):
        status = reach.lstat(directory, name)
        if not stat.S_ISREG(status.st_mode):
            raise _Unchanged("it is a link" if stat.S_ISLNK(status.st_mode) else "it is not a regular file")
        fd = os.open(name, reach.READ | os.O_NOFOLLOW, dir_fd=directory)
    try:
        status = os.fstat(fd)
        most = settings.fs.max_read_bytes or _SED_BYTES
        data = read_all(fd, most, status.st_size)
    finally:
        os.close(fd)
    if data is None:
        raise _Unchanged(f"it is larger than {most} bytes")
    if b"\0" in data[:_BINARY_BYTES]:
        raise _Unchanged("it is binary")
    if not is_utf8(data):
        raise _Unchanged("it is not UTF-8")
    yield
    content, count = yield from _replaced(data, change, settings.fs.max_write_bytes or _SED_BYTES)
    new = reach.NewFile.begin(path)
    try:
        new.write(content)
        new.publish(stat.S_IMODE(status.st_mode), status)
    finally:
        new.discard()
    return count


def _replaced(data: bytes, change: _Change, most: int) -> Generator[None, None, tuple[bytearray, int]]:
    """The new content, and the number of replacements. Raises `_Unchanged` when it gets too large."""
    new = bytearray()
    kept, count = 0, 0
    for number, (begin, stop) in enumerate(change.search.whole_lines(data), 1):
        if number % _PAUSE_EVERY == 0:
            yield
        line = data[begin:stop]
        for spans in change.search.expression.matches(line):
            count += 1
            if count % _PAUSE_EVERY == 0:
                yield
            new += data[kept : begin + spans[0][0]]
            new += change.replacement.expand(line, spans)
            kept = begin + spans[0][1]
            if len(new) > most:
                raise _Unchanged(f"it would become larger than {most} bytes")
            if change.first_only:
                break
    new += data[kept:]
    if count and len(new) > most:
        raise _Unchanged(f"it would become larger than {most} bytes")
    return new, count


FUNCTIONS = (
    fs_function(
        "grep", "Find the lines of files that a regular expression matches.", GrepRequest, GrepResult, grep
    ),
    fs_function("sed", "Find and replace in files.", SedRequest, SedResult, sed),
)

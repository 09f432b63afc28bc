"""`coder::update-file`: edits by line and by pattern, each file all or nothing (reference B4).

What the operations mean, and what is shown of them, is `agentd.rules.edits`. A file with a CR LF in it is edited with
LF alone and written back with CR LF throughout. What is not UTF-8 is refused, because it could not be written back.
"""

import os
import stat
from collections.abc import Generator

from msgspec import UNSET, Struct, UnsetType

from agentd.files.threads import run_sliced
from agentd.rules.edits import (
    BadEdit,
    Echo,
    LineEdit,
    Region,
    Replacing,
    apply_lines,
    check,
    echoes,
)
from agentd.rules.windows import count_lines
from agentd.worker import reach
from agentd.worker.coder_common import Count, EntryError, Small, coder_function, refuse_empty, resolve_all
from agentd.worker.coder_paths import CoderPlace, coder_error
from agentd.worker.errors import CoderError
from agentd.worker.expressions import Expression, Replacement, compile_expression, parse_replacement
from agentd.worker.function import Call
from agentd.worker.jail import brief, shown_path
from agentd.worker.line_search import is_utf8, read_all
from agentd.worker.patterns import BadPattern
from agentd.worker.settings import CodeSettings

_PAUSE_EVERY = 256


class Insert(Struct, tag_field="op", tag="insert"):
    """Put `content` before line `at_line`."""

    at_line: Small
    content: str


class Remove(Struct, tag_field="op", tag="remove"):
    """Take lines away."""

    from_line: Small
    to_line: Small


class UpdateLines(Struct, tag_field="op", tag="update_lines"):
    """Put `content` in the place of lines."""

    from_line: Small
    to_line: Small
    content: str


class Replace(Struct, tag_field="op", tag="replace"):
    """Replace what a pattern matches."""

    pattern: str
    replacement: str
    ignore_case: bool = False
    dot_matches_newline: bool = False
    expect_matches: Count | None = None


class UpdateSpec(Struct):
    """One file, and what to do to it."""

    path: str
    ops: tuple[Insert | Remove | UpdateLines | Replace, ...]


class UpdateRequest(Struct):
    """The files to change."""

    files: tuple[UpdateSpec, ...]


class OpEcho(Struct):
    """Lines that show what an operation did."""

    op_index: int
    from_line: int
    lines: list[str]
    elided: int | UnsetType = UNSET
    total_replacements: int | UnsetType = UNSET


class Updated(Struct):
    """What became of one file."""

    path: str
    success: bool
    applied: int = 0
    new_line_count: int = 0
    echoes: list[OpEcho] = []
    echoes_truncated: bool = False
    error: EntryError | UnsetType = UNSET


class UpdateResult(Struct):
    """What became of each file."""

    results: list[Updated]


async def update_file(call: Call, request: UpdateRequest) -> UpdateResult:
    """Change files."""
    return await run_sliced(call.run_in_thread, _update_all(call, request.files))


def _update_all(call: Call, files: tuple[UpdateSpec, ...]) -> Generator[None, None, UpdateResult]:
    refuse_empty(files, "files")
    resolved = resolve_all(call.coder, (spec.path for spec in files))
    results = []
    for spec, where in zip(files, resolved, strict=True):
        yield
        try:
            results.append((yield from _update(call.settings.code, spec, where.usable())))
        except CoderError as reason:
            results.append(Updated(where.shown, False, error=EntryError.of(reason)))
    return UpdateResult(results)


def _update(code: CodeSettings, spec: UpdateSpec, place: CoderPlace) -> Generator[None, None, Updated]:
    try:
        data, status = _read(code, spec, place)
    except OSError as reason:
        raise coder_error(spec.path, reason) from None
    if not spec.ops:
        raise CoderError("C210", f"{brief(spec.path)}: ops is empty: give at least one")
    if not is_utf8(data):
        raise CoderError("C210", f"{brief(spec.path)} is not UTF-8, and could not be written back as it was")
    crlf = b"\r\n" in data
    text = data.replace(b"\r\n", b"\n") if crlf else data
    yield
    try:
        edits = check(_line_edits(spec, crlf), count_lines(text))
        text, regions = apply_lines(text, edits)
    except BadEdit as reason:
        raise CoderError("C210", f"{brief(spec.path)}: {reason}") from None
    yield
    for index, op in enumerate(spec.ops):
        if isinstance(op, Replace):
            text, regions = yield from _replace(code, spec, index, op, text, regions)
    shown, cut = echoes(text, regions)
    written = text.replace(b"\n", b"\r\n") if crlf else text
    _refuse_large(code, spec, len(written))
    try:
        _write(place, written, status)
    except OSError as reason:
        raise coder_error(spec.path, reason) from None
    return Updated(
        path=place.shown,
        success=True,
        applied=len(spec.ops),
        new_line_count=count_lines(text),
        echoes=[_echo(each) for each in shown],
        echoes_truncated=cut,
    )


def _read(code: CodeSettings, spec: UpdateSpec, place: CoderPlace) -> tuple[bytes, os.stat_result]:
    with reach.opened(place.path, reach.READ) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise CoderError("C210", f"{brief(spec.path)} is not a regular file")
        data = read_all(fd, code.max_write_bytes, status.st_size)
    if data is None:
        _refuse_large(code, spec, max(status.st_size, code.max_write_bytes + 1))
    return data or b"", status


def _refuse_large(code: CodeSettings, spec: UpdateSpec, size: int) -> None:
    if size > code.max_write_bytes:
        raise CoderError(
            "C213", f"{brief(spec.path)}: {size} bytes are more than max_write_bytes, {code.max_write_bytes}"
        )


def _write(place: CoderPlace, data: bytes, status: os.stat_result) -> None:
    new = reach.NewFile.begin(place.path)
    try:
        new.write(data)
        new.publish(stat.S_IMODE(status.st_mode), status)
    finally:
        new.discard()


# -- operations --------------------------------------------------------------------------------------------------


def _line_edits(spec: UpdateSpec, crlf: bool) -> list[LineEdit]:
    edits = []
    for index, op in enumerate(spec.ops):
        match op:
            case Insert(at_line, content):
                edits.append(LineEdit(index, at_line, at_line - 1, _bytes(content, crlf)))
            case Remove(first, last):
                edits.append(_range(index, first, last, b""))
            case UpdateLines(first, last, content):
                edits.append(_range(index, first, last, _bytes(content, crlf)))
            case Replace():
                pass
    return edits


def _range(index: int, first: int, last: int, content: bytes) -> LineEdit:
    if last < first:
        raise BadEdit(f"op {index}: to_line {last} comes before from_line {first}")
    return LineEdit(index, first, last, content)


def _bytes(content: str, crlf: bool) -> bytes:
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise BadEdit("a content is not valid Unicode") from None
    return data.replace(b"\r\n", b"\n") if crlf else data


def _replace(
    code: CodeSettings, spec: UpdateSpec, index: int, op: Replace, text: bytes, regions: list[Region]
) -> Generator[None, None, tuple[bytes, list[Region]]]:
    """The text after one replacing operation, and the regions in it. Raises `CoderError`."""
    expression, replacement = _compiled(spec, index, op)
    replacing = Replacing(index, regions)
    new = bytearray()
    kept = 0
    for spans in expression.matches(text):
        begin, end = spans[0]
        piece = replacement.expand(text, spans)
        replacing.site(begin, end, len(piece))
        new += text[kept:begin]
        new += piece
        kept = end
        if len(new) > code.max_write_bytes:
            _refuse_large(code, spec, len(new))
        if replacing.count % _PAUSE_EVERY == 0:
            yield
    if op.expect_matches is not None and replacing.count != op.expect_matches:
        raise CoderError(
            "C210",
            f"{brief(spec.path)}: op {index}: the pattern matches {replacing.count} times, not "
            f"{op.expect_matches} as expected; nothing was written",
        )
    new += text[kept:]
    return bytes(new), replacing.done()


def _compiled(spec: UpdateSpec, index: int, op: Replace) -> tuple[Expression, Replacement]:
    where = f"{brief(spec.path)}: op {index}"
    if not op.pattern:
        raise CoderError("C210", f"{where}: the pattern is empty")
    try:
        expression = compile_expression(
            op.pattern, ignore_case=op.ignore_case, dot_matches_newline=op.dot_matches_newline
        )
        replacement = parse_replacement(op.replacement, expression)
    except BadPattern as reason:
        raise CoderError("C210", f"{where}: bad pattern: {reason}") from None
    except UnicodeEncodeError:
        raise CoderError("C210", f"{where}: the replacement is not valid Unicode") from None
    if replacement.unknown:
        names = ", ".join(replacement.unknown[:5])
        raise CoderError(
            "C210",
            f"{where}: the replacement refers to {names}, which the pattern has not; a literal $ is $$",
        )
    return expression, replacement


def _echo(echo: Echo) -> OpEcho:
    return OpEcho(
        op_index=echo.index,
        from_line=echo.from_line,
        lines=[shown_path(line) for line in echo.lines],
        elided=UNSET if echo.elided is None else echo.elided,
        total_replacements=UNSET if echo.sites is None else echo.sites,
    )


FUNCTIONS = (
    coder_function("update-file", "Change files by line and by pattern.", UpdateRequest, update_file),
)

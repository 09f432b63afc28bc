"""Which bytes of a file a reader asked for: a window of lines, or one byte range.

A *line window* is a pair of 1-based, inclusive line numbers (contract e.2). Only LF ends a line, a line
owns its LF, and an unterminated tail is a line. Therefore the bytes of a window are one contiguous piece
of the file, and so is what each chunk of the file gives to it: `cut` maps (window, cursor, chunk) to a
begin and an end inside that chunk, and needs to remember nothing but the number of the line that the next
byte belongs to. Two laws follow and are tested: how the file is chunked does not matter, and the windows
[a, b] and [b+1, c] concatenate to [a, c].

A *byte range* is RFC 9110 section 14.1.2, one range only: several, or a malformed header, mean that the
header is ignored (section 14.2 allows both), and the whole representation is served.
"""

import re

from attrs import frozen

U64_MAX = 2**64 - 1
NOT_INTEGERS = "start_line and end_line must be integers"


class InvalidWindow(ValueError):
    """The bounds name no window; the text says which and may be shown to the caller."""


class RangeNotSatisfiable(ValueError):
    """A well-formed range that selects no byte of the representation (HTTP 416)."""


@frozen
class LineWindow:
    """Lines `first` to `last`, 1-based and inclusive; `last` None is the end of the file."""

    first: int = 1
    last: int | None = None


@frozen
class LineCursor:
    """Where a reader stands: the number of the line that the next unread byte belongs to."""

    line: int = 1


START = LineCursor()


def line_window(start_line: str | None, end_line: str | None) -> LineWindow | None:
    """The window that two query values ask for; None when neither is given, so the bytes are untouched.

    Raises `InvalidWindow`: a bound that is no unsigned 64-bit integer, a first line of 0, an end before
    the start (contract a.10, e.2: decided before the file is opened).
    """
    if start_line is None and end_line is None:
        return None
    first = 1 if start_line is None else _bound(start_line)
    last = None if end_line is None else _bound(end_line)
    if first == 0:
        raise InvalidWindow("start_line must be 1 or more: lines are counted from 1")
    if last is not None and last < first:
        raise InvalidWindow(f"end_line {last} comes before start_line {first}")
    return LineWindow(first, last)


def _bound(text: str) -> int:
    # int() alone would take signs, spaces, underscores and the digits of every script, of any length.
    if not (text.isascii() and text.isdigit()):
        raise InvalidWindow(NOT_INTEGERS)
    significant = text.lstrip("0") or "0"
    if len(significant) > 20 or (value := int(significant)) > U64_MAX:
        raise InvalidWindow(NOT_INTEGERS)
    return value


def closed(window: LineWindow, cursor: LineCursor) -> bool:
    """Whether no later byte can belong to the window: reading may stop."""
    return window.last is not None and cursor.line > window.last


def cut(window: LineWindow, cursor: LineCursor, chunk: bytes) -> tuple[LineCursor, int, int]:
    """What the next `chunk` of the file gives to the window.

    Returns the cursor after the chunk and the begin and end of the piece inside it (equal when nothing).
    Once `closed` holds for the returned cursor, every later piece is empty.
    """
    if closed(window, cursor):
        return cursor, 0, 0
    newlines = chunk.count(b"\n")
    end = len(chunk)
    line = cursor.line + newlines
    if window.last is not None and line > window.last:
        end = _after_newline(chunk, window.last + 1 - cursor.line)
        line = window.last + 1
    skip = window.first - cursor.line
    if skip <= 0:
        begin = 0
    elif skip > newlines:
        begin = end
    else:
        begin = _after_newline(chunk, skip)
    return LineCursor(line), begin, end


def _after_newline(chunk: bytes, nth: int) -> int:
    """The offset just behind the `nth` LF (1-based, known to exist) of the chunk.

    Halves the chunk by counting, so the work is linear in bytes at the speed of `bytes.count` and does not
    depend on how many lines the chunk holds.
    """
    low, high = 0, len(chunk)
    while high - low > 64:
        middle = (low + high) // 2
        before = chunk.count(b"\n", low, middle)
        if before >= nth:
            high = middle
        else:
            nth -= before
            low = middle
    while nth:
        low = chunk.index(b"\n", low) + 1
        nth -= 1
    return low


@frozen
class ByteRange:
    """Bytes `first` up to but without `stop`; never empty, never past the end of the representation."""

    first: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.first


_RANGE = re.compile(r"[ \t]*bytes[ \t]*=[ \t,]*(?:(\d+)-(\d*)|-(\d+))[ \t,]*", re.ASCII | re.IGNORECASE)


def byte_range(header: str, size: int) -> ByteRange | None:
    """The one range that a `Range` field value selects of `size` bytes, or None: serve everything.

    Raises `RangeNotSatisfiable` when the range is well-formed and starts at or behind the end, or asks for
    the last 0 bytes. A request that carries `If-Range` must not come here: there are no validators to compare.
    """
    match = _RANGE.fullmatch(header)
    if match is None or any(len(number or "") > 20 for number in match.groups()):
        return None
    first_text, last_text, suffix_text = match.groups()
    if suffix_text is not None:
        suffix = int(suffix_text)
        if suffix == 0:
            raise RangeNotSatisfiable("the last 0 bytes are no range")
        # The last n of no bytes is satisfiable by section 14.1.2 and cannot be written as a Content-Range.
        return ByteRange(max(0, size - suffix), size) if size else None
    first = int(first_text)
    last = int(last_text) if last_text else size - 1
    if last_text and last < first:
        return None
    if first >= size:
        raise RangeNotSatisfiable(f"no byte of {size} is in the requested range")
    return ByteRange(first, min(last + 1, size))

"""Reading one file: whole, a window of lines, or one byte range.

`open_content` runs in a pool thread and reads the first piece in the same visit, so that a small file costs
one visit, and so that its length is what was read rather than what the file system claims: files of procfs
say 0 and files of sysfs say 4096, whatever they hold. A longer file's length is its size at that moment;
one that shrinks while it is sent fails, one that grows is sent up to there.

Descriptors are opened without blocking: a FIFO is read as its writers go on (waiting in the reactor, not in a
thread), and one that nobody has open for writing is empty.
"""

import errno
import os
import stat

from attrs import define

from agentd.files.errors import FilesError, Kind, RangeUnsatisfiable, failure
from agentd.rules.lines import (
    START,
    ByteRange,
    LineCursor,
    LineWindow,
    RangeNotSatisfiable,
    byte_range,
    closed,
    cut,
)
from agentd.rules.members import shown

CHUNK_BYTES = 256 * 1024
PUSH_BYTES = 4 * 1024 * 1024
"""How much `Content.push` moves in one visit to a thread."""
_GONE = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT, errno.ENOTCONN})
"""Errors of a socket whose other side is not there any more (tcp(7))."""
_SCAN_BYTES = 8 * 1024 * 1024
"""How much of what lies before a window is passed over in one visit to a thread."""


@define(eq=False)
class Content:
    """Bytes to send, read piece by piece in pool threads, never two at once. Owns its descriptor.

    `length` is how many bytes `next` will give in all, None when only reading can tell; `size` is the size of the
    whole regular file, `range` the part of it that was selected.
    """

    fd: int
    path: bytes
    length: int | None = None
    size: int | None = None
    range: ByteRange | None = None
    window: LineWindow | None = None
    _remaining: int | None = None
    _cursor: LineCursor = START
    _first: bytes = b""
    _ended: bool = False

    def next(self) -> bytes | None:
        """The next piece, b"" at the end, None when there is nothing yet though reading may go on.

        Raises `BlockingIOError` when the descriptor has to be waited for, `FilesError` when reading fails or the
        file turns out shorter than `length`.
        """
        if self._first:
            first, self._first = self._first, b""
            return first
        scanned = 0
        while not self._ended:
            piece = self._piece()
            if piece or self._ended:
                return piece
            scanned += CHUNK_BYTES
            if scanned >= _SCAN_BYTES:
                return None
        return b""

    def _piece(self) -> bytes:
        """One read's worth, cut to what was asked for; may be empty before the end, and sets `_ended` at it."""
        want = CHUNK_BYTES if self._remaining is None else min(CHUNK_BYTES, self._remaining)
        try:
            data = os.read(self.fd, want) if want else b""
        except BlockingIOError:
            raise
        except OSError as error:
            raise failure("read", self.path, error) from error
        if not data:
            self._ended = True
            if self._remaining:
                raise FilesError(Kind.FAILED, f"{shown(self.path)} became shorter while it was read")
            return b""
        if self._remaining is not None:
            self._remaining -= len(data)
            self._ended = self._remaining == 0
        if self.window is None:
            return data
        self._cursor, begin, end = cut(self.window, self._cursor, data)
        self._ended = closed(self.window, self._cursor)
        return data[begin:end]

    def start(self) -> None:
        """Read ahead to know the length of what fits in one piece; expects a regular file."""
        if self._remaining is not None:
            self.length = self._remaining
            self._first = self._piece()
            return
        pieces = []
        gathered = 0
        while not self._ended and gathered < CHUNK_BYTES:
            try:
                pieces.append(self._piece())
            except BlockingIOError:
                break  # a pseudo file with a writer, such as /proc/kmsg
            gathered += CHUNK_BYTES if self.window is not None and not pieces[-1] else len(pieces[-1])
        self._first = b"".join(pieces)
        if self._ended:
            self.length = len(self._first)

    @property
    def rest(self) -> int:
        """Bytes of a regular file that `next` has not given yet and `push` may send; 0 where it may not."""
        return 0 if self.window is not None or self._first else self._remaining or 0

    def push(self, socket: int) -> bool:
        """Send the next bytes to `socket` within the kernel (sendfile(2)); whether its buffer still had room.

        `rest` tells what is left. Raises `ConnectionError` when the other side is gone, `NotImplementedError` when
        this file system cannot (nothing was sent then), `FilesError` as `next` does.
        """
        begin = self.rest
        end = max(begin - PUSH_BYTES, 0)
        while self.rest > end:
            try:
                count = os.sendfile(socket, self.fd, None, self.rest - end)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in _GONE:
                    raise ConnectionError from error
                if error.errno in (errno.EINVAL, errno.ENOSYS):
                    if self.rest < begin:
                        return True  # the next call will say so
                    raise NotImplementedError from error
                raise failure("read", self.path, error) from error
            if count == 0:
                raise FilesError(Kind.FAILED, f"{shown(self.path)} became shorter while it was read")
            self._remaining = self.rest - count
        return True

    def close(self) -> None:
        """Close the descriptor; for the last one of a deleted file this may take as long as freeing its blocks."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)


def open_content(path: bytes, window: LineWindow | None, range_field: str | None) -> Content:
    """Open `path` for reading and read its first piece. Blocks.

    `range_field` is the value of a `Range` header; it is ignored beside a window and for what is no regular file
    of a known size. Raises `FilesError`: `NOT_FOUND` for ENOENT alone, `BAD_REQUEST` for a directory,
    `RangeUnsatisfiable`, else `FAILED` (contract a.10).
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        kind = Kind.NOT_FOUND if error.errno == errno.ENOENT else Kind.FAILED
        raise failure("read", path, error, kind) from error
    content = Content(fd, path, window=window)
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise FilesError(Kind.BAD_REQUEST, f"{shown(path)} is a directory", errno.EISDIR)
        if stat.S_ISREG(status.st_mode):
            _select(content, status.st_size, range_field)
            content.start()
    except OSError as error:
        content.close()
        raise failure("read", path, error) from error
    except BaseException:
        content.close()
        raise
    return content


def _select(content: Content, size: int, range_field: str | None) -> None:
    if size == 0:
        return  # possibly a file that knows its content only when it is read
    content.size = size
    if content.window is not None:
        return
    if range_field is not None:
        try:
            content.range = byte_range(range_field, size)
        except RangeNotSatisfiable as error:
            raise RangeUnsatisfiable(str(error), size) from error
    if content.range is not None:
        os.lseek(content.fd, content.range.first, os.SEEK_SET)
        content._remaining = content.range.length
    elif size >= CHUNK_BYTES:
        content._remaining = size


def spooled(fd: int, size: int) -> Content:
    """The whole of an unlinked file of known size, from its beginning. Blocks."""
    os.lseek(fd, 0, os.SEEK_SET)
    content = Content(fd, b"a spooled archive", size=size, remaining=size)
    content.start()
    return content

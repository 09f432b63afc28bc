"""`shell::fs::read`: a file, as a stream beside the answer (reference A8, B2).

The answer comes as soon as the file is open; what is in it follows through the channel. Its size is what it was then: a
file that grows is sent up to there, one that shrinks fails the stream.
"""

import os
import stat

from attrs import frozen
from msgspec import Struct

from agentd.files.errors import FilesError
from agentd.files.read import Content
from agentd.files.threads import shielded
from agentd.worker import reach
from agentd.worker.errors import Coded
from agentd.worker.fs_common import fs_function, shown_mode
from agentd.worker.fs_write import ContentRef
from agentd.worker.function import Call
from agentd.worker.jail import Jail, brief, fs_error


class ReadRequest(Struct):
    """The file to read."""

    path: str


class ReadResult(Struct):
    """Where its bytes come from, and what it is."""

    content: ContentRef
    size: int
    mode: str
    mtime: int


@frozen
class _Opened:
    content: Content
    status: os.stat_result


async def read(call: Call, request: ReadRequest) -> ReadResult:
    """Open a file and send it."""
    limit = call.settings.fs.max_read_bytes
    opened = await shielded(
        call.run_in_thread(_open, call.jail, request.path, limit),
        lambda late: call.run_in_thread(late.content.close),
    )
    reference = await call.channels.send(opened.content)
    return ReadResult(
        content=ContentRef(reference["channel_id"], reference["access_key"], "read"),
        size=opened.status.st_size,
        mode=shown_mode(opened.status.st_mode),
        mtime=int(opened.status.st_mtime),
    )


def _open(jail: Jail, path: str, limit: int) -> _Opened:
    place = jail.resolve(path)
    try:
        fd = reach.open_path(place.path, reach.READ)
    except OSError as reason:
        raise fs_error(path, reason) from None
    status = os.fstat(fd)
    # What says that it is empty may know its content only when it is read, as the files of /proc do.
    content = Content(fd, place.path, size=status.st_size or None, remaining=status.st_size or None)
    try:
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise Coded("S212", f"{brief(path)} is {what}")
        if limit and status.st_size > limit:
            raise Coded(
                "S218",
                f"{brief(path)} has {status.st_size} bytes, more than fs.max_read_bytes, {limit} bytes",
            )
        content.start()
    except FilesError as reason:
        content.close()
        raise Coded("S216", reason.detail) from None
    except BaseException:
        content.close()
        raise
    return _Opened(content, status)


FUNCTIONS = (fs_function("read", "Read a file as a stream.", ReadRequest, ReadResult, read),)

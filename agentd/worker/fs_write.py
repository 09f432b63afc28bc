"""`shell::fs::write`: one file or several, from text in the request or from a channel (reference B2).

The content is completed in a temporary file beside the target, synced, and then takes the target's name; a failure on
the way leaves the target as it was. A link is written through: its canonical path is the target.
"""

import errno
from typing import Literal

from attrs import frozen
from msgspec import Struct, to_builtins

from agentd.files.threads import shielded
from agentd.worker import reach
from agentd.worker.errors import Coded
from agentd.worker.fs_common import fs_function, parse_mode
from agentd.worker.function import Call
from agentd.worker.jail import Jail, brief, fs_error

DEFAULT_MODE = "0644"


class ContentRef(Struct):
    """An end of a channel: what its schema calls so."""

    channel_id: str
    access_key: str
    direction: Literal["read", "write"] = "read"


class WriteEntry(Struct):
    """One file of several."""

    path: str
    content: str | ContentRef
    mode: str = DEFAULT_MODE
    parents: bool = False


class WriteRequest(Struct):
    """One file, or `files`; what was not given is not the same as its default."""

    path: str | None = None
    content: str | ContentRef | None = None
    mode: str | None = None
    parents: bool | None = None
    files: tuple[WriteEntry, ...] | None = None


class Written(Struct):
    """How much was written to one file."""

    path: str
    bytes_written: int


class WriteResult(Struct):
    """How much was written: to `path`, or to all `files` together."""

    bytes_written: int
    path: str = ""
    files: list[Written] = []


@frozen
class _Target:
    """Where content goes."""

    jail: Jail
    path: str
    mode: int
    parents: bool
    limit: int

    def begin(self) -> reach.NewFile:
        """Judge the path, and open a file beside it. Blocks; raises `Coded`."""
        place = self.jail.resolve(self.path)
        try:
            return reach.NewFile.begin(place.path, self.parents)
        except IsADirectoryError:
            raise Coded("S212", f"{brief(self.path)} is a directory") from None
        except OSError as reason:
            if reason.errno == errno.EINVAL:
                raise Coded("S212", f"{brief(self.path)} is not a regular file") from None
            raise fs_error(self.path, reason) from None

    def write(self, file: reach.NewFile, data: bytes) -> None:
        """Append. Blocks; raises `Coded`: S218 over the limit."""
        self.check(file.size + len(data))
        try:
            file.write(data)
        except OSError as reason:
            raise fs_error(self.path, reason) from None

    def publish(self, file: reach.NewFile) -> None:
        """Give the content its name. Blocks; raises `Coded`."""
        try:
            file.publish(self.mode)
        except OSError as reason:
            raise fs_error(self.path, reason) from None

    def check(self, size: int) -> None:
        """Raises `Coded` S218 for a content of more bytes than are taken."""
        if self.limit and size > self.limit:
            raise Coded(
                "S218",
                f"{brief(self.path)}: the content is larger than fs.max_write_bytes, {self.limit} bytes",
            )

    def all_at_once(self, data: bytes) -> None:
        """Write a whole content. Blocks."""
        file = self.begin()
        try:
            self.write(file, data)
            self.publish(file)
        finally:
            file.discard()


async def write(call: Call, request: WriteRequest) -> WriteResult:
    """Write one file, or several in their order; the first that fails ends it, and those before stay written."""
    if request.files is None:
        if request.path is None or request.content is None:
            raise Coded("S210", "give path and content, or files")
        mode = DEFAULT_MODE if request.mode is None else request.mode
        entry = WriteEntry(request.path, request.content, mode, bool(request.parents))
        return WriteResult(bytes_written=await _write(call, entry), path=request.path)
    if any(each is not None for each in (request.path, request.content, request.mode, request.parents)):
        raise Coded("S210", "files goes without path, content, mode and parents")
    written = []
    for entry in request.files:
        written.append(Written(entry.path, await _write(call, entry)))
    return WriteResult(bytes_written=sum(each.bytes_written for each in written), files=written)


async def _write(call: Call, entry: WriteEntry) -> int:
    mode = parse_mode(entry.mode, call.settings)
    target = _Target(call.jail, entry.path, mode, entry.parents, call.settings.fs.max_write_bytes)
    if isinstance(entry.content, ContentRef):
        return await _write_stream(call, target, entry.content)
    try:
        data = entry.content.encode()
    except UnicodeEncodeError:
        raise Coded("S210", "the content is not valid Unicode") from None
    target.check(len(data))
    await call.run_in_thread(target.all_at_once, data)
    return len(data)


async def _write_stream(call: Call, target: _Target, reference: ContentRef) -> int:
    # Should the caller go away while the file is opened, it is closed and removed when it comes after all.
    file = await shielded(call.run_in_thread(target.begin), lambda late: call.run_in_thread(late.discard))
    try:
        await call.channels.receive(
            to_builtins(reference), lambda data: call.run_in_thread(target.write, file, data)
        )
        await shielded(call.run_in_thread(target.publish, file), lambda _: None)
    finally:
        await call.run_in_thread(file.discard)
    return file.size


def _for_sandbox(request: WriteRequest) -> None:
    contents = [request.content, *(entry.content for entry in request.files or ())]
    if any(isinstance(content, str) for content in contents):
        raise Coded("S210", "content for a sandbox has to come through a channel")


FUNCTIONS = (
    fs_function("write", "Write files.", WriteRequest, WriteResult, write, for_sandbox=_for_sandbox),
)

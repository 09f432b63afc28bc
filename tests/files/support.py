"""What the tests of `agentd.files` share: consumers, archives made by the standard library, pictures of a tree."""

import io
import os
import stat
import tarfile
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from agentd.files.disk import DiskGuard, Spool
from agentd.files.errors import FilesError, Kind
from agentd.files.tar_extract import Extracted, extract
from agentd.files.tar_out import pack_tree
from agentd.files.tar_pack import Packed
from agentd.files.tar_reader import TarReader
from agentd.rules.members import Caps

T = TypeVar("T")

DEADLINE_SECS = 20.0
NO_GUARD = DiskGuard(0)


def drive(steps: Generator[None, None, T]) -> T:
    """Run a sliced job to its end, here and now."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result


async def until(reactor: Any, true: Callable[[], object]) -> None:
    """Let the reactor run until `true()` holds, under a deadline."""
    deadline = time.monotonic() + DEADLINE_SECS
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        await deferLater(reactor, 0.001)


async def refusal(deferred: Deferred[Any]) -> FilesError:
    """The `FilesError` that a Deferred fails with."""
    try:
        result = await deferred
    except FilesError as error:
        return error
    raise AssertionError(f"not refused: {result!r}")


class Consumer:
    """Gathers what a push producer writes; pauses it after every `pause_every` writes until `resume`."""

    def __init__(self, pause_every: int = 0) -> None:
        self.pieces: list[bytes] = []
        self.producer: Any = None
        self.registered = 0
        self.paused = False
        self._pause_every = pause_every

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert streaming
        assert self.producer is None
        self.producer = producer
        self.registered += 1

    def unregisterProducer(self) -> None:
        assert self.producer is not None
        self.producer = None

    def write(self, data: bytes) -> None:
        assert not self.paused, "written to while paused"
        self.pieces.append(data)
        if self._pause_every and len(self.pieces) % self._pause_every == 0:
            self.paused = True
            self.producer.pauseProducing()

    def resume(self) -> None:
        self.paused = False
        if self.producer is not None:
            self.producer.resumeProducing()


def descriptors() -> dict[str, str]:
    """The descriptors of this process that lead to files, and where they lead."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            where = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if where.startswith("/") and not where.startswith("/dev/"):
            found[name] = where
    return found


def picture(root: str | Path) -> dict[str, tuple[Any, ...]]:
    """Everything below `root`, links not followed: type, mode, and content or target of each path."""
    found: dict[str, tuple[Any, ...]] = {}
    for directory, names, files in os.walk(root):
        for name in names + files:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content: Any = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                content = Path(path).read_bytes()
            found[os.path.relpath(path, root)] = (
                stat.S_IFMT(status.st_mode),
                stat.S_IMODE(status.st_mode),
                content,
            )
    return found


def member(
    name: str,
    content: bytes = b"",
    *,
    type: bytes = tarfile.REGTYPE,
    mode: int = 0o644,
    link: str = "",
    pax: dict[str, str] | None = None,
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size = type, mode, link, len(content)
    info.pax_headers = pax or {}
    return info, content


def archive(members: Iterable[tuple[tarfile.TarInfo, bytes]], format: int = tarfile.GNU_FORMAT) -> bytes:
    """An archive as the standard library writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, errors="surrogateescape") as made:
        for info, content in members:
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()


def unpack(data: bytes, root: Path, caps: Caps | None = None, guard: DiskGuard = NO_GUARD) -> Extracted:
    """Extract an archive beneath `root`, without a reactor."""
    with io.BytesIO(data), open(Spool(os.fsencode(root.parent)).open(), "wb+") as spool:
        spool.write(data)
        spool.flush()
        reader = TarReader(spool.fileno(), len(data))
        return drive(extract(os.fsencode(root), spool.fileno(), reader, caps or Caps(), guard))


def refused(kind: Kind, data: bytes, root: Path, caps: Caps | None = None) -> FilesError:
    """The error of `kind` that extracting `data` fails with."""
    with pytest.raises(FilesError) as refusal:
        unpack(data, root, caps)
    assert refusal.value.kind is kind, refusal.value
    return refusal.value


def packed(root: Path, caps: Caps | None = None, coding: str = "identity") -> tuple[bytes, Packed]:
    """The archive of the tree at `root`, without a reactor."""
    tree = drive(
        pack_tree(os.fsencode(root), caps or Caps(), NO_GUARD, Spool(os.fsencode(root.parent)), coding)
    )
    pieces = []
    try:
        while piece := tree.content.next():
            pieces.append(piece)
    finally:
        tree.content.close()
    data = b"".join(pieces)
    assert len(data) == tree.content.length
    return data, tree.packed

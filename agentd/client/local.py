"""This side's files and trees: the daemon's own `agentd.files`, used here.

A copy has two ends, and they want the same things: writes that appear whole or not at all, archives that cannot
reach outside their root whatever the other side put into them, nothing blocking the reactor. The other side is a VM
that runs other people's code, so what it sends is judged here by the rules that judge what it is sent.
"""

import os
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from agentd.client.errors import LocalFault
from agentd.client.flow import Outlet
from agentd.files.disk import DiskGuard
from agentd.files.errors import FilesError
from agentd.files.pump import Flow
from agentd.files.read import Content, open_content
from agentd.files.service import Files
from agentd.files.tar_in import TarSink
from agentd.files.tar_out import PackedTree, pack_tree
from agentd.files.threads import RunInThread, run_sliced, shielded, when_ready
from agentd.files.write import FileSink
from agentd.rules.members import Caps

NO_RESERVE = DiskGuard(0)
"""On this side the disk is its owner's business."""

T = TypeVar("T")


class LocalFiles:
    """Files and trees of this machine.

    Args:
        reactor: the Twisted reactor, whose thread pool does the work.
        caps: how much an archive may hold, either way.
    """

    def __init__(self, reactor: Any, caps: Caps | None = None) -> None:
        self._reactor = reactor
        self._caps = caps or Caps()
        self.run: RunInThread = partial(deferToThreadPool, reactor, reactor.getThreadPool())
        """Runs a function in a thread."""

    async def open(self, path: str | os.PathLike[str]) -> "ContentSource":
        """A file to be sent. Close it.

        Raises:
            LocalFault: it cannot be opened, or is a directory.
        """
        name = os.fsencode(path)
        opening = shielded(self.run(open_content, name, None, None), lambda content: self.run(content.close))
        return ContentSource(self._reactor, self.run, await local(opening))

    async def pack(self, root: str | os.PathLike[str]) -> "tuple[ContentSource, int]":
        """A tree as an archive to be sent, and how many entries it has. Close it.

        Raises:
            LocalFault: it is no directory, is over a cap, or cannot be read.
        """
        steps = pack_tree(os.fsencode(root), self._caps, NO_RESERVE, self._files().spool)
        tree: PackedTree = await local(run_sliced(self.run, steps, lambda late: self.run(late.content.close)))
        return ContentSource(self._reactor, self.run, tree.content), tree.packed.members

    async def write(self, path: str | os.PathLike[str]) -> "Sink":
        """Begin to write a file, which appears whole or not at all.

        Raises:
            LocalFault: it cannot be created.
        """
        return await self._sink(lambda flow: self._files().write(os.fsencode(path), None, None, flow))

    async def extract(self, root: str | os.PathLike[str]) -> "Sink":
        """Begin to take an archive that will be extracted beneath `root`.

        Raises:
            LocalFault: there is no room for it.
        """
        absolute = os.fsencode(os.path.abspath(root))
        return await self._sink(lambda flow: self._files().extract(absolute, None, flow))

    def _files(self) -> Files:
        return Files(self._reactor, self.run, self._caps, NO_RESERVE)

    async def _sink(self, begin: Any) -> "Sink":
        room = Outlet()
        flow = Flow(pause=room.pauseProducing, resume=room.resumeProducing, failed=room.stop)
        return Sink(await local(begin(flow)), room)


class ContentSource:
    """An opened file or a packed tree, read in the thread pool."""

    def __init__(self, reactor: Any, run: RunInThread, content: Content) -> None:
        self._reactor = reactor
        self._run = run
        self._content = content
        self._reading: Deferred[None] | None = None
        self.length = content.length
        """How many bytes there are, where that is known."""

    async def read(self) -> bytes:
        """The next bytes; ``b""`` at the end.

        Raises:
            LocalFault: reading failed, or the file became shorter.
        """
        while True:
            try:
                data = await local(self._next())
            except BlockingIOError:
                await when_ready(self._reactor, self._content.fd, writing=False)
                continue
            if data is not None:
                return data

    def _next(self) -> "Deferred[bytes | None]":
        """One read. It may be cancelled, but the thread goes on: `close` must not pull the descriptor from it."""
        over: Deferred[None] = Deferred()

        def ended(result: Any) -> Any:
            self._reading = None
            over.callback(None)
            return result

        self._reading = over
        return shielded(self._run(self._content.next).addBoth(ended), lambda _: None)

    async def close(self) -> None:
        """Let go of it, once a read that is under way has ended."""
        if self._reading is not None:
            await self._reading
        await self._run(self._content.close)


class Sink:
    """Takes the bytes of a file or an archive, at the pace the disk takes them."""

    def __init__(self, sink: FileSink | TarSink, room: Outlet) -> None:
        self._sink = sink
        self._room = room

    async def write(self, data: bytes) -> None:
        """Take bytes; returns when there is room for more.

        Raises:
            LocalFault: what came before could not be written.
        """
        self._sink.write(data)
        try:
            await self._room.ready()
        except FilesError as fault:
            raise LocalFault(fault.detail) from None

    async def finish(self) -> Any:
        """Everything is here: put it in place.

        Returns:
            an `agentd.files.write.Written`, or an `agentd.files.tar_extract.Extracted`.

        Raises:
            LocalFault: it could not be.
        """
        running: Deferred[Any] = self._sink.finish()
        return await local(running)

    async def abort(self) -> None:
        """Leave everything as it was. Nothing after `finish`."""
        await self._sink.abort()


async def local(running: "Deferred[T]") -> T:
    """The result of work on this side, with its failures as `LocalFault`."""
    try:
        return await running
    except FilesError as fault:
        raise LocalFault(fault.detail) from None

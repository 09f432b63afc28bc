"""The capability as its callers see it: files read and written, trees packed and extracted.

Everything that blocks runs through `run_in_thread`. All paths are bytes, as the system has them; none of them
are confined except members of an archive, beneath their root (contract e.1, e.5). Every failure is a
`FilesError` whose kind a face maps to its own status.
"""

from attrs import field, frozen
from twisted.internet.defer import Deferred, fail

from agentd.files import codings
from agentd.files.disk import DiskGuard, Spool
from agentd.files.errors import FilesError, Kind
from agentd.files.pump import Flow
from agentd.files.read import open_content
from agentd.files.send import FileRead
from agentd.files.tar_in import SpooledArchive, TarSink, open_tar_sink
from agentd.files.tar_out import PackedTree, pack_tree
from agentd.files.tar_pack import Packed
from agentd.files.target import Destination
from agentd.files.threads import Reactor, RunInThread, run_sliced, shielded
from agentd.files.write import FileSink, open_sink
from agentd.rules.lines import LineWindow
from agentd.rules.members import Caps

NO_FLOW = Flow()


@frozen
class TreeRead:
    """A packed tree: `read` to be sent, the content coding its bytes are in, and what was packed."""

    read: FileRead
    coding: str
    packed: Packed


@frozen
class Files:
    """Files and trees of this machine.

    `caps` bound archives either way, `guard` the disk; `spool` is where archives wait.
    """

    reactor: Reactor
    run_in_thread: RunInThread
    caps: Caps = Caps()
    guard: DiskGuard = DiskGuard(256 * 1024 * 1024)
    spool: Spool = field(factory=Spool)

    def read(
        self, path: bytes, window: LineWindow | None = None, range_field: str | None = None
    ) -> Deferred[FileRead]:
        """Open a file to be sent: whole, a window of lines, or the byte range of a `Range` field value.

        Fails with `NOT_FOUND` (ENOENT alone), `BAD_REQUEST` (a directory), `RangeUnsatisfiable`, `FAILED`.
        """
        if refused := _unusable(path):
            return fail(refused)
        opening = shielded(
            self.run_in_thread(open_content, path, window, range_field),
            lambda content: self.run_in_thread(content.close),
        )
        return opening.addCallback(lambda content: FileRead(self.reactor, self.run_in_thread, content))

    def write(
        self, path: bytes, mode: int | None = None, expected_sha256: bytes | None = None, flow: Flow = NO_FLOW
    ) -> Deferred[FileSink]:
        """Begin to write a file; parents are made. Fails with `NO_SPACE` or `FAILED`; nothing is created then.

        `mode`: permission bits to end up with (`agentd.rules.writes.parse_mode`); None keeps an existing file's and
        leaves a new one to the umask. `expected_sha256`: refuse other content (`parse_digest`).
        """
        if refused := _unusable(path):
            return fail(refused)
        destination = Destination(path, mode, self.guard, self.spool)
        return open_sink(self.reactor, self.run_in_thread, destination, flow, expected_sha256)

    def extract(
        self, root: bytes, content_encoding: str | None = None, flow: Flow = NO_FLOW
    ) -> Deferred[TarSink]:
        """Begin to take an archive that is to be extracted beneath the absolute path `root`.

        Fails with `BAD_REQUEST` (a relative path), `UNSUPPORTED` (a content coding that is not spoken here),
        `NO_SPACE`, `FAILED`.
        """
        refused = _unusable(root)
        coding = codings.content_coding(content_encoding)
        decoder = codings.decoder(coding)
        if refused is None and not root.startswith(b"/"):
            refused = FilesError(Kind.BAD_REQUEST, "path must be absolute")
        if refused is None and decoder is None and coding != codings.IDENTITY:
            spoken = ", ".join(codings.available())
            refused = FilesError(
                Kind.UNSUPPORTED, f"content coding not supported, only {spoken} and identity"
            )
        if refused is not None:
            return fail(refused)
        archive = SpooledArchive(root, self.caps, self.guard, self.spool, decoder)
        return open_tar_sink(self.run_in_thread, archive, flow)

    def pack(self, root: bytes, accept_encoding: str | None = None) -> Deferred[TreeRead]:
        """Pack the tree at `root` into an archive to be sent, in the content coding liked best.

        Fails with `NOT_FOUND`, `BAD_REQUEST` (no directory), `TOO_LARGE`, `NO_SPACE`, `FAILED`. Cancelling it
        stops the packing.
        """
        if refused := _unusable(root):
            return fail(refused)
        coding = codings.acceptable(accept_encoding, codings.available())

        def dispose(tree: PackedTree) -> None:
            self.run_in_thread(tree.content.close)

        packing = run_sliced(
            self.run_in_thread, pack_tree(root, self.caps, self.guard, self.spool, coding), dispose
        )
        return packing.addCallback(self._packed)

    def _packed(self, tree: PackedTree) -> TreeRead:
        return TreeRead(FileRead(self.reactor, self.run_in_thread, tree.content), tree.coding, tree.packed)


def _unusable(path: bytes) -> FilesError | None:
    """The refusal of a path that the system has no way to name."""
    return FilesError(Kind.BAD_REQUEST, "path holds a NUL byte") if b"\0" in path else None

"""The members of an archive in a file, one by one: extension headers applied, damage named by its offset.

The reader looks at headers only and skips content, so it can run over a spool that is still growing: when what
it needs is not there yet it raises `NotYet` and may be asked again. That is how the caps of a compressed
upload are counted while it is decoded, before the disk has to hold it.
"""

import os
from collections.abc import Iterator

from attrs import define

from agentd.files.tar_format import (
    BLOCK,
    ZERO_BLOCK,
    Header,
    Malformed,
    SparseMap,
    decimal,
    decode,
    member_type,
    number,
    padded,
    records,
    sparse_pairs,
)
from agentd.rules.members import MemberType

MAX_EXTENSION_BYTES = 1024 * 1024
"""Longest content of one extension header: more than any file system can use."""
MAX_EXTENSIONS = 16
"""Most extension headers in front of one member."""
_FILE = MemberType.FILE
_SIMPLE = frozenset({b"0", b"\0", b"1", b"2", b"5"})
_EXTENSIONS = frozenset({b"L", b"K", b"x", b"g", b"X"})
_WINDOW_BYTES = 128 * 1024


class CorruptArchive(Exception):
    """The bytes at `offset` of the (decoded) archive are not what a tar archive has there."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"corrupt archive at byte {offset}: {why}")
        self.offset = offset


class NotYet(Exception):
    """The next header is not complete in the spool so far."""


@define(eq=False)
class Member:
    """One member, effective name, link target and size. `stored` bytes of content are at `data` of the archive.

    `size` is the length of the file it makes: more than `stored` for a sparse one, whose map is `sparse`.
    """

    offset: int
    name: bytes
    type: MemberType
    mode: int
    link: bytes
    size: int
    stored: int
    data: int
    sparse: SparseMap | None = None


@define
class _Overrides:
    """What the extension headers say about the member they precede."""

    name: bytes | None = None
    link: bytes | None = None
    pax: list[tuple[bytes, bytes]] | None = None


class TarReader:
    """Reads the archive in `fd`, of which `size` bytes are there; `complete` says whether there will be more."""

    def __init__(self, fd: int, size: int, complete: bool = True) -> None:
        self._fd = fd
        self.size = size
        self.complete = complete
        self.ended = False
        self._position = 0
        self._window = b""
        self._window_at = 0
        self._global: dict[bytes, bytes] = {}

    def next(self) -> Member | None:
        """The next member, None behind the last. Raises `CorruptArchive`, or `NotYet` while incomplete."""
        if self.ended:
            return None
        start = at = self._position
        found = None
        for _ in range(MAX_EXTENSIONS + 1):
            begin = at - self._window_at
            block = self._window[begin : begin + BLOCK] if begin >= 0 else b""
            if len(block) < BLOCK:
                block = self.bytes_at(at, BLOCK)
            if not block or block == ZERO_BLOCK:
                if at != start:
                    raise CorruptArchive(at, "the archive ends behind an extension header")
                self.ended = True
                return None
            if len(block) < BLOCK:
                raise CorruptArchive(at, "the archive is cut short inside a header")
            try:
                header = decode(block)
                name, flag, mode, size, link = header
                if found is None and flag in _SIMPLE and not self._global:
                    type = member_type(flag, name)
                    if type is not _FILE:
                        size = 0
                    member = Member(at, name, type, mode, link, size, size, at + BLOCK)
                elif flag in _EXTENSIONS:
                    found = found or _Overrides()
                    at = self._extension(at, flag, size, found)
                    continue
                else:
                    member = self._member(start, at, block, header, found or _Overrides())
                end = member.data + padded(member.stored)
                if end > self.size and self.complete and member.data + member.stored > self.size:
                    raise CorruptArchive(at, "the archive is cut short inside a member's content")
                self._position = end
                return member
            except Malformed as error:
                raise CorruptArchive(at, str(error)) from error
        raise CorruptArchive(at, f"more than {MAX_EXTENSIONS} extension headers in a row")

    def bytes_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes of the archive from `offset`, fewer only where it ends. Raises `NotYet`."""
        begin = offset - self._window_at
        if begin < 0 or begin + count > len(self._window):
            want = min(max(count, _WINDOW_BYTES), self.size - offset)
            if want < count and not self.complete:
                raise NotYet
            self._window = os.pread(self._fd, want, offset) if want > 0 else b""
            self._window_at = offset
            begin = 0
        return self._window[begin : begin + count]

    def _extension(self, at: int, flag: bytes, size: int, found: _Overrides) -> int:
        """Apply the extension header at `at`; returns where the next header is."""
        if size > MAX_EXTENSION_BYTES:
            raise Malformed(f"an extension header longer than {MAX_EXTENSION_BYTES} bytes")
        content = self.bytes_at(at + BLOCK, size)
        if len(content) < size:
            raise Malformed("the archive is cut short inside an extension header")
        if flag == b"L":
            found.name = content.partition(b"\0")[0]
        elif flag == b"K":
            found.link = content.partition(b"\0")[0]
        elif flag == b"g":
            self._global.update(records(content))
        else:
            found.pax = list(records(content))
        return at + BLOCK + padded(size)

    def _member(self, start: int, at: int, block: bytes, header: Header, found: _Overrides) -> Member:
        """A member that extension headers say more about, or of a rarer type."""
        name, flag, mode, size, link = header
        data = at + BLOCK
        name = name if found.name is None else found.name
        link = link if found.link is None else found.link
        values = {**self._global, **dict(found.pax or ())}
        name = values.get(b"GNU.sparse.name") or values.get(b"path") or name
        link = values.get(b"linkpath") or link
        size = decimal(values[b"size"]) if values.get(b"size") else size
        type = member_type(flag, name)
        stored = size if type is MemberType.FILE else 0
        member = Member(start, name, type, mode, link, stored, stored, data)
        if type is MemberType.FILE:
            self._sparse(member, flag, block, values, found.pax or [])
        return member

    def _sparse(
        self,
        member: Member,
        flag: bytes,
        block: bytes,
        values: dict[bytes, bytes],
        pax: list[tuple[bytes, bytes]],
    ) -> None:
        """Give a sparse member its map, whichever of the four notations it is written in."""
        whole = values.get(b"GNU.sparse.realsize") or values.get(b"GNU.sparse.size")
        if flag == b"S":
            sparse = self._old_gnu_map(member, block)
        elif values.get(b"GNU.sparse.major") == b"1" and whole:
            sparse = self._map_in_content(member, decimal(whole))
        elif b"GNU.sparse.map" in values and whole:
            sparse = _map_of(decimal(whole), values[b"GNU.sparse.map"].split(b","))
        elif b"GNU.sparse.numblocks" in values and whole:
            keys = (b"GNU.sparse.offset", b"GNU.sparse.numbytes")
            sparse = _map_of(decimal(whole), [value for key, value in pax if key in keys])
        else:
            return
        if sparse.stored != member.stored:
            raise Malformed("a sparse map does not describe the content")
        member.sparse = sparse
        member.size = sparse.size

    def _old_gnu_map(self, member: Member, block: bytes) -> SparseMap:
        """`S`: four pieces in the header, more in extension blocks behind it."""
        sparse = SparseMap(number(block[483:495]))
        for piece in sparse_pairs(block, 386, 4):
            sparse.add(*piece)
        more = block[482]
        while more:
            block = self.bytes_at(member.data, BLOCK)
            if len(block) < BLOCK:
                raise Malformed("the archive is cut short inside a sparse map")
            for piece in sparse_pairs(block, 0, 21):
                sparse.add(*piece)
            more = block[504]
            member.data += BLOCK
        return sparse

    def _map_in_content(self, member: Member, size: int) -> SparseMap:
        """Sparse format 1.0: decimal lines at the front of the content, padded to a block."""
        used = 0

        def numbers() -> Iterator[int]:
            nonlocal used
            pending = b""
            while True:
                line, newline, rest = pending.partition(b"\n")
                if newline:
                    yield decimal(line)
                    pending = rest
                elif used >= member.stored or len(pending) > BLOCK:
                    raise Malformed("a sparse map is cut short")
                else:
                    pending += self.bytes_at(member.data + used, BLOCK)
                    used += BLOCK

        numbers_read = numbers()
        sparse = SparseMap(size)
        for _ in range(next(numbers_read)):
            sparse.add(next(numbers_read), next(numbers_read))
        member.data += used
        member.stored -= used
        return sparse


def _map_of(size: int, texts: list[bytes]) -> SparseMap:
    numbers = [decimal(text) for text in texts]
    if len(numbers) % 2:
        raise Malformed("a sparse map has an offset without a length")
    sparse = SparseMap(size)
    for offset, length in zip(numbers[::2], numbers[1::2], strict=True):
        sparse.add(offset, length)
    return sparse

"""The reader alone: limits, malformed headers, and archives that are still arriving."""

import io
import os
import tarfile
import tempfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.files.tar_format import (
    BLOCK,
    END,
    Malformed,
    SparseMap,
    encode,
    encode_sparse_map,
    number,
    records,
)
from agentd.files.tar_reader import (
    MAX_EXTENSION_BYTES,
    MAX_EXTENSIONS,
    CorruptArchive,
    Member,
    NotYet,
    TarReader,
)
from agentd.rules.members import MemberType
from tests.files.support import archive, member


def members_of(data: bytes) -> list[Member]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        reader = TarReader(file.fileno(), len(data))
        return list(iter(reader.next, None))


def _extension(flag: bytes, content: bytes) -> bytes:
    info = tarfile.TarInfo("extension")
    info.type, info.size = flag, len(content)
    return info.tobuf(tarfile.GNU_FORMAT) + content.ljust(-(-len(content) // BLOCK) * BLOCK, b"\0")


def record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    digits = len(str(length))
    digits = len(str(length + digits))
    return b"%d %b=%b\n" % (length + digits, key, value)


FILE = encode(b"file", b"0", 0o644, 0, 0, 3, 0) + b"abc".ljust(BLOCK, b"\0")


def test_pax_records_apply_to_one_member_and_global_ones_to_all() -> None:
    data = (
        _extension(b"g", record(b"linkpath", b"everywhere") + record(b"comment", b"x"))
        + _extension(b"x", record(b"path", b"n\xff" * 200) + record(b"size", b"2"))
        + FILE
        + FILE
        + END
    )
    first, second = members_of(data)
    assert (first.name, first.size, first.link) == (b"n\xff" * 200, 2, b"everywhere")
    assert (second.name, second.size, second.link) == (b"file", 3, b"everywhere")
    assert (first.offset, second.offset) == (0, 6 * BLOCK), "where its first extension is"


def test_the_last_long_name_counts() -> None:
    data = _extension(b"L", b"first\0") + _extension(b"L", b"second\0junk") + _extension(b"K", b"to\0") + FILE
    (only,) = members_of(data)
    assert (only.name, only.link) == (b"second", b"to")


def test_links_have_no_content_whatever_their_size_says() -> None:
    data = encode(b"hard", b"1", 0o644, 0, 0, 1234, 0, b"file") + FILE
    assert [(each.name, each.type, each.size) for each in members_of(data)] == [
        (b"hard", MemberType.HARD_LINK, 0),
        (b"file", MemberType.FILE, 3),
    ]


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (_extension(b"x", record(b"path", b"x")), 1024),
        (_extension(b"x", record(b"path", b"x")) + END, 1024),
        (_extension(b"x", b"12 path=x\n") + FILE, 0),
        (_extension(b"x", b"path=x\n") + FILE, 0),
        (_extension(b"x", b"99999999999999999999999 path=x\n") + FILE, 0),
        (_extension(b"x", b"9 path:x\n") + FILE, 0),
        (_extension(b"x", record(b"size", b"-1")) + FILE, 1024),
        (_extension(b"x", record(b"size", b"9" * 30)) + FILE, 1024),
        (_extension(b"x", record(b"size", b"0x3")) + FILE, 1024),
        (FILE + _extension(b"L", b"x" * (MAX_EXTENSION_BYTES + 1)) + FILE, 1024),
        (_extension(b"L", b"x") * (MAX_EXTENSIONS + 1) + FILE, (MAX_EXTENSIONS + 1) * 1024),
        (_extension(b"L", b"x" * 2000)[:1500], 0),
        (
            _extension(b"x", record(b"GNU.sparse.size", b"10") + record(b"GNU.sparse.map", b"0,3,1")) + FILE,
            1024,
        ),
        (
            _extension(b"x", record(b"GNU.sparse.size", b"10") + record(b"GNU.sparse.map", b"0,2")) + FILE,
            1024,
        ),
        (
            _extension(b"x", record(b"GNU.sparse.size", b"10") + record(b"GNU.sparse.map", b"8,3")) + FILE,
            1024,
        ),
        (
            _extension(b"x", record(b"GNU.sparse.major", b"1") + record(b"GNU.sparse.realsize", b"9")) + FILE,
            1024,
        ),
        (encode(b"s", b"S", 0o644, 0, 0, 3, 0, tail=encode_sparse_map([(0, 4)], 9)[0]) + FILE[BLOCK:], 0),
        (
            encode(
                b"s",
                b"S",
                0o644,
                0,
                0,
                30,
                0,
                tail=encode_sparse_map([(i, 1) for i in range(0, 60, 2)], 99)[0],
            ),
            0,
        ),
    ],
)
def test_malformed_extensions_name_their_byte(data: bytes, offset: int) -> None:
    with pytest.raises(CorruptArchive) as corrupt:
        members_of(data)
    assert corrupt.value.offset == offset
    assert f"byte {offset}:" in str(corrupt.value)


def test_as_many_extensions_as_allowed() -> None:
    assert len(members_of(_extension(b"L", b"x") * MAX_EXTENSIONS + FILE)) == 1


def test_a_sparse_map_is_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentd.files.tar_format.MAX_EXTENTS", 3)
    sparse = SparseMap(100)
    for offset in (0, 10, 20):
        sparse.add(offset, 5)
    assert list(sparse) == [(0, 5), (10, 5), (20, 5)]
    assert sparse.stored == 15
    with pytest.raises(Malformed):
        sparse.add(30, 5)


@pytest.mark.parametrize("piece", [(4, 1), (99, 2), (101, 0)])
def test_a_sparse_map_is_in_order_and_inside_its_file(piece: tuple[int, int]) -> None:
    sparse = SparseMap(100)
    sparse.add(0, 5)
    with pytest.raises(Malformed):
        sparse.add(*piece)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 1000)), max_size=60), st.integers(0, 10**6))
def test_sparse_headers_are_read_back(gaps: list[tuple[int, int]], tail: int) -> None:
    pieces = []
    at = 0
    for gap, length in gaps:
        pieces.append((at + gap, length))
        at += gap + length
    size = at + tail
    stored = sum(length for _, length in pieces)
    header, extension = encode_sparse_map(pieces, size)
    data = encode(b"sparse", b"S", 0o644, 0, 0, stored, 0, tail=header) + extension
    with tempfile.TemporaryFile() as file:
        file.truncate(len(data) + stored)
        os.pwrite(file.fileno(), data, 0)
        only = TarReader(file.fileno(), len(data) + stored).next()
    assert only is not None
    assert (only.size, only.stored, only.data) == (size, stored, len(data))
    assert list(only.sparse or ()) == pieces
    with tarfile.open(fileobj=io.BytesIO(data + bytes(stored + 1024))) as read:
        (info,) = read.getmembers()
    assert info.size == size


@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_malformed(data: bytes) -> None:
    try:
        found = list(records(data))
    except Malformed:
        return
    assert all(b"=" not in key for key, _ in found)


@given(st.binary(min_size=12, max_size=12))
def test_any_field_is_a_number_or_malformed(field: bytes) -> None:
    try:
        assert 0 <= number(field) < 2**63
    except Malformed:
        return


@settings(deadline=None)
@given(st.lists(st.integers(0, 2000), min_size=1, max_size=8), st.integers(1, 1500), st.booleans())
def test_following_a_growing_spool_finds_the_same_members(sizes: list[int], step: int, sparse: bool) -> None:
    made: list[Any] = [
        member(f"{number}" * (1 + 60 * (number % 3)), b"x" * size) for number, size in enumerate(sizes)
    ]
    data = archive(made, tarfile.GNU_FORMAT if sparse else tarfile.PAX_FORMAT)
    if sparse:
        header, extension = encode_sparse_map([(i * 10, 1) for i in range(50)], 1000)
        data = encode(b"s", b"S", 0o644, 0, 0, 50, 0, tail=header) + extension + bytes(512) + data
    expected = [(each.offset, each.name, each.size, each.data) for each in members_of(data)]
    found = []
    with tempfile.TemporaryFile() as file:
        reader = TarReader(file.fileno(), 0, complete=False)
        for at in range(0, len(data), step):
            os.pwrite(file.fileno(), data[at : at + step], at)
            reader.size = min(len(data), at + step)
            try:
                while (each := reader.next()) is not None:
                    found.append((each.offset, each.name, each.size, each.data))
            except NotYet:
                pass
    assert found == expected
    assert reader.ended

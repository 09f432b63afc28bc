"""Uploaded archives: what is extracted, what is refused, and in which words (contract e.5)."""

import gzip
import io
import os
import stat
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from backports import zstd
from twisted.internet.defer import CancelledError

from agentd.files import codings
from agentd.files.disk import DiskGuard
from agentd.files.errors import Kind
from agentd.files.pump import Flow
from agentd.files.service import Files
from agentd.files.tar_extract import Extracted
from agentd.rules.members import Caps
from tests.files.conftest import MakeFiles
from tests.files.support import archive, member, picture, refusal, refused, unpack, until

DIR, SYM, LNK = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_directories_and_links(root: Path, format: int) -> None:
    long = "d/" + "x" * 99 + "/" + "y" * 150
    members = [
        member("./", type=DIR, mode=0o700),
        member("d/", type=DIR, mode=0o750),
        member("d/file", b"content", mode=0o4777),
        member("made/on/the/way", b"", mode=0o600),
        member("d/link", type=SYM, link="../made"),
        member("d/dangling", type=SYM, link="nothing/../here"),
        member("hard", type=LNK, link="./d/file"),
        member("large", b"0123456789" * 20_000),
        member("executable", b"#!", mode=0o755),
    ]
    if format != tarfile.USTAR_FORMAT:
        members += [
            member(long, b"long", mode=0o640),
            member("long-link", type=SYM, link=long),
            member("long-hard", type=LNK, link=long),
        ]
    root.mkdir(mode=0o755)
    done = unpack(archive(members, format), root)
    assert done.members == len(members)
    assert (root / "d" / "file").read_bytes() == b"content"
    assert mode_of(root) == 0o755, "the root's mode is not taken from an archive"
    assert mode_of(root / "d") == 0o750
    assert mode_of(root / "d" / "file") == 0o755
    assert mode_of(root / "made" / "on" / "the" / "way") == 0o600
    assert mode_of(root / "made") == 0o755
    assert mode_of(root / "executable") == 0o755
    assert os.readlink(root / "d" / "link") == "../made"
    assert os.readlink(root / "d" / "dangling") == "nothing/../here"
    assert (root / "hard").stat().st_ino == (root / "d" / "file").stat().st_ino
    assert (root / "large").read_bytes() == b"0123456789" * 20_000
    if format != tarfile.USTAR_FORMAT:
        assert (root / long).read_bytes() == b"long"
        assert os.readlink(root / "long-link") == long
        assert (root / "long-hard").stat().st_nlink == 2


def test_a_name_in_ustar_with_a_prefix(root: Path) -> None:
    name = "/".join(["directory"] * 12) + "/file"
    unpack(archive([member(name, b"x")], tarfile.USTAR_FORMAT), root)
    assert (root / name).read_bytes() == b"x"


def test_names_that_are_no_utf8(root: Path) -> None:
    name = os.fsdecode(b"\xff\xfe\xf0 name\n")
    unpack(archive([member(name, b"x")]), root)
    assert (root / name).read_bytes() == b"x"


def test_an_old_archive(root: Path) -> None:
    """Before POSIX: no magic, a file with a slash is a directory, sums of signed characters."""
    block = bytearray(tarfile.TarInfo("d\xe9/").tobuf(tarfile.GNU_FORMAT, "latin-1"))
    block[156:157] = b"\0"
    block[257:265] = bytes(8)
    block[148:156] = b" " * 8
    signed = sum(struct.unpack("512b", bytes(block)))
    block[148:156] = b"%06o\0 " % signed
    unpack(bytes(block), root)
    assert stat.S_ISDIR(os.lstat(os.fsencode(root) + b"/d\xe9").st_mode)


def test_other_types_are_files(root: Path) -> None:
    unpack(archive([member("label", b"", type=b"V"), member("strange", b"abc", type=b"Z")]), root)
    assert (root / "strange").read_bytes() == b"abc"
    assert (root / "label").read_bytes() == b""


def test_a_global_header_is_no_member(root: Path) -> None:
    """As `git archive` writes them."""
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "abc"}
    ) as made:
        made.addfile(*((info := member("file", b"x"))[0], io.BytesIO(info[1])))
    assert unpack(out.getvalue(), root).members == 1
    assert os.listdir(root) == ["file"]


def test_the_last_member_for_a_path_wins(root: Path) -> None:
    unpack(
        archive(
            [
                member("file", b"first and longer", mode=0o600),
                member("file", b"second", mode=0o755),
                member("link", type=SYM, link="file"),
                member("link", type=SYM, link="other"),
                member("was-file", b"x", mode=0o700),
                member("was-file", type=SYM, link="file"),
                member("d/", type=DIR, mode=0o700),
                member("d", type=DIR, mode=0o711),
            ]
        ),
        root,
    )
    assert (root / "file").read_bytes() == b"second"
    assert mode_of(root / "file") == 0o755
    assert os.readlink(root / "link") == "other"
    assert os.readlink(root / "was-file") == "file"
    assert mode_of(root / "d") == 0o711


def test_members_into_what_is_there(root: Path) -> None:
    (root / "d").mkdir(parents=True)
    (root / "d" / "keep").write_bytes(b"kept")
    (root / "d" / "file").write_bytes(b"old and longer than the new one")
    (root / "d" / "file").chmod(0o600)
    (root / "d" / "link").symlink_to("elsewhere")
    (root / "d" / "hard").write_bytes(b"old")
    inode = (root / "d" / "file").stat().st_ino
    unpack(
        archive(
            [
                member("d/file", b"new"),
                member("d/link", type=SYM, link="file"),
                member("d/hard", type=LNK, link="d/file"),
                member("d/hard", type=LNK, link="d/file"),
                member("d/file", type=LNK, link="d/file"),
            ]
        ),
        root,
    )
    assert (root / "d" / "file").read_bytes() == b"new"
    assert (root / "d" / "file").stat().st_ino == inode, "truncated in place"
    assert mode_of(root / "d" / "file") == 0o644
    assert (root / "d" / "keep").read_bytes() == b"kept"
    assert os.readlink(root / "d" / "link") == "file"
    assert (root / "d" / "hard").stat().st_ino == inode


def test_a_file_with_a_name_outside_is_replaced_not_overwritten(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    outside.chmod(0o640)
    os.link(outside, root / "file")
    unpack(archive([member("file", b"new", mode=0o755)]), root)
    assert (root / "file").read_bytes() == b"new"
    assert outside.read_bytes() == b"precious"
    assert mode_of(outside) == 0o640


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (member("/etc/x", b"x"), "/etc/x: path escapes the extraction root"),
        (member("a/../../x", b"x"), "path escapes the extraction root"),
        (member("x/..", b"x"), "only a directory member may name the root"),
        (member("null", type=tarfile.CHRTYPE), "device and FIFO members are not extractable"),
        (member("disk", type=tarfile.BLKTYPE), "device and FIFO members are not extractable"),
        (member("pipe", type=tarfile.FIFOTYPE), "device and FIFO members are not extractable"),
        (member("l", type=SYM), "link member has no target"),
        (member("l", type=LNK), "link member has no target"),
        (member("l", type=SYM, link="/etc"), "absolute link target /etc"),
        (member("l", type=LNK, link="/etc/passwd"), "absolute link target /etc/passwd"),
        (member("d/l", type=SYM, link="../../x"), "link target ../../x resolves outside the root"),
        (member("d/l", type=LNK, link="../x"), "link target ../x resolves outside the root"),
        (member("into/x", b"x"), "cannot create under into: symbolic link"),
        (member("into", b"x"), "cannot create under into: symbolic link"),
        (member("into/", type=DIR), "cannot create under into: symbolic link"),
        (member("into/l", type=SYM, link="x"), "cannot create under into: symbolic link"),
        (member("h", type=LNK, link="into/first"), "into/first: cannot create under into: symbolic link"),
    ],
)
def test_refused_members(root: Path, tmp_path: Path, bad: Any, reason: str) -> None:
    """What came before one stays, without its mode; nothing behind one is looked at."""
    root.mkdir()
    (tmp_path / "outside").mkdir()
    (root / "into").symlink_to(tmp_path / "outside")
    data = archive([member("first", b"1", mode=0o755), bad, member("last", b"2")])
    error = refused(Kind.BAD_REQUEST, data, root)
    assert error.detail.startswith("refused tar member ")
    assert error.detail.endswith(reason)
    assert (root / "first").read_bytes() == b"1"
    assert mode_of(root / "first") == 0o644
    assert not (root / "last").exists()
    assert os.listdir(tmp_path / "outside") == []


def test_a_link_of_the_archive_itself_is_not_walked(root: Path) -> None:
    data = archive([member("d/", type=DIR), member("l", type=SYM, link="d"), member("l/x", b"x")])
    assert "l: symbolic link" in refused(Kind.BAD_REQUEST, data, root).detail
    assert os.listdir(root / "d") == []


@pytest.mark.parametrize(
    "bad",
    [
        member("d", b"x"),
        member("d", type=SYM, link="file"),
        member("d", type=LNK, link="file"),
        member("file/x", b"x"),
        member("file/", type=DIR),
        member("h", type=LNK, link="missing"),
        member("h", type=LNK, link="missing/x"),
        member("h", type=LNK, link="d"),
        member("missing", type=LNK, link="missing"),
        member("fifo", b"x"),
        member("n" * 300, b"x"),
    ],
)
def test_members_that_the_system_refuses(root: Path, bad: Any) -> None:
    (root / "d").mkdir(parents=True)
    (root / "d" / "keep").write_bytes(b"")
    (root / "file").write_bytes(b"kept")
    os.mkfifo(root / "fifo")
    before = picture(root)
    refused(Kind.FAILED, archive([bad]), root)
    assert picture(root) == before


def test_caps_are_exact(root: Path) -> None:
    members = [
        member("d/", type=DIR),
        member("a", b"x" * 70),
        member("b", b"x" * 30),
        member("l", type=SYM, link="a"),
    ]
    data = archive(members)
    assert unpack(data, root, Caps(4, 100)) == Extracted(4, 100)
    assert "more than 3 members" in refused(Kind.TOO_LARGE, data, root, Caps(3, 100)).detail
    assert "more than 99 bytes" in refused(Kind.TOO_LARGE, data, root, Caps(4, 99)).detail


def test_a_member_over_the_cap_is_not_written(root: Path) -> None:
    refused(Kind.TOO_LARGE, archive([member("a", b"x" * 60), member("b", b"x" * 60)]), root, Caps(9, 100))
    assert os.listdir(root) == ["a"]


def test_directories_on_the_way_are_capped_too(root: Path) -> None:
    data = archive([member("/".join("abcdef"), b"")])
    refused(Kind.TOO_LARGE, data, root, Caps(4, 100))
    unpack(data, root.parent / "other", Caps(5, 100))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: (data[:700], 512),
        lambda data: (data[:1024], 0),
        lambda data: (data[:1536] + b"\x01" + data[1537:], 1536),
        lambda data: (data[:1536] + b"x" * 512 + data[2048:], 1536),
        lambda data: (b"garbage" * 200, 0),
        lambda data: (b"x", 0),
        lambda data: (gzip.compress(data), 0),
    ],
)
def test_a_corrupt_archive_names_the_byte(root: Path, damage: Any) -> None:
    data = archive([member("a", b"1" * 1000), member("b", b"2" * 1000)])
    broken, offset = damage(data)
    if broken == data[:700]:
        offset = 0
    error = refused(Kind.BAD_REQUEST, broken, root)
    assert error.detail.startswith(f"corrupt archive at byte {offset}: "), error


def test_an_empty_body_and_an_empty_archive(root: Path) -> None:
    assert unpack(b"", root) == Extracted(0, 0)
    assert unpack(bytes(512), root) == Extracted(0, 0)
    assert unpack(archive([]) + b"anything behind the end", root) == Extracted(0, 0)
    assert root.is_dir()


def test_the_root_may_be_reached_through_links(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (tmp_path / "link").symlink_to("root")
    unpack(archive([member("file", b"x")]), tmp_path / "link" / "below")
    assert (root / "below" / "file").read_bytes() == b"x"


def test_more_directories_than_descriptors_kept(root: Path) -> None:
    """Round and round through two hundred directories, and one that is deeper than what is kept."""
    members = [member(f"d{number % 200}/f{number}", b"%d" % number) for number in range(600)]
    members += [member("/".join(["deep"] * 100) + "/f", b"deep"), member("deep/h", type=LNK, link="d7/f7")]
    members += [member("/".join(["deep"] * 90) + "/h", type=LNK, link="/".join(["deep"] * 100) + "/f")]
    unpack(archive(members), root)
    assert all(
        (root / f"d{number % 200}" / f"f{number}").read_bytes() == b"%d" % number for number in range(600)
    )
    assert (root / Path(*["deep"] * 90) / "h").read_bytes() == b"deep"


# -- through the sink ------------------------------------------------------------------------------------------


async def upload(files: Files, data: bytes, root: Path | bytes, **more: Any) -> Extracted:
    sink = await files.extract(os.fsencode(root), **more)
    for at in range(0, len(data), 7000):
        sink.write(data[at : at + 7000])
    return await sink.finish()


CODED = {"gzip": gzip.compress, "zstd": zstd.compress}
"""A body in each content coding."""
TREE = [member("d/", type=DIR), *(member(f"d/{number}", os.urandom(5000)) for number in range(100))]


@pytest.mark.usefixtures("no_descriptor_left")
@pytest.mark.parametrize("coding", ["identity", "gzip", "x-gzip", "GZIP", "zstd", "Zstd", None])
@pytest_twisted.ensureDeferred
async def test_an_upload(files: Files, root: Path, coding: str | None) -> None:
    data = archive(TREE)
    body = CODED.get((coding or "").lower().removeprefix("x-"), bytes)(data)
    assert await upload(files, body, root, content_encoding=coding) == Extracted(101, 500_000)
    assert len(os.listdir(root / "d")) == 100


@pytest.mark.usefixtures("no_descriptor_left")
@pytest_twisted.ensureDeferred
async def test_refusals_before_the_body(make_files: MakeFiles, root: Path) -> None:
    files = make_files()
    assert (await refusal(files.extract(b"relative"))).kind is Kind.BAD_REQUEST
    assert (await refusal(files.extract(b""))).kind is Kind.BAD_REQUEST
    assert (await refusal(files.extract(b"/a\0b"))).kind is Kind.BAD_REQUEST
    error = await refusal(files.extract(os.fsencode(root), "br"))
    assert error.kind is Kind.UNSUPPORTED
    assert "gzip" in error.detail
    files = make_files(guard=DiskGuard(10, lambda _: 9))
    assert (await refusal(files.extract(os.fsencode(root)))).kind is Kind.NO_SPACE
    assert not root.exists()


@pytest_twisted.ensureDeferred
async def test_zstd_is_refused_where_there_is_no_module_for_it(
    files: Files, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codings, "ZSTD_MODULES", ())
    assert (await refusal(files.extract(os.fsencode(root), "zstd"))).kind is Kind.UNSUPPORTED


@pytest.mark.usefixtures("no_descriptor_left")
@pytest_twisted.ensureDeferred
async def test_an_aborted_upload_extracts_nothing(files: Files, root: Path) -> None:
    sink = await files.extract(os.fsencode(root))
    sink.write(archive(TREE))
    await sink.abort()
    await sink.abort()
    assert (await refusal(sink.finish())).kind is Kind.FAILED
    assert not root.exists()
    opening = files.extract(os.fsencode(root))
    opening.cancel()
    with pytest.raises(CancelledError):
        await opening


@pytest_twisted.ensureDeferred
async def test_aborting_after_the_end_waits_for_it(files: Files, root: Path) -> None:
    sink = await files.extract(os.fsencode(root))
    sink.write(archive(TREE))
    finishing = sink.finish()
    await sink.abort()
    assert len(os.listdir(root / "d")) == 100
    assert (await finishing).members == 101


@pytest.mark.usefixtures("no_descriptor_left")
@pytest_twisted.ensureDeferred
async def test_a_cancelled_extraction_stops_between_members(files: Files, root: Path) -> None:
    data = archive(member(f"d{number // 50}/{number}", b"x" * 200) for number in range(5000))
    sink = await files.extract(os.fsencode(root))
    sink.write(data)
    finishing = sink.finish()
    await until(files.reactor, root.exists)
    finishing.cancel()
    with pytest.raises(CancelledError):
        await finishing


@pytest.mark.usefixtures("no_descriptor_left")
@pytest.mark.parametrize(
    ("data", "caps"),
    [
        (archive(member(str(number)) for number in range(5000)), Caps(100, 10**9)),
        (archive([member("bomb", bytes(64 * 1024 * 1024))]), Caps(100, 1024 * 1024)),
    ],
)
@pytest.mark.parametrize("coding", CODED)
@pytest_twisted.ensureDeferred
async def test_a_bomb_is_stopped_while_it_is_decoded(
    make_files: MakeFiles, root: Path, data: bytes, caps: Caps, coding: str
) -> None:
    """The caps are counted on what is decoded, and the bomb never takes room on the disk."""
    failures: list[Exception] = []
    body = CODED[coding](data)
    files = make_files(caps=caps)
    sink = await files.extract(os.fsencode(root), coding, Flow(failed=failures.append))
    sizes: list[int] = []
    store = sink._archive._store
    sink._archive._store = lambda batch: (sizes.extend(map(len, batch)), store(batch))[1]  # type: ignore[method-assign]
    for at in range(0, len(body), 1000):
        sink.write(body[at : at + 1000])
    error = await refusal(sink.finish())
    assert error.kind is Kind.TOO_LARGE
    assert failures == [error]
    assert sum(sizes) <= 2 * codings.PIECE_BYTES
    assert not root.exists()


@pytest_twisted.ensureDeferred
async def test_what_follows_the_end_of_a_coded_archive_is_dropped_and_bounded(
    files: Files, root: Path
) -> None:
    body = gzip.compress(archive([member("file", b"x")])) + gzip.compress(bytes(1024 * 1024))
    assert await upload(files, body, root, content_encoding="gzip") == Extracted(1, 1)
    body = gzip.compress(archive([member("file", b"x")])) + gzip.compress(bytes(80 * 1024 * 1024))
    error = await refusal(upload_deferred(files, body, root))
    assert error.kind is Kind.BAD_REQUEST


def upload_deferred(files: Files, body: bytes, root: Path) -> Any:
    from twisted.internet.defer import Deferred

    return Deferred.fromCoroutine(upload(files, body, root, content_encoding="gzip"))


@pytest.mark.usefixtures("no_descriptor_left")
@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip", "empty"])
@pytest_twisted.ensureDeferred
async def test_a_body_that_does_not_decode(files: Files, root: Path, damage: str) -> None:
    body = bytearray(gzip.compress(archive(TREE)))
    if damage == "cut":
        del body[-20:]
    elif damage == "flipped":
        body[len(body) // 2] ^= 0xFF
    elif damage == "empty":
        body.clear()
    else:
        body = bytearray(archive(TREE))
    error = await refusal(upload_deferred(files, bytes(body), root))
    assert error.kind is Kind.BAD_REQUEST
    assert not root.exists()


@pytest_twisted.ensureDeferred
async def test_a_spool_directory_that_somebody_removed_is_made_again(
    files: Files, root: Path, tmp_path: Path
) -> None:
    await upload(files, archive(TREE), root)
    os.rmdir(tmp_path / "spool")
    await upload(files, archive(TREE), root)

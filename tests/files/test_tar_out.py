"""Packed trees: format, round trip, caps, and trees that change meanwhile (contract e.6)."""

import gzip
import io
import os
import socket
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from backports import zstd
from twisted.internet.defer import CancelledError

from agentd.files import tar_pack
from agentd.files.errors import FilesError, Kind
from agentd.files.service import Files
from agentd.files.tar_format import END, Malformed, decode, encode, number
from agentd.files.tar_pack import measure, pack
from agentd.rules.members import Caps
from tests.files.conftest import MakeFiles
from tests.files.support import Consumer, drive, packed, picture, refusal, unpack, until

MIB = 1024 * 1024


def build(root: Path) -> None:
    (root / "d" / "empty").mkdir(parents=True)
    (root / "d" / "file").write_bytes(b"content")
    (root / "d" / "file").chmod(0o6751)
    (root / "large").write_bytes(os.urandom(300_000))
    (root / ("n" * 120)).mkdir()
    (root / ("n" * 120) / ("m" * 200)).write_bytes(b"long name")
    (root / "link").symlink_to("/etc/passwd")
    (root / "long-link").symlink_to("x" * 180)
    (root / "dangling").symlink_to("nothing")
    os.link(root / "d" / "file", root / "hard")
    with open(os.fsencode(root) + b"/\xff\xfe name", "wb") as file:
        file.write(b"no UTF-8")
    os.utime(root / "large", (1, -12345.75))
    os.utime(root / "d", (1, 2**34))


def test_the_format(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir(mode=0o751)
    build(root)
    data, result = packed(root)
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as read:
        members = read.getmembers()
        contents = {info.name: read.extractfile(info).read() for info in members if info.isreg()}  # type: ignore[union-attr]
    assert members[0].name == "."
    assert data[:3] == b"./\0"
    assert data[257:265] == b"ustar  \0"
    assert data[-len(END) :] == END
    by_name = {info.name: info for info in members}
    assert [info.name for info in members] == sorted(by_name, key=lambda name: name.split("/"))
    assert result.members == len(members) - 1
    assert result.bytes == sum(map(len, contents.values()))
    assert (result.vanished, result.shrunk) == (0, 0)
    status = (root / "d" / "file").stat()
    info = by_name["./d/file"]
    assert (info.mode, info.uid, info.gid, info.mtime) == (
        0o6751,
        status.st_uid,
        status.st_gid,
        int(status.st_mtime),
    )
    assert info.type == by_name["./hard"].type == tarfile.REGTYPE, "hard links are independent copies"
    assert contents["./hard"] == contents["./d/file"] == b"content"
    assert contents["./large"] == (root / "large").read_bytes()
    assert by_name["./large"].mtime == -12346
    assert by_name["./d"].mtime == int((root / "d").stat().st_mtime) > 8**11
    assert by_name["./link"].linkname == "/etc/passwd"
    assert by_name["./long-link"].linkname == "x" * 180
    assert by_name["./" + "n" * 120 + "/" + "m" * 200].size == 9
    assert b"./d/empty/\0" in data


def test_the_systems_tar_reads_it(tmp_path: Path) -> None:
    root, other = tmp_path / "tree", tmp_path / "other"
    root.mkdir()
    build(root)
    other.mkdir()
    data, _ = packed(root)
    subprocess.run(["tar", "-xpf", "-", "-C", other], input=data, check=True)
    assert picture(other) == picture(root)


def test_round_trip_with_holes(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    with (root / "sparse").open("wb") as file:
        for count in range(60):
            file.seek(count * MIB)
            file.write(b"piece %d" % count)
        file.truncate(200 * MIB)
    with (root / "holes-only").open("wb") as file:
        file.truncate(100 * MIB + 1)
    with (root / "data-at-the-end").open("wb") as file:
        file.seek(50 * MIB)
        file.write(b"x" * 5000)
    data, result = packed(root)
    assert len(data) < 2 * MIB
    assert result.bytes == sum(path.stat().st_size for path in root.iterdir())
    done = unpack(data, tmp_path / "other")
    assert done.bytes == result.bytes
    for path in root.iterdir():
        copy = tmp_path / "other" / path.name
        assert copy.stat().st_size == path.stat().st_size
        assert copy.stat().st_blocks * 512 < 2 * MIB, "holes stay holes"
        subprocess.run(["cmp", path, copy], check=True)
    subprocess.run(["tar", "-df", "-", "-C", root], input=data, check=True)


@pytest.mark.parametrize("format", ["gnu", "0.0", "0.1", "1.0"])
def test_sparse_archives_of_gnu_tar(tmp_path: Path, format: str) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    with (root / ("sparse" * 20)).open("wb") as file:
        for count in range(80):
            file.seek(count * 64 * 1024)
            file.write(b"piece %d" % count)
        file.truncate(50 * MIB)
    options = ["--format=gnu"] if format == "gnu" else ["--format=pax", f"--sparse-version={format}"]
    made = subprocess.run(
        ["tar", *options, "-S", "-cf", "-", "-C", root, "."], capture_output=True, check=True
    )
    done = unpack(made.stdout, tmp_path / "other")
    assert done.bytes == 50 * MIB, "the size of the file counts, not what is stored of it"
    subprocess.run(["cmp", root / ("sparse" * 20), tmp_path / "other" / ("sparse" * 20)], check=True)
    assert (tmp_path / "other" / ("sparse" * 20)).stat().st_blocks * 512 < 2 * MIB


def test_pipes_and_devices_are_members_of_their_type(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    os.mkfifo(root / "fifo", 0o640)
    data, _ = packed(root)
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        assert read.getmember("./fifo").isfifo()


@pytest.mark.root
def test_devices(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    os.mknod(root / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    data, _ = packed(root)
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        info = read.getmember("./null")
    assert (info.type, info.devmajor, info.devminor) == (tarfile.CHRTYPE, 1, 3)


def failure_of(root: Path | bytes, caps: Caps | None = None) -> FilesError:
    with pytest.raises(FilesError) as refused:
        packed(Path(os.fsdecode(root)), caps)
    return refused.value


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert failure_of(tmp_path / "nothing").kind is Kind.NOT_FOUND
    assert failure_of(tmp_path / "file").kind is Kind.BAD_REQUEST
    assert failure_of(tmp_path / "file" / "below").kind is Kind.FAILED


def test_a_socket_fails_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("tree/socket")
        error = failure_of(tmp_path / "tree")
    assert error.kind is Kind.FAILED
    assert "socket" in error.detail


def test_caps_are_exact(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "d").mkdir(parents=True)
    (root / "d" / "a").write_bytes(b"x" * 70)
    (root / "b").write_bytes(b"x" * 30)
    (root / "l").symlink_to("b")
    packed(root, Caps(4, 100))
    assert failure_of(root, Caps(3, 100)).kind is Kind.TOO_LARGE
    assert failure_of(root, Caps(4, 99)).kind is Kind.TOO_LARGE


class Collect:
    """An output in memory that lets the test act at each write."""

    def __init__(self, act: Any = lambda: None) -> None:
        self.data = b""
        self._act = act

    def write(self, data: bytes) -> None:
        self.data += data
        self._act()

    def copy(self, source: int, offset: int, count: int) -> Any:
        data = os.pread(source, count, offset)
        self.write(data)
        yield len(data)
        return len(data)


def test_what_vanishes_is_left_out_and_counted(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "d" / "e").mkdir(parents=True)
    for name in ("a", "b", "d/e/f", "d/g", "z"):
        (root / name).write_bytes(b"x")
    (root / "link").symlink_to("a")
    tree = drive(measure(os.fsencode(root), Caps()))
    assert (tree.members, tree.total) == (8, 5)
    (root / "b").unlink()
    (root / "z").unlink()
    (root / "z").symlink_to("/etc/passwd")
    (root / "link").unlink()
    os.rename(root / "d" / "e", tmp_path / "away")
    (root / "d" / "e").symlink_to(tmp_path / "away")
    (root / "new").write_bytes(b"")
    output = Collect()
    result = drive(pack(os.fsencode(root), tree, Caps(), output))
    with tarfile.open(fileobj=io.BytesIO(output.data)) as read:
        assert read.getnames() == [".", "./a", "./d", "./d/e", "./d/g"]
        assert read.getmember("./d/e").issym()
    assert result.vanished == 4
    assert result.members == 4


def test_a_file_that_shrinks_is_filled_up_and_counted(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "file").write_bytes(b"x" * 3 * MIB)
    tree = drive(measure(os.fsencode(root), Caps()))
    output = Collect()

    def shrink() -> None:
        if b"./file" in output.data:
            os.truncate(root / "file", 1000)

    output._act = shrink
    result = drive(pack(os.fsencode(root), tree, Caps(), output))
    with tarfile.open(fileobj=io.BytesIO(output.data)) as read:
        content = read.extractfile("./file").read()  # type: ignore[union-attr]
    assert content == b"x" * 1000 + bytes(3 * MIB - 1000)
    assert (result.shrunk, result.vanished) == (1, 0)


def test_too_many_holes_are_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_pack, "_MAX_PACKED_EXTENTS", 4)
    root = tmp_path / "tree"
    root.mkdir()
    with (root / "sparse").open("wb") as file:
        for count in range(6):
            file.seek(count * 128 * 1024)
            file.write(b"x")
    data, _ = packed(root)
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        assert read.getmember("./sparse").type == tarfile.REGTYPE
        assert read.extractfile("./sparse").read() == (root / "sparse").read_bytes()  # type: ignore[union-attr]


def test_a_tree_deeper_than_paths_can_be(tmp_path: Path) -> None:
    """5,000 bytes of path: packed step by step."""
    root = tmp_path / "tree"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for _ in range(50):
        os.mkdir("d" * 100, dir_fd=here)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    with open(os.open("file", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=here), "wb") as file:
        file.write(b"deep")
    os.close(here)
    data, result = packed(root)
    assert result.members == 51
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        assert read.extractfile(read.getmembers()[-1]).read() == b"deep"  # type: ignore[union-attr]


# -- through the service ---------------------------------------------------------------------------------------

pytest_census = pytest.mark.usefixtures("no_descriptor_left")


@pytest_census
@pytest.mark.parametrize(
    ("accept", "coding"),
    [(None, "identity"), ("gzip", "gzip"), ("identity, gzip;q=0", "identity"), ("zstd", "zstd")],
)
@pytest_twisted.ensureDeferred
async def test_a_download(files: Files, tmp_path: Path, accept: str | None, coding: str) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    build(root)
    tree = await files.pack(os.fsencode(root), accept)
    consumer = Consumer(pause_every=2)
    sending = tree.read.send(consumer)
    while not sending.called:
        await until(files.reactor, lambda: consumer.paused or sending.called)
        consumer.resume()
    assert await sending == tree.read.length == len(consumer.data)
    assert tree.coding == coding
    decode = {"gzip": gzip.decompress, "zstd": zstd.decompress}.get(coding, bytes)
    plain = decode(bytes(consumer.data))
    assert plain == packed(root)[0]
    if coding != "identity":
        assert len(consumer.data) < len(plain)


@pytest_census
@pytest_twisted.ensureDeferred
async def test_refusals_and_cancelling(make_files: MakeFiles, tmp_path: Path) -> None:
    files = make_files()
    assert (await refusal(files.pack(b""))).kind is Kind.NOT_FOUND
    assert (await refusal(files.pack(b"a\0b"))).kind is Kind.BAD_REQUEST
    root = tmp_path / "tree"
    root.mkdir()
    for count in range(3000):
        (root / str(count)).write_bytes(b"x" * 100)
    packing = files.pack(os.fsencode(root))
    await until(files.reactor, (tmp_path / "spool").exists)
    packing.cancel()
    with pytest.raises(CancelledError):
        await packing
    await (await files.pack(os.fsencode(root))).read.close()


# -- the encoding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 1, 0o7777777, 0o10000000, 2**40, 2**55])
def test_numbers_are_read_back(value: int) -> None:
    block = encode(b"name", b"0", 0o644, value, value, value, value)
    assert number(block[108:116]) == number(block[116:124]) == number(block[124:136]) == value
    assert decode(block) == (b"name", b"0", 0o644, value, b"")
    info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    assert (info.uid, info.gid, info.size, info.mtime) == (value, value, value, value)


@pytest.mark.parametrize(
    "field", [b"\xff" * 8, b"\xff" * 11 + b"\xfe", b"\x80" + b"\xff" * 11, b"1238567\0", b"-000001\0"]
)
def test_numbers_that_mean_nothing(field: bytes) -> None:
    with pytest.raises(Malformed):
        number(field)


@pytest.mark.parametrize("name", [b"a", b"\xff" * 100, b"x" * 101, b"\xff" * 5000])
@pytest.mark.parametrize("link", [b"", b"\xff" * 100, b"y" * 300])
def test_headers_are_read_by_the_standard_library(name: bytes, link: bytes) -> None:
    data = encode(name, b"2", 0o777, 0, 0, 0, -5, link) + END
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as read:
        (info,) = read.getmembers()
    assert (os.fsencode(info.name), os.fsencode(info.linkname), info.mtime) == (name, link, -5)

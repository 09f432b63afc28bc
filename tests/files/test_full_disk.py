"""A disk that really gets full: a small tmpfs, with and without the reserve (contract e.4)."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_twisted

from agentd.files.disk import DiskGuard
from agentd.files.errors import FilesError, Kind
from tests.files.conftest import MakeFiles
from tests.files.support import archive, member, refusal

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("no_descriptor_left")]

MIB = 1024 * 1024
OLD = b"the old content" * 1000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def free(place: Path) -> int:
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


@pytest.mark.parametrize("reserve", [0, 2 * MIB])
@pytest.mark.parametrize("links", [0, 1, 2])
@pytest_twisted.ensureDeferred
async def test_a_write_that_fills_the_disk(
    make_files: MakeFiles, small: Path, reserve: int, links: int
) -> None:
    names = ["file", "other"][:links]
    for name in names:
        if name == "file":
            (small / name).write_bytes(OLD)
        else:
            os.link(small / "file", small / name)
    before = free(small)
    sink = await make_files(guard=DiskGuard(reserve)).write(os.fsencode(small / "file"))
    for _ in range(64):
        sink.write(bytes(MIB))
    error = await refusal(sink.finish())
    assert error.kind is Kind.NO_SPACE
    assert sorted(os.listdir(small)) == names
    assert all((small / name).read_bytes() == OLD for name in names)
    assert free(small) == before


@pytest_twisted.ensureDeferred
async def test_an_in_place_write_finds_the_disk_full_before_it_touches_the_target(
    make_files: MakeFiles, small: Path
) -> None:
    """The content fits beside the target once, not twice."""
    (small / "file").write_bytes(OLD)
    os.link(small / "file", small / "other")
    sink = await make_files().write(os.fsencode(small / "file"))
    for _ in range(14):
        sink.write(bytes(MIB))
    assert (await refusal(sink.finish())).kind is Kind.NO_SPACE
    assert (small / "other").read_bytes() == OLD
    assert sorted(os.listdir(small)) == ["file", "other"]


@pytest.mark.parametrize("reserve", [0, 2 * MIB])
@pytest_twisted.ensureDeferred
async def test_an_extraction_that_fills_the_disk(make_files: MakeFiles, small: Path, reserve: int) -> None:
    """What was complete stays, what was not is gone, and the spool is freed."""
    data = archive([member("first", b"1" * MIB), member("second", b"2" * (30 * MIB)), member("third", b"3")])
    sink = await make_files(guard=DiskGuard(reserve)).extract(os.fsencode(small / "root"))
    sink.write(data)
    error = await refusal(sink.finish())
    assert error.kind is Kind.NO_SPACE
    assert os.listdir(small / "root") == ["first"]
    assert (small / "root" / "first").stat().st_size == MIB


@pytest_twisted.ensureDeferred
async def test_a_spool_that_fills_its_disk(make_files: MakeFiles, small: Path, tmp_path: Path) -> None:
    files = make_files(spool=os.fsencode(small / "spool"))
    told: list[Exception] = []
    sink = await files.extract(os.fsencode(tmp_path / "root"))
    for _ in range(64):
        sink.write(bytes(MIB))
    error = await refusal(sink.finish())
    assert error.kind is Kind.NO_SPACE
    assert not (tmp_path / "root").exists()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "long").write_bytes(os.urandom(40 * MIB))
    with pytest.raises(FilesError) as refused:
        await files.pack(os.fsencode(tmp_path / "tree"))
    assert refused.value.kind is Kind.NO_SPACE
    assert free(small) > 23 * MIB
    assert told == []

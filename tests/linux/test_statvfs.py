"""Room where a path is or would be."""

import errno
import os
from pathlib import Path

import pytest

from agentd.linux import statvfs


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The paths that were measured: the answer itself changes with everything else on the disk."""
    paths: list[bytes] = []
    really = os.statvfs

    def watched(path: bytes) -> os.statvfs_result:
        found = really(path)
        paths.append(path)
        return found

    monkeypatch.setattr(os, "statvfs", watched)
    return paths


@pytest.mark.parametrize(
    ("path", "ancestor"),
    [
        ("", ""),
        ("dir", "dir"),
        ("dir/", "dir/"),
        ("missing", ""),
        ("missing/and/more", ""),
        ("dir/a//b/", "dir"),
        ("dir/file", "dir/file"),
        ("dir/file/below", "dir/file"),
        ("dangling", ""),
        ("link/missing", "link"),
    ],
)
def test_the_nearest_existing_ancestor_is_measured(
    tmp_path: Path, measured: list[bytes], path: str, ancestor: str
) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "link").symlink_to("dir")
    assert statvfs.available_bytes(os.path.join(tmp_path, path) if path else str(tmp_path)) > 0
    assert measured == [os.fsencode(os.path.join(tmp_path, ancestor) if ancestor else str(tmp_path))]


def test_relative_paths_start_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: list[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("", ".", "missing", "missing/more", b"missing"):
        statvfs.available_bytes(path)
    assert measured == [b"."] * 5
    measured.clear()
    statvfs.available_bytes("/agentd-missing/more")
    assert measured == [b"/"]


def test_the_room_is_that_of_an_unprivileged_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = (4096, 512, 1000, 900, 700, 10, 10, 10, 0, 255)  # bsize, frsize, blocks, bfree, bavail, …
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    assert statvfs.available_bytes("/") == 700 * 512


def test_what_cannot_be_measured_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=r".") as raised:
        statvfs.available_bytes(tmp_path.as_posix() + "/loop/x")
    assert raised.value.errno == errno.ELOOP


def test_a_system_without_any_directory_does_not_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: bytes) -> os.statvfs_result:
        raise FileNotFoundError(errno.ENOENT, "nothing")

    monkeypatch.setattr(os, "statvfs", nothing)
    for path in ("/a/b", "a/b", "/", "", "//"):
        with pytest.raises(FileNotFoundError):
            statvfs.available_bytes(path)

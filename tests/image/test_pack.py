"""Trees as files: the same tree, the same bytes."""

import gzip
import io
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from image import manifest, pack, tree
from image.pack import Entry

EPOCH = 1_700_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    (made / "bin").mkdir(parents=True)
    (made / "bin/one").write_bytes(b"1" * 4097)
    (made / "bin/one").chmod(0o755)
    (made / "bin/link").symlink_to("one")
    (made / "empty").mkdir(mode=0o700)
    (made / "name with spaces").write_text("content")
    tree.age(made, EPOCH)
    return made


def archive_of(root: Path) -> bytes:
    out = io.BytesIO()
    pack.cpio(out, pack.entries_of(root), EPOCH)
    return out.getvalue()


def test_an_archive_is_what_cpio_reads(root: Path, tmp_path: Path) -> None:
    if shutil.which("cpio") is None:
        assert archive_of(root).startswith(b"070701")
        return
    there = tmp_path / "there"
    there.mkdir()
    subprocess.run(["cpio", "-idm", "--quiet"], input=archive_of(root), cwd=there, check=True)
    assert sorted(path.relative_to(there).as_posix() for path in there.rglob("*")) == [
        "bin",
        "bin/link",
        "bin/one",
        "empty",
        "name with spaces",
    ]
    assert (there / "bin/one").read_bytes() == b"1" * 4097
    assert os.readlink(there / "bin/link") == "one"
    assert stat.S_IMODE((there / "bin/one").stat().st_mode) == 0o755
    assert stat.S_IMODE((there / "empty").stat().st_mode) == 0o700
    assert (there / "bin/one").stat().st_mtime == EPOCH


def test_an_archive_depends_on_nothing_but_the_tree(root: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    for name in sorted((path.relative_to(root) for path in root.rglob("*")), reverse=True):
        target = again / name
        target.parent.mkdir(parents=True, exist_ok=True)
        source = root / name
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
        elif source.is_dir():
            target.mkdir(exist_ok=True)
        else:
            shutil.copyfile(source, target)
        if not source.is_symlink():
            target.chmod(stat.S_IMODE(source.stat().st_mode))
    tree.age(again, EPOCH)
    assert archive_of(root) == archive_of(again)
    (again / "bin/one").write_bytes(b"2" * 4097)
    assert archive_of(root) != archive_of(again)


def test_the_boot_archive_is_the_same_every_time(root: Path, tmp_path: Path) -> None:
    made = []
    for name in ("first", "second"):
        pack.boot_archive(
            tmp_path / name, root / "bin/one", root / "bin/one", (root / "name with spaces",), EPOCH
        )
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    assert b"modules/order" in gzip.decompress(made[0])


def test_members_are_padded_to_four_bytes() -> None:
    out = io.BytesIO()
    pack.cpio(out, iter([Entry("a", stat.S_IFREG | 0o644, b"12345")]), EPOCH)
    data = out.getvalue()
    assert len(data) % 4 == 0
    assert data.index(b"12345") % 4 == 0
    assert data[data.index(b"TRAILER!!!") - 110 :].startswith(b"070701")


@pytest.mark.root
@pytest.mark.skipif(shutil.which("mke2fs") is None, reason="e2fsprogs is not installed")
def test_an_ext4_root_depends_on_nothing_but_the_tree(root: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        pack.ext4(tmp_path / name, root, EPOCH)
        (root / "bin/one").read_bytes()
        tree.age(root, EPOCH)
    assert pack.digest(tmp_path / "first") == pack.digest(tmp_path / "second")


def test_the_manifest_stands_for_the_files_and_the_line(tmp_path: Path) -> None:
    for name in ("vmlinuz", "initrd.img"):
        (tmp_path / name).write_text(name)
    boot = {"kernel": "vmlinuz", "initrd": "initrd.img", "root": None, "line": "quiet"}
    made = manifest.write(tmp_path, boot, {"byte_compiled": True})
    assert made["files"]["vmlinuz"]["bytes"] == 7
    assert manifest.write(tmp_path, boot, {"python": {}})["digest"] == made["digest"]
    assert manifest.write(tmp_path, {**boot, "line": "loud"}, {})["digest"] != made["digest"]

"""Trees as files: cpio archives for the kernel to unpack, an ext4 file system to mount.

Each is a function of what is in the tree and of one time: the same tree gives the same bytes. cpio archives are written
here (the "newc" format of cpio(5), of which the kernel's own description is
Documentation/driver-api/early-userspace/buffer-format.rst), in the order of names and with inode numbers that are
counted; the file system gets fixed identifiers and times.
"""

import gzip
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from image import tree
from image.run import run

ROOT_UUID: Final = "6167656e-7464-4d69-8372-6f766d726f6f"
"""Of every root file system: they are told apart by their digests."""

MEBIBYTE: Final = 1024 * 1024
BLOCK: Final = 4096
INODE: Final = 256
SPARE_INODES: Final = 64
SLACK: Final = 4 * MEBIBYTE
"""Room of an ext4 root beyond what its files and directories take, for its own tables."""


class Entry(NamedTuple):
    """One member of an archive."""

    name: str
    """Its path, without a slash in front."""
    mode: int
    """Type and permissions, as in lstat(2)."""
    data: bytes = b""
    """Content of a file, target of a link."""
    uid: int = 0
    gid: int = 0
    mtime: int | None = None
    """None for the time of the archive."""


def cpio(out: BinaryIO | gzip.GzipFile, entries: Iterator[Entry], epoch: int) -> None:
    """Write `entries` as a "newc" archive."""
    trailer = Entry("TRAILER!!!", 0)
    for number, entry in enumerate((*entries, trailer), 1):
        name = entry.name.encode() + b"\0"
        mtime = 0 if entry is trailer else epoch if entry.mtime is None else entry.mtime
        links = 2 if stat.S_ISDIR(entry.mode) else 1
        numbers = (
            number,
            entry.mode,
            entry.uid,
            entry.gid,
            links,
            mtime,
            len(entry.data),
            0,
            0,
            0,
            0,
            len(name),
            0,
        )
        out.write(b"070701" + b"".join(b"%08X" % value for value in numbers))
        out.write(name + bytes(-(110 + len(name)) % 4))
        out.write(entry.data + bytes(-len(entry.data) % 4))


def entries_of(root: Path) -> Iterator[Entry]:
    """The members of a directory tree, parents first, names in order. Device nodes and the like are left out."""
    for directory, directories, files in os.walk(root):
        directories.sort()
        for name in sorted((*directories, *files)):
            path = Path(directory, name)
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                data = os.fsencode(os.readlink(path))
            elif stat.S_ISREG(found.st_mode):
                data = path.read_bytes()
            elif stat.S_ISDIR(found.st_mode):
                data = b""
            else:
                continue
            inner = path.relative_to(root).as_posix()
            yield Entry(inner, found.st_mode, data, found.st_uid, found.st_gid, int(found.st_mtime))


def boot_archive(target: Path, init: Path, busybox: Path, modules: tuple[Path, ...], epoch: int) -> None:
    """The small initrd: busybox, the drivers, and the script that mounts the root and hands over to it."""
    order = "".join(f"{module.stem}\n" for module in modules)
    entries = [
        Entry("bin", stat.S_IFDIR | 0o755),
        Entry("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes()),
        Entry("init", stat.S_IFREG | 0o755, init.read_bytes()),
        Entry("modules", stat.S_IFDIR | 0o755),
        *(Entry(f"modules/{each.name}", stat.S_IFREG | 0o644, each.read_bytes()) for each in modules),
        Entry("modules/order", stat.S_IFREG | 0o644, order.encode()),
    ]
    with open(target, "wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as out:
        cpio(out, iter(entries), epoch)


def root_archive(target: Path, root: Path, modules: tuple[Path, ...], epoch: int) -> None:
    """The whole root as an initrd, drivers included, compressed with zstd."""
    raw = target.with_suffix(".cpio")
    order = "".join(f"{module.stem}\n" for module in modules)
    drivers = [
        Entry("modules", stat.S_IFDIR | 0o755),
        *(Entry(f"modules/{each.name}", stat.S_IFREG | 0o644, each.read_bytes()) for each in modules),
        Entry("modules/order", stat.S_IFREG | 0o644, order.encode()),
    ]
    try:
        with open(raw, "wb") as out:
            cpio(out, (entry for part in (entries_of(root), drivers) for entry in part), epoch)
        run("zstd", "-q", "-f", "-3", "--single-thread", raw, "-o", target)
    finally:
        raw.unlink(missing_ok=True)


def ext4(target: Path, root: Path, epoch: int) -> None:
    """The root as an ext4 file system without a journal: it is mounted read-only."""
    target.unlink(missing_ok=True)
    inodes = sum(1 for _ in root.rglob("*")) + SPARE_INODES
    room = tree.size(root, BLOCK) + inodes * INODE + SLACK
    with open(target, "wb") as file:
        file.truncate(-(-room // MEBIBYTE) * MEBIBYTE)
    run(
        "mke2fs",
        "-q",
        "-t",
        "ext4",
        "-O",
        "^has_journal,^metadata_csum_seed",
        "-E",
        f"hash_seed={ROOT_UUID},lazy_itable_init=0",
        "-U",
        ROOT_UUID,
        "-m",
        "0",
        "-b",
        str(BLOCK),
        "-I",
        str(INODE),
        "-N",
        str(inodes),
        "-d",
        root,
        target,
        env={"E2FSPROGS_FAKE_TIME": str(epoch), "SOURCE_DATE_EPOCH": str(epoch)},
    )
    # mke2fs copies the times at which the files of the tree were read and changed, which are those of the build.
    names = ["/", *(f"/{path.relative_to(root).as_posix()}" for path in sorted(root.rglob("*")))]
    fields = [
        f'sif "{name}" {field} @{epoch}' for name in (*names, "/lost+found") for field in ("atime", "ctime")
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".debugfs") as script:
        script.write("\n".join([f"set_current_time @{epoch}", *fields, ""]))
        script.flush()
        run("debugfs", "-w", "-f", script.name, target)


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

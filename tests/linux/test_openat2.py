"""Opening beneath a directory, and nowhere else."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentd.linux import libc, openat2
from agentd.linux.openat2 import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS

CONFINED = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
READ = os.O_RDONLY | os.O_CLOEXEC


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    inside = tmp_path / "root"
    (inside / "dir").mkdir(parents=True)
    (inside / "dir" / "file").write_text("inside")
    (inside / "link").symlink_to("dir")
    (inside / "out").symlink_to("..")
    (tmp_path / "outside").write_text("outside")
    fd = os.open(inside, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def refused(root: int, path: bytes, resolve: int) -> int | None:
    with pytest.raises(OSError, match=r".") as raised:
        openat2.openat2(root, path, READ, 0, resolve)
    assert raised.value.filename == path
    return raised.value.errno


def test_a_file_beneath_is_opened_close_on_exec(root: int) -> None:
    fd = openat2.openat2(root, b"dir/file", READ, 0, CONFINED)
    try:
        assert os.read(fd, 100) == b"inside"
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("path", [b"/etc", b"..", b"dir/../..", b"../outside", b"dir/../../root/dir"])
def test_beneath_refuses_every_way_out(root: int, path: bytes) -> None:
    assert refused(root, path, RESOLVE_BENEATH) == errno.EXDEV


def test_beneath_alone_refuses_a_link_that_leads_out(root: int) -> None:
    assert refused(root, b"out", RESOLVE_BENEATH) == errno.EXDEV
    os.close(openat2.openat2(root, b"link/file", READ, 0, RESOLVE_BENEATH))


@pytest.mark.parametrize("path", [b"link", b"link/file", b"out/outside"])
def test_no_symlinks_refuses_links_anywhere(root: int, path: bytes) -> None:
    assert refused(root, path, RESOLVE_NO_SYMLINKS) == errno.ELOOP


def test_no_magiclinks_refuses_links_of_proc(root: int) -> None:
    here = f"/proc/self/fd/{root}".encode()
    assert refused(root, here, RESOLVE_NO_MAGICLINKS) == errno.ELOOP
    os.close(openat2.openat2(root, here, READ, 0, 0))


def test_a_new_file_gets_the_mode_asked_for(root: int) -> None:
    umask = os.umask(0o022)
    try:
        fd = openat2.openat2(root, b"new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666, CONFINED)
    finally:
        os.umask(umask)
    try:
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o644
    finally:
        os.close(fd)


def test_every_byte_but_nul_is_a_name(root: int) -> None:
    name = bytes(set(range(1, 256)) - {ord("/")})
    os.close(openat2.openat2(root, name, os.O_WRONLY | os.O_CREAT, 0o600, CONFINED))
    assert name in os.listdir(f"/proc/self/fd/{root}".encode())


def test_a_nul_never_cuts_a_name_short(root: int) -> None:
    with pytest.raises(ValueError, match="null byte"):
        openat2.openat2(root, b"dir\0/nothing", READ, 0, CONFINED)


@pytest.mark.parametrize(
    ("path", "flags", "mode", "number"),
    [
        (b"missing", READ, 0, errno.ENOENT),
        (b"dir/file/x", READ, 0, errno.ENOTDIR),
        (b"dir", os.O_WRONLY, 0, errno.EISDIR),
        (b"dir/file", READ, 0o644, errno.EINVAL),
        (b"dir/file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, errno.EEXIST),
    ],
)
def test_other_errors_keep_their_number(root: int, path: bytes, flags: int, mode: int, number: int) -> None:
    with pytest.raises(OSError, match=r".") as raised:
        openat2.openat2(root, path, flags, mode, CONFINED)
    assert raised.value.errno == number


def test_a_kernel_without_the_call_says_so(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openat2, "_openat2", libc.system_call("agentd_no_such_call"))
    assert refused(root, b"dir", CONFINED) == errno.ENOSYS

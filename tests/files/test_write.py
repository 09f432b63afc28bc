"""Writing files: atomically, in place, interrupted, refused (contract e.3, e.4)."""

import errno
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import CancelledError, Deferred

from agentd.files import target
from agentd.files.disk import DiskGuard
from agentd.files.errors import FilesError, Kind
from agentd.files.pump import Flow
from agentd.files.service import Files
from agentd.files.write import Written
from tests.files.conftest import MakeFiles
from tests.files.support import descriptors, refusal, until

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

OLD = b"the old content\n"


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


async def write(
    files: Files, path: Path | bytes, content: bytes, mode: int | None = None, **more: Any
) -> Written:
    sink = await files.write(os.fsencode(path), mode, **more)
    for at in range(0, len(content), 100_000):
        sink.write(content[at : at + 100_000])
    return await sink.finish()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("size", [0, 1, 18_432, 18_433, 300_000, 20 * 1024 * 1024])
@pytest_twisted.ensureDeferred
async def test_a_new_file(files: Files, tmp_path: Path, size: int) -> None:
    path = tmp_path / "deep" / "er" / "file"
    content = os.urandom(size)
    written = await write(files, path, content)
    assert path.read_bytes() == content
    assert written == Written(True, "", True, size, hashlib.sha256(content).digest())
    assert written.way == "atomic"
    assert mode_of(path) == 0o644
    assert mode_of(tmp_path / "deep") == 0o755
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [0o600, 0o777, 0o4711, 0o1000, 0])
@pytest_twisted.ensureDeferred
async def test_a_mode_is_exact_for_new_and_old_files(files: Files, tmp_path: Path, mode: int) -> None:
    await write(files, tmp_path / "file", b"one", mode)
    assert mode_of(tmp_path / "file") == mode
    (tmp_path / "old").write_bytes(OLD)
    (tmp_path / "old").chmod(0o640)
    await write(files, tmp_path / "old", b"two", mode)
    assert mode_of(tmp_path / "old") == mode


@pytest_twisted.ensureDeferred
async def test_replacing_keeps_the_mode_and_is_seen_as_one_step(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    path.chmod(0o6640)
    reader = os.open(path, os.O_RDONLY)
    sink = await files.write(os.fsencode(path))
    sink.write(b"new")
    assert path.read_bytes() == OLD
    written = await sink.finish()
    assert written.atomic
    assert not written.created
    assert mode_of(path) == 0o6640
    assert path.read_bytes() == b"new"
    assert os.pread(reader, 100, 0) == OLD, "who had it open keeps what it opened"
    os.close(reader)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_replacing_keeps_the_owner(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    os.chown(path, 12345, 54321)
    path.chmod(0o4755)
    assert (await write(files, path, b"new")).atomic
    status = path.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12345, 54321, 0o4755)


@pytest_twisted.ensureDeferred
async def test_replacing_keeps_attributes(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    os.setxattr(path, "user.note", b"kept")
    assert (await write(files, path, b"new")).atomic
    assert os.getxattr(path, "user.note") == b"kept"


@pytest_twisted.ensureDeferred
async def test_a_symbolic_link_is_followed_to_its_target(files: Files, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(OLD)
    (tmp_path / "real" / "hop").symlink_to("file")
    (tmp_path / "link").symlink_to("real/hop")
    written = await write(files, tmp_path / "link", b"new")
    assert written.atomic
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "hop").is_symlink()
    assert (tmp_path / "real" / "file").read_bytes() == b"new"
    (tmp_path / "dangling").symlink_to("real/made")
    assert (await write(files, tmp_path / "dangling", b"made")).created
    assert (tmp_path / "real" / "made").read_bytes() == b"made"
    assert (tmp_path / "dangling").is_symlink()


@pytest_twisted.ensureDeferred
async def test_a_file_with_several_links_is_written_in_place(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD * 1000)
    os.link(path, tmp_path / "other")
    inode = path.stat().st_ino
    written = await write(files, path, b"new", 0o604)
    assert (written.way, written.reason) == ("in-place", "the target has 2 links")
    assert (tmp_path / "other").read_bytes() == b"new"
    assert path.stat().st_ino == inode
    assert mode_of(path) == 0o604
    assert sorted(os.listdir(tmp_path)) == ["file", "other"]


@pytest_twisted.ensureDeferred
async def test_a_device_is_written_in_place(files: Files) -> None:
    written = await write(files, b"/dev/null", b"x" * 3_000_000)
    assert (written.way, written.created, written.size) == ("in-place", False, 3_000_000)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest_twisted.ensureDeferred
async def test_a_slow_fifo_holds_no_thread_and_loses_nothing(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    assert (await refusal(files.write(os.fsencode(path)))).errno == errno.ENXIO
    content = os.urandom(1_000_000)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    sink = await files.write(os.fsencode(path))
    sink.write(content)
    finishing = sink.finish()
    for _ in range(4):
        await write(files, tmp_path / "other", b"served meanwhile")
    assert not finishing.called
    got = bytearray()

    def read() -> bool:
        try:
            got.extend(os.read(reader, 65536))
        except BlockingIOError:
            pass
        return len(got) == len(content)

    await until(files.reactor, read)
    assert (await finishing).sha256 == hashlib.sha256(content).digest()
    assert got == content
    os.close(reader)


@pytest_twisted.ensureDeferred
async def test_an_open_file_behind_proc_is_written_in_place(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    fd = os.open(path, os.O_RDWR)
    written = await write(files, b"/proc/self/fd/%d" % fd, b"new")
    assert written.way == "in-place"
    assert os.pread(fd, 100, 0) == b"new"
    os.close(fd)


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_a_file_of_procfs(files: Files) -> None:
    path = Path("/proc/self/comm")
    name = path.read_bytes()
    written = await write(files, path, b"renamed")
    assert written.way == "in-place"
    assert path.read_bytes() == b"renamed\n"
    path.write_bytes(name)


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_a_mount_point_is_written_in_place(files: Files, tmp_path: Path) -> None:
    """As container runtimes bind /etc/hosts: rename(2) says EBUSY."""
    (tmp_path / "source").write_bytes(OLD)
    (tmp_path / "bound").write_bytes(b"")
    subprocess.run(["mount", "--bind", tmp_path / "source", tmp_path / "bound"], check=True)
    try:
        written = await write(files, tmp_path / "bound", b"new")
        assert written.way == "in-place"
        assert "cannot be replaced" in written.reason
        assert (tmp_path / "source").read_bytes() == b"new"
        assert sorted(name for name in os.listdir(tmp_path) if name != "spool") == ["bound", "source"]
    finally:
        subprocess.run(["umount", tmp_path / "bound"], check=True)


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS, errno.EXDEV])
@pytest.mark.parametrize("unnamed", [True, False])
@pytest_twisted.ensureDeferred
async def test_a_volume_that_refuses_to_rename(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, unnamed: bool
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(target.os, "rename", refuse)
    if not unnamed:
        monkeypatch.setattr(target.os, "O_TMPFILE", os.O_DIRECTORY)
    path = tmp_path / "file"
    path.write_bytes(OLD)
    written = await write(files, path, b"new")
    assert written.way == "in-place"
    assert path.read_bytes() == b"new"
    written = await write(files, tmp_path / "new", b"made")
    assert written.atomic is unnamed, "an unnamed file is linked into place, which is no rename"
    assert (tmp_path / "new").read_bytes() == b"made"
    assert sorted(name for name in os.listdir(tmp_path) if name != "spool") == ["file", "new"]


@pytest_twisted.ensureDeferred
async def test_without_unnamed_files_a_hidden_one_is_renamed(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target.os, "O_TMPFILE", os.O_DIRECTORY)
    path = tmp_path / "file"
    path.write_bytes(OLD)
    sink = await files.write(os.fsencode(path))
    hidden = [name for name in os.listdir(tmp_path) if name.startswith(".agentd-")]
    assert len(hidden) == 1
    assert mode_of(tmp_path / hidden[0]) == 0o600
    sink.write(b"new")
    assert (await sink.finish()).atomic
    sink = await files.write(os.fsencode(path))
    await sink.abort()
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == b"new"


@pytest_twisted.ensureDeferred
async def test_a_target_that_appears_meanwhile_is_replaced(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    sink = await files.write(os.fsencode(path))
    path.write_bytes(OLD)
    path.chmod(0o612)
    assert (await sink.finish()).atomic
    assert (path.read_bytes(), mode_of(path)) == (b"", 0o612)


@pytest_twisted.ensureDeferred
async def test_a_target_that_becomes_a_directory_fails(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    sink = await files.write(os.fsencode(path))
    path.mkdir()
    assert (await refusal(sink.finish())).kind is Kind.FAILED
    assert os.listdir(tmp_path) == ["file"]


@pytest_twisted.ensureDeferred
async def test_refusals_before_the_first_byte(files: Files, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(OLD)
    for path, number in {
        b"": errno.ENOENT,
        os.fsencode(tmp_path): errno.EISDIR,
        os.fsencode(tmp_path) + b"/": errno.EISDIR,
        os.fsencode(tmp_path) + b"/new/": errno.EISDIR,
        os.fsencode(tmp_path / "file" / "below"): errno.ENOTDIR,
        os.fsencode(tmp_path / "file" / "be" / "low"): errno.ENOTDIR,
        os.fsencode(tmp_path / ("x" * 300)): errno.ENAMETOOLONG,
    }.items():
        error = await refusal(files.write(path))
        assert (error.kind, error.errno) == (Kind.FAILED, number), (path, error)
    assert (await refusal(files.write(b"a\0b"))).kind is Kind.BAD_REQUEST
    assert os.listdir(tmp_path) == ["file"]


@pytest_twisted.ensureDeferred
async def test_a_digest_that_differs_leaves_the_old_content(files: Files, tmp_path: Path) -> None:
    wrong = hashlib.sha256(b"something else").digest()
    (tmp_path / "file").write_bytes(OLD)
    os.link(tmp_path / "file", tmp_path / "two")
    for name in ("file", "new", "two"):
        with pytest.raises(FilesError) as refused:
            await write(files, tmp_path / name, b"new", expected_sha256=wrong)
        assert refused.value.kind is Kind.BAD_REQUEST
    assert (tmp_path / "file").read_bytes() == OLD
    assert sorted(os.listdir(tmp_path)) == ["file", "two"]
    right = hashlib.sha256(b"new").digest()
    assert (await write(files, tmp_path / "file", b"new", expected_sha256=right)).sha256 == right


@pytest.mark.parametrize("links", [0, 1, 2])
@pytest.mark.parametrize("written", [0, 10, 5_000_000])
@pytest_twisted.ensureDeferred
async def test_an_interrupted_write_changes_nothing(
    files: Files, tmp_path: Path, written: int, links: int
) -> None:
    names = ["file", "other"][:links]
    for name in names:
        if name == "file":
            (tmp_path / name).write_bytes(OLD)
        else:
            os.link(tmp_path / "file", tmp_path / name)
    sink = await files.write(os.fsencode(tmp_path / "file"))
    sink.write(b"x" * written)
    await sink.abort()
    await sink.abort()
    sink.write(b"ignored")
    assert (await refusal(sink.finish())).kind is Kind.FAILED
    assert sorted(os.listdir(tmp_path)) == names
    assert all((tmp_path / name).read_bytes() == OLD for name in names)


@pytest_twisted.ensureDeferred
async def test_aborting_after_the_end_waits_for_it(files: Files, tmp_path: Path) -> None:
    sink = await files.write(os.fsencode(tmp_path / "file"))
    sink.write(b"x" * 1_000_000)
    finishing = sink.finish()
    await sink.abort()
    assert (tmp_path / "file").stat().st_size == 1_000_000
    assert (await finishing).atomic
    await sink.abort()


@pytest_twisted.ensureDeferred
async def test_cancelling_is_aborting(files: Files, tmp_path: Path) -> None:
    opening = files.write(os.fsencode(tmp_path / "file"))
    opening.cancel()
    with pytest.raises(CancelledError):
        await opening
    sink = await files.write(os.fsencode(tmp_path / "file"))
    sink.write(b"x" * 10_000_000)
    finishing = sink.finish()
    finishing.cancel()
    with pytest.raises(CancelledError):
        await finishing
    await until(files.reactor, lambda: not any(str(tmp_path) in where for where in descriptors().values()))
    assert os.listdir(tmp_path) == []


def test_a_killed_daemon_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(OLD)
    program = (
        "import os, sys\n"
        "from agentd.files.disk import DiskGuard, Spool\n"
        "from agentd.files.target import Destination\n"
        f"to = Destination({os.fsencode(tmp_path / 'file')!r}, None, DiskGuard(0), Spool())\n"
        "to.open(); to.write([b'x' * 1_000_000]); print('written', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "written\n"
        child.kill()
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == OLD


@pytest_twisted.ensureDeferred
async def test_a_full_queue_pauses_the_source_and_an_empty_one_resumes_it(
    make_files: MakeFiles, run_in_thread: Any, tmp_path: Path
) -> None:
    calls: list[str] = []
    flow = Flow(lambda: calls.append("pause"), lambda: calls.append("resume"))
    sink = await make_files().write(os.fsencode(tmp_path / "file"), flow=flow)
    gate = threading.Event()
    blockers = [run_in_thread(gate.wait, 30) for _ in range(2)]
    queued = 0
    while not calls:
        sink.write(b"x" * 65536)
        queued += 65536
    assert calls == ["pause"]
    assert queued <= 2 * 1024 * 1024 + 2 * 65536 + 1024 * 1024
    gate.set()
    for blocker in blockers:
        await blocker
    written = await sink.finish()
    assert calls == ["pause", "resume"]
    assert written.size == queued


@pytest_twisted.ensureDeferred
async def test_a_body_in_single_bytes_costs_bounded_memory(
    files: Files, tmp_path: Path, run_in_thread: Any
) -> None:
    paused: list[int] = []
    sink = await files.write(os.fsencode(tmp_path / "file"), flow=Flow(lambda: paused.append(1)))
    gate = threading.Event()
    blockers = [run_in_thread(gate.wait, 30) for _ in range(2)]
    count = 0
    while not paused:
        sink.write(b"%d" % (count % 10))
        count += 1
    assert count < 50_000
    gate.set()
    for blocker in blockers:
        await blocker
    assert (await sink.finish()).size == count


class Free:
    """A disk whose free space the test decides, call by call."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.paths: list[bytes] = []

    def __call__(self, path: bytes) -> int:
        self.paths.append(path)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest_twisted.ensureDeferred
async def test_the_reserve_before_the_first_byte(make_files: MakeFiles, tmp_path: Path) -> None:
    files = make_files(guard=DiskGuard(1000, Free(999)))
    path = os.fsencode(tmp_path / "deep" / "file")
    error = await refusal(files.write(path))
    assert error.kind is Kind.NO_SPACE
    assert all(part in error.detail for part in (path.decode(), "999", "1000"))
    assert os.listdir(tmp_path) == []


@pytest_twisted.ensureDeferred
async def test_the_reserve_again_behind_each_eight_mebibytes(make_files: MakeFiles, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(OLD)
    free = Free(10_000, 10_000, 10_000, 0)
    failures: list[Exception] = []
    sink = await make_files(guard=DiskGuard(1000, free)).write(
        os.fsencode(tmp_path / "file"), flow=Flow(failed=failures.append)
    )
    for _ in range(24):
        sink.write(bytes(1024 * 1024))
    error = await refusal(sink.finish())
    assert error.kind is Kind.NO_SPACE
    assert failures == [error]
    assert len(free.paths) == 4
    assert (tmp_path / "file").read_bytes() == OLD
    assert os.listdir(tmp_path) == ["file"]


@pytest_twisted.ensureDeferred
async def test_a_failure_is_told_before_the_body_ends(make_files: MakeFiles, tmp_path: Path) -> None:
    told: Deferred[Exception] = Deferred()
    files = make_files(guard=DiskGuard(1000, Free(10_000, 0)))
    sink = await files.write(os.fsencode(tmp_path / "file"), flow=Flow(failed=told.callback))
    for _ in range(9):
        sink.write(bytes(1024 * 1024))
    assert isinstance(await told, FilesError)
    sink.write(b"ignored")
    await sink.abort()
    assert os.listdir(tmp_path) == []


@pytest_twisted.ensureDeferred
async def test_writing_in_place_needs_room_before_the_old_content_goes(
    make_files: MakeFiles, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    os.link(path, tmp_path / "other")
    files = make_files(guard=DiskGuard(1000, Free(10_000)))
    with pytest.raises(FilesError) as refused:
        await write(files, path, b"x" * (9_001 + len(OLD)))
    assert refused.value.kind is Kind.NO_SPACE
    assert path.read_bytes() == OLD
    await write(files, path, b"x" * (9_000 + len(OLD)))


@pytest.mark.root
def test_replacing_is_no_way_around_permissions() -> None:
    """Whoever may change the directory could replace a file it may not write; a write may not (contract e.3)."""
    program = (
        "import os, sys\n"
        "from agentd.files.disk import DiskGuard, Spool\n"
        "from agentd.files.errors import FilesError\n"
        "from agentd.files.target import Destination\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: Destination(os.fsencode(sys.argv[1]), None, DiskGuard(0), Spool()).open()\n"
        "except FilesError as error: print(error.kind.name, error.errno)\n"
    )
    # Directories of pytest cannot be entered by others.
    with tempfile.TemporaryDirectory() as place:
        os.chown(place, 65534, 65534)
        path = Path(place) / "file"
        path.write_bytes(OLD)
        path.chmod(0o600)
        said = subprocess.run(
            [sys.executable, "-c", program, path], check=True, capture_output=True, text=True
        )
        assert said.stdout.split() == ["FAILED", str(errno.EACCES)]
        assert path.read_bytes() == OLD

"""Acting on files as another user, on one thread only."""

import errno
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentd.linux import credentials
from tests.linux.support import public_directory, run_program

OWNER = 61001
STRANGER = 61002
SHARED = 61003


@pytest.fixture
def place() -> Iterator[Path]:
    with public_directory() as path:
        yield path


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


def secret_of(owner: int, path: Path, mode: int = 0o600, group: int = 0) -> Path:
    path.write_text("secret")
    os.chown(path, owner, group)
    path.chmod(mode)
    return path


@pytest.mark.root
def test_a_root_thread_loses_roots_rights_and_no_other_thread_does(
    place: Path, pool: ThreadPoolExecutor
) -> None:
    file = secret_of(OWNER, place / "private")
    inside, read_elsewhere = threading.Event(), threading.Event()

    def work() -> tuple[type[OSError] | None, str]:
        refused = None
        with credentials.as_user(STRANGER, STRANGER, []):
            inside.set()
            assert read_elsewhere.wait(30)
            try:
                file.read_text()
            except OSError as error:
                refused = type(error)
        return refused, file.read_text()

    answer = pool.submit(work)
    assert inside.wait(30)
    assert file.read_text() == "secret"  # this thread is root while the other is not
    assert credentials.current().uid == 0
    read_elsewhere.set()
    assert answer.result(30) == (PermissionError, "secret")


@pytest.mark.root
def test_a_thread_has_the_rights_it_takes_on(place: Path, pool: ThreadPoolExecutor) -> None:
    mine = secret_of(OWNER, place / "mine")
    shared = secret_of(0, place / "shared", 0o640, SHARED)
    place.chmod(0o777)

    def work() -> list[str]:
        with credentials.as_user(OWNER, STRANGER, [SHARED]):
            (place / "made").touch()
            return [mine.read_text(), shared.read_text()]

    assert pool.submit(work).result(30) == ["secret", "secret"]
    made = (place / "made").stat()
    assert (made.st_uid, made.st_gid) == (OWNER, STRANGER)


@pytest.mark.root
def test_rights_come_back_after_an_error(place: Path, pool: ThreadPoolExecutor) -> None:
    file = secret_of(OWNER, place / "private")

    def fail() -> None:
        with credentials.as_user(STRANGER, STRANGER, [SHARED]):
            raise LookupError("inside")

    before = pool.submit(credentials.current).result(30)
    with pytest.raises(LookupError, match="inside"):
        pool.submit(fail).result(30)
    assert pool.submit(credentials.current).result(30) == before
    assert pool.submit(file.read_text).result(30) == "secret"


@pytest.mark.root
def test_the_process_keeps_its_ids_inside() -> None:
    def work() -> tuple[int, int, list[int]]:
        with credentials.as_user(STRANGER, STRANGER, []):
            return os.geteuid(), os.getegid(), os.getgroups()

    with ThreadPoolExecutor(max_workers=1) as pool:
        uid, gid, groups = pool.submit(work).result(30)
    assert (uid, gid) == (os.geteuid(), os.getegid())
    assert groups == []  # the thread's own
    assert set(os.getgroups()) == credentials.current().groups  # and the others keep theirs


@pytest.mark.parametrize(
    ("uid", "gid", "groups"), [(2**32 - 1, 0, []), (0, 2**32 - 1, []), (0, 0, [2**32 - 1])]
)
def test_the_id_that_is_none_is_refused(uid: int, gid: int, groups: list[int]) -> None:
    before = credentials.current()
    with pytest.raises(OSError, match="no user or group") as raised, credentials.as_user(uid, gid, groups):
        pytest.fail("entered")
    assert raised.value.errno == errno.EINVAL
    assert credentials.current() == before


def test_becoming_what_one_is_needs_no_privilege() -> None:
    before = credentials.current()
    with credentials.as_user(before.uid, before.gid, before.groups):
        assert credentials.current() == before
    assert credentials.current() == before


UNPRIVILEGED = """
import errno, os, sys
from agentd.linux import credentials
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(61001, 61001, 61001); os.setresuid(61001, 61001, 61001)
before = credentials.current()
others = (0, before.gid, before.groups), (before.uid, 0, before.groups), (before.uid, before.gid, [61009])
for uid, gid, groups in others:
    try:
        with credentials.as_user(uid, gid, groups):
            sys.exit("entered")
    except PermissionError as error:
        assert error.errno == errno.EPERM
    assert credentials.current() == before
with credentials.as_user(before.uid, before.gid, before.groups):
    print("itself")
"""


def test_without_privilege_nobody_else_can_be_taken_on() -> None:
    done = run_program(UNPRIVILEGED)
    assert (done.returncode, done.stdout) == (0, "itself\n"), done.stderr


KEEPS_CAPABILITIES = """
import ctypes, os
from agentd.linux import credentials
PR_SET_SECUREBITS, NO_SETUID_FIXUP = 28, 4
assert ctypes.CDLL(None).prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0) == 0
try:
    with credentials.as_user(61002, 61002, []):
        print("entered")
except PermissionError as error:
    print(error.strerror)
print(credentials.current().uid)
"""


@pytest.mark.root
def test_a_switch_that_keeps_roots_capabilities_is_refused() -> None:
    done = run_program(KEEPS_CAPABILITIES)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the thread keeps privileges the user does not have\n0\n"


CANNOT_RETURN = """
import ctypes, os, sys, threading
from agentd.linux import credentials
libc = ctypes.CDLL(None)

def drop_capability_to_set_groups():
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    for word in (0, 1):
        sets[word] &= ~(1 << 6)
    assert libc.capset(header, sets) == 0

def work():
    with credentials.as_user(61002, 61002, [61003]):
        drop_capability_to_set_groups()
    print("a thread with the wrong rights went on", flush=True)

os.setgroups([61009])
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("the process went on", flush=True)
"""


@pytest.mark.root
def test_a_switch_that_cannot_be_undone_ends_the_process() -> None:
    done = run_program(CANNOT_RETURN)
    assert done.returncode == 70
    assert done.stdout == ""
    assert done.stderr == "agentd: a thread cannot take its rights back\n"


# -- open_directory_as ---------------------------------------------------------------------------------------


def myself() -> tuple[int, int, frozenset[int]]:
    now = credentials.current()
    return now.uid, now.gid, now.groups


def test_a_directory_of_ones_own(tmp_path: Path) -> None:
    fd = credentials.open_directory_as(str(tmp_path), *myself())
    try:
        assert os.readlink(f"/proc/self/fd/{fd}") == str(tmp_path)
        assert not os.get_inheritable(fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.listdir(fd)  # O_PATH: good for entering, not for reading
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("missing", errno.ENOENT),
        ("file", errno.ENOTDIR),
        ("file/below", errno.ENOTDIR),
        ("loop", errno.ELOOP),
        ("nul\0name", errno.EINVAL),
        ("lone\ud800surrogate", errno.EINVAL),
        ("x" * 300, errno.ENAMETOOLONG),
    ],
)
def test_what_is_no_directory(tmp_path: Path, name: str, number: int) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r".") as raised:
        credentials.open_directory_as(f"{tmp_path}/{name}", *myself())
    assert (raised.value.errno, raised.value.filename) == (number, f"{tmp_path}/{name}")
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_empty_path_is_no_directory() -> None:
    with pytest.raises(FileNotFoundError):
        credentials.open_directory_as("", *myself())


@pytest.mark.root
@pytest.mark.parametrize(
    ("mode", "enters"), [(0o711, True), (0o701, True), (0o710, False), (0o700, False), (0o744, False)]
)
def test_the_directory_itself_has_to_be_searchable(place: Path, mode: int, enters: bool) -> None:
    target = place / "home"
    target.mkdir()
    os.chown(target, OWNER, OWNER)
    target.chmod(mode)
    before = len(os.listdir("/proc/self/fd"))
    if enters:
        os.close(credentials.open_directory_as(str(target), STRANGER, STRANGER, []))
    else:
        with pytest.raises(PermissionError) as raised:
            credentials.open_directory_as(str(target), STRANGER, STRANGER, [])
        assert raised.value.filename == str(target)
        os.close(credentials.open_directory_as(str(target), OWNER, OWNER, []))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.root
def test_directories_above_have_to_be_searchable_too(place: Path) -> None:
    target = place / "closed" / "open"
    target.mkdir(parents=True)
    (place / "closed").chmod(0o700)
    with pytest.raises(PermissionError):
        credentials.open_directory_as(str(target), STRANGER, STRANGER, [])


@pytest.mark.root
def test_a_child_enters_what_was_opened_whatever_the_path_means_by_then(place: Path) -> None:
    target = place / "work"
    target.mkdir()
    fd = credentials.open_directory_as(str(target), STRANGER, STRANGER, [])
    try:
        target.rename(place / "moved")
        target.symlink_to("/")
        entered = subprocess.run(
            ["stat", "-c", "%i", "."],
            cwd=f"/proc/self/fd/{fd}",
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(entered.stdout) == (place / "moved").stat().st_ino
        assert stat.S_ISDIR(os.fstat(fd).st_mode)
    finally:
        os.close(fd)

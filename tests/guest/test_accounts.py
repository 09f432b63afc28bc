"""From the names of a start to what is needed to spawn it, with real files and real users."""

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agentd.guest import accounts
from agentd.guest.accounts import AccountFiles, Directory, Identity, PreparedStart, StartRequest
from agentd.rules.resolution import Refusal, UnknownGroup, UnknownShell, UnknownUser
from tests.linux.support import public_directory

OWNER = 61001
OWNERS_GROUP = 61011
SHARED = 61003

PASSWD = f"""\
root:x:0:0:root:/root:/bin/sh
owner:x:{OWNER}:{OWNERS_GROUP}::/home/owner:/bin/sh
nobody-at-all:x:4294967295:1::/:/bin/sh
"""
GROUP = f"shared:x:{SHARED}:owner\nowners:x:{OWNERS_GROUP}:\n"


@pytest.fixture
def place() -> Iterator[Path]:
    with public_directory() as path:
        yield path


@pytest.fixture
def files(place: Path) -> AccountFiles:
    (place / "passwd").write_text(PASSWD)
    (place / "group").write_text(GROUP)
    return AccountFiles(place / "passwd", place / "group")


def prepared(
    files: AccountFiles,
    request: StartRequest,
    launch: Mapping[str, str] | None = None,
    image: Mapping[str, str] | None = None,
) -> PreparedStart:
    found = accounts.resolve_start(request, launch or {}, image or {}, files)
    assert isinstance(found, PreparedStart)
    return found


def refused(files: AccountFiles, request: StartRequest) -> Refusal:
    found = accounts.resolve_start(request, {}, {}, files)
    assert not isinstance(found, PreparedStart)
    return found


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


# -- the files -----------------------------------------------------------------------------------------------


def test_files_are_read_anew_each_time(files: AccountFiles) -> None:
    assert refused(files, StartRequest(user="late")) == UnknownUser("late")
    files.passwd.write_text(f"late:x:{os.geteuid()}:{os.getegid()}::/late:\n")
    with prepared(files, StartRequest(user="late")) as start:
        assert start.environment["HOME"] == "/late"


def test_a_file_that_cannot_be_read_is_empty(place: Path) -> None:
    os.mkfifo(place / "fifo")
    (place / "dir").mkdir()
    (place / "loop").symlink_to("loop")
    for name in ("missing", "fifo", "dir", "loop"):
        files = AccountFiles(place / name, place / name)
        assert files.read_passwd() == ()
        assert files.read_group() == ()
        assert refused(files, StartRequest(user="root")) == UnknownUser("root")
        assert refused(files, StartRequest(group="root")) == UnknownGroup("root")


def test_a_file_too_large_is_read_in_whole_lines_up_to_the_limit(
    files: AccountFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "_FILE_BYTES", 100_000)
    files.group.write_text("".join(f"g{number}:x:{number}:\n" for number in range(20_000)))
    rows = files.read_group()
    assert 0 < len(rows) < 20_000
    assert [row.gid for row in rows] == list(range(len(rows)))


def test_the_system_knows_root() -> None:
    assert any(row.name == "root" and row.uid == 0 for row in AccountFiles().read_passwd())
    assert any(row.gid == 0 for row in AccountFiles().read_group())


# -- what is prepared ----------------------------------------------------------------------------------------


def test_a_plain_start_changes_nothing_and_reads_nothing(place: Path) -> None:
    files = AccountFiles(place / "none", place / "none")
    request = StartRequest(environment={"A": "1"})
    assert not request.may_block
    with prepared(files, request, launch={"B": "2"}, image={"C": "3"}) as start:
        assert (start.uid, start.gid, start.groups, start.shell, start.cwd, start.fault) == (None,) * 6
        assert dict(start.environment) == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("request_", "blocks"),
    [
        (StartRequest(shell=True, cwd="/x"), False),
        (StartRequest(shell="sh"), True),
        (StartRequest(user=0), True),
        (StartRequest(group=0), True),
    ],
)
def test_what_may_block(request_: StartRequest, blocks: bool) -> None:
    assert request_.may_block is blocks


def test_refusals_quote_the_value(files: AccountFiles) -> None:
    assert refused(files, StartRequest(user="x", group="y", shell="z")) == UnknownUser("x")
    assert refused(files, StartRequest(group="y", shell="z")) == UnknownGroup("y")
    assert refused(files, StartRequest(shell="agentd-no-such-shell")) == UnknownShell("agentd-no-such-shell")
    assert refused(files, StartRequest(shell="/nul\0")) == UnknownShell("/nul\0")


def test_a_named_shell_is_found_through_the_path(files: AccountFiles, place: Path) -> None:
    shell = place / "bin" / "mysh"
    shell.parent.mkdir()
    shell.write_text("#!/bin/sh\n")
    request = StartRequest(shell="mysh", environment={"PATH": f"rel:{place}/none:{place}/bin"})
    assert refused(files, request) == UnknownShell("mysh")
    shell.chmod(0o001)
    with prepared(files, request) as start:
        assert start.shell == str(shell)
    with prepared(files, StartRequest(shell="mysh"), image={"PATH": f"{place}/bin"}) as start:
        assert start.shell == str(shell)
        assert dict(start.environment) == {}


@pytest.mark.parametrize(
    ("name", "executable"),
    [
        ("plain", False),
        ("run", True),
        ("link", True),
        ("dangling", False),
        ("dir", False),
        ("missing", False),
        ("run/x", False),
    ],
)
def test_what_an_executable_file_is(place: Path, name: str, executable: bool) -> None:
    (place / "plain").touch(0o644)
    (place / "run").touch(0o755)
    (place / "dir").mkdir(0o755)
    (place / "link").symlink_to("run")
    (place / "dangling").symlink_to("nowhere")
    assert accounts.is_executable_file(f"{place}/{name}") is executable


def test_no_secret_shows(files: AccountFiles) -> None:
    request = StartRequest(environment={"TOKEN": "hunter2"})
    with prepared(files, request) as start:
        assert "hunter2" not in repr(request) + repr(start)


def test_a_working_directory_without_another_user_is_left_to_the_spawn(files: AccountFiles) -> None:
    before = open_descriptors()
    for cwd in ("/", "/agentd-missing", ""):
        with prepared(files, StartRequest(cwd=cwd)) as start:
            assert (start.cwd, start.fault) == (cwd, None)
    assert open_descriptors() == before


def test_an_id_that_is_none_fails_the_spawn_and_is_no_refusal(files: AccountFiles) -> None:
    # Handed to the kernel it would mean "unchanged": a child would keep the daemon's rights.
    for request in (
        StartRequest(user=2**32 - 1),
        StartRequest(user="4294967295"),
        StartRequest(user="nobody-at-all"),
        StartRequest(group=2**32 - 1, cwd="/"),
    ):
        with prepared(files, request) as start:
            assert start.fault is not None
            assert start.fault.errno == errno.EINVAL


def test_asking_for_what_the_daemon_is_changes_nothing(place: Path) -> None:
    daemon = Identity.of_daemon()
    (place / "passwd").write_text(f"me:x:{daemon.uid}:{daemon.gid}::/home/me:\n")
    listed = "".join(f"g{gid}:x:{gid}:me\n" for gid in daemon.groups if gid != daemon.gid)
    (place / "group").write_text(listed)
    request = StartRequest(user="me", cwd=str(place))
    with prepared(AccountFiles(place / "passwd", place / "group"), request) as start:
        assert (start.uid, start.gid, start.cwd, start.fault) == (None, None, str(place), None)
        assert start.groups is None
        assert start.environment["USER"] == "me"


# -- another user --------------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (StartRequest(user="owner"), (OWNER, OWNERS_GROUP, (OWNERS_GROUP, SHARED))),
        (StartRequest(user="owner", group="shared"), (OWNER, SHARED, (SHARED,))),
        (StartRequest(user=OWNER), (OWNER, None, ())),
        (StartRequest(user=str(OWNER), group=SHARED), (OWNER, SHARED, ())),
        (StartRequest(group="shared"), (None, SHARED, ())),
    ],
)
def test_who_a_child_becomes(
    files: AccountFiles, request_: StartRequest, expected: tuple[int | None, int | None, tuple[int, ...]]
) -> None:
    with prepared(files, request_) as start:
        assert (start.uid, start.gid) == expected[:2]
        groups = start.groups if start.groups is not None else Identity.of_daemon().groups
        assert set(groups) == set(expected[2])


@pytest.mark.root
def test_a_child_is_who_it_was_to_be(files: AccountFiles, place: Path) -> None:
    work = place / "work"
    work.mkdir()
    os.chown(work, OWNER, 0)
    work.chmod(0o700)
    with prepared(files, StartRequest(user="owner", cwd=str(work))) as start:
        assert start.fault is None
        work.rename(place / "moved")
        done = subprocess.run(
            ["/bin/sh", "-c", "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; touch here"],
            env=dict(start.environment),
            cwd=start.cwd,
            user=start.uid,
            group=start.gid,
            extra_groups=start.groups,
            capture_output=True,
            text=True,
            check=True,
        )
    uid, gid, groups, identity = done.stdout.splitlines()
    assert (int(uid), int(gid)) == (OWNER, OWNERS_GROUP)
    assert set(map(int, groups.split())) == {OWNERS_GROUP, SHARED}
    assert identity == "/home/owner owner owner"
    assert (place / "moved" / "here").stat().st_uid == OWNER


@pytest.mark.root
def test_a_directory_the_user_may_not_enter_fails_the_spawn(files: AccountFiles, place: Path) -> None:
    (place / "roots").mkdir(0o700)
    before = open_descriptors()
    with prepared(files, StartRequest(user="owner", cwd=f"{place}/roots")) as start:
        assert isinstance(start.fault, PermissionError)
        assert start.fault.filename == f"{place}/roots"
    with prepared(files, StartRequest(user="owner", cwd=f"{place}/missing")) as start:
        assert isinstance(start.fault, FileNotFoundError)
    with prepared(files, StartRequest(user="owner", cwd=f"{place}/nul\0")) as start:
        assert start.fault is not None
    assert open_descriptors() == before


@pytest.mark.root
def test_the_directory_is_closed_with_the_start_or_with_its_loss(files: AccountFiles, place: Path) -> None:
    before = open_descriptors()
    start = prepared(files, StartRequest(user="owner", cwd=str(place)))
    assert open_descriptors() == before + 1
    start.close()
    start.close()
    assert open_descriptors() == before
    lost = prepared(files, StartRequest(user="owner", cwd=str(place)))
    assert lost.cwd is not None
    assert lost.cwd.startswith("/proc/self/fd/")
    del lost
    assert open_descriptors() == before


def test_a_directory_is_closed_once_only(tmp_path: Path) -> None:
    directory = Directory(os.open(tmp_path, os.O_PATH))
    directory.close()
    other = os.open(tmp_path, os.O_PATH)  # most likely the same number
    try:
        directory.close()
        del directory
        gc.collect()
        os.fstat(other)
    finally:
        os.close(other)


UNPRIVILEGED = """
import os, pathlib, sys
from agentd.guest import accounts
from agentd.guest.accounts import AccountFiles, StartRequest
if os.geteuid() == 0:
    os.setgroups([61003]); os.setresgid(61001, 61001, 61001); os.setresuid(61001, 61001, 61001)
uid, gid = os.geteuid(), os.getegid()
files = AccountFiles(pathlib.Path("/agentd-none"), pathlib.Path("/agentd-none"))
with accounts.resolve_start(StartRequest(user=uid, cwd="/"), {}, {}, files) as start:
    print(start.uid, start.gid, start.groups, start.cwd, start.fault)
with accounts.resolve_start(StartRequest(user=uid + 1, cwd="/"), {}, {}, files) as start:
    print(start.uid == uid + 1, start.gid, start.groups, type(start.fault).__name__)
"""


def test_a_daemon_without_privilege_runs_children_as_itself_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == "None None None / None\nTrue None None PermissionError\n", done.stderr

"""Making a VM its own: in a directory with everything injected, and once for real in namespaces."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.guest import identity
from agentd.guest.identity import IdentityStep, Machine, Outcome

NAMES = ["machine-id", "hostname", "boot-id", "random-seed", "cached-credential", "random-generator"]
SHARED_ID = "0123456789abcdef0123456789abcdef\n"
FILES = {
    "etc/machine-id": SHARED_ID,
    "proc/sys/kernel/random/boot_id": "01234567-89ab-cdef-0123-456789abcdef\n",
    "var/lib/systemd/random-seed": "seed",
    "var/lib/dbus/machine-id": SHARED_ID,
}


class Recorder:
    """The calls a repair makes of a machine, which are kept instead of made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hostnames: list[str] = []
        self.binds: list[tuple[str, Path]] = []
        """What was shown, and where."""
        self.reseeded: list[bytes] = []

    def machine(self, **changes: object) -> Machine:
        calls = {
            "draw": bytes,
            "reseed": self.reseeded.append,
            "set_hostname": self.hostnames.append,
            "bind": lambda source, target: self.binds.append((source.read_text(), target)),
        }
        return Machine(root=self.root, **{**calls, **changes})  # type: ignore[arg-type]  # any of the calls

    def text(self, name: str) -> str:
        return (self.root / name).read_text()


@pytest.fixture
def full(tmp_path: Path) -> Recorder:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return Recorder(tmp_path)


@pytest.fixture
def bare(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def outcomes(steps: tuple[IdentityStep, ...]) -> dict[str, str]:
    assert [step.name for step in steps] == NAMES
    assert all((step.error is not None) is (step.outcome is Outcome.FAILED) for step in steps)
    return {step.name: step.outcome.value for step in steps}


def test_everything_is_repaired_with_one_id(full: Recorder) -> None:
    steps = identity.repair(b"launch", full.machine())
    assert outcomes(steps) == dict.fromkeys(NAMES, "repaired")
    assert not identity.degraded(steps)
    fresh = full.text("etc/machine-id")
    assert fresh == identity.fresh_id(b"launch", bytes) + "\n"
    assert fresh != SHARED_ID
    assert len(fresh) == 33
    assert set(fresh.strip()) <= set("0123456789abcdef")
    assert full.hostnames == [f"microvm-{fresh[:12]}"]
    assert full.text("run/agentd-boot-id") == identity.dashed(fresh.strip()) + "\n"
    assert full.binds == [(full.text("run/agentd-boot-id"), full.root / "proc/sys/kernel/random/boot_id")]
    assert not (full.root / "var/lib/systemd/random-seed").exists()
    assert not (full.root / "var/lib/dbus/machine-id").exists()
    for name in ("etc/machine-id", "run/agentd-boot-id"):
        assert stat.S_IMODE((full.root / name).stat().st_mode) == 0o444
    assert sorted(os.listdir(full.root / "etc")) == ["machine-id"]
    assert sorted(os.listdir(full.root / "run")) == ["agentd-boot-id"]


def test_a_machine_without_the_files_only_gets_a_name(bare: Recorder) -> None:
    steps = identity.repair(b"launch", bare.machine())
    assert outcomes(steps) == {
        "machine-id": "not_applicable",
        "hostname": "repaired",
        "boot-id": "not_applicable",
        "random-seed": "not_applicable",
        "cached-credential": "not_applicable",
        "random-generator": "repaired",
    }
    assert not identity.degraded(steps)
    assert os.listdir(bare.root) == []
    assert bare.binds == []


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), NotImplementedError("no generator")])
def test_without_entropy_the_deletions_still_run(full: Recorder, error: Exception) -> None:
    def draw(_: int) -> bytes:
        raise error

    steps = identity.repair(b"launch", full.machine(draw=draw))
    assert outcomes(steps) == {
        "machine-id": "failed",
        "hostname": "failed",
        "boot-id": "failed",
        "random-seed": "repaired",
        "cached-credential": "repaired",
        "random-generator": "repaired",
    }
    assert identity.degraded(steps)
    assert full.text("etc/machine-id") == SHARED_ID
    assert full.hostnames == []


def test_no_failure_stops_the_next_step(full: Recorder) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", "/target")

    (full.root / "var/lib/systemd/random-seed").unlink()
    (full.root / "var/lib/systemd/random-seed").mkdir()
    steps = identity.repair(b"launch", full.machine(bind=refuse, set_hostname=refuse, reseed=refuse))
    assert outcomes(steps) == {
        "machine-id": "repaired",
        "hostname": "failed",
        "boot-id": "failed",
        "random-seed": "failed",
        "cached-credential": "repaired",
        "random-generator": "failed",
    }
    assert steps[2].error == "/target: Operation not permitted"


def test_a_link_is_replaced_and_what_it_names_left_alone(full: Recorder) -> None:
    target = full.root / "elsewhere"
    target.write_text(SHARED_ID)
    (full.root / "etc/machine-id").unlink()
    (full.root / "etc/machine-id").symlink_to(target)
    (full.root / "var/lib/dbus/machine-id").unlink()
    (full.root / "var/lib/dbus/machine-id").symlink_to("/etc/machine-id")
    assert set(outcomes(identity.repair(b"launch", full.machine())).values()) == {"repaired"}
    assert not (full.root / "etc/machine-id").is_symlink()
    assert target.read_text() == SHARED_ID
    assert not os.path.lexists(full.root / "var/lib/dbus/machine-id")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EBUSY])
def test_a_file_that_cannot_be_replaced_is_covered(
    full: Recorder, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    really = os.replace

    def replace(source: str, target: Path) -> None:
        if target.name == "machine-id":
            raise OSError(number, os.strerror(number))
        really(source, target)

    monkeypatch.setattr(os, "replace", replace)
    assert set(outcomes(identity.repair(b"launch", full.machine())).values()) == {"repaired"}
    assert full.text("etc/machine-id") == SHARED_ID
    assert full.text("run/agentd-machine-id") == identity.fresh_id(b"launch", bytes) + "\n"
    assert full.binds[0] == (full.text("run/agentd-machine-id"), full.root / "etc/machine-id")
    assert os.listdir(full.root / "etc") == ["machine-id"]


def test_other_failures_leave_the_old_file_and_nothing_beside_it(
    full: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(_source: str, _target: Path) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "replace", replace)
    steps = identity.repair(b"launch", full.machine())
    assert outcomes(steps)["machine-id"] == "failed"
    assert outcomes(steps)["boot-id"] == "failed"
    assert full.text("etc/machine-id") == SHARED_ID
    assert os.listdir(full.root / "etc") == ["machine-id"]
    assert os.listdir(full.root / "run") == []


def test_a_repair_may_be_repeated(full: Recorder) -> None:
    identity.repair(b"one", full.machine())
    first = full.text("etc/machine-id")
    steps = identity.repair(b"two", full.machine())
    assert outcomes(steps)["machine-id"] == "repaired"
    assert full.text("etc/machine-id") != first


# -- the id --------------------------------------------------------------------------------------------------


@given(st.binary(), st.binary())
def test_twins_with_the_same_generator_differ_by_what_they_were_told(one: bytes, two: bytes) -> None:
    assert (identity.fresh_id(one, bytes) == identity.fresh_id(two, bytes)) is (one == two)


def test_the_same_launch_twice_differs_by_the_generator() -> None:
    assert identity.fresh_id(b"launch", os.urandom) != identity.fresh_id(b"launch", os.urandom)


def test_the_generator_is_reseeded_with_a_digest_and_never_with_the_secret(full: Recorder) -> None:
    order: list[str] = []

    def reseed(material: bytes) -> None:
        order.append("reseed")
        full.reseeded.append(material)

    def draw(count: int) -> bytes:
        order.append("draw")
        return bytes(count)

    steps = identity.repair(b"hunter2" * 9, full.machine(reseed=reseed, draw=draw))
    assert order == ["reseed", "draw"]
    assert len(full.reseeded[0]) == 64
    assert b"hunter2" not in full.reseeded[0]
    assert "hunter2" not in repr(steps)


def test_dashes_stand_where_a_uuid_has_them() -> None:
    assert identity.dashed(SHARED_ID.strip()) == "01234567-89ab-cdef-0123-456789abcdef"


# -- for real ------------------------------------------------------------------------------------------------

SHARE = """
set -e
for dir in /etc /run /var/lib; do mount -t tmpfs none $dir; done
mkdir /var/lib/systemd /var/lib/dbus
echo 0123456789abcdef0123456789abcdef > /etc/machine-id
echo 0123456789abcdef0123456789abcdef > /var/lib/dbus/machine-id
echo seed > /var/lib/systemd/random-seed
hostname shared-by-all
"$1" -c "$2"
for file in /etc/machine-id /proc/sys/kernel/random/boot_id; do stat -c %a $file; cat $file; done
hostname
ls /var/lib/systemd /var/lib/dbus | grep -v :
"""

REPAIR = """
from agentd.guest import identity
for step in identity.repair(b"what only this one was told"):
    print(step.name, step.outcome.value, step.error)
"""


@pytest.mark.root
def test_a_real_machine_in_namespaces_of_its_own() -> None:
    outside = [Path("/proc/sys/kernel/random/boot_id").read_text(), os.uname().nodename]
    done = subprocess.run(
        ["unshare", "--mount", "--uts", "--pid", "--fork", "sh", "-c", SHARE, "sh", sys.executable, REPAIR],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[:6] == [f"{name} repaired None" for name in NAMES], done.stderr
    id_mode, fresh, boot_mode, boot_id, hostname = lines[6:11]
    assert (id_mode, boot_mode) == ("444", "444")
    assert len(fresh) == 32
    assert fresh != SHARED_ID.strip()
    assert boot_id == identity.dashed(fresh)
    assert hostname == f"microvm-{fresh[:12]}"
    assert lines[11:] == [""]
    assert [Path("/proc/sys/kernel/random/boot_id").read_text(), os.uname().nodename] == outside


@pytest.mark.root
def test_a_daemon_that_was_started_again_repairs_again() -> None:
    """What the first one shows in place of the kernel's boot_id can be replaced."""
    twice = SHARE.replace('"$1" -c "$2"\n', '"$1" -c "$2"\n"$1" -c "$2"\n')
    done = subprocess.run(
        ["unshare", "--mount", "--uts", "--pid", "--fork", "sh", "-c", twice, "sh", sys.executable, REPAIR],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines[6:12] if "failed" in line] == [], done.stderr
    _, fresh, _, boot_id, hostname = lines[12:17]
    assert boot_id == identity.dashed(fresh)
    assert hostname == f"microvm-{fresh[:12]}"


READ_ONLY = """
set -e
for dir in /etc /run /var/lib; do mount -t tmpfs none $dir; done
echo 0123456789abcdef0123456789abcdef > /etc/machine-id
mount -o remount,ro /etc
"$1" -c "$2"
cat /etc/machine-id /run/agentd-machine-id
"""


@pytest.mark.root
def test_a_real_machine_with_a_read_only_root() -> None:
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "sh",
            "-c",
            READ_ONLY,
            "sh",
            sys.executable,
            REPAIR,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "machine-id repaired None", done.stderr
    assert lines[-1] == lines[-2] != SHARED_ID.strip()

"""The room a disk has, and the reserve kept of it (contract e.4)."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentd.guest import disk
from agentd.guest.disk import DiskGuard, DiskPressure, Headroom

MIB = 1024 * 1024
MORE_THAN_ANY_DISK = 2**62


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the disk has left, changed at will; the number of looks at it beside it."""
    state = {"available": 100 * MIB, "looks": 0}

    def available_bytes(_: str) -> int:
        state["looks"] += 1
        return state["available"]

    monkeypatch.setattr(disk, "available_bytes", available_bytes)
    return state


@pytest.mark.parametrize(
    ("available", "reserve", "pressed"),
    [(9, 10, True), (10, 10, False), (11, 10, False), (0, 0, False), (0, 1, True)],
)
def test_pressure_begins_below_the_reserve(available: int, reserve: int, pressed: bool) -> None:
    assert Headroom(available, reserve).under_pressure is pressed


def test_a_real_disk(tmp_path: Path) -> None:
    found = disk.headroom(str(tmp_path / "not" / "yet"), 1)
    assert found is not None
    assert found.available > 0
    disk.require_headroom(str(tmp_path), 1)
    with pytest.raises(DiskPressure) as raised:
        disk.require_headroom(str(tmp_path), MORE_THAN_ANY_DISK)
    text = str(raised.value)
    assert str(tmp_path) in text
    assert str(raised.value.headroom.available) in text
    assert str(MORE_THAN_ANY_DISK) in text


@pytest.mark.parametrize("path", ["loop/x", "nul\0", "lone\ud800"])
def test_what_cannot_be_measured_is_allowed(tmp_path: Path, path: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert disk.headroom(f"{tmp_path}/{path}", 1) is None
    disk.require_headroom(f"{tmp_path}/{path}", MORE_THAN_ANY_DISK)


def test_no_reserve_asks_nothing(room: dict[str, int]) -> None:
    room["available"] = 0
    guard = DiskGuard("/", 0)
    guard.preflight()
    guard.wrote(100 * MIB)
    assert room["looks"] == 0


def test_a_writer_looks_before_and_after_each_full_interval(room: dict[str, int]) -> None:
    guard = DiskGuard("/", MIB)
    guard.preflight()
    assert room["looks"] == 1
    for written in range(1, 33):
        guard.wrote(MIB)
        assert room["looks"] == 1 + written // 8
    guard.wrote(20 * MIB)
    assert room["looks"] == 6
    guard.wrote(4 * MIB)
    assert room["looks"] == 7


def test_a_disk_that_fills_up_stops_the_writer(room: dict[str, int]) -> None:
    guard = DiskGuard("/data", 50 * MIB)
    guard.preflight()
    room["available"] = 10 * MIB
    guard.wrote(8 * MIB - 1)
    with pytest.raises(DiskPressure, match=r"/data.*10485760.*52428800"):
        guard.wrote(1)
    with pytest.raises(DiskPressure):
        guard.preflight()


FILLS = """
import sys
from agentd.guest.disk import DiskGuard, DiskPressure, headroom
MIB = 1024 * 1024
guard = DiskGuard(sys.argv[1] + "/file", 16 * MIB)
guard.preflight()
written = 0
try:
    with open(sys.argv[1] + "/file", "wb", buffering=0) as file:
        while True:
            written += file.write(bytes(MIB))
            guard.wrote(MIB)
except DiskPressure:
    print(written // MIB, headroom(sys.argv[1], 16 * MIB).under_pressure)
"""


@pytest.mark.root
def test_a_small_disk_keeps_its_reserve(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=64m none "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, FILLS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "56 True\n"  # the first interval that ended with less than 16 MiB left

"""The room a disk has, and whether that is under the reserve (contract e.4, h.1)."""

from pathlib import Path

import pytest

from agentd.guest import disk
from agentd.guest.disk import Headroom

MORE_THAN_ANY_DISK = 2**62


@pytest.mark.parametrize(
    ("available", "reserve", "pressed"),
    [(9, 10, True), (10, 10, False), (11, 10, False), (0, 0, False), (0, 1, True)],
)
def test_pressure_begins_below_the_reserve(available: int, reserve: int, pressed: bool) -> None:
    assert Headroom(available, reserve).under_pressure is pressed


def test_a_real_disk(tmp_path: Path) -> None:
    found = disk.headroom(str(tmp_path / "not" / "yet"), MORE_THAN_ANY_DISK)
    assert found is not None
    assert found.available > 0
    assert found.under_pressure


@pytest.mark.parametrize("path", ["loop/x", "nul\0", "lone\ud800"])
def test_what_cannot_be_measured_is_told_from_none_left(tmp_path: Path, path: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert disk.headroom(f"{tmp_path}/{path}", 1) is None

"""The wall clock after a suspend: stepped forward when it was left behind, and otherwise left alone."""

import errno
from pathlib import Path

import pytest

from agentd.guest import clock
from agentd.guest.clock import Clocks

NOW = 1_700_000_000.0


def caught_up(tmp_path: Path, rtc: str | None) -> tuple[float | None, list[float]]:
    """What `catch_up` says with a battery clock that shows this, and what it set."""
    steps: list[float] = []
    file = tmp_path / "since_epoch"
    if rtc is not None:
        file.write_text(rtc)
    return clock.catch_up(Clocks(file, lambda: NOW, steps.append)), steps


@pytest.mark.parametrize(
    ("ahead", "steps"), [(3, True), (3600, True), (2, True), (1, False), (0, False), (-3600, False)]
)
def test_it_follows_a_battery_clock_that_is_ahead(tmp_path: Path, ahead: int, steps: bool) -> None:
    seconds, set_to = caught_up(tmp_path, f"{int(NOW) + ahead}\n")
    assert seconds == (ahead + 0.5 if steps else None)
    assert set_to == ([NOW + ahead + 0.5] if steps else [])


@pytest.mark.parametrize("rtc", [None, "", "never\n"])
def test_without_a_battery_clock_nothing_is_done(tmp_path: Path, rtc: str | None) -> None:
    assert caught_up(tmp_path, rtc) == (None, [])


def test_a_clock_that_may_not_be_set_is_an_error(tmp_path: Path) -> None:
    def refuse(_: float) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    (tmp_path / "rtc").write_text(f"{int(NOW) + 60}\n")
    with pytest.raises(PermissionError):
        clock.catch_up(Clocks(tmp_path / "rtc", lambda: NOW, refuse))

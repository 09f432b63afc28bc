"""The wall clock after a suspend.

A hypervisor that stops a machine stops every clock of it, so that after a suspend of an hour the wall clock is an hour
behind and nothing in the guest can tell: timers are right, timestamps and certificates are not. The battery clock (RTC)
goes on outside. Where it is ahead by more than a boot can explain, the wall clock is stepped to it. On a platform whose
clocks jump by themselves the two agree and nothing is done; a battery clock that is behind is not believed.

Timers are not touched: they run on the monotonic clock.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attrs import frozen

from agentd.guest.entropy import RTC

THRESHOLD_SECS: Final = 2.0
"""A fresh boot is up to half a second behind, and the battery clock counts whole seconds."""
_MIDDLE: Final = 0.5
"""The second that the battery clock shows is half over, on average."""


@frozen
class Clocks:
    """The two clocks. The default is this machine's; a test brings its own."""

    rtc: Path = RTC
    now: Callable[[], float] = time.time
    step: Callable[[float], None] = lambda seconds: time.clock_settime(time.CLOCK_REALTIME, seconds)


def catch_up(clocks: Clocks = Clocks()) -> float | None:
    """Step the wall clock to the battery clock if it has fallen behind; by how many seconds, or None.

    Blocks for as long as the battery clock takes to be read. Raises `OSError` (EPERM without CAP_SYS_TIME) when the
    wall clock is behind and may not be set.
    """
    try:
        rtc = int(clocks.rtc.read_bytes()) + _MIDDLE
    except (OSError, ValueError):
        return None
    behind = rtc - clocks.now()
    if behind <= THRESHOLD_SECS:
        return None
    clocks.step(rtc)
    return behind

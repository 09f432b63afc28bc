"""Bringing a process group down: TERM, wait, KILL (contract c.6); or KILL at once (environments 3.4)."""

import signal
from typing import Any, Final

from twisted.internet.defer import Deferred

from agentd.process.groups import Group
from agentd.rules import supervision

FIRST_LOOK_SECS: Final = 0.005
LOOK_SECS: Final = 0.05
"""Seconds between looks at the group (contract b); the first looks come sooner, doubling up to this."""


async def bring_down(group: Group, clock: Any, grace: float | None) -> bool:
    """True when the group was signalled; False when there was nothing to signal.

    Returns once no member lives, or KILL was sent `grace` seconds after TERM; without a grace there is no TERM.
    """
    if grace is None:
        return group.signal(signal.SIGKILL)
    if not group.signal(signal.SIGTERM):
        return False
    started = clock.seconds()
    pause = min(FIRST_LOOK_SECS, grace)
    while True:
        alive = await group.alive()
        step = supervision.escalate(alive, clock.seconds() - started, grace)
        if step.send_kill:
            group.signal(signal.SIGKILL)
        if step.finished:
            return True
        await _pause(clock, min(pause, max(0.0, started + grace - clock.seconds())))
        pause = min(LOOK_SECS, pause * 2)


def _pause(clock: Any, seconds: float) -> "Deferred[None]":
    done: Deferred[None] = Deferred()
    clock.callLater(seconds, done.callback, None)
    return done

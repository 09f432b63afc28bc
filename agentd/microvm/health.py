"""``GET /v1/health``: how the daemon is, without ever blocking (contract h.1).

Only one of its fields asks the file system, which can hang. That one is measured on a pool thread; a fresh answer
is shared for `FRESH_SECS`, and one that does not come within `PATIENCE_SECS` is replaced by the last known.
"""

from typing import Final

from msgspec import UNSET
from twisted.internet.defer import Deferred

from agentd._version import VERSION
from agentd.guest import disk
from agentd.guest.disk import Headroom
from agentd.guest.handlers import HandlerResult
from agentd.http.messages import Answer, as_json
from agentd.http.request import AgentRequest
from agentd.microvm import shapes
from agentd.microvm.context import Daemon
from agentd.rules.hooks import Observation

FRESH_SECS: Final = 1.0
PATIENCE_SECS: Final = 0.25


class HealthRoute:
    """The handler."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._disk: Headroom | None = None
        self._measured = float("-inf")
        self._measuring: Deferred[Headroom | None] | None = None

    def health(self, request: AgentRequest) -> "Answer | Deferred[Answer]":
        """``GET /v1/health``."""
        now = self._daemon.clock.seconds()
        if now - self._measured < FRESH_SECS:
            return self._answer()
        measuring = self._measuring
        if measuring is None:
            measuring = self._measuring = self._daemon.tools.run_in_thread(
                disk.headroom, ".", self._daemon.config.disk_reserve_bytes
            )
            measuring.addCallback(self._measured_now)
        waiting: Deferred[None] = Deferred()

        def go_on(found: Headroom | None) -> Headroom | None:
            if not waiting.called:
                waiting.callback(None)
            return found

        measuring.addCallback(go_on)
        waiting.addTimeout(PATIENCE_SECS, self._daemon.clock, onTimeoutCancel=lambda result, _: None)
        return waiting.addCallback(lambda _: self._answer())

    def _measured_now(self, found: Headroom | None) -> Headroom | None:
        self._disk = found
        self._measured = self._daemon.clock.seconds()
        self._measuring = None
        return found

    def _answer(self) -> Answer:
        daemon = self._daemon
        guest = daemon.guest
        room = self._disk
        disk_health = (
            None if room is None else shapes.DiskHealth(room.available, room.reserve, room.under_pressure)
        )
        return as_json(
            shapes.Health(
                version=VERSION,
                bootstrapped=guest.bootstrapped,
                disk=disk_health,
                identity_degraded=guest.identity_degraded,
                identity_repaired=guest.repair_attempted,
                busy=daemon.execs.busy,
                execs=len(daemon.execs),
                hooks=[_observation(entry) for entry in guest.hook_log.entries],
                hooks_dropped=guest.hook_log.dropped,
                identity_steps=[
                    shapes.IdentityStep(
                        step.name, step.outcome.value, UNSET if step.error is None else step.error
                    )
                    for step in guest.identity_steps
                ],
                image_env_keys=len(guest.image_environ),
                restarts=guest.restarts,
                clock_stepped=None
                if guest.last_clock_step is None
                else shapes.ClockStep(guest.clock_steps, guest.last_clock_step),
            )
        )


def _observation(entry: Observation[HandlerResult]) -> shapes.HookObservation:
    result = entry.outcome
    if result is None:
        return shapes.HookObservation(entry.hook.value, entry.fired_at)
    outcome = shapes.HandlerOutcome(
        exit_code=result.exit_code,
        signal=result.signal,
        timed_out=result.timed_out,
        duration_ms=result.duration_ms,
        error=UNSET if result.error is None else result.error,
    )
    return shapes.HookObservation(entry.hook.value, entry.fired_at, outcome)

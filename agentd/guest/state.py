"""What this VM has been told and has seen: token, launch environment, tunnel identity, hooks, repair.

The one mutable place for all of it. Every change is a transition of `agentd.rules.bootstrap` or
`agentd.rules.hooks`; this object holds the current values and nothing that decides.
"""

from collections.abc import Callable, Mapping

from twisted.logger import Logger

from agentd.config import HOOK_LOG_CAP
from agentd.guest import environment, identity
from agentd.guest.handlers import HandlerResult
from agentd.guest.identity import IdentityStep
from agentd.guest.pledge import Pledge
from agentd.rules import bootstrap, hooks
from agentd.rules.bootstrap import Access, Bootstrap, RunVerdict
from agentd.rules.hooks import Hook, HookLog
from agentd.rules.payload import RunPayload, TunnelIdentity

_log = Logger()


class Guest:
    """The VM as its daemon knows it."""

    def __init__(
        self,
        wall_clock: Callable[[], float],
        image_environ: Mapping[str, str],
        pledge: Pledge | None = None,
    ) -> None:
        started_with = environment.at_start()
        self._wall_clock = wall_clock
        self.image_environ = image_environ
        self._bootstrap = Bootstrap()
        self.launch_env: Mapping[str, str] = {}
        self.tunnel_identity: TunnelIdentity | None = None
        self.hook_log: HookLog[HandlerResult] = HookLog()
        self.hook_log_cap = HOOK_LOG_CAP
        self.identity_steps: tuple[IdentityStep, ...] = ()
        self.repair_attempted = False
        self.pledge = Pledge.of(started_with) if pledge is None else pledge
        self.restarts = environment.restarts(started_with)
        """How often the init had to start the daemon again: what the daemons before this one ran is not known here."""
        self.clock_steps = 0
        self.last_clock_step: float | None = None
        """Seconds by which the wall clock was last stepped, after a suspend."""

    @property
    def bootstrap(self) -> Bootstrap:
        """What is installed, as the rules know it."""
        return self._bootstrap

    @property
    def bootstrapped(self) -> bool:
        """Whether a token is installed."""
        return self._bootstrap.installed

    @property
    def identity_degraded(self) -> bool:
        """Whether a repair step failed."""
        return identity.degraded(self.identity_steps)

    def authorize(self, presented: bytes | None) -> Access:
        """Decide a bearer request."""
        return bootstrap.authorize(self._bootstrap, presented)

    def observe(self, hook: Hook) -> int | None:
        """Record an invocation; its index, or None when the log is full."""
        self.hook_log, index = hooks.record(self.hook_log, hook, int(self._wall_clock()), self.hook_log_cap)
        _log.info("hook {hook} was posted", hook=hook.value, recorded=index is not None)
        return index

    def run_hook(self, payload: RunPayload) -> RunVerdict:
        """Install a payload if none is; token, environment and identity together."""
        if self.bootstrapped or self.pledge.allows(payload.token):
            self._bootstrap, verdict = bootstrap.run_hook(self._bootstrap, payload.token)
        else:
            verdict = RunVerdict.CONFLICT  # a daemon before this one was given another
        if verdict is RunVerdict.INSTALLED:
            self.launch_env = payload.env
            self.tunnel_identity = payload.identity
        _log.info("run hook: {verdict}", verdict=verdict.value)
        return verdict

    def install_token(self, token: bytes) -> None:
        """Bootstrap without a platform (`--token-file`)."""
        self.run_hook(RunPayload(token, {}, None))

    def repaired(self, steps: tuple[IdentityStep, ...]) -> None:
        """Identity repair has run."""
        self.repair_attempted = True
        self.identity_steps = steps
        for step in steps:
            _log.info("identity repair: {name} {outcome}", name=step.name, outcome=step.outcome.value)

    def clock_stepped(self, seconds: float) -> None:
        """The wall clock had fallen behind and was stepped."""
        self.clock_steps += 1
        self.last_clock_step = seconds
        _log.info(
            "the wall clock was {seconds:.1f} s behind the battery clock, and was stepped", seconds=seconds
        )

    def handled(self, index: int, result: HandlerResult) -> None:
        """A handler ran for the invocation at `index`."""
        self.hook_log = hooks.attach_outcome(self.hook_log, index, result)

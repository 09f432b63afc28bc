"""The life of one VM as its client sees it: what may be asked of the platform, and what each answer means.

Theory of operation
-------------------
The platform launches, suspends, resumes and terminates; a client asks for these, and learns later that they are
complete. Asking at the wrong time is not harmless (a resume after a terminate, a suspend of a VM that is not
running, a second delivery of the run payload), so every request passes a guard here before any call is made, and
one that may not be made is refused locally: no call, no change. In `Life.phase`:

    (none) ──launch──► PENDING ──hook succeeded──► RUNNING ──suspend──► SUSPENDING ──► SUSPENDED
                                                     ▲                                     │
                                                     └────────── resume ──► complete ──────┘
    any of them after the launch ──terminate──► TERMINATING ──► TERMINATED

*The token.* The daemon takes one token, from the run hook of the launch, and keeps it for life (STATE-3): a
suspension does not lose it, a resume does not deliver it again, and a second launch's hook cannot replace it.

*The proxy's token* is another matter. It is minted when an exec first needs it, outlives a suspend, and is
forgotten when a resume is complete (STATE-8).

*Late answers.* A completion that no longer fits is ignored. In particular a resume that completes after a
terminate was asked for brings nothing back to RUNNING (STATE-11).

Each request is two functions: a guard that says why not, and the step. `request` joins them; the checker also
takes them apart, to show what breaks when a call is made before its guard. Source: contract j.2.
"""

from collections.abc import Callable
from enum import Enum, unique

from attrs import evolve, frozen


@unique
class Phase(Enum):
    """Where the VM is, as far as the client knows."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    TERMINATING = "terminating"
    TERMINATED = "terminated"


@unique
class Verdict(Enum):
    """What became of an event."""

    ISSUED = "issued"
    """A call was made, or a completion was taken in."""
    REFUSED = "refused"
    """Refused here; no call was made and nothing changed."""
    IGNORED = "ignored"
    """It means nothing in this phase."""


@frozen
class Wire:
    """The calls made to the platform, and the run payloads that went with them."""

    launches: int = 0
    suspends: int = 0
    resumes: int = 0
    terminates: int = 0
    payloads: int = 0


@frozen
class Life:
    """What a client knows of one VM.

    Args:
        phase: where it is; None before a launch was accepted.
        image_exists: whether a launch was accepted, which is when there is something to terminate.
        installed_token: the number of the launch whose token the daemon holds; None while it holds none.
        bootstraps: how often a run hook installed a token.
        resume_in_flight: a resume was asked for and is not complete.
        was_terminated: a terminate was asked for, ever.
        proxy_token_cached: a proxy token is in hand.
        mints: proxy tokens asked for.
        wire: the calls made.
    """

    phase: Phase | None = None
    image_exists: bool = False
    installed_token: int | None = None
    bootstraps: int = 0
    resume_in_flight: bool = False
    was_terminated: bool = False
    proxy_token_cached: bool = False
    mints: int = 0
    wire: Wire = Wire()

    @property
    def token_installed(self) -> bool:
        """Whether the daemon holds a token."""
        return self.installed_token is not None


@unique
class Refusal(Enum):
    """Why a request is refused before any call."""

    ALREADY_LAUNCHED = "the VM was launched already"
    NOT_LAUNCHED = "the VM was never launched"
    NOT_RUNNING = "the VM is not running"
    NOT_SUSPENDED = "the VM is not suspended"
    RESUMING = "a resume is under way"
    WINDOW_CLOSED = "the time in which the VM may be resumed is over"
    TERMINATED = "the VM was terminated"


Guard = Callable[[Life], "Refusal | None"]
Step = Callable[[Life], Life]


def request(life: Life, guard: Guard, step: Step) -> tuple[Life, Verdict, Refusal | None]:
    """Ask for something: the step if its guard allows it, else no change and the reason."""
    refusal = guard(life)
    if refusal is not None:
        return life, Verdict.REFUSED, refusal
    return step(life), Verdict.ISSUED, None


# -- launch ------------------------------------------------------------------------------------------------


def may_launch(life: Life) -> Refusal | None:
    """One launch for each VM: it is what delivers the payload."""
    return Refusal.ALREADY_LAUNCHED if life.image_exists else None


def launched(life: Life) -> Life:
    """The platform accepted a launch; the run payload is on its way."""
    wire = evolve(life.wire, launches=life.wire.launches + 1, payloads=life.wire.payloads + 1)
    phase = Phase.PENDING if life.phase is None else life.phase
    return evolve(life, phase=phase, image_exists=True, wire=wire)


def hook_succeeded(life: Life) -> tuple[Life, Verdict]:
    """The run hook of the latest launch answered 200. The first one installs its token, later ones nothing."""
    if life.phase is not Phase.PENDING or life.token_installed:
        return life, Verdict.IGNORED
    return (
        evolve(
            life,
            phase=Phase.RUNNING,
            installed_token=life.wire.launches,
            bootstraps=life.bootstraps + 1,
        ),
        Verdict.ISSUED,
    )


# -- execs -------------------------------------------------------------------------------------------------


def may_exec(life: Life) -> Refusal | None:
    """Commands are run in a running VM."""
    return None if life.phase is Phase.RUNNING else _why_not_running(life)


def exec_requested(life: Life) -> Life:
    """A command is sent, with a proxy token minted for it if none is in hand."""
    if life.proxy_token_cached:
        return life
    return evolve(life, proxy_token_cached=True, mints=life.mints + 1)


# -- suspend and resume ------------------------------------------------------------------------------------


def may_suspend(life: Life) -> Refusal | None:
    """Only a running VM is suspended (STATE-5)."""
    return None if life.phase is Phase.RUNNING else _why_not_running(life)


def suspend_requested(life: Life) -> Life:
    """The platform was asked to suspend."""
    phase = Phase.SUSPENDING if life.phase is Phase.RUNNING else life.phase
    return evolve(life, phase=phase, wire=evolve(life.wire, suspends=life.wire.suspends + 1))


def suspend_complete(life: Life) -> tuple[Life, Verdict]:
    """The VM is suspended. Tokens are kept, the proxy's too."""
    if life.phase is not Phase.SUSPENDING:
        return life, Verdict.IGNORED
    return evolve(life, phase=Phase.SUSPENDED), Verdict.ISSUED


def may_resume(life: Life, *, window_open: bool) -> Refusal | None:
    """A suspended VM is resumed, once, and while the platform still keeps it.

    Args:
        window_open: whether the platform's limit on a suspension has not passed.
    """
    if life.was_terminated:
        return Refusal.TERMINATED
    if life.phase is not Phase.SUSPENDED:
        return Refusal.NOT_LAUNCHED if life.phase is None else Refusal.NOT_SUSPENDED
    if life.resume_in_flight:
        return Refusal.RESUMING
    return None if window_open else Refusal.WINDOW_CLOSED


def resume_requested(life: Life) -> Life:
    """The platform was asked to resume; no payload goes with it."""
    return evolve(life, resume_in_flight=True, wire=evolve(life.wire, resumes=life.wire.resumes + 1))


def resume_complete(life: Life) -> tuple[Life, Verdict]:
    """The VM is back. What was minted before is not used again (STATE-8)."""
    if not life.resume_in_flight:
        return life, Verdict.IGNORED
    if life.was_terminated or life.phase is not Phase.SUSPENDED:
        return evolve(life, resume_in_flight=False), Verdict.IGNORED
    return (
        evolve(life, phase=Phase.RUNNING, resume_in_flight=False, proxy_token_cached=False),
        Verdict.ISSUED,
    )


# -- terminate ---------------------------------------------------------------------------------------------


def may_terminate(life: Life) -> Refusal | None:
    """Whatever was launched can be terminated, once."""
    if not life.image_exists:
        return Refusal.NOT_LAUNCHED
    return Refusal.TERMINATED if life.was_terminated else None


def terminate_requested(life: Life) -> Life:
    """The platform was asked to terminate."""
    return evolve(
        life,
        phase=Phase.TERMINATING,
        was_terminated=True,
        wire=evolve(life.wire, terminates=life.wire.terminates + 1),
    )


def terminate_complete(life: Life) -> tuple[Life, Verdict]:
    """The VM is gone."""
    if life.phase is not Phase.TERMINATING:
        return life, Verdict.IGNORED
    return evolve(life, phase=Phase.TERMINATED, proxy_token_cached=False), Verdict.ISSUED


def _why_not_running(life: Life) -> Refusal:
    if life.phase is None:
        return Refusal.NOT_LAUNCHED
    return Refusal.TERMINATED if life.was_terminated else Refusal.NOT_RUNNING

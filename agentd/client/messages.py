"""The daemon's answers, as the client reads them.

Names and fields are those of the published schema's ``$defs`` (contract a, d, h). Unknown fields are ignored
and every field that some daemon in the field omits has the default its absence means, because a daemon is
baked into an image and its client is installed elsewhere, later.
"""

from typing import Annotated, Literal

import msgspec

Phase = Literal["running", "exited", "acked"]
Offset = Annotated[int, msgspec.Meta(ge=0)]
"""A position in an exec's output: bytes since its start, both streams counted together."""


class Usage(msgspec.Struct, frozen=True):
    """What the command cost, from wait4(2): seconds of processor time, and peak resident memory in bytes."""

    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss_bytes: int = 0


class StartResponse(msgspec.Struct, frozen=True):
    """``POST /v1/exec/start`` without ``Prefer`` (contract a.2)."""

    exec_id: str
    phase: str


class PollResponse(msgspec.Struct, frozen=True):
    """``GET /v1/exec/{id}`` and the answer of an ack (contract a.3, a.6).

    The outcome fields are present once the phase is ``exited``, and in the answer of an ack; `has_outcome` tells.
    `timed_out`, `usage` and `cause` are younger than the rest: an older daemon leaves them at their defaults.
    """

    exec_id: str
    phase: Phase
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    stdout: str | None = None
    stderr: str | None = None
    truncated: bool = False
    writers_may_be_alive: bool = False
    usage: Usage | None = None
    cause: str | None = None

    @property
    def has_outcome(self) -> bool:
        """Whether this answer carries the result (it does not while running, nor in a poll after an ack)."""
        return self.stdout is not None

    @property
    def succeeded(self) -> bool:
        """Exit status 0, of its own accord: a command that traps the timeout's TERM and exits 0 did not."""
        return self.has_outcome and self.exit_code == 0 and not self.timed_out


class StdinResponse(msgspec.Struct, frozen=True):
    """``POST /v1/exec/{id}/stdin`` (contract a.5)."""

    exec_id: str
    written: int
    eof: bool


class KillResponse(msgspec.Struct, frozen=True):
    """``POST /v1/exec/{id}/kill``; `killed` false means that nothing of the group was left (contract a.7)."""

    exec_id: str
    killed: bool


class ProcGroup(msgspec.Struct, frozen=True):
    """One exec's process group (contract a.8). `started_at` is in epoch seconds on the guest's clock."""

    exec_id: str
    pgid: int | None = None
    started_at: float = 0
    child_exited: bool = False
    reap: bool = False
    pids: tuple[int, ...] = ()


class ProcsResponse(msgspec.Struct, frozen=True):
    """``GET /v1/procs``."""

    procs: tuple[ProcGroup, ...]


class DiskHealth(msgspec.Struct, frozen=True):
    """Free space and the reserve below which writes are refused, in bytes."""

    available_bytes: int
    reserve_bytes: int
    under_pressure: bool


class HandlerOutcome(msgspec.Struct, frozen=True):
    """What the image's own handler for a hook did (contract g.4)."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    duration_ms: float = 0
    error: str | None = None


class HookObservation(msgspec.Struct, frozen=True):
    """One hook invocation, as the daemon saw it (contract g.3)."""

    hook: str
    fired_at: float
    handler: HandlerOutcome | None = None


class IdentityStep(msgspec.Struct, frozen=True):
    """One step of identity repair (contract g.5)."""

    name: str
    outcome: str
    error: str | None = None


class ClockStep(msgspec.Struct, frozen=True):
    """Additive: what resume hooks did to a wall clock that was left behind."""

    count: int
    last_seconds: float


class Health(msgspec.Struct, frozen=True):
    """``GET /v1/health`` (contract h.1)."""

    version: str
    bootstrapped: bool
    disk: DiskHealth | None = None
    identity_degraded: bool = False
    identity_repaired: bool = False
    busy: bool = False
    execs: int = 0
    hooks: tuple[HookObservation, ...] = ()
    hooks_dropped: int = 0
    identity_steps: tuple[IdentityStep, ...] = ()
    image_env_keys: int | None = None
    restarts: int = 0
    clock_stepped: ClockStep | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of an exec-family failure (contract a.0); `written` is what a failed stdin write got across.

    The environments API says `message` where protocol v1 says `detail`.
    """

    error: str = ""
    detail: str = ""
    message: str = ""
    written: int | None = None


class OutputEvent(msgspec.Struct, frozen=True):
    """The ``output`` event as it is on the wire: base64 text (contract (d))."""

    offset: Offset
    stream: Literal["stdout", "stderr"]
    output: str


class GapEvent(msgspec.Struct, frozen=True):
    """The ``gap`` event: bytes ``[from, to)`` are gone (contract (d))."""

    from_: Offset = msgspec.field(name="from")
    to: Offset


class ExitEvent(msgspec.Struct, frozen=True):
    """The terminal ``exit`` event (contract (d)); `offset` is the total of published bytes.

    Younger than the rest: `bytes_total` says the same in a field of its own, `sha256` (hexadecimal) is the digest
    of all published bytes where the start asked for one, `cause` and `usage` are those of the record.
    """

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    truncated: bool = False
    writers_may_be_alive: bool = False
    offset: Offset = 0
    bytes_total: int | None = None
    sha256: str | None = None
    cause: str | None = None
    usage: Usage | None = None

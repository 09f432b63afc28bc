"""The wire shapes of protocol v1. Each decodes, validates and describes itself.

Names and fields are those of the published schema document; what is ours beyond it is marked *additive*:
clients of the published protocol ignore unknown fields.
"""

from enum import Enum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from agentd.rules.execs import Phase
from agentd.rules.supervision import Cause

UInt64 = Annotated[int, Meta(ge=0, extra_json_schema={"format": "uint64"})]
UInt32 = Annotated[int, Meta(ge=0, le=2**32 - 1, extra_json_schema={"format": "uint32"})]
UInt16 = Annotated[int, Meta(ge=0, le=2**16 - 1, extra_json_schema={"format": "uint16"})]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, extra_json_schema={"format": "int32"})]
NameOrId = Annotated[
    UInt32 | str,
    Meta(
        extra_json_schema={"x-shared-name": "NameOrId"},
        description="A numeric id, or a name that is looked up in the guest. Digits in a string are an id "
        "when no row has them for a name.",
    ),
]
Shell = Annotated[
    bool | str,
    Meta(
        extra_json_schema={"x-shared-name": "Shell"},
        description="false: command is an argv. true: its lines are a script for /bin/sh -c. "
        "A string: the same for the shell of that name or absolute path.",
    ),
]


def _doc(text: str) -> Meta:
    return Meta(description=text)


class StreamKind(Enum):
    """Which pipe a piece of output came from. Both share one offset space."""

    STDOUT = "stdout"
    STDERR = "stderr"


STREAMS = (StreamKind.STDOUT, StreamKind.STDERR)


class RunHookEnvelope(Struct):
    """What the platform posts to the run hook: the launcher's payload as a string."""

    runHookPayload: str | None = None


class StartRequest(Struct):
    """Start a command under an id the caller mints."""

    exec_id: Annotated[str, _doc("Idempotency key, not empty: a retry with the same id spawns nothing.")]
    command: Annotated[list[str], _doc("An argv, or the lines of a script when `shell` is set.")]
    shell: Shell = False
    cwd: Annotated[
        str | None, _doc("Working directory, entered with the child's rights. Null: the daemon's.")
    ] = None
    env: Annotated[dict[str, str], _doc("The highest layer of the child's environment.")] = {}
    user: NameOrId | None = None
    group: NameOrId | None = None
    timeout_sec: Annotated[
        float | None, _doc("Seconds until the group is brought down. Null: no deadline.")
    ] = None
    stdin: Annotated[bool, _doc("Give the child a pipe as stdin instead of /dev/null.")] = False
    reap_group_on_exit: Annotated[bool, _doc("Bring the group down as soon as the child itself exits.")] = (
        False
    )
    inherit_image_env: Annotated[bool, _doc("Put the image's environment under all other layers.")] = False
    digest: Annotated[bool, _doc("Additive: the exit event carries a SHA-256 of all published output.")] = (
        False
    )


class StartResponse(Struct):
    """The exec is known, started by this request or by an earlier one."""

    exec_id: str
    phase: Phase


class ExecUsage(Struct):
    """Additive: what the child, and the descendants it waited for, used."""

    user_seconds: float
    system_seconds: float
    max_rss_bytes: UInt64


class PollResponse(Struct):
    """Phase of an exec, with its outcome when there is one to show."""

    exec_id: str
    phase: Phase
    exit_code: Int32 | UnsetType | None = UNSET
    signal: Int32 | UnsetType | None = UNSET
    timed_out: Annotated[bool | UnsetType, _doc("The deadline fired, whatever the exit code says.")] = UNSET
    stdout: str | UnsetType = UNSET
    stderr: str | UnsetType = UNSET
    truncated: Annotated[bool | UnsetType, _doc("Either stream was longer than max_output_bytes.")] = UNSET
    writers_may_be_alive: Annotated[
        bool | UnsetType, _doc("Something still held the pipes when the linger ended.")
    ] = UNSET
    cause: Annotated[Cause | UnsetType, _doc("Additive: why it ended.")] = UNSET
    usage: Annotated[ExecUsage | UnsetType | None, _doc("Additive: what it used.")] = UNSET


class StreamQuery(Struct):
    """Where to attach."""

    offset: Annotated[UInt64 | None, _doc("First byte wanted. Absent: 0, or Last-Event-ID where given.")] = (
        None
    )


class OutputEvent(Struct):
    """A run of bytes of one stream."""

    offset: UInt64
    stream: StreamKind
    output: Annotated[str, _doc("Base64 of at most 16384 bytes.")]


class GapEvent(Struct, rename={"from_": "from"}):
    """Bytes ``[from, to)`` will never be delivered."""

    from_: UInt64
    to: UInt64


class ExitEvent(Struct):
    """The end of a stream."""

    exit_code: Int32 | None
    signal: Int32 | None
    timed_out: bool
    truncated: bool
    writers_may_be_alive: bool
    offset: Annotated[UInt64, _doc("Bytes published in all.")]
    bytes_total: Annotated[UInt64, _doc("Additive: the same under a name that says so.")]
    cause: Annotated[Cause, _doc("Additive: why it ended.")]
    usage: Annotated[ExecUsage | None, _doc("Additive: what it used.")]
    sha256: Annotated[str | UnsetType, _doc("Additive: of all published bytes, when the start asked.")] = (
        UNSET
    )


class StdinRequest(Struct):
    """Bytes for a child's stdin, and whether they are the last."""

    data_b64: Annotated[str | None, _doc("Standard base64, padded.")] = None
    signal: Annotated[str | None, _doc("`eof` closes the pipe after the data.")] = None


class StdinResponse(Struct):
    """What was written."""

    exec_id: str
    written: UInt64
    eof: bool


class KillResponse(Struct):
    """Whether there was a group to signal."""

    exec_id: str
    killed: bool


class ProcGroup(Struct):
    """One exec's process group."""

    exec_id: str
    pgid: UInt32 | None
    started_at: Annotated[UInt64, _doc("Epoch seconds on the daemon's clock.")]
    child_exited: Annotated[bool, _doc("The result is published.")]
    reap: Annotated[bool, _doc("It was started with reap_group_on_exit.")]
    pids: Annotated[list[UInt32], _doc("Live members, ascending; zombies are not live.")]


class ProcsResponse(Struct):
    """Every registered exec."""

    procs: list[ProcGroup]


class DiskHealth(Struct):
    """Room on the daemon's working file system."""

    available_bytes: UInt64
    reserve_bytes: Annotated[UInt64, _doc("Below this a write is refused; 0 turns that off.")]
    under_pressure: bool


class HandlerOutcome(Struct):
    """What a workload's hook handler did."""

    exit_code: Int32 | None
    signal: Int32 | None
    timed_out: bool
    duration_ms: UInt64
    error: Annotated[str | UnsetType, _doc("Why it could not run.")] = UNSET


class HookObservation(Struct):
    """One invocation of a hook route."""

    hook: str
    fired_at: Annotated[UInt64, _doc("Epoch seconds on the daemon's clock.")]
    handler: HandlerOutcome | UnsetType = UNSET


class IdentityStep(Struct):
    """One step of identity repair."""

    name: str
    outcome: Annotated[str, _doc("repaired, not_applicable or failed.")]
    error: str | UnsetType = UNSET


class ClockStep(Struct):
    """Additive: what resume hooks did to a wall clock that a suspend had left behind."""

    count: UInt64
    last_seconds: Annotated[float, _doc("How far behind the battery clock it was the last time.")]


class Health(Struct):
    """How the daemon is."""

    version: str
    bootstrapped: bool
    disk: Annotated[DiskHealth | None, _doc("Null when it cannot be measured.")]
    identity_degraded: Annotated[bool, _doc("A repair step failed.")]
    identity_repaired: Annotated[bool, _doc("Repair was attempted on this VM.")]
    busy: Annotated[bool, _doc("An exec has not published its result.")]
    execs: Annotated[UInt64, _doc("Registered execs in any phase.")]
    hooks: Annotated[list[HookObservation], _doc("The first invocations, oldest first.")]
    hooks_dropped: Annotated[UInt64, _doc("Invocations after the log was full.")]
    identity_steps: list[IdentityStep]
    image_env_keys: Annotated[UInt64 | None, _doc("Size of the image environment's snapshot.")]
    restarts: Annotated[
        UInt64,
        _doc(
            "Additive: how often the machine's init had to start the daemon again. Execs of before are unknown."
        ),
    ] = 0
    clock_stepped: Annotated[
        ClockStep | None, _doc("Additive: null while the wall clock was never stepped.")
    ] = None


class FileReadQuery(Struct):
    """What to read."""

    path: str
    start_line: Annotated[UInt64 | None, _doc("First line, from 1.")] = None
    end_line: Annotated[UInt64 | None, _doc("Last line, inclusive.")] = None


class FsQuery(Struct):
    """What to write or pack."""

    path: str
    mode: Annotated[str | None, _doc("Octal mode of a written file.")] = None


class TunnelQuery(Struct):
    """Where to connect to."""

    port: Annotated[UInt16, _doc("Port on the guest's loopback.")]
    identity: Annotated[bool, _doc("Prove identity first: true or 1.")] = False


class SchemaQuery(Struct):
    """Additive: which document."""

    format: Annotated[str | None, _doc("openapi for the OpenAPI 3.1 document of the same routes.")] = None

"""The wire shapes of an environment. Each decodes, validates and describes itself (environments 3 to 8).

Bodies are strict: an unknown member is refused, and so is a number that is not written as an integer. A member
that is null counts as absent, so every optional one may be.
"""

from datetime import datetime
from enum import Enum
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

MAX_INT64 = 2**63 - 1
Offset = Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]
Count = Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]
Pid = Annotated[int, Meta(ge=1, le=2**31 - 1, extra_json_schema={"format": "int32"})]


def _doc(text: str) -> Meta:
    return Meta(description=text)


class Error(Struct, frozen=True):
    """Every answer that is no success: a slug to branch on, and words for a person."""

    error: str
    message: str


class SignalName(Enum):
    """What may be sent to a process."""

    TERM = "TERM"
    KILL = "KILL"
    INT = "INT"
    HUP = "HUP"


class StreamName(Enum):
    """Which of a process' two outputs."""

    STDOUT = "stdout"
    STDERR = "stderr"


STREAM_NAMES = (StreamName.STDOUT, StreamName.STDERR)

Argv = Annotated[list[str] | None, _doc("The words of a command, run as they are. Or `command`.")]
Line = Annotated[str | None, _doc("A command line, run as `bash -lc`. Or `argv`.")]
Variables = Annotated[
    dict[str, str] | None, _doc("Variables beside the base ones; those of the environment's own files win.")
]
Directory = Annotated[str | None, _doc("Working directory, relative to the home. Absent: the home.")]


class ExecRequest(Struct, forbid_unknown_fields=True):
    """Run a command to its end. Exactly one of `argv` and `command`."""

    argv: Argv = None
    command: Line = None
    env: Variables = None
    cwd: Directory = None
    timeout_secs: Annotated[Count | None, _doc("Seconds until it is killed, 1 to 600. Absent: 60.")] = None
    stdin: Annotated[str | None, _doc("Written to the command, then closed. Absent: /dev/null.")] = None


class SpawnRequest(Struct, forbid_unknown_fields=True):
    """Start a background process. Exactly one of `argv` and `command`."""

    argv: Argv = None
    command: Line = None
    env: Variables = None
    cwd: Directory = None
    timeout_secs: Annotated[
        Count | None, _doc("Seconds until it is killed, at most a year. Absent or 0: no limit.")
    ] = None
    stdin: Annotated[bool | None, _doc("stdin will come through attach. Otherwise it is /dev/null.")] = None


class SignalRequest(Struct, forbid_unknown_fields=True):
    """Send a signal to the process group."""

    signal: SignalName


class ExecResult(Struct, frozen=True):
    """How a command ended, and what it wrote. Exactly one of `exit_code` and `signal` is not null."""

    exit_code: int | None
    signal: Annotated[str | None, _doc("A name such as KILL, or a number for a signal without one.")]
    timed_out: bool
    stdout: str
    stderr: str
    stdout_truncated: bool
    stderr_truncated: bool
    duration_ms: Count


class ProcessExit(Struct, frozen=True):
    """How a process ended."""

    exit_code: int | None
    signal: str | None
    timed_out: bool


class Process(Struct, frozen=True):
    """One background process."""

    pid: Annotated[str, _doc("The id that paths use; never that of a process of an earlier daemon.")]
    os_pid: Annotated[Pid, _doc("The kernel's number, for information.")]
    argv: list[str] | None
    command: str | None
    cwd: str
    stdin: Annotated[bool, _doc("stdin can still be written.")]
    timeout_secs: Count
    started_at: datetime
    exited_at: datetime | None
    running: bool
    exit: ProcessExit | None
    output_start: Annotated[Offset, _doc("The oldest byte that is retained.")]
    output_end: Annotated[Offset, _doc("Just past the newest byte.")]


class ProcessList(Struct, frozen=True):
    """Every process that has not been deleted, oldest first."""

    processes: list[Process]


class OutputChunk(Struct, frozen=True):
    """Bytes of one stream, as text."""

    stream: StreamName
    offset: Offset
    data: str


class ProcessOutput(Struct, frozen=True):
    """A stretch of output."""

    chunks: list[OutputChunk]
    next: Annotated[Offset, _doc("Pass it as `since` next time.")]
    exited: Annotated[bool, _doc("All there will ever be has been read.")]
    exit: ProcessExit | None
    output_start: Offset


class DirectoryEntry(Struct, frozen=True):
    """One entry of a directory: itself, not what it points to."""

    name: str
    type: Literal["file", "directory", "symlink", "other"]
    size: Count | None
    mode: Annotated[str | None, _doc("Four octal digits.")]
    modified_at: datetime | None
    target: Annotated[str | UnsetType, _doc("What a symbolic link holds.")] = UNSET
    name_b64: Annotated[str | UnsetType, _doc("The name's bytes, when they are not UTF-8.")] = UNSET


class DirectoryListing(Struct, frozen=True):
    """One level of a directory, sorted by the bytes of the names."""

    path: str
    entries: list[DirectoryEntry]
    truncated: bool


class WriteFileResult(Struct, frozen=True):
    """What an upload became."""

    path: str
    size: Count


class PathQuery(Struct):
    """Which file or directory."""

    path: Annotated[str, Meta(min_length=1, description="Relative paths start at the agent user's home.")]


class WriteQuery(PathQuery):
    """Where to write."""

    mkdir: Annotated[bool, _doc("Make missing parents.")] = False


class RemoveQuery(PathQuery):
    """What to remove."""

    recursive: Annotated[bool, _doc("A directory with everything in it.")] = False


class OutputQuery(Struct):
    """From where, and how patiently."""

    since: Offset = 0
    wait_secs: Annotated[Count, _doc("Seconds to wait for new output; more than 30 is 30.")] = 0


class AttachQuery(Struct):
    """From where."""

    since: Offset = 0


# -- messages of an attached client -------------------------------------------------------------------------------


class AttachedMessage(Struct, frozen=True, tag_field="type", tag="attached"):
    """The first message."""

    process: Process


class OutputMessage(Struct, frozen=True, tag_field="type", tag="output"):
    """Bytes of one stream, as text."""

    stream: StreamName
    offset: Offset
    data: str


class ExitMessage(Struct, frozen=True, tag_field="type", tag="exit"):
    """The last message."""

    exit: ProcessExit
    next: Offset


class ErrorMessage(Struct, frozen=True, tag_field="type", tag="error", omit_defaults=True):
    """A message that was not understood; or, with `next`, the end of the daemon."""

    message: str
    next: Offset | UnsetType = UNSET


AttachServerMessage = AttachedMessage | OutputMessage | ExitMessage | ErrorMessage


class AttachClientMessage(Struct, forbid_unknown_fields=True):
    """What a client may say. Members may be combined; they act in this order."""

    stdin: str | None = None
    stdin_eof: bool | None = None
    signal: SignalName | None = None

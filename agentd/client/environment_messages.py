"""The answers of the environments API, as the client reads them: unknown fields are ignored."""

from typing import Literal

import msgspec

Signal = Literal["TERM", "KILL", "INT", "HUP"]
Stream = Literal["stdout", "stderr"]


class ExecResult(msgspec.Struct, frozen=True):
    """How a command ended, and what it wrote (environments 3.5)."""

    exit_code: int | None
    signal: str | None
    timed_out: bool = False
    stdout: str = ""
    stderr: str = ""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    duration_ms: int = 0


class ProcessExit(msgspec.Struct, frozen=True):
    """How a process ended; one of the first two is not None."""

    exit_code: int | None
    signal: str | None
    timed_out: bool = False


class ProcessInfo(msgspec.Struct, frozen=True):
    """A process as the daemon shows it (environments 6.2)."""

    pid: str
    cwd: str
    running: bool
    started_at: str
    os_pid: int = 0
    argv: list[str] | None = None
    command: str | None = None
    stdin: bool = False
    timeout_secs: int = 0
    exited_at: str | None = None
    exit: ProcessExit | None = None
    output_start: int = 0
    output_end: int = 0


class Chunk(msgspec.Struct, frozen=True):
    """Output of one stream at an offset in bytes; its text may be longer or shorter than its bytes."""

    stream: Stream
    offset: int
    data: str


class Page(msgspec.Struct, frozen=True):
    """A stretch of output; `next` is where the following one begins (environments 7.3)."""

    chunks: list[Chunk]
    next: int
    exited: bool = False
    exit: ProcessExit | None = None
    output_start: int = 0


class Entry(msgspec.Struct, frozen=True):
    """One entry of a directory, not followed (environments 5.6)."""

    name: str
    type: str
    size: int | None = None
    mode: str | None = None
    modified_at: str | None = None
    target: str | None = None
    name_b64: str | None = None


class Listing(msgspec.Struct, frozen=True):
    """A directory: its first 10,000 entries, sorted."""

    path: str
    entries: list[Entry]
    truncated: bool = False


class Stored(msgspec.Struct, frozen=True):
    """What an upload became."""

    path: str
    size: int


class Processes(msgspec.Struct, frozen=True):
    """Every process that has not been deleted, oldest first."""

    processes: list[ProcessInfo]

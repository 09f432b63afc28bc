"""What the work itself costs, with no daemon around it: the denominators of the ratios.

Each returns seconds. They are the plainest way that this machine does the same: spawn and wait, read a pipe and
drop it, `cp`, `tar`, a bare hash.
"""

import fcntl
import hashlib
import os
import subprocess
import time
from mmap import mmap
from pathlib import Path
from typing import Final

from attrs import frozen

READ_BYTES: Final = 256 * 1024
PIPE_BYTES: Final = 256 * 1024
"""What the daemon widens a busy pipe to, so that the floor reads the same pipe."""


def spawn(argv: list[str]) -> float:
    """`posix_spawn` of `argv` with an empty environment, and the wait for its end."""
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, {})
    os.waitpid(pid, 0)
    return time.perf_counter() - start


def spawn_all(commands: list[list[str]]) -> float:
    """`posix_spawn` of every one of `commands`, then the wait for each; output goes nowhere."""
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    start = time.perf_counter()
    pids = [os.posix_spawn(argv[0], argv, {}, file_actions=nowhere) for argv in commands]
    for pid in pids:
        os.waitpid(pid, 0)
    return time.perf_counter() - start


@frozen
class PipeRead:
    """What it took to read a pipe to its end."""

    seconds: float
    processor_seconds: float
    """Of the reader alone."""
    total: int
    """Bytes."""


def read_pipe(argv: list[str]) -> PipeRead:
    """Run `argv`, read its stdout to the end and drop it."""
    room = mmap(-1, READ_BYTES)  # page-aligned: some processors copy three times slower to a bytearray
    total = 0
    start, spent = time.perf_counter(), time.thread_time()
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    while count := os.readv(descriptor, [room]):
        total += count
    child.wait()
    found = PipeRead(time.perf_counter() - start, time.thread_time() - spent, total)
    child.stdout.close()
    return found


def run(*argv: str | Path) -> float:
    """Run `argv` to its end. Raises `CalledProcessError` if it fails."""
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def copy(source: Path, target: Path) -> float:
    """`cp`."""
    return run("cp", source, target)


def pack(root: Path, archive: Path) -> float:
    """`tar -c` to a file."""
    return run("tar", "-c", "-f", archive, "-C", root, ".")


def unpack(archive: Path, root: Path) -> float:
    """`tar -x` into an existing directory."""
    return run("tar", "-x", "-f", archive, "-C", root)


def digest(path: Path) -> float:
    """SHA-256 of a file on one thread."""
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        hashlib.file_digest(file, "sha256")
    return time.perf_counter() - start

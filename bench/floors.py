"""What the work itself costs, with no daemon around it: the denominators of the ratios.

Each returns seconds. They are the plainest way that this machine does the same: spawn and wait, read a pipe and
drop it, `cp`, `tar`, a bare hash.
"""

import fcntl
import hashlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

READ_BYTES: Final = 256 * 1024
PIPE_BYTES: Final = 256 * 1024
"""What the daemon widens a busy pipe to, so that the floor reads the same pipe."""


def spawn(argv: Sequence[str]) -> float:
    """`posix_spawn` of `argv` with an empty environment, and the wait for its end."""
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, {})
    os.waitpid(pid, 0)
    return time.perf_counter() - start


def spawn_all(commands: Sequence[Sequence[str]]) -> float:
    """`posix_spawn` of every one of `commands`, then the wait for each; output goes nowhere."""
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    start = time.perf_counter()
    pids = [os.posix_spawn(argv[0], argv, {}, file_actions=nowhere) for argv in commands]
    for pid in pids:
        os.waitpid(pid, 0)
    return time.perf_counter() - start


def read_pipe(argv: Sequence[str]) -> tuple[float, int]:
    """Run `argv`, read its stdout to the end and drop it; seconds, and bytes read."""
    room = bytearray(READ_BYTES)
    total = 0
    start = time.perf_counter()
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    while count := os.readv(descriptor, [room]):
        total += count
    child.wait()
    seconds = time.perf_counter() - start
    child.stdout.close()
    return seconds, total


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

"""What these tests share: waiting for something, and Python programs that run beside the tests."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 30.0


def eventually(look: Callable[[], T], what: str) -> T:
    """The first true answer of `look`, under a deadline."""
    end = time.monotonic() + DEADLINE_SECONDS
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < end, f"never came to be: {what}"
        time.sleep(0.005)


def run_program(source: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end."""
    return subprocess.run(
        [sys.executable, "-c", source, *args],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def run_in_namespaces(source: str, *args: str, flags: tuple[str, ...] = ("--mount",)) -> str:
    """Run a Python program in namespaces of its own, to a successful end; what it printed."""
    done = subprocess.run(
        ["unshare", *flags, sys.executable, "-c", source, *args],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def program(source: str, *args: str, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program with pipes to it, in a process group of its own, which is killed in the end."""
    process = subprocess.Popen(  # type: ignore[call-overload]  # options are those of Popen
        [sys.executable, "-c", source, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,
        **options,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@contextmanager
def public_directory() -> Iterator[Path]:
    """A temporary directory that every user may enter, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix="agentd-test-"))
    try:
        os.chmod(path, 0o755)
        yield path
    finally:
        shutil.rmtree(path)

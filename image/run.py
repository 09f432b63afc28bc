"""Running the tools that the recipe is made of, with an environment of its own."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


class BuildFailed(Exception):
    """A step of the build did not succeed; the message says which and why."""


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a tool to its end and return its standard output.

    The environment is the caller's, in the C locale, with `env` over it. Raises `BuildFailed` with the end of what the
    tool said.
    """
    words = [str(word) for word in command]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC", **(env or {})}
    try:
        done = subprocess.run(
            words,
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise BuildFailed(f"{words[0]} is not installed") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-12:]
        raise BuildFailed("\n".join([f"{words[0]} exited with {done.returncode}", *said]))
    return done.stdout


def inside(tree: Path, *command: str, env: Mapping[str, str] | None = None) -> str:
    """Run a program of the image in the image: a chroot with an environment that holds nothing of this machine."""
    clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root", **(env or {})}
    words = [f"{name}={value}" for name, value in clean.items()]
    return run("chroot", tree, "/bin/busybox", "env", "-i", *words, *command)

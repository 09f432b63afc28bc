"""The environment the daemon was started with: the image layer of children that ask for it (contract c.2).

It is read from /proc rather than from `os.environ`, which is not the same thing any more by the time Python runs
code: an interpreter in the C locale adds LC_CTYPE to its own environment, and children would inherit that as if
the image had said so. /proc/<pid>/environ shows the block the kernel was given at execution (proc(5)).
"""

import os
from collections.abc import Mapping
from typing import Self

from attrs import field, frozen

from agentd.rules import environ


@frozen
class ImageEnvironment:
    """The snapshot, taken once before serving and never again."""

    variables: Mapping[str, str] = field(repr=False, hash=False)

    @property
    def keys(self) -> int:
        """How many variables it holds, which is all that health tells of it (``image_env_keys``)."""
        return len(self.variables)

    @classmethod
    def take(cls, started_with: Mapping[bytes, bytes] | None = None) -> Self:
        """The snapshot of `started_with`, by default of what this process was started with."""
        return cls(environ.snapshot(at_start() if started_with is None else started_with))


def at_start() -> dict[bytes, bytes]:
    """The environment this process was executed with; Python's view of it where /proc does not tell."""
    try:
        with open("/proc/self/environ", "rb") as block:
            return parse_block(block.read())
    except OSError:
        return dict(os.environb)


RESTARTS = b"AGENTD_RESTARTS"
"""Set by an init that starts the daemon again when it has died: how often it had to."""


def restarts(started_with: Mapping[bytes, bytes]) -> int:
    """How often this machine's init has started the daemon again; 0 where no init says."""
    text = started_with.get(RESTARTS, b"0")
    return int(text) if text.isdigit() and len(text) <= 9 else 0


def parse_block(block: bytes) -> dict[bytes, bytes]:
    """An environment block as a mapping: ``name=value`` strings, each ended by a NUL (environ(7)).

    Of a name that occurs twice the first counts, as for getenv(3). A string without ``=`` defines nothing.
    """
    found: dict[bytes, bytes] = {}
    for entry in block.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals:
            found.setdefault(name, value)
    return found

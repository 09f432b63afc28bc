"""What a test may leave behind in the process that tests: nothing.

pytest-twisted keeps one reactor for all tests, so what one leaves there (a timer, a port, a reader), in the process
(a child, a descriptor) or in its temporary directory would be met by the next. `Census` is a look at all of it, and
the fixture `nothing_left` of ``tests/conftest.py`` compares two. Closing takes a turn or two of the reactor, or a
thread that ends, so what is left is looked at again for a while before it is held against the test.
"""

import gc
import os
import tempfile
import time
from typing import Any, Final, Self

import pytest_twisted
from attrs import frozen
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater

PATIENCE_SECS: Final = 5.0
"""How long what a test has let go of may take to be gone."""


@frozen
class Census:
    """What there is in this process."""

    calls: frozenset[Any]
    """Delayed calls of the reactor."""
    selectables: frozenset[Any]
    """What it reads from and writes to, ports among them."""
    children: frozenset[int]
    """Pids, zombies included."""
    descriptors: frozenset[tuple[int, str]]
    """Numbers, and what they are open on."""
    files: frozenset[str]
    """Names in the temporary directory."""

    @classmethod
    def take(cls, reactor: Any) -> Self:
        """Look."""
        return cls(
            calls=frozenset(reactor.getDelayedCalls()),
            selectables=frozenset(reactor.getReaders()) | frozenset(reactor.getWriters()),
            children=frozenset(_children()),
            descriptors=frozenset(_descriptors()),
            files=frozenset(_files()),
        )

    def left(self, before: "Census") -> list[str]:
        """What is here that was not there before, for a person to read."""
        return [
            *(f"a delayed call: {call}" for call in self.calls - before.calls),
            *(f"a reader or writer: {each!r}" for each in self.selectables - before.selectables),
            *(f"a child: {_command(pid)}" for pid in self.children - before.children),
            *(f"descriptor {fd}: {target}" for fd, target in self.descriptors - before.descriptors),
            *(f"a temporary file: {name}" for name in self.files - before.files),
        ]


def started(reactor: Any) -> Any:
    """The reactor, running: what it opens for itself, at its start and with its first port, is no leftover."""
    if not reactor.running:
        pytest_twisted.blockon(deferLater(reactor, 0, lambda: None))
        port = reactor.listenTCP(0, Factory(), interface="127.0.0.1")
        pytest_twisted.blockon(port.stopListening())
    return reactor


def left_after(before: Census, reactor: Any) -> list[str]:
    """What a test has left, once there was time for it to go. Not for the reactor's own greenlet."""
    end = time.monotonic() + PATIENCE_SECS
    while left := Census.take(reactor).left(before):
        if time.monotonic() > end:
            return left
        gc.collect()
        pytest_twisted.blockon(deferLater(reactor, 0.01, lambda: None))
    return []


def _children() -> list[int]:
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                found += map(int, file.read().split())
        except FileNotFoundError:
            pass  # a thread that has just ended
    return found


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return f"{pid} {file.read().replace(bytes(1), b' ').decode(errors='replace')}"
    except OSError:
        return str(pid)


def _files() -> list[str]:
    # What daemons in memory are given goes with the process that has it.
    return [name for name in os.listdir(tempfile.gettempdir()) if not name.startswith("agentd-replay-")]


def _descriptors() -> list[tuple[int, str]]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            pass  # the one that listed them
    return found

"""The real daemon in memory: its own handlers, jobs and rules, on a clock, children and connections that are ours.

Everything above the edge of the process is what `agentd.tap.compose` builds; what is replaced is the edge:

* **time** is a `Timers`: it stands still, and lets the one timer be fired that is meant, whatever the others are
  set to. A model abstracts from durations, and each order of timers is the order of some configuration;
* **children** are `checker.replay.children`, which do what they are told;
* **connections** are `Connection`s of bytes, which the peer may stop reading or drop, and those that the daemon itself
  asks for are `Dial`s, which are accepted when a run says so;
* **threads** are none: what the daemon gives to a pool runs at once, or when `Threads` is told to run it.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from agentd.config import Config
from agentd.environments.limits import DEFAULTS, Limits
from agentd.tap import World, compose
from checker.replay.children import Children
from checker.replay.network import PEER, Connection, Timers, Transport

if TYPE_CHECKING:
    from agentd.worker.face import WorkerOptions

WALL_CLOCK = 1_700_000_000.0
"""Epoch seconds at which a daemon in memory begins."""


class Threads:
    """The pool: what is given to it runs at once, or, when `held`, when `run` says so."""

    def __init__(self) -> None:
        self.held = False
        self.waiting: list[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def __call__(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        """Give `function` to the pool."""
        if not self.held:
            return maybeDeferred(function, *args)
        done: Deferred[Any] = Deferred()
        self.waiting.append((done, function, args))
        return done

    def run(self, index: int = 0) -> None:
        """Let one of those that wait run, and the daemon hear of its end."""
        done, function, args = self.waiting.pop(index)
        try:
            result = function(*args)
        except BaseException:
            done.errback(Failure())
        else:
            done.callback(result)


def quiet_config(**changes: Any) -> Config:
    """A configuration for a daemon in memory: nothing of this machine is changed or read beyond what it must."""
    settings: dict[str, Any] = {
        "repair_identity": False,
        "hooks_dir": os.devnull,
        "passwd_file": os.devnull,
        "group_file": os.devnull,
    }
    return Config(**{**settings, **changes})


class MemoryDaemon:
    """A daemon in memory. `changes` are knobs of `agentd.config.Config`, `limits` those of its environment; it is a
    worker too if `worker` says how."""

    def __init__(
        self, limits: Limits = DEFAULTS, worker: "WorkerOptions | None" = None, **changes: Any
    ) -> None:
        self.clock = Timers()
        self.children = Children()
        self.threads = Threads()
        self.starved: set[int] = set()
        """Pids the kernel killed for lack of memory."""
        self.failed: list[str] = []
        """Why it cannot go on."""
        self.stopped = 0
        """How often the daemon was asked to leave."""
        self.config = quiet_config(**changes)
        world = World(
            reactor=self.clock,
            run_in_thread=self.threads,
            wall_clock=lambda: WALL_CLOCK + self.clock.seconds(),
            environ={},
            out_of_memory=lambda pid: pid in self.starved,
            spawner=self.children,
            limits=limits,
        )
        self.daemon, self.site, _ = compose(self.config, world, self._stop, worker, self.failed.append)
        self.connections: list[Connection] = []

    def _stop(self) -> None:
        self.stopped += 1

    def connect(self) -> Connection:
        """A new connection."""
        channel: Any = self.site.buildProtocol(PEER)  # type: ignore[no-untyped-call]
        transport = Transport(self.clock)
        transport.protocol = channel
        channel.makeConnection(transport)
        connection = Connection(channel, transport)
        self.connections.append(connection)
        return connection

    def close(self) -> None:
        """Every peer leaves, and everybody the daemon has connected to."""
        for connection in self.connections:
            connection.leave()
        for dial in self.clock.dials:
            if dial.open:
                dial.fail()
        self.clock.settle()

    def left(self) -> list[str]:
        """What is still there of what the daemon began, for a person to read: nothing, once every peer has left, every
        child has ended and everything due has happened."""
        found = [f"a request in flight: {self.site.state}"] if self.site.state.in_flight else []
        found += [f"a timer: {call.func.__qualname__}" for call in self.clock.arm()]
        found += ["a child that runs" for child in self.children.all if not child.exited]
        found += [f"a fault that it cannot go on with: {reason}" for reason in self.failed]
        found += ["work for the pool"] * len(self.threads.waiting)
        waiting = [dial for dial in self.clock.dials if dial.transport is None and not dial.over]
        found += [f"a connection to port {dial.port} that is waited for" for dial in waiting]
        return found

"""Reaping as PID 1: every orphan, and never the status of a child of ours.

Orphans are handed to PID 1 (or to a child subreaper), and stay zombies until it waits for them. Twisted waits
for the pids it knows, so they would stay for the VM's life. The sweep looks at one dead child at a time without
taking its status (waitid(2) with ``WNOWAIT``): one of ours is handed to its own transport, anything else is
taken and dropped.

Relies on ``twisted.internet.process.reapAllProcesses`` being looked up at call time by the reactor's SIGCHLD
handling; ``tests/process/test_canaries.py`` watches that.
"""

import os
from collections.abc import Callable

from twisted.internet import process

from agentd.process.spawn import ProcessSpawner


def sweep(spawner: ProcessSpawner) -> int:
    """Reap everything that has ended; returns how many orphans were among it."""
    orphans = 0
    while True:
        try:
            info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return orphans
        if info is None:
            return orphans
        ours = spawner.children.get(info.si_pid)
        if ours is not None:
            ours.reap()
        else:
            os.waitpid(info.si_pid, os.WNOHANG)
            orphans += 1


def install(spawner: ProcessSpawner) -> Callable[[], None]:
    """Sweep at every SIGCHLD. For PID 1 and subreapers only; returns what undoes it."""
    stock = process.reapAllProcesses

    def reap() -> None:
        stock()
        sweep(spawner)

    process.reapAllProcesses = reap

    def uninstall() -> None:
        process.reapAllProcesses = stock

    return uninstall

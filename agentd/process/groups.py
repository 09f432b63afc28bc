"""Process groups: signalling them, and never one whose number has passed to somebody else.

Theory of operation
-------------------
A group's id is its leader's pid, and the kernel reuses pids. As long as any process of the group exists the
number stays taken (credentials(7)), but once the group is empty a later process may get it. Three guards:

* a group found empty when its leader is reaped, or later, is gone for good;
* a new child of ours with that number proves that the old group is gone: `Groups.claim` marks it so;
* once our leader has been reaped, a process *with that very pid* is somebody else's: the group is not ours.

Whether anybody in a group lives is asked of signal 0 first, which knows nothing of zombies, and of /proc only
when that finds something. /proc is walked on a pool thread.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed

from agentd.linux import procfs

RunInThread = Callable[..., "Deferred[Any]"]
"""``run(function, *args)``: its result, or failure, from a pool thread."""


class Group(Protocol):
    """One child's process group."""

    pgid: int

    def signal(self, number: int) -> bool:
        """Send a signal to every member; False when there is none or it was not allowed."""

    def alive(self) -> "Deferred[bool]":
        """Whether any member lives; zombies do not."""

    def ours(self) -> bool:
        """Whether the number still means this group."""

    def leader_reaped(self) -> None:
        """The leader's status has been taken, so its pid is free."""

    def release(self) -> None:
        """The group will not be asked about any more."""


def _alive(pgid: int) -> bool:
    try:
        return procfs.group_alive(pgid)
    except OSError:
        return True  # out of descriptors, say: then the grace runs out and KILL decides


class KernelGroup:
    """A `Group` of real processes."""

    def __init__(self, pgid: int, groups: "Groups") -> None:
        self.pgid = pgid
        self._groups = groups
        self._gone = False
        self._leader_reaped = False

    def lost(self) -> None:
        """Its number now belongs to another child."""
        self._gone = True

    def leader_reaped(self) -> None:
        """The leader's pid may be reused from here on, and if nobody else is in the group, so may the group's."""
        self._leader_reaped = True
        self._send(0)

    def ours(self) -> bool:
        """Whether the number still means this group, as far as can be told."""
        if self._gone:
            return False
        if self._leader_reaped and os.path.exists(f"/proc/{self.pgid}/stat"):
            self._gone = True
        return not self._gone

    def signal(self, number: int) -> bool:
        """`killpg(2)`, behind the guards."""
        return self.ours() and self._send(number)

    def _send(self, number: int) -> bool:
        try:
            os.killpg(self.pgid, number)
        except ProcessLookupError:
            self._gone = self._leader_reaped
            return False
        except PermissionError:
            return False
        return True

    def alive(self) -> "Deferred[bool]":
        """Signal 0, then /proc off the reactor thread. A group that cannot be looked at counts as alive."""
        if not self.signal(0):
            return succeed(False)
        return self._groups.run_in_thread(_alive, self.pgid)

    def release(self) -> None:
        """Forget it."""
        self._groups.forget(self)


class Groups:
    """Every group of a child of ours, by number."""

    def __init__(self, run_in_thread: RunInThread) -> None:
        self.run_in_thread = run_in_thread
        self._by_pgid: dict[int, KernelGroup] = {}

    def claim(self, pgid: int) -> KernelGroup:
        """The group of a child just spawned. An older one of the same number is gone."""
        older = self._by_pgid.get(pgid)
        if older is not None:
            older.lost()
        group = self._by_pgid[pgid] = KernelGroup(pgid, self)
        return group

    def forget(self, group: KernelGroup) -> None:
        """`group` is no longer of interest."""
        if self._by_pgid.get(group.pgid) is group:
            del self._by_pgid[group.pgid]

    def members(self, pgids: list[int]) -> "Deferred[dict[int, list[int]]]":
        """The live pids of each group, ascending, from one walk of /proc on a pool thread."""
        return self.run_in_thread(procfs.groups_members, pgids)

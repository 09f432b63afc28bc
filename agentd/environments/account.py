"""The agent user: who runs an environment's commands and touches its files.

The account files are read again whenever they have changed, which costs two looks at them per request. What is
wrong with an account is looked at again for every request, so that a repair takes effect at once (environments
9).
"""

import os
import stat
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from agentd.guest.accounts import AccountFiles
from agentd.linux.effective import may_act_as
from agentd.process.groups import RunInThread
from agentd.rules import resolution
from agentd.rules.resolution import Resolved

_log = Logger()

SWITCH_OK: Final = "ok"
SWITCH_FAILED: Final = "failed"
SWITCH_LIMIT: Final = "limit_exceeded"


@frozen
class Identity:
    """The agent user as the account files have them."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


@frozen
class Absent:
    """There is no such user: the face is off (503)."""

    reason: str


@frozen
class Broken:
    """There is one, who cannot be used until somebody repairs it (409)."""

    reason: str


Found = Identity | Absent | Broken
_Signature = tuple[tuple[int, ...], ...]


@frozen
class _Known:
    signature: _Signature
    identity: Identity


class Agent:
    """Finds the agent user `name` in the account files. `switch` is the operator's word about the environment."""

    def __init__(self, name: str, files: AccountFiles, run_in_thread: RunInThread, switch: str = SWITCH_OK):
        self.name = name
        self.switch = switch
        self._files = files
        self._run = run_in_thread
        self._known: _Known | None = None

    def find(self) -> "Deferred[Found]":
        """The agent user as they are now; at once when the account files have not changed."""
        known = self._known
        if known is not None and known.signature == self._signature():
            return succeed(known.identity)
        looking: Deferred[Found] = self._run(self._look)
        return looking

    def _signature(self) -> _Signature:
        return tuple(_looks(path) for path in (self._files.passwd, self._files.group))

    def _look(self) -> Found:
        signature = self._signature()
        found = look_up(self.name, self._files)
        self._known = _Known(signature, found) if isinstance(found, Identity) else None
        return found

    def announce(self) -> "Deferred[None]":
        """Say once, in the log, that the face is off, if it is."""

        def say(found: Found) -> None:
            if not isinstance(found, Identity):
                _log.warn(
                    "the environments API is off: {reason}", event="environment_off", reason=found.reason
                )

        return self.find().addCallback(say)


def _looks(path: Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def look_up(name: str, files: AccountFiles) -> Found:
    """Find user `name`, and check that they can be acted for. Blocks."""
    found = resolution.resolve(name, None, files.read_passwd(), files.read_group())
    if not isinstance(found, Resolved) or found.identity is None or found.identity.name != name:
        return Absent(f"there is no user {name!r}")
    row = found.identity
    if resolution.NO_ID in (row.uid, row.gid):
        return Broken(f"4294967295 is no id, and user {name!r} has it")
    if not may_act_as(row.uid, row.gid, found.supplementary or ()):
        return Broken(f"the daemon is not root and may not act as user {name!r}")
    try:
        usable = row.home.startswith("/") and stat.S_ISDIR(os.stat(row.home).st_mode)
    except (OSError, ValueError):
        usable = False
    if not usable:
        return Broken(f"the home of user {name!r} is no directory")
    groups = tuple(group for group in found.supplementary or () if group != resolution.NO_ID)
    if os.geteuid() != 0:
        # The daemon is this user already, and may not change so much as the order of its groups.
        groups = tuple(os.getgroups())
    return Identity(name, row.uid, row.gid, groups, row.home)

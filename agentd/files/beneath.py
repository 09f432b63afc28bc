"""Directories beneath a root, each reached one component at a time and never through a symbolic link.

A path is only as safe as the moment in which it is walked: between two system calls another process may
put a link where a directory was. So nothing here keeps paths. The root is opened once; from it openat2(2) opens
one component at a time under RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS (contract e.5).
The descriptors on the way are kept, the least recently used of them closed first.

Keeping them is safe. A descriptor names a directory, not a path: swapping a name for a link afterwards changes
what the name means and not where the descriptor leads, and that was beneath the root when it was opened. A
kept descriptor is no wider a door than a fresh one, which could be overtaken right after its opening as well.
What stays possible is moving a whole directory out of the root while it is being filled; what is written into
it then has moved with it, which whoever may do that could as well do afterwards. An archive cannot: no member
moves or removes a directory, so descriptors do not go stale by the archive's own doing.
"""

import os
from collections import OrderedDict

from agentd.linux.openat2 import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, openat2
from agentd.rules.members import Parts

CONFINED = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
DIRECTORIES_KEPT = 64
"""Descriptors one transfer may hold. Archives are written depth first, so their depth is what matters."""


class Blocked(Exception):
    """A component could not be opened as a directory, or made: the system's error and which it was."""

    def __init__(self, error: OSError, component: bytes) -> None:
        super().__init__(error, component)
        self.error = error
        self.component = component


class Beneath:
    """The directories beneath the descriptor `root`, which it owns. `flags` is O_PATH, or O_RDONLY to list them."""

    def __init__(self, root: int, flags: int = os.O_PATH) -> None:
        self.root = root
        self._flags = flags | os.O_DIRECTORY | os.O_CLOEXEC
        self._last: Parts = ()
        self._last_descriptor = -1
        self._kept: OrderedDict[Parts, int] = OrderedDict()
        self.made = 0
        """Directories made on the way so far."""

    def directory(self, parts: Parts, make: bool = False) -> int:
        """The descriptor of a directory, valid until another one is asked for; missing ones are made on demand.

        Raises `Blocked`.
        """
        if not parts:
            return self.root
        if parts == self._last:
            return self._last_descriptor
        kept = self._kept.get(parts)
        if kept is not None:
            self._kept.move_to_end(parts)
            self._last, self._last_descriptor = parts, kept
            return kept
        known = len(parts) - 1
        while known and parts[:known] not in self._kept:
            known -= 1
        here = self.root
        if known:
            here = self._kept[parts[:known]]
            self._kept.move_to_end(parts[:known])
        for depth in range(known, len(parts)):
            here = self._enter(here, parts[depth], make)
            self._keep(parts[: depth + 1], here)
        return here

    def _enter(self, directory: int, name: bytes, make: bool) -> int:
        try:
            try:
                return openat2(directory, name, self._flags, 0, CONFINED)
            except FileNotFoundError:
                if not make:
                    raise
            try:
                os.mkdir(name, dir_fd=directory)
                self.made += 1
            except FileExistsError:
                pass  # whatever somebody put there, it is looked at like anything that was there before
            return openat2(directory, name, self._flags, 0, CONFINED)
        except OSError as error:
            raise Blocked(error, name) from error

    def _keep(self, parts: Parts, descriptor: int) -> None:
        self._last, self._last_descriptor = parts, descriptor
        self._kept[parts] = descriptor
        if len(self._kept) > DIRECTORIES_KEPT:
            os.close(self._kept.popitem(last=False)[1])

    def close(self) -> None:
        """Close the root and everything kept."""
        while self._kept:
            os.close(self._kept.popitem()[1])
        if self.root >= 0:
            root, self.root = self.root, -1
            os.close(root)

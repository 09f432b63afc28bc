"""Which member of an uploaded archive may land where, and what stops it.

An archive is a list of instructions from somebody else: a name, a type, sometimes a link target. Extraction
may obey them only inside one directory, the root. This module judges the *text* of an instruction; that
the text means the same on disk is the business of whoever carries it out, one component at a time without
ever following a symbolic link (openat2(2)). The two halves need each other: lexical judgement alone is
fooled by a link on disk, and descriptors alone cannot tell a member that wants to leave from one that got lost.

Names are resolved as text (contract e.5): `.` and empty components vanish, `..` takes one component away,
and taking one from the root refuses the member, as does a leading `/`. A symbolic link's target is
resolved the same way from the directory that will hold the link, a hard link's from the root. The text of a
symbolic link is stored as it is; what its target is worth to a later reader is not decided here.
"""

import errno
from enum import Enum, unique
from typing import NamedTuple

from attrs import frozen

Parts = tuple[bytes, ...]
"""A path below the root: components without `/`, none of them empty, `.` or `..`. () is the root."""

NAME_MAX_BYTES = 4096
"""Longest member name taken, PATH_MAX: a longer one could be made step by step, and then never be named."""

MODE_MASK = 0o755
"""What of a member's mode is applied: no set-id or sticky bit, no write for group and others (contract e.5)."""


@unique
class MemberType(Enum):
    """What a member asks to be made."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symbolic link"
    HARD_LINK = "hard link"
    DEVICE = "device"
    FIFO = "FIFO"


@unique
class Action(Enum):
    """What to do with a member that may be extracted."""

    NOTHING = "nothing"
    """A directory member that names the root: it exists, and its mode is not taken from an archive."""
    DIRECTORY = "make a directory"
    FILE = "write a file"
    SYMLINK = "make a symbolic link"
    HARD_LINK = "make a hard link"


class Placed(NamedTuple):
    """The member may land at `parts`; for a hard link, `source` is what it names.

    A tuple, because one is made for every member of every archive: 0.3 µs against the 0.8 of a frozen class.
    """

    action: Action
    parts: Parts
    source: Parts = ()


@frozen
class Refused:
    """The member may not be extracted; `reason` is prose for the caller."""

    reason: str


ESCAPES = "path escapes the extraction root"
NAMES_ROOT = "only a directory member may name the root"
SPECIAL = "device and FIFO members are not extractable"
NO_TARGET = "link member has no target"
TOO_LONG = f"name is longer than {NAME_MAX_BYTES} bytes"
NUL_BYTE = "name or link target holds a NUL byte"

_RESOLVED = frozenset({b"", b".", b".."})


def shown(name: bytes, most: int = 200) -> str:
    """A name as text for a message: on one line, bounded, bytes that are no UTF-8 written as escapes."""
    text = name[:most].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return text + ("…" if len(name) > most else "")


def resolve(start: Parts, path: bytes) -> Parts | None:
    """Where `path`, as text, leads from the directory `start`; None when it is absolute or leaves the root."""
    if path[:1] == b"/":
        return None
    # What most archives hold: one leading `./` at most, and nothing else to resolve.
    components = (path[2:] if path[:2] == b"./" else path).split(b"/")
    if _RESOLVED.isdisjoint(components):
        return (*start, *components)
    parts = list(start)
    for component in components:
        if component == b"..":
            if not parts:
                return None
            parts.pop()
        elif component and component != b".":
            parts.append(component)
    return tuple(parts)


def judge(name: bytes, type: MemberType, target: bytes = b"") -> Placed | Refused:
    """Whether a member of this name, type and (for links) target may be extracted, and where (contract e.5)."""
    if len(name) > NAME_MAX_BYTES:
        return Refused(TOO_LONG)
    if b"\0" in name or b"\0" in target:
        return Refused(NUL_BYTE)
    parts = resolve((), name)
    if parts is None:
        return Refused(ESCAPES)
    if parts:
        if type is MemberType.FILE:
            return Placed(Action.FILE, parts)
        if type is MemberType.DIRECTORY:
            return Placed(Action.DIRECTORY, parts)
    if type is MemberType.DEVICE or type is MemberType.FIFO:
        return Refused(SPECIAL)
    if not parts:
        return Placed(Action.NOTHING, ()) if type is MemberType.DIRECTORY else Refused(NAMES_ROOT)
    return _judge_link(Action.SYMLINK if type is MemberType.SYMLINK else Action.HARD_LINK, parts, target)


def _judge_link(action: Action, parts: Parts, target: bytes) -> Placed | Refused:
    if not target:
        return Refused(NO_TARGET)
    if target[:1] == b"/":
        return Refused(f"absolute link target {shown(target)}")
    symbolic = action is Action.SYMLINK
    source = resolve(parts[:-1] if symbolic else (), target)
    if source is None:
        return Refused(f"link target {shown(target)} resolves outside the root")
    if symbolic:
        return Placed(action, parts)
    if not source:
        return Refused(f"link target {shown(target)} is the root itself")
    return Placed(action, parts, source)


_BLOCKED = {
    errno.ELOOP: "symbolic link",
    errno.EXDEV: "outside the root",
    errno.EACCES: "permissions",
}


def blocked(error: int, component: bytes) -> Refused | None:
    """The refusal that an errno met while descending into, or creating, `component` stands for.

    None when the errno is no verdict about the member but a failure to carry it out (contract e.5).
    """
    why = _BLOCKED.get(error)
    return None if why is None else Refused(f"cannot create under {shown(component)}: {why}")


@frozen
class Caps:
    """What one archive may hold: `members` entries, and `bytes` as the sum of its files' sizes."""

    members: int = 100_000
    bytes: int = 8 * 1024**3


def over(members: int, total: int, caps: Caps) -> Refused | None:
    """The refusal of an archive of so many members and bytes of files, None while it is within the caps.

    A cap itself is allowed, one more is not (contract b).
    """
    if members > caps.members:
        return Refused(f"more than {caps.members} members")
    if total > caps.bytes:
        return Refused(f"more than {caps.bytes} bytes of files")
    return None

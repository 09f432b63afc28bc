"""How a file write is carried out: its mode, its digest, its room on disk, and atomically or in place.

A write is *atomic* when the new content is completed beside the target and then takes the target's name in
one step (rename(2), linkat(2)): a reader sees the old file or the new one, and an interrupted write changes
nothing. Some targets cannot be replaced by name without changing what they are. A file with several links
would be split from its other names; a device or a FIFO is the thing itself, not its content. `way` decides
from what is at the target; `may_fall_back` says which refusals of the publishing step mean "this place
cannot be renamed into" (another mount, a mount point, a FUSE volume), where the finished content is copied into
the file that is there, and which are real failures.

Contract e.3 (mode grammar, modes kept), e.4 (disk reserve); digests are RFC 9530 fields.
"""

import base64
import binascii
import errno
import re
from enum import Enum, unique

from attrs import frozen

DISK_CHECK_BYTES = 8 * 1024 * 1024
"""The disk is measured before the first byte and again behind each full 8 MiB (contract b, e.4)."""


class InvalidMode(ValueError):
    """A mode that is no octal number up to 7777; the text names the value."""


class InvalidDigest(ValueError):
    """A digest field whose sha-256 member is malformed."""


def parse_mode(text: str) -> int:
    """The permission bits that a `mode` value names (contract e.3).

    Surrounding white space and one leading `0o` or `0O` are dropped, the rest is octal, at most 07777.
    """
    digits = text.strip()
    if digits[:2] in ("0o", "0O"):
        digits = digits[2:]
    # int(…, 8) alone would take signs, underscores and a second prefix.
    if re.fullmatch("[0-7]+", digits) and len(significant := digits.lstrip("0")) <= 4:
        return int(significant or "0", 8)
    raise InvalidMode(f"mode must be an octal number up to 7777, not {_shown(text)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


_SHA256 = re.compile(r"sha-256[ \t]*=[ \t]*([^;, \t]*)[ \t]*(?:;.*)?", re.ASCII)


def parse_digest(field_value: str) -> bytes | None:
    """The SHA-256 that a `Repr-Digest` or `Content-Digest` field declares (RFC 9530), 32 bytes.

    None when the field names other algorithms only: they are ignored, as section 2 allows. The last member
    of a repeated key counts (RFC 9651 section 3.2). Raises `InvalidDigest`.
    """
    declared = None
    for member in field_value.split(","):
        match = _SHA256.fullmatch(member.strip(" \t"))
        if match is not None:
            declared = match[1]
        elif member.strip(" \t").partition("=")[0].strip() == "sha-256":
            raise InvalidDigest("the sha-256 digest must be written :base64:")
    if declared is None:
        return None
    try:
        if len(declared) < 2 or declared[0] != ":" or declared[-1] != ":":
            raise ValueError
        digest = base64.b64decode(declared[1:-1], validate=True)
    except (ValueError, binascii.Error):
        raise InvalidDigest("the sha-256 digest must be written :base64:") from None
    if len(digest) != 32:
        raise InvalidDigest(f"a SHA-256 digest has 32 bytes, not {len(digest)}")
    return digest


def format_digest(sha256: bytes) -> str:
    """The field value that declares this SHA-256 (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(sha256).decode('ascii')}:"


def disk_refuses(available: int | None, reserve: int) -> bool:
    """Whether a write must be refused: bytes free for us below the reserve (contract e.4).

    A reserve of 0 disables the guard, and a disk that cannot be measured (None) is not held against the caller.
    """
    return reserve > 0 and available is not None and available < reserve


@unique
class FileType(Enum):
    """What stands at the target once symbolic links are followed."""

    ABSENT = "absent"
    REGULAR = "regular file"
    DIRECTORY = "directory"
    OTHER = "device, FIFO or socket"


@frozen
class Target:
    """What is known about a write's target before the first byte."""

    type: FileType
    links: int = 0
    """Names of a regular file."""
    name_known: bool = True
    """Whether the file's own name was found; not so behind /proc/self/fd, for instance."""
    writable: bool = True
    """Whether this process may write an existing regular file: replacing it must not be a way around that."""


@unique
class Way(Enum):
    """How the bytes get into place."""

    REPLACE = "replace"
    """Complete the content beside the target, then give it the target's name."""
    COPY = "copy"
    """Complete the content elsewhere, then copy it into the file that is there."""
    STREAM = "stream"
    """Write each byte to the target as it arrives: there is no old content to keep."""
    IS_DIRECTORY = "is a directory"
    NOT_WRITABLE = "not writable"


@frozen
class Plan:
    """A `Way`, and the reason when it is not an atomic one."""

    way: Way
    reason: str = ""


def way(target: Target) -> Plan:
    """How to write to `target`."""
    if target.type is FileType.DIRECTORY:
        return Plan(Way.IS_DIRECTORY)
    if target.type is FileType.OTHER:
        return Plan(Way.STREAM, "the target is no regular file")
    if target.type is FileType.ABSENT:
        return Plan(Way.REPLACE)
    if not target.writable:
        return Plan(Way.NOT_WRITABLE)
    if target.links != 1:
        return Plan(Way.COPY, f"the target has {target.links} links")
    if not target.name_known:
        return Plan(Way.COPY, "the target has no name of its own")
    return Plan(Way.REPLACE)


# Publishing refused because of where the target is, not because something broke.
_PLACE_ERRNOS = frozenset(
    {
        errno.EXDEV,  # the target is on another mount than its directory
        errno.EBUSY,  # the target is a mount point, as container runtimes bind /etc/hosts
        errno.EPERM,  # sticky directory of another owner, a volume that cannot rename
        errno.EACCES,  # the directory may not be changed, the file may
        errno.ENOSYS,
        errno.EOPNOTSUPP,
        errno.EINVAL,
        errno.EROFS,  # a writable file bound into a read-only tree
        errno.ENOENT,  # the unnamed content is on a file system that cannot name it
    }
)


def may_fall_back(error: int) -> bool:
    """Whether this errno of making or publishing the temporary file means: write in place instead."""
    return error in _PLACE_ERRNOS

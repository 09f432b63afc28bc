"""How an operation on files fails: a kind that a face maps to its own status, and prose for a person.

The prose names paths, limits and the system's own error text. It holds no content of a file and nothing of
the request but the path, so it may be logged and sent. `errno` is kept for faces that tell more cases apart
than this wire does (contract a.10: 404 for ENOENT only, most others 500).
"""

import os
from enum import Enum, unique

from agentd.rules.members import shown


@unique
class Kind(Enum):
    """What went wrong, in words that no face owns; the status is that of wire protocol v1."""

    BAD_REQUEST = "bad_request"
    """The request cannot mean anything that may be done (400)."""
    NOT_FOUND = "not_found"
    """The path itself does not exist (404)."""
    UNSATISFIABLE = "unsatisfiable"
    """A byte range behind the end of the file (416)."""
    TOO_LARGE = "too_large"
    """Over a configured cap (413)."""
    UNSUPPORTED = "unsupported"
    """A content coding that this daemon cannot decode (415)."""
    NO_SPACE = "no_space"
    """The disk is full, or would get fuller than the reserve allows (507)."""
    FAILED = "failed"
    """The system refused (500)."""


class FilesError(Exception):
    """A failed operation: `kind` for the face, `detail` for the caller, `errno` when the system gave one."""

    def __init__(self, kind: Kind, detail: str, errno: int | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errno = errno


class RangeUnsatisfiable(FilesError):
    """No byte of the file is in the requested range; `size` goes into `Content-Range: bytes */size`."""

    def __init__(self, detail: str, size: int) -> None:
        super().__init__(Kind.UNSATISFIABLE, detail)
        self.size = size


def failure(verb: str, path: bytes, error: OSError, kind: Kind = Kind.FAILED) -> FilesError:
    """The `FilesError` of `kind` for a system call that failed while doing `verb` to `path`."""
    return FilesError(kind, f"cannot {verb} {shown(path)}: {os.strerror(error.errno or 0)}", error.errno)

"""How much room is left where a path is, or would be (statvfs(3), contract e.4)."""

import os


def available_bytes(path: str | bytes) -> int:
    """The bytes an unprivileged writer can still add at `path`: ``f_bavail * f_frsize``.

    The path need not exist: its nearest existing ancestor is measured, since that is where it would be
    created. Relative paths start at the working directory, and the empty path is that directory.

    Raises `OSError` when that cannot be measured: the error met at the first ancestor that is neither
    missing nor beneath something that is no directory.
    """
    here = os.fsencode(path) or b"."
    while True:
        try:
            found = os.statvfs(here)
        except (FileNotFoundError, NotADirectoryError):
            above = os.path.dirname(here.rstrip(b"/")) or (b"/" if here.startswith(b"/") else b".")
            if above == here:
                raise
            here = above
        else:
            return found.f_bavail * found.f_frsize

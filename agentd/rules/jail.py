"""Which canonical paths a jail allows: roots, a denylist, and text that has to mean the same on disk (reference B0).

Everything here judges text. That a path is canonical, and stays so until it is used, is the business of
whoever resolves and opens it (`agentd.worker.reach`). Prefixes are compared by component, so ``/tmp/ab`` is not
below ``/tmp/a``.
"""

from collections.abc import Iterable, Iterator
from enum import Enum, unique
from typing import Final

PATH_MAX_BYTES: Final = 4096
"""Longest path taken, as the system's own limit (path_resolution(7))."""


@unique
class Verdict(Enum):
    """What a jail says of a canonical path."""

    ALLOWED = "allowed"
    OUTSIDE = "outside every root"
    DENIED = "on the denylist"


def below(path: bytes, prefix: bytes) -> bool:
    """Whether `path` is `prefix` or below it; both canonical."""
    return path == prefix or path.startswith(prefix if prefix.endswith(b"/") else prefix + b"/")


def relative(path: bytes, root: bytes) -> bytes:
    """What `path`, which is `root` or below it, is called from there; empty for the root itself."""
    return path[len(root) :].lstrip(b"/")


def join(directory: bytes, rest: bytes) -> bytes:
    """The path of `rest` in `directory`; `rest` empty is the directory."""
    if not rest:
        return directory
    return directory + rest if directory.endswith(b"/") else directory + b"/" + rest


def judge(path: bytes, roots: Iterable[bytes], denied: Iterable[bytes]) -> Verdict:
    """Whether the canonical `path` may be touched; without roots, wherever the denylist does not reach."""
    jailed = tuple(roots)
    if jailed and not any(below(path, root) for root in jailed):
        return Verdict.OUTSIDE
    if any(below(path, prefix) for prefix in denied):
        return Verdict.DENIED
    return Verdict.ALLOWED


def names_within(path: bytes, roots: Iterable[bytes]) -> Iterator[bytes]:
    """What `path` is called from each root that contains it, and from ``/`` if there are no roots."""
    for root in tuple(roots) or (b"/",):
        if below(path, root):
            yield relative(path, root)


def normalise(path: bytes) -> bytes:
    """An absolute path with ``.``, ``..`` and empty components collapsed as text."""
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/" + b"/".join(parts)

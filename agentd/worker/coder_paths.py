"""Where the coder functions may work, and what their callers are told of a path (reference B0, B4).

The roots are those of the jail; without any, the worker's directory and ``/tmp``. A path outside all of them is C215.
One that is protected or denied is C211, in exactly the words of one that does not exist, so that nobody learns from
the answer what there is.
"""

import errno
import os
from collections.abc import Callable
from typing import Final

from attrs import field, frozen
from twisted.logger import Logger

from agentd.rules.jail import below, join, names_within, relative
from agentd.worker import reach
from agentd.worker.errors import CoderError
from agentd.worker.globs import BadGlob, Globs, globset
from agentd.worker.jail import Unbuildable, brief, denied_path, shown_path
from agentd.worker.protection import Protection
from agentd.worker.settings import Settings

_log = Logger()
_FALLBACK: Final = b"/tmp"
_MISSING: Final = "not found or not accessible; coder::list-folder shows what a folder holds"


@frozen
class CoderPlace:
    """A caller's path, inside `root`: `path` is canonical, and need not exist."""

    given: str
    path: bytes
    root: bytes

    @property
    def relative(self) -> bytes:
        """What it is called from its root; empty for the root itself."""
        return relative(self.path, self.root)

    @property
    def shown(self) -> str:
        """The canonical path, for a result."""
        return shown_path(self.path)


@frozen
class CoderPaths(Protection):
    """What the settings let coder functions touch. Everything blocks."""

    noise: Globs = field(repr=False)
    _either: Globs = field(repr=False)

    @classmethod
    def build(cls, settings: Settings, cwd: str) -> "CoderPaths":
        """The paths of `settings`. Raises `Unbuildable` for a bad glob; roots that cannot be reached are left out."""
        here = os.fsencode(cwd)
        wanted = [os.path.join(here, os.fsencode(root)) for root in settings.fs.host_roots]
        roots = []
        for root in wanted or [here, _FALLBACK]:
            try:
                roots.append(os.path.realpath(root, strict=True))
            except (OSError, ValueError):
                _log.warn("a root of the coder functions cannot be reached: {root}", root=shown_path(root))
        denied = tuple(denied_path(here, path) for path in settings.fs.denylist_paths)
        globs: list[Globs] = []
        for key in ("non_accessible_globs", "default_exclude_globs"):
            try:
                globs.append(globset(getattr(settings.code, key)))
            except BadGlob as reason:
                raise Unbuildable(f"code.{key}: {reason}") from None
        either = globset([*globs[0].patterns, *globs[1].patterns])
        return cls(tuple(dict.fromkeys(roots)), denied, globs[0], globs[1], either)

    def resolve(self, path: str) -> CoderPlace:
        """Where `path` leads. Raises `CoderError`: C210 for no path at all, C215 outside every root, C216.

        Whether it may be seen is another question: `check`.
        """
        if not self.roots:
            raise CoderError("C210", "no root of the coder functions can be reached; see fs.host_roots")
        absolute = self._absolute(path)
        try:
            real = reach.canonical(absolute)
        except reach.Dangling:
            raise CoderError(
                "C215", f"{brief(path)} leads through a link that does not lead to a file inside a root"
            ) from None
        except OSError as reason:
            raise coder_error(path, reason) from None
        candidates = self.roots if path.startswith("/") else self.roots[:1]
        root = next((each for each in candidates if below(real, each)), None)
        if root is None:
            roots = ", ".join(map(shown_path, self.roots))
            raise CoderError(
                "C215",
                f"{brief(path)} is outside every allowed root ({roots}); "
                "shell::fs::* may reach paths outside them",
            )
        return CoderPlace(path, real, root)

    def _absolute(self, path: str) -> bytes:
        if not path:
            raise CoderError("C210", "the path is empty")
        try:
            encoded = path.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise CoderError("C210", "the path is not valid Unicode") from None
        if b"\0" in encoded:
            raise CoderError("C210", "the path has a NUL byte in it")
        return encoded if encoded.startswith(b"/") else join(self.roots[0], encoded)

    def check(self, place: CoderPlace) -> None:
        """Raises `CoderError` C211 for a place that must not be seen."""
        if self.hides(place.path):
            raise missing(place.given)

    def is_noise(self, place: CoderPlace, below_root: bytes) -> bool:
        """Whether the directory `below_root`, relative to the root of `place`, is left out by the default globs.

        A glob such as ``**/.git/**`` is about what is in the directory; the directory is asked about as if it held
        something.
        """
        return self.noise.matches(below_root) or self.noise.matches(below_root + b"/\0")

    def plain_below(self, place: CoderPlace) -> Callable[[bytes], bool]:
        """Whether a file, by its path from the directory `place`, is surely neither hidden nor noise.

        Nearly all are, and this asks both lists of globs at once. No says nothing: then each has to be asked.
        """
        names = tuple(names_within(place.path, self.roots))
        if names != (place.relative,) or self.denies(place.path) or self.holds_denied(place.path):
            return lambda path: False
        prefix = place.relative + b"/" if place.relative else b""
        matches = self._either.matches
        return lambda path: not matches(prefix + path)

    def is_root(self, path: bytes) -> bool:
        """Whether a canonical path is a root, or above one."""
        return any(below(root, path) for root in self.roots)


def missing(given: str) -> CoderError:
    """What is said of a path that does not exist, or must not be seen to."""
    return CoderError("C211", f"{brief(given)}: {_MISSING}")


def coder_error(given: str, error: OSError) -> CoderError:
    """What a caller is told of a system call that failed on the path it gave (reference B0, mapping)."""
    if error.errno == errno.ENOENT:
        return missing(given)
    if error.errno == errno.EEXIST:
        return CoderError("C217", f"{brief(given)} already exists; pass overwrite: true to replace it")
    what = error.strerror or os.strerror(error.errno or 0)
    if error.errno == errno.ELOOP:
        what = "a link has taken the place of what was there"
    return CoderError("C216", f"{brief(given)}: {what}")

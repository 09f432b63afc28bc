"""The jail of the file functions and of working directories: from a caller's path to one that may be used.

A path is made canonical, judged (`agentd.rules.jail`), and from then on reached without following links
(`agentd.worker.reach`). Roots and denylist are made canonical once, when the configuration is.

Stricter than the original in two points that its contract leaves open. Protection globs hold without roots too,
relative to ``/``. And what acts on a link itself looks at where the link is as well as at where it leads.
"""

import errno
import os
import stat

from attrs import define, frozen

from agentd.rules.jail import Verdict, below, join, judge, normalise
from agentd.worker import reach
from agentd.worker.errors import Coded
from agentd.worker.globs import BadGlob, globset
from agentd.worker.protection import Protection
from agentd.worker.settings import Settings


class Unbuildable(Exception):
    """No jail can be made of the settings; the text says why."""


@frozen
class Place:
    """A caller's path, found good: `path` is canonical, and need not exist."""

    given: str
    path: bytes


@define
class Directory:
    """A directory held open. `path` leads to it, and nowhere else, until it is closed."""

    path: str
    _fd: int

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def shown_path(path: bytes) -> str:
    """A path for a caller; bytes that are not UTF-8 become U+FFFD."""
    return path.decode("utf-8", "replace")


@frozen
class Jail(Protection):
    """What the settings let file functions touch. Everything blocks."""

    cwd: bytes = b"/"

    @classmethod
    def build(cls, settings: Settings, cwd: str) -> "Jail":
        """The jail of `settings`; relative entries there are meant from `cwd`. Raises `Unbuildable`."""
        here = os.fsencode(cwd)
        roots = tuple(dict.fromkeys(_root(here, root) for root in settings.fs.host_roots))
        denied = tuple(denied_path(here, path) for path in settings.fs.denylist_paths)
        try:
            protected = globset(settings.code.non_accessible_globs)
        except BadGlob as reason:
            raise Unbuildable(f"code.non_accessible_globs: {reason}") from None
        return cls(roots, denied, protected, here)

    # -- judging -------------------------------------------------------------------------------------------------

    def resolve(self, path: str) -> Place:
        """Where `path` leads, links followed. Raises `Coded`: S210, S215, S216."""
        return Place(path, self._judged(path, self._absolute(path)))

    def entry(self, path: str) -> Place:
        """What `path` itself names, for what acts on a link; where that leads is judged too. Raises `Coded`."""
        absolute = self._absolute(path)
        self._judged(path, absolute)
        head, name = os.path.split(normalise(absolute))
        if not name:
            return Place(path, b"/")
        try:
            place = join(reach.canonical(head), name)
        except (reach.Dangling, OSError) as reason:
            raise self._failed(path, reason) from None
        self._judge(path, place)
        return Place(path, place)

    def is_root(self, path: bytes) -> bool:
        """Whether a canonical path is what must stay: a root, or above one."""
        return path == b"/" or any(below(root, path) for root in self.roots)

    def _absolute(self, path: str) -> bytes:
        if not path:
            raise Coded("S210", "the path is empty")
        try:
            encoded = path.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise Coded("S210", "the path is not valid Unicode") from None
        if b"\0" in encoded:
            raise Coded("S210", "the path has a NUL byte in it")
        if encoded.startswith(b"/"):
            return encoded
        if not self.roots:
            raise Coded("S210", f"the path must be absolute, as no fs.host_roots are set: {brief(path)}")
        return join(self.roots[0], encoded)

    def _judged(self, given: str, absolute: bytes) -> bytes:
        try:
            path = reach.canonical(absolute)
        except (reach.Dangling, OSError) as reason:
            raise self._failed(given, reason) from None
        self._judge(given, path)
        return path

    def _judge(self, given: str, path: bytes) -> None:
        verdict = judge(path, self.roots, self.denied)
        if verdict is Verdict.OUTSIDE:
            roots = ", ".join(map(shown_path, self.roots))
            raise Coded("S215", f"{brief(given)} is outside the jail; its roots are {roots}")
        if verdict is Verdict.DENIED:
            raise Coded("S215", f"{brief(given)} is on the denylist (fs.denylist_paths)")
        if self.protects(path):
            raise Coded("S215", f"{brief(given)} is protected (code.non_accessible_globs)")

    def _failed(self, given: str, reason: Exception) -> Coded:
        if isinstance(reason, OSError):
            return fs_error(given, reason)
        return Coded("S215", f"{brief(given)} leads through a link that does not lead to a file")

    # -- a working directory -------------------------------------------------------------------------------------

    def directory(self, path: str) -> Directory:
        """The directory at `path`, for a command to run in. Raises `Coded`: S210 for no directory, S211, S215."""
        place = self.resolve(path)
        try:
            fd = reach.open_path(place.path, os.O_PATH)
        except OSError as reason:
            if reason.errno == errno.ENOTDIR:
                raise Coded("S210", f"{brief(path)} is not a directory") from None
            raise fs_error(path, reason) from None
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            os.close(fd)
            raise Coded("S210", f"{brief(path)} is not a directory")
        return Directory(os.fsdecode(reach.handle(fd)), fd)


def _root(cwd: bytes, path: str) -> bytes:
    try:
        real = os.path.realpath(os.path.join(cwd, os.fsencode(path)), strict=True)
        if not os.path.isdir(real):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except (OSError, ValueError) as reason:
        said = os.strerror(reason.errno or 0) if isinstance(reason, OSError) else "not a path"
        raise Unbuildable(f"S216: fs.host_roots: {brief(path)} cannot be reached: {said}") from None
    return real


def denied_path(cwd: bytes, path: str) -> bytes:
    try:
        written = os.path.join(cwd, os.fsencode(path))
        return reach.canonical(written)
    except ValueError:
        raise Unbuildable(f"fs.denylist_paths: {brief(path)} is no path") from None
    except (OSError, reach.Dangling):
        return normalise(written)


_CODES = {
    errno.ENOENT: "S211",
    errno.EEXIST: "S213",
    errno.ENOTEMPTY: "S214",
    errno.EACCES: "S215",
    errno.EPERM: "S215",
    errno.ELOOP: "S215",
    errno.EISDIR: "S212",
}


def fs_error(given: str, error: OSError) -> Coded:
    """What a caller is told of a system call that failed on the path it gave (reference B0, mapping)."""
    what = os.strerror(error.errno) if error.errno else str(error)
    if error.errno == errno.EINVAL and error.strerror:
        what = error.strerror
    if error.errno == errno.ELOOP:
        what = "a link has taken the place of what was there"
    return Coded(_CODES.get(error.errno or 0, "S216"), f"{brief(given)}: {what}")


def brief(path: str) -> str:
    """A path in a message, of bounded length and without line breaks."""
    text = path if len(path) <= 512 else path[:512] + "…"
    return text.encode("utf-8", "replace").decode().replace("\n", "\\n").replace("\0", "\\0")

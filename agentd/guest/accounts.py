"""From the names of a start to everything needed to spawn it, on a pool thread (contract c.3 and c.4).

The decisions are `agentd.rules.resolution`'s. This module gives them what they ask of the machine (the account
files as they are now, whether a path can be executed) and prepares the working directory.

A working directory is entered with the rights of the user the child runs as. The spawning code changes directory
before it changes user, so the directory is opened here with those rights, and the child enters through the
descriptor: no name is looked up again with root's rights.

A bad directory is not a refusal. It is a failed *spawn* (500), which a retry of a known exec must not meet, so
that fault is kept in the answer until the caller has decided to spawn.
"""

import errno
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from attrs import field, frozen

from agentd.linux import credentials
from agentd.rules import resolution
from agentd.rules.resolution import GroupRow, PasswdRow, Plan, Refusal, Resolved

_FILE_BYTES: Final = 16 * 1024 * 1024
"""How much of an account file is read: some 200,000 accounts."""


@frozen
class Identity:
    """What the daemon itself runs as: what a child gets when it asks for nothing else."""

    uid: int
    gid: int
    groups: tuple[int, ...]

    @classmethod
    def of_daemon(cls) -> Self:
        """As the kernel sees this process now."""
        return cls(uid=os.geteuid(), gid=os.getegid(), groups=tuple(os.getgroups()))


def is_executable_file(path: str) -> bool:
    """Whether `path` is a regular file with an execute bit for anybody, symbolic links followed.

    Whatever cannot be looked at is none. Whether the child's user may execute it shows when it tries.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # ValueError: a NUL, or a text no file name can be
        return False
    return stat.S_ISREG(mode) and mode & 0o111 != 0


@frozen
class AccountFiles:
    """Where users and groups are listed, and whatever else of the machine decides who a child is. All of it is looked
    at anew whenever a start is resolved."""

    passwd: Path = Path("/etc/passwd")
    group: Path = Path("/etc/group")
    is_executable: Callable[[str], bool] = is_executable_file
    """Whether a path can be run."""
    daemon: Callable[[], Identity] = Identity.of_daemon
    """Whom a child runs as that asks for nothing else."""

    def read_passwd(self) -> tuple[PasswdRow, ...]:
        """The users; none when the file cannot be read."""
        return resolution.parse_passwd(_content(self.passwd))

    def read_group(self) -> tuple[GroupRow, ...]:
        """The groups; none when the file cannot be read."""
        return resolution.parse_group(_content(self.group))


@frozen
class StartRequest:
    """The fields of a start that are resolved here, as the caller gave them (contract a.2)."""

    user: int | str | None = None
    group: int | str | None = None
    shell: bool | str = False
    cwd: str | None = None
    environment: Mapping[str, str] = field(factory=dict, repr=False, hash=False)
    inherit_image_env: bool = False

    @property
    def may_block(self) -> bool:
        """Whether resolving it may look at the file system; if not, the reactor thread may resolve it."""
        return self.user is not None or self.group is not None or isinstance(self.shell, str)


class Directory:
    """An open directory for a child to enter: an O_PATH descriptor with an owner.

    The owner closes it; should an answer get lost on its way back from the pool, its collection does.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def path(self) -> str:
        """The name under which a process that has this descriptor enters the directory."""
        return f"/proc/self/fd/{self._fd}"

    def close(self) -> None:
        """Close the descriptor; may be repeated."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


@frozen
class PreparedStart:
    """What to spawn with. Close it after the spawn, or when there will be none; it is a context manager.

    `uid`, `gid` and `groups` are None where the child keeps what the daemon has, so that a start that changes
    none of them can take the quick way. `fault` is why it cannot be spawned: raise it instead of spawning.
    """

    uid: int | None
    gid: int | None
    groups: tuple[int, ...] | None
    environment: Mapping[str, str] = field(repr=False, hash=False)
    """The child's whole environment, read-only."""
    shell: str | None
    """The path of the shell to run the script with, or None to run the argv itself."""
    cwd: str | None
    """Where to change to before changing user, or None to stay where the daemon is."""
    fault: OSError | None
    _directory: Directory | None = field(default=None, repr=False)

    def close(self) -> None:
        """Let go of the working directory; may be repeated."""
        if self._directory is not None:
            self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def resolve_start(
    request: StartRequest,
    launch: Mapping[str, str],
    image: Mapping[str, str],
    files: AccountFiles = AccountFiles(),
) -> PreparedStart | Refusal:
    """Everything needed to spawn `request`, or why it is refused before anything is spawned.

    `launch` is the environment of the winning run hook, `image` the snapshot of the daemon's. Belongs on
    a pool thread when `request.may_block`. Whoever gets a `PreparedStart` must close it.
    """
    by_name = isinstance(request.user, str) or isinstance(request.group, str)
    found = resolution.plan(
        user=request.user,
        group=request.group,
        shell=request.shell,
        inherit=request.inherit_image_env,
        request=request.environment,
        launch=launch,
        image=image,
        passwd=() if request.user is None else files.read_passwd(),
        groups=files.read_group() if by_name else (),
        is_executable=files.is_executable,
    )
    return _prepare(found, request.cwd, files.daemon()) if isinstance(found, Plan) else found


def _prepare(plan: Plan, cwd: str | None, daemon: Identity) -> PreparedStart:
    asked = _supported(plan.principal, daemon)
    uid = daemon.uid if asked.uid is None else asked.uid
    gid = daemon.gid if asked.gid is None else asked.gid
    groups = daemon.groups if asked.supplementary is None else asked.supplementary
    changes = (uid, gid) != (daemon.uid, daemon.gid) or {gid, *groups} != {gid, *daemon.groups}
    if not changes:
        groups = (
            daemon.groups
        )  # equal but for the group one runs with anyway, in which membership adds nothing
    directory: Directory | None = None
    fault: OSError | None = None
    if resolution.NO_ID in (uid, gid):
        fault = OSError(errno.EINVAL, "4294967295 is no user or group")
    elif cwd is not None and changes:
        try:
            directory = Directory(credentials.open_directory_as(cwd, uid, gid, groups))
        except OSError as error:
            fault = error
    return PreparedStart(
        uid=None if uid == daemon.uid else uid,
        gid=None if gid == daemon.gid else gid,
        groups=None if set(groups) == set(daemon.groups) else groups,
        environment=plan.environment,
        shell=plan.shell,
        cwd=cwd if directory is None else directory.path,
        fault=fault,
        directory=directory,
    )


def _supported(principal: Resolved, daemon: Identity) -> Resolved:
    """What can be asked of the kernel: only root may touch the supplementary groups (contract c.1)."""
    if daemon.uid == 0:
        return principal
    return Resolved(uid=principal.uid, gid=principal.gid, supplementary=None, identity=principal.identity)


def _content(path: Path) -> bytes:
    """The whole lines of a regular file, up to the limit; nothing when there is no such thing to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe in its place must not block
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        text = _read_up_to(fd, _FILE_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)
    return text if len(text) < _FILE_BYTES else text[: text.rfind(b"\n") + 1]


def _read_up_to(fd: int, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit
    while left and (part := os.read(fd, min(left, 65536))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)

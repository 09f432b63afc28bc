"""Who a command runs as, and through which shell: names turned into numbers and paths (contract c.3).

Theory of operation
-------------------
A request names a user, a group and a shell, each optional. They are resolved in the guest, against the passwd and
group files as they are at that moment, before anything is spawned; the first that fails decides the refusal, and
a refused start leaves no trace.

    user      uid            gid when no group is given     identity    supplementary groups
    none      the daemon's   the daemon's                   none        left alone; cleared with a group
    a number  that           the daemon's                   row of uid  cleared
    a name    row's          row's                          row         the groups listing the name, and the gid
    digits    as a number, when no row has that name

The rows come from parsers that never fail: a line that is not a record is skipped by itself. Each column of the
table is one function, so that the checker can replace any of them by a wrong one and see it caught (contract j.3).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from attrs import field, frozen

from agentd.rules import environ

NO_ID: Final = 0xFFFF_FFFF
"""Fits the type of an id, and is none: system calls read it as "leave unchanged" (setresuid(2))."""

SYSTEM_SHELL: Final = "/bin/sh"
"""What ``shell: true`` means, wherever the child's PATH points."""

SHELL_DIRECTORIES: Final = ("/bin", "/usr/bin")
"""Where a shell is looked for after every PATH."""

_ID_DIGITS: Final = 10
_NOT_A_RECORD: Final = ("#", "+", "-")


@frozen
class PasswdRow:
    """What is used of one line of the passwd file (passwd(5))."""

    name: str
    uid: int
    gid: int
    home: str


@frozen
class GroupRow:
    """What is used of one line of the group file (group(5))."""

    name: str
    gid: int
    members: tuple[str, ...]


@frozen
class UnknownUser:
    """400 ``unknown_user``: no row has this name, and it is no uid either."""

    value: str


@frozen
class UnknownGroup:
    """400 ``unknown_group``: no row has this name, and it is no gid either."""

    value: str


@frozen
class UnknownShell:
    """400 ``unknown_shell``: no executable file can be meant by this name."""

    value: str


@frozen
class Malformed:
    """400 ``malformed_request``: the shell is the empty string."""


@frozen
class User:
    """A user found: `uid` is None for the daemon's own, `row` where the passwd file knows them."""

    uid: int | None
    row: PasswdRow | None = None
    by_name: bool = False


@frozen
class Resolved:
    """Who a child runs as. None always means: as the daemon, unchanged."""

    uid: int | None
    gid: int | None
    supplementary: tuple[int, ...] | None
    identity: PasswdRow | None


@frozen
class Candidates:
    """Where a shell may be, absolute paths in the order of preference."""

    paths: tuple[str, ...]


@frozen
class Plan:
    """Everything about a start that names had to be resolved for."""

    principal: Resolved
    shell: str | None
    """The absolute path of the shell to run the script with, or None to run the argv itself."""
    environment: Mapping[str, str] = field(repr=False, hash=False)
    """The child's whole environment, read-only."""


Refusal = UnknownUser | UnknownGroup | UnknownShell | Malformed
"""Why a start is refused, with nothing spawned and no id registered."""


# -- the files -----------------------------------------------------------------------------------------------


def parse_id(text: str) -> int | None:
    """The user or group id that `text` writes: ASCII digits of at most 32 bits' worth, else None."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0")
    if len(digits) > _ID_DIGITS:
        return None
    number = int(digits or "0")
    return number if number <= NO_ID else None


def records(text: bytes, fields: int) -> Iterator[list[str]]:
    """The lines of `text` that have exactly `fields` colon-separated fields, the first not empty.

    Skipped are blank lines, comments, and the ``+`` and ``-`` lines that once stood for another database.
    Bytes that are not UTF-8 survive as surrogates, as file names do (`os.fsdecode`).
    """
    for line in text.split(b"\n"):
        row = line.removesuffix(b"\r").decode("utf-8", "surrogateescape").split(":")
        if len(row) == fields and row[0] and not row[0].startswith(_NOT_A_RECORD):
            yield row


def parse_passwd(text: bytes) -> tuple[PasswdRow, ...]:
    """The rows of a passwd file: seven fields, of which the uid and the gid are ids. Never fails."""
    rows = []
    for name, _, uid_text, gid_text, _, home, _ in records(text, 7):
        uid, gid = parse_id(uid_text), parse_id(gid_text)
        if uid is not None and gid is not None:
            rows.append(PasswdRow(name=name, uid=uid, gid=gid, home=home))
    return tuple(rows)


def parse_group(text: bytes) -> tuple[GroupRow, ...]:
    """The rows of a group file: four fields, of which the gid is an id. Never fails."""
    rows = []
    for name, _, gid_text, members in records(text, 4):
        gid = parse_id(gid_text)
        if gid is not None:
            listed = tuple(member for member in members.split(",") if member)
            rows.append(GroupRow(name=name, gid=gid, members=listed))
    return tuple(rows)


# -- the user and the group ----------------------------------------------------------------------------------


def user_by_id(uid: int, passwd: Sequence[PasswdRow]) -> User:
    """The user of number `uid`, which need not be in the file."""
    return User(uid=uid, row=next((row for row in passwd if row.uid == uid), None))


def user_by_name(name: str, passwd: Sequence[PasswdRow]) -> User | UnknownUser:
    """The first user of that name; else the user whose number the name is, digit by digit."""
    row = next((row for row in passwd if row.name == name), None)
    if row is not None:
        return User(uid=row.uid, row=row, by_name=True)
    uid = parse_id(name)
    return UnknownUser(name) if uid is None else user_by_id(uid, passwd)


def find_user(user: int | str | None, passwd: Sequence[PasswdRow]) -> User | UnknownUser:
    """The user a request means; none given is the daemon's own, without identity."""
    if user is None:
        return User(uid=None)
    return user_by_name(user, passwd) if isinstance(user, str) else user_by_id(user, passwd)


def find_group(group: int | str | None, groups: Sequence[GroupRow]) -> int | UnknownGroup | None:
    """The gid a request means; None when it gives no group."""
    if not isinstance(group, str):
        return group
    row = next((row for row in groups if row.name == group), None)
    if row is not None:
        return row.gid
    gid = parse_id(group)
    return UnknownGroup(group) if gid is None else gid


def primary_gid(user: User, group: int | None) -> int | None:
    """The gid to run with: the group given, else that of a user given by name, else the daemon's (None)."""
    if group is not None:
        return group
    return user.row.gid if user.by_name and user.row is not None else None


def supplementary_groups(user: User, gid: int | None, groups: Sequence[GroupRow]) -> tuple[int, ...] | None:
    """The further groups to run with; None leaves the daemon's in place.

    Who is given by name gets what a log-in would give (initgroups(3)): `gid`, then every group that lists the
    name. Who is given by number gets none, and so does a bare group.
    """
    if user.by_name and user.row is not None:
        name = user.row.name
        listed = (row.gid for row in groups if name in row.members and row.gid != NO_ID)
        return tuple(dict.fromkeys((*(() if gid is None else (gid,)), *listed)))
    return None if user.uid is None and gid is None else ()


def resolve(
    user: int | str | None, group: int | str | None, passwd: Sequence[PasswdRow], groups: Sequence[GroupRow]
) -> Resolved | UnknownUser | UnknownGroup:
    """Who a child runs as, or the first of user and group that cannot be resolved.

    Numbers are taken as they are: the caller has made sure that they are unsigned 32-bit ones.
    """
    found = find_user(user, passwd)
    if isinstance(found, UnknownUser):
        return found
    given = find_group(group, groups)
    if isinstance(given, UnknownGroup):
        return given
    gid = primary_gid(found, given)
    return Resolved(
        uid=found.uid, gid=gid, supplementary=supplementary_groups(found, gid, groups), identity=found.row
    )


def identity_variables(row: PasswdRow | None) -> Mapping[str, str]:
    """The identity layer of the environment: HOME, USER and LOGNAME of a row, or nothing without one."""
    return {} if row is None else {"HOME": row.home, "USER": row.name, "LOGNAME": row.name}


# -- the shell -----------------------------------------------------------------------------------------------


def path_directories(path: str | None) -> tuple[str, ...]:
    """The directories of a PATH that are absolute; the others would depend on where the child stands."""
    return tuple(entry for entry in (path or "").split(":") if entry.startswith("/"))


def shell_candidates(
    shell: str, child_path: str | None, image_path: str | None
) -> Candidates | Malformed | UnknownShell:
    """Where the shell named `shell` may be, before looking at any file.

    A path is taken as it is and has to be absolute. A bare name is looked for on the child's PATH, then on the
    image's (even when the child does not inherit it), then in /bin and /usr/bin.
    """
    if not shell:
        return Malformed()
    if "/" in shell:
        return Candidates((shell,)) if shell.startswith("/") else UnknownShell(shell)
    directories = (*path_directories(child_path), *path_directories(image_path), *SHELL_DIRECTORIES)
    paths = (f"{directory.rstrip('/')}/{shell}" for directory in directories)
    return Candidates(tuple(dict.fromkeys(paths)))


def choose_shell(
    shell: bool | str, child_path: str | None, image_path: str | None, is_executable: Callable[[str], bool]
) -> str | Malformed | UnknownShell | None:
    """The path of the shell to run, or None to run without one.

    `is_executable` tells whether a path is a regular file with an x bit, symbolic links followed. The first
    candidate that is, wins. True is the system's shell, which is not looked for: its absence fails the spawn.
    """
    if isinstance(shell, bool):
        return SYSTEM_SHELL if shell else None
    candidates = shell_candidates(shell, child_path, image_path)
    if not isinstance(candidates, Candidates):
        return candidates
    return next((path for path in candidates.paths if is_executable(path)), None) or UnknownShell(shell)


# -- all of it -----------------------------------------------------------------------------------------------


def plan(
    user: int | str | None,
    group: int | str | None,
    shell: bool | str,
    inherit: bool,
    request: Mapping[str, str],
    launch: Mapping[str, str],
    image: Mapping[str, str],
    passwd: Sequence[PasswdRow],
    groups: Sequence[GroupRow],
    is_executable: Callable[[str], bool],
) -> Plan | Refusal:
    """Resolve a start: the first that fails of user, group and shell, or everything needed to spawn.

    `request`, `launch` and `image` are environment layers (`agentd.rules.environ`); `inherit` is the request's
    ``inherit_image_env``.
    """
    principal = resolve(user, group, passwd, groups)
    if not isinstance(principal, Resolved):
        return principal
    environment = environ.layer(
        environ.inherited(image, inherit), identity_variables(principal.identity), launch, request
    )
    chosen = choose_shell(shell, environ.search_path(environment), environ.search_path(image), is_executable)
    if isinstance(chosen, Malformed | UnknownShell):
        return chosen
    return Plan(principal=principal, shell=chosen, environment=MappingProxyType(environment))

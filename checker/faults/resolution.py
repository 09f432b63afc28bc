"""Wrong versions of `agentd.rules.resolution`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve

from agentd.rules.resolution import (
    SYSTEM_SHELL,
    Candidates,
    GroupRow,
    PasswdRow,
    Plan,
    Resolved,
    UnknownGroup,
    UnknownShell,
    UnknownUser,
    User,
)
from checker.faults import Function, fault
from checker.models.exec_start_terms import Child

MODULE = "agentd.rules.resolution"
GLUE = "checker.models.exec_start"
Name = int | str | None
Found = User | UnknownUser


@fault("a name takes the last row", MODULE, "user_by_name")
def _last_row(right: Function, name: str, passwd: Sequence[PasswdRow]) -> Found:
    found: Found = right(name, tuple(reversed(passwd)))
    return found


@fault("digits are only a name", MODULE, "user_by_name")
def _only_name(right: Function, name: str, passwd: Sequence[PasswdRow]) -> Found:
    found: Found = right(name, passwd)
    return found if isinstance(found, UnknownUser) or found.by_name else UnknownUser(name)


@fault("digits go before names", MODULE, "user_by_name")
def _digits_first(right: Function, name: str, passwd: Sequence[PasswdRow]) -> Found:
    return User(uid=int(name)) if name.isdigit() and int(name) < 1 << 32 else right(name, passwd)


@fault("an unknown user is the daemon's", MODULE, "find_user")
def _daemons_user(right: Function, user: Name, passwd: Sequence[PasswdRow]) -> Found:
    found: Found = right(user, passwd)
    return User(uid=None) if isinstance(found, UnknownUser) else found


@fault("numbers must have a row", MODULE, "find_user")
def _must_have_row(right: Function, user: Name, passwd: Sequence[PasswdRow]) -> Found:
    found: Found = right(user, passwd)
    known = isinstance(found, UnknownUser) or found.row is not None or not isinstance(user, int)
    return found if known else User(uid=None)


@fault("an unknown group is the daemon's", MODULE, "find_group")
def _daemons_group(right: Function, group: Name, groups: Sequence[GroupRow]) -> int | UnknownGroup | None:
    found: int | UnknownGroup | None = right(group, groups)
    return None if isinstance(found, UnknownGroup) else found


@fault("a numeric user takes its row's group", MODULE, "primary_gid")
def _numeric_group(right: Function, user: User, group: int | None) -> int | None:
    return user.row.gid if group is None and user.row is not None else right(user, group)


@fault("a name keeps the daemon's group", MODULE, "primary_gid")
def _keeps_group(right: Function, user: User, group: int | None) -> int | None:
    return group


@fault("the row's group wins", MODULE, "primary_gid")
def _row_wins(right: Function, user: User, group: int | None) -> int | None:
    return user.row.gid if user.by_name and user.row is not None else group


Supplementary = tuple[int, ...] | None


@fault("supplementary groups are kept", MODULE, "supplementary_groups")
def _kept(right: Function, user: User, gid: int | None, groups: Sequence[GroupRow]) -> Supplementary:
    return None


@fault("every group is supplementary", MODULE, "supplementary_groups")
def _every(right: Function, user: User, gid: int | None, groups: Sequence[GroupRow]) -> Supplementary:
    found: Supplementary = right(user, gid, groups)
    return tuple(row.gid for row in groups) if found else found


@fault("the group is looked at first", MODULE, "resolve")
def _group_first(
    right: Function, user: Name, group: Name, passwd: Sequence[PasswdRow], groups: Sequence[GroupRow]
) -> Resolved | UnknownUser | UnknownGroup:
    found: Resolved | UnknownUser | UnknownGroup = right(None, group, passwd, groups)
    return found if isinstance(found, UnknownGroup) else right(user, group, passwd, groups)


@fault("no identity variables", MODULE, "identity_variables")
def _no_identity(right: Function, row: PasswdRow | None) -> Mapping[str, str]:
    return {}


Chosen = object


def _choose(
    right: Function,
    shell: bool | str,
    child_path: str | None,
    image_path: str | None,
    is_executable: Callable[[str], bool],
) -> Chosen:
    return right(shell, child_path, image_path, is_executable)


@fault("a missing shell falls back to sh", MODULE, "choose_shell")
def _fallback(right: Function, *asked: Any) -> Chosen:
    found = _choose(right, *asked)
    return SYSTEM_SHELL if isinstance(found, UnknownShell) else found


@fault("the image's PATH goes first", MODULE, "choose_shell")
def _image_first(
    right: Function, shell: bool | str, child: str | None, image: str | None, test: Callable[[str], bool]
) -> Chosen:
    return _choose(right, shell, image, child, test)


@fault("a shell is looked for in the request's PATH only", MODULE, "choose_shell")
def _no_image(
    right: Function, shell: bool | str, child: str | None, image: str | None, test: Callable[[str], bool]
) -> Chosen:
    return _choose(right, shell, child, None, test)


@fault("true is looked for on the PATH", MODULE, "choose_shell")
def _looked_for(
    right: Function, shell: bool | str, child: str | None, image: str | None, test: Callable[[str], bool]
) -> Chosen:
    return _choose(right, "bash" if shell is True else shell, child, image, test)


@fault("false runs sh", MODULE, "choose_shell")
def _false_runs(
    right: Function, shell: bool | str, child: str | None, image: str | None, test: Callable[[str], bool]
) -> Chosen:
    return SYSTEM_SHELL if shell is False else _choose(right, shell, child, image, test)


@fault("relative directories are searched", MODULE, "path_directories")
def _relative(right: Function, path: str | None) -> tuple[str, ...]:
    return tuple((path or "").split(":"))


@fault("a relative path is a shell", MODULE, "shell_candidates")
def _relative_path(right: Function, shell: str, child: str | None, image: str | None) -> object:
    return Candidates((shell,)) if "/" in shell else right(shell, child, image)


@fault("an empty shell is none", MODULE, "choose_shell")
def _empty(
    right: Function, shell: bool | str, child: str | None, image: str | None, test: Callable[[str], bool]
) -> Chosen:
    return None if shell == "" else _choose(right, shell, child, image, test)


# --- Faults of the handler, in what stands for it in the model ---------------------------------------------


@fault("a child is spawned before it is resolved", GLUE, "spawned")
def _too_early(right: Function, plan: object) -> Child:
    child: Child | None = right(plan)
    return child or Child(None, None, None, None, ())


@fault("a child is forgotten", GLUE, "spawned")
def _child_forgotten(right: Function, plan: object) -> None:
    return None


@fault("a child loses its group", GLUE, "spawned")
def _loses_group(right: Function, plan: object) -> Child | None:
    child: Child | None = right(plan)
    return None if child is None else evolve(child, gid=None)


@fault("a plan is run without a shell", MODULE, "plan")
def _without_shell(right: Function, *asked: Any) -> object:
    found = right(*asked)
    return evolve(found, shell=None) if isinstance(found, Plan) else found

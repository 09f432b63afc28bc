"""What each choice of a start request means, in tables, and what an edge says of a request (contract c.2, c.3).

Nothing here calls a rule: the properties compare what the rules came to with these.
"""

from collections.abc import Hashable
from typing import cast

from attrs import frozen

from agentd.rules.resolution import Malformed, Plan, UnknownGroup, UnknownShell, UnknownUser
from checker.model import Edge

Env = tuple[tuple[str, str], ...]

ALICE, SECOND = 1000, 1001
REQUEST_HOME: Env = (("HOME", "/request"), ("FROM", "request"))
REQUEST_PATH: Env = (("PATH", "relative:/request/bin"),)
LAUNCHES: tuple[Env, ...] = (
    (),
    (("HOME", "/launch"), ("FROM", "launch"), ("LAUNCHED", "yes")),
    (("PATH", "/launch/bin"),),
    (("HOME", "/launch"), ("PATH", "/launch/bin"), ("FROM", "launch")),
)
DAEMON = (
    (b"AGENTD_PORT", b"9000"),
    (b"FROM", b"image"),
    (b"HOME", b"/image"),
    (b"MY_AGENTD_", b"kept"),
    (b"PATH", b"relative:/image/bin"),
    (b"\xff", b"name"),
    (b"BINARY", b"\xff"),
)
"""What the daemon is started with: configuration of its own, and what is not text."""
SNAPSHOT: Env = (
    ("FROM", "image"),
    ("HOME", "/image"),
    ("MY_AGENTD_", "kept"),
    ("PATH", "relative:/image/bin"),
)
TOKEN = "secret-token"
EXPORTED = (b"AGENT_TOKEN", TOKEN.encode())
"""What the daemon's live environment gains after bootstrap."""


FIELDS = ("user", "group", "shell", "inherit", "env")
"""The fields of a request, in the order they are put together; `chosen` counts how many are."""


@frozen
class Request:
    """A start request."""

    user: int | str | None
    group: int | str | None
    shell: bool | str
    inherit: bool
    env: Env


@frozen
class Child:
    """A spawned child."""

    uid: int | None
    gid: int | None
    supplementary: tuple[int, ...] | None
    shell: str | None
    environment: Env


UNKNOWN = "unknown"
UIDS: dict[int | str | None, int | str | None] = {
    None: None,
    1000: 1000,
    4242: 4242,
    4294967295: 4294967295,
    "alice": 1000,
    "bob": 1001,
    "1000": 1000,
    "1234": 77,
    "0042": 42,
    "mallory": UNKNOWN,
    "4294967295": 4294967295,
    "42949672960": UNKNOWN,
    "000": 0,
    "\uff14\uff12": UNKNOWN,
}
PRIMARY = {"alice": 100, "bob": 101, "1234": 7700}
"""The gid of who is given by name; others keep the daemon's."""
IDENTITIES = {
    "alice": ("alice", "/home/alice"),
    1000: ("alice", "/home/alice"),
    "1000": ("alice", "/home/alice"),
    "bob": ("bob", "/home/bob"),
    "1234": ("1234", "/digits"),
}
GIDS: dict[int | str | None, int | str | None] = {
    None: None,
    7: 7,
    "staff": 50,
    "empty": 60,
    "7": 7,
    "nosuch": UNKNOWN,
}
LISTED = {"alice": (50, 51, 10), "bob": (50,), "1234": ()}
"""The groups that list who is given by name."""


def request_of(edge: Edge) -> Request:
    """The request an edge is about; the event or the property has to read its fields."""
    return Request(*(edge.before[name] for name in FIELDS))  # type: ignore[arg-type]


def plan_of(edge: Edge) -> Plan | None:
    """What the request resolved to on this edge, None for a refusal."""
    found = edge.after["plan"]
    return found if isinstance(found, Plan) else None


def environment_of(edge: Edge) -> dict[str, str] | None:
    """The environment it resolved to, None for a refusal."""
    plan = plan_of(edge)
    return None if plan is None else dict(plan.environment)


def launch_of(edge: Edge) -> dict[str, str]:
    """The launch layer."""
    return dict(cast(Env, edge.before["launch"]))


def gid_of(request: Request) -> int | str | None:
    """The gid a request must run with: None for the daemon's, UNKNOWN for a refusal."""
    given = GIDS[request.group]
    return PRIMARY.get(request.user) if given is None else given  # type: ignore[arg-type]


def supplementary_of(request: Request) -> tuple[int, ...] | None:
    """The supplementary groups it must run with, None for the daemon's."""
    gid = gid_of(request)
    if request.user in LISTED:
        first = () if gid is None else (gid,)
        return tuple(dict.fromkeys((*first, *LISTED[request.user])))
    return None if request.user is None and gid is None else ()


def refusal_of(request: Request) -> Hashable:
    """The refusal that comes first, or None; the shells that can be meant are another table's."""
    if UIDS[request.user] == UNKNOWN:
        return UnknownUser(str(request.user))
    if GIDS[request.group] == UNKNOWN:
        return UnknownGroup(str(request.group))
    if request.shell == "":
        return Malformed()
    if request.shell in ("nosh", "sub/sh", "/opt/none"):
        return UnknownShell(str(request.shell))
    return None


def shell_of(request: Request, launch: dict[str, str]) -> str | None:
    """The shell that is run."""
    if isinstance(request.shell, bool):
        return "/bin/sh" if request.shell else None
    if request.shell == "bash":
        if "PATH" in dict(request.env):
            return "/request/bin/bash"
        return "/launch/bin/bash" if "PATH" in launch else "/image/bin/bash"
    return {"fish": "/image/bin/fish", "dash": "/bin/dash", "ksh": "/usr/bin/ksh"}.get(
        request.shell, request.shell
    )


def layers(edge: Edge, name: str) -> list[str]:
    """The values of a variable from the highest layer to the lowest."""
    request = request_of(edge)
    who = IDENTITIES.get(request.user)
    identity = {} if who is None else {"USER": who[0], "LOGNAME": who[0], "HOME": who[1]}
    image = dict(SNAPSHOT) if request.inherit else {}
    return [layer[name] for layer in (dict(request.env), launch_of(edge), identity, image) if name in layer]


def highest(edge: Edge, names: tuple[str, ...]) -> bool:
    """Whether each of these variables has the value of its highest layer, and only if it has one."""
    env = environment_of(edge)
    if env is None:
        return True
    return all(([env[name]] if name in env else []) == layers(edge, name)[:1] for name in names)

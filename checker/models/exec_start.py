"""What a start resolves to before anything is spawned: contract j.3, over `rules.resolution` and `rules.environ`.

The daemon boots with an environment of its own and takes the image snapshot of it. The run hook brings a launch
environment, after which the daemon's live environment holds the token as well (somebody may export it; nothing
may come of that). A request is put together field by field, resolved, spawned or not, and answered.

Users, groups and files are a small guest: rows that share names and numbers in the ways that matter, a group
that lists a user, shells that are found on one PATH only. What must hold is in
`checker.models.exec_start_properties`, which says what each request means without calling a rule.
"""

from collections.abc import Hashable, Mapping
from typing import Any

from attrs import frozen

from agentd.rules import environ, resolution
from agentd.rules.resolution import NO_ID, GroupRow, PasswdRow, Plan, Refusal
from checker.model import Component, Event, Model, Values
from checker.models import Config
from checker.models.exec_start_properties import properties
from checker.models.exec_start_terms import (
    ALICE,
    DAEMON,
    EXPORTED,
    FIELDS,
    LAUNCHES,
    REQUEST_HOME,
    REQUEST_PATH,
    SECOND,
    Child,
    Env,
    Request,
)

Live = tuple[tuple[bytes, bytes], ...]

PASSWD = (
    PasswdRow("alice", ALICE, 100, "/home/alice"),
    PasswdRow("alice", SECOND, 102, "/second"),
    PasswdRow("bob", SECOND, 101, "/home/bob"),
    PasswdRow("1234", 77, 7700, "/digits"),
)
GROUPS = (
    GroupRow("staff", 50, ("alice", "bob")),
    GroupRow("staff", 51, ("alice",)),
    GroupRow("wheel", 10, ("alice",)),
    GroupRow("empty", 60, ()),
    GroupRow("none", NO_ID, ("alice",)),
)
EXECUTABLE = frozenset(
    {
        "/request/bin/bash",
        "/launch/bin/bash",
        "/image/bin/bash",
        "/image/bin/fish",
        "/bin/dash",
        "/usr/bin/dash",
        "/usr/bin/ksh",
        "/opt/sh",
        "relative/ksh",
        "sub/sh",
    }
)
"""Regular files with an x bit. ``relative`` stands in a PATH, where it must be skipped."""


# --- What stands for the handler: when which rule is asked -------------------------------------------------


def image_layer(snapshot: Env, live: Live) -> Mapping[str, str]:
    """The image layer of a start: what was taken at boot, not what the daemon's environment is by now."""
    return dict(snapshot)


def image_keys(snapshot: Env, live: Live) -> int:
    """What health tells about the snapshot."""
    return len(snapshot)


def spawned(plan: Plan | Refusal) -> Child | None:
    """The child of a resolved start; a refused one has none."""
    if not isinstance(plan, Plan):
        return None
    who = plan.principal
    environment = tuple(sorted(plan.environment.items()))
    return Child(who.uid, who.gid, who.supplementary, plan.shell, environment)


def resolve(request: Request, snapshot: Env, launch: Env, live: Live) -> Plan | Refusal:
    """Resolve a complete request."""
    return resolution.plan(
        request.user,
        request.group,
        request.shell,
        request.inherit,
        dict(request.env),
        dict(launch),
        image_layer(snapshot, live),
        PASSWD,
        GROUPS,
        EXECUTABLE.__contains__,
    )


# --- Events ------------------------------------------------------------------------------------------------


@frozen
class Space:
    """The values each field of a request is chosen from."""

    users: tuple[int | str | None, ...]
    groups: tuple[int | str | None, ...]
    shells: tuple[bool | str, ...]
    envs: tuple[Env, ...]
    launches: tuple[Env, ...]


def events(space: Space) -> tuple[Event, ...]:
    """Every event."""
    found = [_boot(), *(_hook(number, launch) for number, launch in enumerate(space.launches))]
    for field, choices in (
        ("user", space.users),
        ("group", space.groups),
        ("shell", space.shells),
        ("inherit", (False, True)),
        ("env", space.envs),
    ):
        found += [_choose(field, choice) for choice in choices]
    return (*found, _resolve(), _spawn(), _answer(), _health())


def _boot() -> Event:
    def effect(live: Live, snapshot: None) -> tuple[Values, Hashable]:
        return (tuple(sorted(environ.snapshot(dict(live)).items())),), None

    def guard(live: Live, snapshot: Env | None) -> bool:
        return snapshot is None

    return Event("the daemon boots", "boot", "daemon", ("live", "snapshot"), ("snapshot",), effect, guard)


def _hook(number: int, launch: Env) -> Event:
    def effect(live: Live, snapshot: Env | None, known: Env | None) -> tuple[Values, Hashable]:
        return ((*live, EXPORTED), launch), None

    def guard(live: Live, snapshot: Env | None, known: Env | None) -> bool:
        return snapshot is not None and known is None

    told = ", ".join(f"{name}={value}" for name, value in launch) or "nothing"
    name = f"the run hook brings {told}"
    return Event(name, "hook", "platform", ("live", "snapshot", "launch"), ("live", "launch"), effect, guard)


def _choose(field: str, choice: Hashable) -> Event:
    place = FIELDS.index(field)

    def effect(chosen: int, launch: Env | None) -> tuple[Values, Hashable]:
        return (chosen + 1, choice), None

    def guard(chosen: int, launch: Env | None) -> bool:
        return launch is not None and chosen == place

    name = f"the request has {field} {choice!r}"
    return Event(name, "choose", "client", ("chosen", "launch"), ("chosen", field), effect, guard)


def _resolve() -> Event:
    def effect(
        chosen: int, plan: None, snapshot: Env, launch: Env, live: Live, *fields: Any
    ) -> tuple[Values, Hashable]:
        return (resolve(Request(*fields), snapshot, launch, live),), None

    def guard(chosen: int, plan: Plan | None) -> bool:
        return chosen == len(FIELDS) and plan is None

    reads = ("chosen", "plan", "snapshot", "launch", "live", *FIELDS)
    name, when = "the daemon resolves the request", ("chosen", "plan")
    return Event(name, "resolve", "daemon", reads, ("plan",), effect, guard, when=when)


def _spawn() -> Event:
    def effect(plan: Plan | Refusal, child: Child | None, answer: Hashable) -> tuple[Values, Hashable]:
        return (spawned(plan),), None

    def guard(plan: Plan | Refusal | None, child: Child | None, answer: Hashable) -> bool:
        return plan is not None and child is None and answer is None

    reads = ("plan", "child", "answer")
    return Event("the daemon spawns", "spawn", "daemon", reads, ("child",), effect, guard)


def _answer() -> Event:
    def effect(plan: Plan | Refusal, child: Child | None, answer: None) -> tuple[Values, Hashable]:
        response = 200 if isinstance(plan, Plan) else plan
        return (response,), response

    def guard(plan: Plan | Refusal | None, child: Child | None, answer: Hashable) -> bool:
        return plan is not None and answer is None and (child is not None or not isinstance(plan, Plan))

    reads = ("plan", "child", "answer")
    return Event("the daemon answers", "answer", "daemon", reads, ("answer",), effect, guard)


def _health() -> Event:
    def effect(snapshot: Env, live: Live) -> tuple[Values, Hashable]:
        return (), image_keys(snapshot, live)

    def guard(snapshot: Env | None, live: Live) -> bool:
        return snapshot is not None

    return Event("health is asked", "health", "client", ("snapshot", "live"), (), effect, guard)


# --- Configurations ----------------------------------------------------------------------------------------


def build(
    config: str,
    space: Space,
    *,
    principals: bool = False,
    environments: bool = False,
    shells: bool = False,
) -> Model:
    """The model of every request of a space, asked what the space varies enough for."""
    return Model(
        "exec_start",
        config,
        (
            Component("live", DAEMON, meaning="the environment of the daemon's process"),
            Component("snapshot", None, meaning="the image layer, once taken"),
            Component("launch", None, meaning="the launch layer, once a run hook has won"),
            Component("chosen", 0, meaning="fields of the request that are put together"),
            *(Component(name, None, meaning=f"the request's {name}") for name in FIELDS),
            Component("plan", None, meaning="what the request resolved to"),
            Component("child", None),
            Component("answer", None),
        ),
        events(space),
        properties(principals=principals, environments=environments, shells=shells),
        bounds={
            "requests": len(space.users) * len(space.groups) * len(space.shells) * 2 * len(space.envs),
            "launches": len(space.launches),
        },
        meaning="who a start runs as, in which environment, and through which shell",
    )


USERS = (
    None,
    ALICE,
    4242,
    NO_ID,
    "alice",
    "bob",
    "1000",
    "1234",
    "0042",
    "mallory",
    "4294967295",
    "42949672960",
    "000",
    "\uff14\uff12",
)
"""No user, numbers with and without a row, names, digits, digits that are a name, and what is no user at all: the
last is digits, but not ASCII."""
GROUP_CHOICES = (None, 7, "staff", "empty", "7", "nosuch")
SHELLS = (False, True, "bash", "fish", "dash", "ksh", "nosh", "", "sub/sh", "/opt/sh", "/opt/none")

NAMED = (None, ALICE, "alice", "mallory")
PRINCIPALS = Space(USERS, GROUP_CHOICES, (False,), ((),), LAUNCHES[:1])
ENVIRONMENTS = Space(NAMED, (None,), (False,), ((), REQUEST_HOME), LAUNCHES[:2])
SHELL_SPACE = Space(
    (None, "mallory"), (None, "nosuch"), SHELLS, ((), REQUEST_PATH), (LAUNCHES[0], LAUNCHES[2])
)
PUBLISHED = Space(
    (None, ALICE, 4242, "alice", "1000", "mallory"),
    (None, 7, "staff", "nosuch"),
    (False, True, "bash", "nosh"),
    ((), REQUEST_HOME, REQUEST_PATH, (*REQUEST_HOME, *REQUEST_PATH)),
    LAUNCHES,
)
"""As many requests and launches as the published model has; the others vary one thing at a time."""

CONFIGS = {
    "principals": Config(lambda name: build(name, PRINCIPALS, principals=True)),
    "environments": Config(lambda name: build(name, ENVIRONMENTS, environments=True)),
    "shells": Config(lambda name: build(name, SHELL_SPACE, shells=True)),
    "published_space": Config(
        lambda name: build(name, PUBLISHED, principals=True, environments=True, shells=True), default=False
    ),
}

"""What a start must resolve to (contract c.2, c.3, j.3), said without calling a rule.

For every choice a request can make, tables say what it means; the properties compare what the rules came to.
"""

from collections.abc import Hashable

from agentd.rules.resolution import Plan, UnknownShell, UnknownUser
from checker.model import Edge
from checker.models.exec_start_terms import (
    ALICE,
    FIELDS,
    SNAPSHOT,
    TOKEN,
    UIDS,
    Request,
    environment_of,
    gid_of,
    highest,
    launch_of,
    layers,
    plan_of,
    refusal_of,
    request_of,
    shell_of,
    supplementary_of,
)
from checker.properties import (
    Always,
    EdgePredicate,
    Fair,
    LeadsTo,
    OnEdge,
    Property,
    SometimesOnEdge,
    response_table,
)


def _resolve(name: str, holds: EdgePredicate, witness: str, faults: tuple[str, ...], meaning: str) -> OnEdge:
    return OnEdge(
        name=name,
        kinds=frozenset({"resolve"}),
        holds=holds,
        witness=witness,
        faults=faults,
        meaning=meaning,
    )


def properties(*, principals: bool, environments: bool, shells: bool) -> tuple[Property, ...]:
    """What can be asked of a space of requests that varies these."""
    found: list[Property] = [*_answers()]
    if principals:
        found += _principals()
    if environments:
        found += _environments()
    if shells:
        found += _shells()
    if principals or shells:
        found += _refusals()
    return tuple(found)


def _principals() -> tuple[Property, ...]:
    return (
        _resolve(
            "AGENTD-7 a user runs as its row's id",
            lambda e: (p := plan_of(e)) is None or p.principal.uid == UIDS[request_of(e).user],
            "a name is resolved",
            ("a name takes the last row", "digits go before names"),
            "A name is the uid of the first row with it; digits are that uid; numbers are themselves (c.3).",
        ),
        _resolve(
            "the group is the one given, else the primary of a name",
            lambda e: (p := plan_of(e)) is None or p.principal.gid == gid_of(request_of(e)),
            "a name is resolved",
            (
                "a numeric user takes its row's group",
                "a name keeps the daemon's group",
                "the row's group wins",
            ),
            "Only who is given by name brings a primary group, and an explicit group goes first (c.3).",
        ),
        _resolve(
            "supplementary groups are those of who is given by name",
            lambda e: (
                (p := plan_of(e)) is None or p.principal.supplementary == supplementary_of(request_of(e))
            ),
            "a name is resolved",
            ("supplementary groups are kept", "every group is supplementary"),
            "The groups that list the name, and none of the daemon's once anybody is asked for.",
        ),
        _resolve(
            "AGENTD-16 numbers and booleans mean what they meant",
            lambda e: (
                not isinstance(request_of(e).user, int)
                or (p := plan_of(e)) is None
                or (p.principal.uid, p.principal.gid) == (request_of(e).user, gid_of(request_of(e)))
            ),
            "a number is resolved",
            ("a numeric user takes its row's group", "numbers must have a row"),
            "Integers need no row, and change no group (c.3, j.3).",
        ),
        Always(
            name="AGENTD-8 a refused start spawns no child",
            reads=("plan", "child"),
            holds=lambda plan, child: child is None or isinstance(plan, Plan),
            witness="an unknown user is refused",
            faults=("a child is spawned before it is resolved",),
            meaning="Nothing is spawned for a request that is refused (a.2).",
        ),
        Always(
            name="a child runs as resolved",
            reads=(*FIELDS, "child"),
            holds=lambda *values: (
                (child := values[5]) is None
                or (child.uid, child.gid) == (UIDS[values[0]], gid_of(Request(*values[:5])))
            ),
            witness="a name is resolved",
            faults=("a child is spawned before it is resolved",),
            meaning="What was resolved is what runs (c.1).",
        ),
        _some("a name is resolved", "resolve", (), lambda e: _resolved(e) and request_of(e).user == "alice"),
        _some("a number is resolved", "resolve", (), lambda e: _resolved(e) and request_of(e).user == ALICE),
    )


class _Refusals(dict[Hashable, Hashable]):
    """Each refusal answers itself; none is 200."""

    def __contains__(self, case: object) -> bool:
        return True

    def __getitem__(self, case: Hashable) -> Hashable:
        return 200 if case is None else case


def _environments() -> tuple[Property, ...]:
    return (
        _resolve(
            "AGENTD-9 HOME and USER come from request, launch, passwd, in this order",
            lambda e: highest(e, ("HOME", "USER", "LOGNAME")),
            "every layer has a HOME",
            ("the identity is on top", "launch goes over request"),
            "Identity variables are below what the launch and the request bring (c.2).",
        ),
        _resolve(
            "AGENTD-10 without the flag nothing of the image reaches a child",
            lambda e: (
                request_of(e).inherit
                or (env := environment_of(e)) is None
                or ("MY_AGENTD_" not in env and env.get("FROM") != "image")
            ),
            "a request does not inherit",
            ("the image is always inherited",),
            "The image's environment is inherited by who asks for it (c.2).",
        ),
        _resolve(
            "AGENTD-11 each variable has the value of its highest layer",
            lambda e: highest(e, ("FROM", "HOME", "USER", "LOGNAME", "PATH", "MY_AGENTD_", "LAUNCHED")),
            "every layer has a HOME",
            (
                "the image is on top",
                "the identity is on top",
                "the image is never inherited",
                "no identity variables",
            ),
            "Request over launch over identity over image (c.2).",
        ),
        _resolve(
            "no variable comes from nowhere",
            lambda e: (env := environment_of(e)) is None or all(layers(e, name) for name in env),
            "a request does not inherit",
            ("the image is always inherited", "the snapshot is not filtered"),
            "A child's environment is the union of its layers and nothing else (c.2).",
        ),
        Always(
            name="AGENTD-12 no child carries the token or the daemon's configuration",
            reads=("child",),
            holds=lambda child: (
                child is None
                or not any(name.startswith("AGENTD_") or value == TOKEN for name, value in child.environment)
            ),
            witness="a request inherits",
            faults=("the snapshot is not filtered", "the image layer is the live environment"),
            meaning="Neither reaches a child by any layer (c.2, j.3).",
        ),
        Always(
            name="AGENTD-12 the snapshot holds no configuration and nothing but text",
            reads=("snapshot",),
            holds=lambda snapshot: snapshot in (None, SNAPSHOT),
            witness="health tells of a snapshot",
            faults=("the snapshot is not filtered", "the snapshot drops what looks like it"),
            meaning="Left out are AGENTD_ variables and what is not UTF-8, and nothing else (c.2).",
        ),
        response_table(
            "AGENTD-13 health tells how many variables the snapshot has",
            ("health",),
            case=lambda e: e.before["snapshot"] is None,
            table={False: len(SNAPSHOT)},
            witness="health tells of a snapshot",
            faults=("health counts the live environment", "the snapshot is not filtered"),
            meaning="The size of the snapshot taken at boot, whatever became of the environment (h.1).",
        ),
        _some("every layer has a HOME", "resolve", (), lambda e: len(layers(e, "HOME")) == 4),
        _some("a request inherits", "resolve", (), lambda e: _resolved(e) and request_of(e).inherit),
        _some("a request does not inherit", "resolve", (), lambda e: not request_of(e).inherit),
        _some("health tells of a snapshot", "health", (), lambda e: bool(e.response)),
    )


def _shells() -> tuple[Property, ...]:
    return (
        _resolve(
            "AGENTD-14 a shell is the first that is found",
            lambda e: (p := plan_of(e)) is None or p.shell == shell_of(request_of(e), launch_of(e)),
            "a shell is found",
            ("the image's PATH goes first", "relative directories are searched"),
            "The child's PATH, the image's, /bin and /usr/bin, in this order; true is /bin/sh (c.3).",
        ),
        _resolve(
            "a shell that is there is found",
            lambda e: refusal_of(request_of(e)) is not None or plan_of(e) is not None,
            "a shell is found",
            ("a shell is looked for in the request's PATH only",),
            "The image's PATH is searched even when the child does not inherit it (c.3).",
        ),
        _resolve(
            "AGENTD-15 a shell that is missing is never started",
            lambda e: request_of(e).shell not in ("nosh", "sub/sh", "/opt/none", "") or plan_of(e) is None,
            "a shell is missing",
            ("a missing shell falls back to sh", "a relative path is a shell", "an empty shell is none"),
            "A shell that cannot be found is a refusal, not another shell (c.3).",
        ),
        _resolve(
            "AGENTD-16 a boolean shell is sh or none",
            lambda e: (
                not isinstance(request_of(e).shell, bool)
                or (p := plan_of(e)) is None
                or p.shell == ("/bin/sh" if request_of(e).shell else None)
            ),
            "sh is asked for",
            ("true is looked for on the PATH", "false runs sh"),
            "true is /bin/sh wherever a PATH points, false is no shell (a.2, c.3).",
        ),
        _some("a shell is found", "resolve", (), lambda e: _shell(e) == "/image/bin/bash"),
        _some("a shell is missing", "resolve", (), lambda e: isinstance(e.after["plan"], UnknownShell)),
        _some("sh is asked for", "resolve", (), lambda e: _resolved(e) and request_of(e).shell is True),
    )


def _answers() -> tuple[Property, ...]:
    return (
        LeadsTo(
            name="every received request is answered",
            reads=("chosen", "answer"),
            when=lambda chosen, answer: chosen == len(FIELDS),
            then=lambda chosen, answer: answer is not None,
            fair=(Fair(frozenset({"resolve", "spawn", "answer"})),),
            witness="a start is answered",
            faults=("a child is forgotten",),
            meaning="A request that is complete gets its answer (j.3).",
        ),
        _some("an unknown user is refused", "answer", (), lambda e: isinstance(e.response, UnknownUser)),
        _some("a start is answered", "answer", (), lambda e: e.response == 200),
    )


def _refusals() -> tuple[Property, ...]:
    return (
        response_table(
            "AGENTD-8 what cannot be resolved is refused",
            ("answer",),
            FIELDS,
            case=lambda e: refusal_of(request_of(e)),
            table=_Refusals(),
            witness="an unknown user is refused",
            faults=(
                "an unknown user is the daemon's",
                "an unknown group is the daemon's",
                "the group is looked at first",
            ),
            meaning="unknown_user, unknown_group, the shell: the first that fails decides, with its value (a.2).",
        ),
    )


def _resolved(edge: Edge) -> bool:
    return plan_of(edge) is not None


def _shell(edge: Edge) -> str | None:
    plan = plan_of(edge)
    return None if plan is None else plan.shell


def _some(name: str, kind: str, reads: tuple[str, ...], holds: EdgePredicate) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, kinds=frozenset({kind}), reads=reads, holds=holds)

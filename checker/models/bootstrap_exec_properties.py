"""What must hold of bootstrap and execs (contract a.2 to a.6, c.8, g.2, i, j.1).

Properties speak of edges: of a request, what was before it, what it was answered, and what is after it. So
nothing has to be remembered in the state for them.
"""

from collections.abc import Callable, Hashable
from typing import cast

from agentd.rules.bootstrap import Access, Bootstrap, RunVerdict
from agentd.rules.execs import Ack, Phase, Record, Start
from checker.model import Edge
from checker.properties import (
    Always,
    Fair,
    LeadsTo,
    OnEdge,
    Property,
    Sometimes,
    SometimesOnEdge,
    response_table,
    unchanged_by,
)

HOST = b"H"
"""The token the platform installs and the client presents."""
ATTACKER = b"A"

EXEC_KINDS = frozenset({"start", "start_unspawned", "poll", "ack"})
CONTROL = EXEC_KINDS | {"probe"}
ACCEPTED = (RunVerdict.INSTALLED, RunVerdict.REPLAYED)

TAKEOVER = frozenset({"attacker never authorized"})
"""What falls when the attacker may act before the platform."""


def _token(edge: Edge) -> bytes | None:
    return _boot(edge.before["boot"]).token


def _then(edge: Edge) -> bytes | None:
    return _boot(edge.after["boot"]).token


def _boot(value: Hashable) -> Bootstrap:
    return cast("tuple[Bootstrap, str]", value)[0]


def _presented(edge: Edge) -> bytes | None:
    return cast("bytes | None", edge.event.args["presents" if edge.event.kind == "probe" else "token"])


def _before(edge: Edge) -> Record | None:
    return cast("Record | None", edge.before[f"exec.{edge.event.args['id']}"])


def _after(edge: Edge) -> Record | None:
    return cast("Record | None", edge.after[f"exec.{edge.event.args['id']}"])


def _phase(edge: Edge) -> Phase | None:
    record = _before(edge)
    return None if record is None else record.phase


def _refused(edge: Edge) -> bool:
    return isinstance(edge.response, Access) and edge.response is not Access.GRANTED


def _served(edge: Edge) -> bool:
    return not _refused(edge)


def properties(execs: list[str]) -> tuple[Property, ...]:
    """Every property, for execs that are these components."""
    return (*_bootstrap(), *_requests(), *_records(), *_states(execs), *_progress(execs[0]), *_witnesses())


def _bootstrap() -> tuple[Property, ...]:
    return (
        OnEdge(
            name="attacker never authorized",
            kinds=CONTROL,
            reads=("boot",),
            holds=lambda e: _presented(e) != ATTACKER or _refused(e),
            witness="an unauthorized caller is refused",
            faults=("any token opens", "the last run hook wins"),
            meaning="No control request that bears the attacker's token is served (j.1).",
        ),
        OnEdge(
            name="AGENTD-3 bootstrap is one-shot",
            kinds=frozenset({"run"}),
            holds=lambda e: _token(e) in (None, _then(e)),
            witness="a hijack is refused with 409",
            faults=("the last run hook wins",),
            meaning="An installed token is never replaced or removed (g.2).",
        ),
        OnEdge(
            name="AGENTD-3 only the installed token is accepted",
            kinds=frozenset({"run"}),
            holds=lambda e: e.response not in ACCEPTED or _then(e) == _presented(e),
            witness="an identical replay is accepted",
            faults=("any run hook is a replay", "the first run hook is lost"),
            meaning="A run hook answered 200 carried the token that is installed afterwards (g.2).",
        ),
        OnEdge(
            name="AGENTD-2 the first bootstrap installs its token",
            kinds=frozenset({"run"}),
            holds=lambda e: (
                _token(e) is not None
                or (_then(e) == _presented(e) and e.response is RunVerdict.INSTALLED)
            ),
            witness="bootstrap completes",
            faults=("the first run hook is lost",),
            meaning="While nothing is installed, a run hook installs its token and says so (g.2).",
        ),
        OnEdge(
            name="AGENTD-4 the installed token is accepted again",
            kinds=frozenset({"run"}),
            holds=lambda e: _token(e) != _presented(e) or e.response is RunVerdict.REPLAYED,
            witness="an identical replay is accepted",
            faults=("a replayed run hook conflicts",),
            meaning="The platform may retry its own hook: the same token is answered 200 and is no new bootstrap (g.2).",
        ),
        OnEdge(
            name="another token conflicts",
            kinds=frozenset({"run"}),
            holds=lambda e: (
                _token(e) in (None, _presented(e))
                or (e.response is RunVerdict.CONFLICT and _then(e) == _token(e))
            ),
            witness="a hijack is refused with 409",
            faults=("any run hook is a replay",),
            meaning="A run hook with another token is answered 409 and changes nothing (g.2).",
        ),
    )


def _requests() -> tuple[Property, ...]:
    return (
        OnEdge(
            name="AGENTD-1 the control API is closed before bootstrap",
            kinds=CONTROL,
            reads=("boot",),
            holds=lambda e: _token(e) is not None or e.response is Access.UNAVAILABLE,
            witness="a request comes before bootstrap",
            faults=("the control API opens early", "bootstrap shows in the refusal"),
            meaning="Until a token is installed every control request is answered 503, whatever it presents (i.3).",
        ),
        OnEdge(
            name="AGENTD-5 another token is unauthorized",
            kinds=CONTROL,
            reads=("boot",),
            holds=lambda e: _token(e) in (None, _presented(e)) or e.response is Access.UNAUTHORIZED,
            witness="an unauthorized caller is refused",
            faults=("any token opens", "no credential opens", "any scheme is bearer"),
            meaning="Once one is installed, no token or another is answered 401 (i.3).",
        ),
        OnEdge(
            name="AGENTD-6 the installed token is served",
            kinds=CONTROL,
            reads=("boot",),
            holds=lambda e: _token(e) is None or _token(e) != _presented(e) or _served(e) or False,
            witness="an exec runs, exits and is acked",
            faults=("the right token is refused", "the scheme is compared with case"),
            meaning="The installed token is neither unauthorized nor unavailable (i.2, i.3).",
        ),
        unchanged_by(
            "a refused request changes nothing",
            EXEC_KINDS,
            (),
            unless=lambda e: _served(e) or _before(e) == _after(e),
            witness="an unauthorized caller is refused",
            faults=(),
        ),
        response_table(
            "what a start answers",
            ("start",),
            (),
            case=lambda e: _phase(e) if _served(e) else "refused",
            table={},
            witness="a start is retried",
            faults=(),
        ),
    )

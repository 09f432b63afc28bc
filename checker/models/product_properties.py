"""What must hold where bootstrap, execs, a stream and the daemon's life meet."""

from typing import Final, cast

from agentd.rules.bootstrap import Access
from agentd.rules.execs import Ack, Phase, Record, Start
from agentd.rules.lifecycle import Lifecycle, Stage
from agentd.rules.output import End, Span
from checker.model import Edge
from checker.models.bootstrap_exec_terms import ATTACKER, installed, presented, record_before, refused, token
from checker.models.output import Reader
from checker.properties import (
    Always,
    EdgePredicate,
    Fair,
    LeadsTo,
    OnEdge,
    Property,
    Sometimes,
    SometimesOnEdge,
)

DRAINING: Final = "shutting_down"
"""What a start is answered that would spawn, while the daemon drains."""
STARTS = frozenset({"start", "start_unspawned"})
SERVED = STARTS | {"poll", "ack", "attach"}


def _life(edge: Edge) -> Lifecycle:
    return cast("Lifecycle", edge.before["life"])


def _record(edge: Edge) -> Record | None:
    return cast("Record | None", edge.before["exec.0"])


def _span(edge: Edge) -> Span:
    return cast("Span", edge.before["span"])


def _edge(
    name: str,
    kinds: frozenset[str],
    holds: EdgePredicate,
    witness: str,
    faults: tuple[str, ...],
    meaning: str,
    reads: tuple[str, ...] = ("boot", "life"),
) -> OnEdge:
    return OnEdge(
        name=name, kinds=kinds, reads=reads, holds=holds, witness=witness, faults=faults, meaning=meaning
    )


def properties() -> tuple[Property, ...]:
    """Every property."""
    return (*_starts(), *_tokens(), *_streams(), *_progress(), *_witnesses())


def _starts() -> tuple[Property, ...]:
    return (
        _edge(
            "no exec starts while draining",
            STARTS,
            lambda e: e.response is not Start.SPAWN or _life(e).stage is Stage.SERVING,
            "a start comes while draining",
            ("a draining daemon takes on execs",),
            "What a daemon on its way out takes on it could not finish (a.2).",
        ),
        _edge(
            "only a new exec is refused for draining, and only then",
            STARTS,
            lambda e: (
                e.response != DRAINING or (record_before(e) is None and _life(e).stage is not Stage.SERVING)
            ),
            "a start comes while draining",
            ("no exec is taken on",),
            "A start of a known id is answered by its phase (a.2).",
        ),
        _edge(
            "everything owed is still given while draining",
            frozenset({"poll", "ack", "attach"}),
            lambda e: token(e) is None or token(e) != presented(e) or not refused(e),
            "an exec is acked while draining",
            ("the right token is refused",),
            "Polls, acks and streams go on until the daemon has stopped (a.1).",
        ),
    )


def _tokens() -> tuple[Property, ...]:
    return (
        _edge(
            "the token is needed throughout",
            SERVED,
            lambda e: presented(e) != ATTACKER or e.response in (Access.UNAVAILABLE, Access.UNAUTHORIZED),
            "an attacker is refused while draining",
            ("any token opens",),
            "Whatever the stage and whatever is asked for (i.3).",
        ),
        Always(
            name="nobody is attached before bootstrap",
            reads=("boot", "reader.0"),
            holds=lambda boot, reader: reader is None or installed(boot).installed,
            witness="somebody asks for a stream before bootstrap",
            faults=("the control API opens early",),
            meaning="Nor is there anything to be attached to (i.3).",
        ),
    )


def _follows(reader: object) -> bool:
    return isinstance(reader, Reader) and not reader.ended


def _streams() -> tuple[Property, ...]:
    return (
        Always(
            name="a stream is a request in flight",
            reads=("life", "reader.0"),
            holds=lambda life, reader: not _follows(reader) or life.in_flight > 0,
            witness="a stream is followed while draining",
            faults=("a request is not counted",),
            meaning="A drain waits for it (a.1).",
        ),
        OnEdge(
            name="only the drain deadline cuts a stream",
            kinds=frozenset({"terminate", "signal", "begin", "end", "expire", "start", "exit", "sweep_due"}),
            reads=("reader.0",),
            holds=lambda e: (
                not _follows(e.before["reader.0"])
                or _follows(e.after["reader.0"])
                or e.event.kind == "expire"
            ),
            witness="the drain deadline cuts a stream",
            faults=("a drain cuts requests off",),
            meaning="Neither the end of other requests, nor an exit, nor a collection (d, h.1).",
        ),
        Always(
            name="a published result has all its output",
            reads=("exec.0", "span"),
            holds=lambda record, span: record is None or span.closed == (record.phase is not Phase.RUNNING),
            witness="an exec exits under a stream",
            faults=("closing is forgotten", "an exit is forgotten"),
            meaning="Once it shows as exited nothing can be added (c.5).",
        ),
        _edge(
            "the end of a stream comes after the result",
            frozenset({"deliver"}),
            lambda e: (
                not isinstance(e.response, End)
                or ((record := _record(e)) is None or record.phase is not Phase.RUNNING)
            ),
            "a stream outlives its exec's record",
            ("the end comes before the close",),
            "Whoever has the end can poll the outcome (d).",
            ("exec.0",),
        ),
        _edge(
            "output is released only when it is complete",
            frozenset({"ack"}),
            lambda e: e.response is not Ack.RELEASED or e.event.args["id"] != 0 or _span(e).closed,
            "an exec is acked while draining",
            ("a running exec can be acked",),
            "An ack is for everything there is (a.6).",
            ("boot", "life", "span"),
        ),
    )


def _progress() -> tuple[Property, ...]:
    return (
        LeadsTo(
            name="the stream of an exec that is over ends",
            reads=("exec.0", "reader.0"),
            when=lambda record, reader: (
                _follows(reader) and (record is None or record.phase is not Phase.RUNNING)
            ),
            then=lambda record, reader: not _follows(reader),
            fair=(Fair(frozenset({"deliver"})),),
            witness="a stream outlives its exec's record",
            faults=("a reader waits for ever at the end", "closing is forgotten"),
            meaning="Exited, acknowledged or collected: it is delivered to its end (d).",
        ),
        LeadsTo(
            name="every drain ends with nobody attached",
            reads=("life", "reader.0"),
            when=lambda life, reader: life.stage is Stage.DRAINING,
            then=lambda life, reader: life.stage is Stage.STOPPED and not _follows(reader),
            fair=(Fair(frozenset({"expire"})),),
            witness="the drain deadline cuts a stream",
            faults=("a drain never expires",),
            meaning="A stream that nobody reads does not keep the daemon (a.1).",
        ),
    )


def _some(
    name: str, kind: str, holds: EdgePredicate, reads: tuple[str, ...] = ("boot", "life")
) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, kinds=frozenset({kind}), reads=reads, holds=holds)


def _drains(edge: Edge) -> bool:
    return _life(edge).stage is Stage.DRAINING


def _witnesses() -> tuple[Property, ...]:
    return (
        _some("a start comes while draining", "start", lambda e: _drains(e) and e.response == DRAINING),
        _some("an exec is acked while draining", "ack", lambda e: _drains(e) and e.response is Ack.RELEASED),
        _some(
            "an attacker is refused while draining",
            "attach",
            lambda e: _drains(e) and e.response is Access.UNAUTHORIZED,
        ),
        _some(
            "somebody asks for a stream before bootstrap",
            "attach",
            lambda e: e.response is Access.UNAVAILABLE,
        ),
        Sometimes(
            name="a stream is followed while draining",
            reads=("life", "reader.0"),
            holds=lambda life, reader: life.stage is Stage.DRAINING and _follows(reader),
        ),
        _some(
            "the drain deadline cuts a stream",
            "expire",
            lambda e: _follows(e.before["reader.0"]) and e.after["reader.0"] is None,
            ("reader.0",),
        ),
        _some(
            "an exec exits under a stream", "exit", lambda e: _follows(e.before["reader.0"]), ("reader.0",)
        ),
        _some(
            "a stream outlives its exec's record",
            "deliver",
            lambda e: isinstance(e.response, End) and _record(e) is None,
            ("exec.0",),
        ),
    )

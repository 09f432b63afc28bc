"""What must hold of bootstrap and execs (contract a.2 to a.6, c.8, g.2, i, j.1).

Properties speak of edges: of a request, what was before it, what it was answered, and what is after it. So
nothing has to be remembered in the state for them.
"""

from attrs import evolve

from agentd.rules.bootstrap import Access, Bootstrap, RunVerdict
from agentd.rules.execs import Ack, Phase, Record, Start
from checker.models.bootstrap_exec_terms import (
    ACCEPTED,
    ACKED_AT,
    ATTACKER,
    CONTROL,
    HOST,
    installed,
    phase,
    presented,
    record_after,
    record_before,
    refused,
    served,
    token,
    token_after,
)
from checker.properties import (
    Always,
    EdgePredicate,
    Fair,
    LeadsTo,
    OnEdge,
    Property,
    Sometimes,
    SometimesOnEdge,
    response_table,
    unchanged_by,
)


def properties(execs: list[str]) -> tuple[Property, ...]:
    """Every property, for execs that are these components."""
    return (*_bootstrap(), *_requests(), *_records(), *_states(execs), *_progress(execs[0]), *_witnesses())


def _bootstrap() -> tuple[Property, ...]:
    return (
        OnEdge(
            name="attacker never authorized",
            kinds=CONTROL,
            reads=("boot",),
            holds=lambda e: presented(e) != ATTACKER or refused(e),
            witness="an unauthorized caller is refused",
            faults=("any token opens", "the last run hook wins"),
            meaning="No control request that bears the attacker's token is served (j.1).",
        ),
        OnEdge(
            name="AGENTD-3 bootstrap is one-shot",
            kinds=frozenset({"run"}),
            holds=lambda e: token(e) in (None, token_after(e)),
            witness="a hijack is refused with 409",
            faults=("the last run hook wins",),
            meaning="An installed token is never replaced or removed (g.2).",
        ),
        OnEdge(
            name="AGENTD-3 only the installed token is accepted",
            kinds=frozenset({"run"}),
            holds=lambda e: e.response not in ACCEPTED or token_after(e) == presented(e),
            witness="an identical replay is accepted",
            faults=("any run hook is a replay", "the first run hook is lost"),
            meaning="A run hook answered 200 carried the token that is installed afterwards (g.2).",
        ),
        OnEdge(
            name="AGENTD-2 the first bootstrap installs its token",
            kinds=frozenset({"run"}),
            holds=lambda e: (
                token(e) is not None
                or (token_after(e) == presented(e) and e.response is RunVerdict.INSTALLED)
            ),
            witness="bootstrap completes",
            faults=("the first run hook is lost",),
            meaning="While nothing is installed, a run hook installs its token and says so (g.2).",
        ),
        OnEdge(
            name="AGENTD-4 the installed token is accepted again",
            kinds=frozenset({"run"}),
            holds=lambda e: token(e) != presented(e) or e.response is RunVerdict.REPLAYED,
            witness="an identical replay is accepted",
            faults=("a replayed run hook conflicts",),
            meaning="The platform may retry its own hook: 200, and no new bootstrap (g.2).",
        ),
        OnEdge(
            name="another token conflicts",
            kinds=frozenset({"run"}),
            holds=lambda e: (
                token(e) in (None, presented(e))
                or (e.response is RunVerdict.CONFLICT and token_after(e) == token(e))
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
            holds=lambda e: token(e) is not None or e.response is Access.UNAVAILABLE,
            witness="a request comes before bootstrap",
            faults=("the control API opens early", "bootstrap shows in the refusal"),
            meaning="Until a token is installed every control request is answered 503, whatever it presents (i.3).",
        ),
        OnEdge(
            name="AGENTD-5 another token is unauthorized",
            kinds=CONTROL,
            reads=("boot",),
            holds=lambda e: token(e) in (None, presented(e)) or e.response is Access.UNAUTHORIZED,
            witness="an unauthorized caller is refused",
            faults=("any token opens", "no credential opens", "any scheme is bearer"),
            meaning="Once one is installed, no token or another is answered 401 (i.3).",
        ),
        OnEdge(
            name="AGENTD-6 the installed token is served",
            kinds=CONTROL,
            reads=("boot",),
            holds=lambda e: token(e) is None or token(e) != presented(e) or served(e),
            witness="an exec runs, exits and is acked",
            faults=("the right token is refused", "the scheme is compared with case"),
            meaning="The installed token is neither unauthorized nor unavailable (i.2, i.3).",
        ),
        response_table(
            "what a start answers",
            ("start",),
            case=lambda e: phase(e) if served(e) else "refused",
            table={
                None: Start.SPAWN,
                Phase.RUNNING: Start.RETRIED,
                Phase.EXITED: Start.RETRIED,
                Phase.ACKED: Start.RETRIED,
            },
            spares=("refused",),
            witness="a start is retried",
            faults=("a retried start spawns again",),
            meaning="An unknown id is spawned, a known one is not, whatever its phase (a.2).",
        ),
        response_table(
            "what an ack answers",
            ("ack",),
            case=lambda e: phase(e) if served(e) else "refused",
            table={
                None: Ack.UNKNOWN,
                Phase.RUNNING: Ack.STILL_RUNNING,
                Phase.EXITED: Ack.RELEASED,
                Phase.ACKED: Ack.ALREADY_ACKED,
            },
            spares=("refused",),
            witness="an ack comes too early",
            faults=("a running exec can be acked", "a second ack wins too", "an unknown id can be acked"),
            meaning="404, 409 still_running, 200 and 409 already_acked, by phase (a.6).",
        ),
        response_table(
            "what a poll shows",
            ("poll",),
            case=lambda e: phase(e) if served(e) else "refused",
            table={
                None: "unknown_exec",
                Phase.RUNNING: (Phase.RUNNING, False),
                Phase.EXITED: (Phase.EXITED, True),
                Phase.ACKED: (Phase.ACKED, False),
            },
            spares=("refused",),
            witness="a poll shows the outcome",
            faults=(
                "a running exec shows its outcome",
                "an acked exec shows its outcome",
                "no poll shows the outcome",
            ),
            meaning="The outcome shows between exit and acknowledgement, and only then (a.3).",
        ),
        response_table(
            "when health is busy",
            ("health",),
            case=phase,
            table={None: False, Phase.RUNNING: True, Phase.EXITED: False, Phase.ACKED: False},
            witness="an exec keeps the VM busy",
            faults=("an exec is busy until its ack", "no exec is busy"),
            meaning="Exactly the execs without a published result keep the VM busy (h.1).",
        ),
    )


def _records() -> tuple[Property, ...]:
    return (
        unchanged_by(
            "a poll changes nothing",
            ("poll", "health"),
            witness="a poll shows the outcome",
            faults=("polling takes the output", "polling acks"),
            meaning="Polls and health are strictly read-only (a.3).",
        ),
        unchanged_by(
            "an ack that does not win changes nothing",
            ("ack",),
            unless=lambda e: e.response is Ack.RELEASED,
            witness="an ack comes too early",
            faults=("a refused ack releases",),
            meaning="Only the one acknowledgement that is answered 200 does anything (a.6).",
        ),
        OnEdge(
            name="a retried start only counts",
            kinds=frozenset({"start", "start_unspawned"}),
            holds=lambda e: e.response is not Start.RETRIED or _counted(record_before(e), record_after(e)),
            witness="a start is retried",
            faults=("a retried start restarts an exited exec", "a retried start is not counted"),
            meaning="A retried start changes neither phase nor output, and spawns nothing (a.2).",
        ),
        OnEdge(
            name="a start that cannot spawn leaves no record",
            kinds=frozenset({"start_unspawned"}),
            holds=lambda e: record_before(e) is not None or record_after(e) is None,
            witness="a spawn fails",
            faults=("an unknown id counts as retried",),
            meaning="The id stays free, so that the same start may be tried again (a.2).",
        ),
        OnEdge(
            name="a started exec is running with its output held",
            kinds=frozenset({"start"}),
            holds=lambda e: record_before(e) is not None or refused(e) or _is_new(record_after(e)),
            witness="an exec starts",
            faults=("a new exec holds no output",),
            meaning="A first start makes one running record of one child (a.2).",
        ),
        OnEdge(
            name="an exit publishes the result once",
            kinds=frozenset({"exit"}),
            holds=lambda e: record_after(e) == _published(record_before(e)),
            witness="an exec runs, exits and is acked",
            faults=("an exit is forgotten", "an exit releases the output"),
            meaning="A running exec becomes exited with its output still held (c.5).",
        ),
        unchanged_by(
            "a late exit changes nothing",
            ("late_exit",),
            witness="an exit is reported twice",
            faults=("a late exit reopens the record",),
            meaning="A record that has left running never comes back to it, nor to exited (c.8).",
        ),
        OnEdge(
            name="an ack releases the output",
            kinds=frozenset({"ack"}),
            holds=lambda e: e.response is not Ack.RELEASED or _is_released(record_after(e)),
            witness="an exec runs, exits and is acked",
            faults=("an ack keeps the output", "an ack forgets its time"),
            meaning="The acknowledgement that wins releases the output and starts the record's last stretch (a.6).",
        ),
        unchanged_by(
            "the sweep spares what is young",
            ("sweep_young",),
            witness="the sweep meets an acked exec before its time",
            faults=("the sweep comes early", "the sweep takes what is exited"),
            meaning="Nothing is collected before its time after the ack is over (c.8).",
        ),
        OnEdge(
            name="nothing is collected while its output is held",
            kinds=frozenset({"sweep_due", "sweep_young"}),
            holds=lambda e: record_after(e) is not None or phase(e) is Phase.ACKED,
            witness="an acked exec is collected",
            faults=("the sweep takes what is exited",),
            meaning="Only acknowledged records are ever collected (AGENTD-2, c.8).",
        ),
        OnEdge(
            name="the sweep takes what is due",
            kinds=frozenset({"sweep_due"}),
            holds=lambda e: record_after(e) == (None if phase(e) is Phase.ACKED else record_before(e)),
            witness="an acked exec is collected",
            faults=("the sweep is late",),
            meaning="An acknowledged record is removed at exactly its time, and nothing else is touched (c.8).",
        ),
    )


def _counted(before: Record | None, after: Record | None) -> bool:
    return before is not None and after == evolve(before, starts=before.starts + 1)


def _is_new(record: Record | None) -> bool:
    return record == Record(Phase.RUNNING, output_held=True, spawns=1, starts=1, acked_at=None)


def _published(record: Record | None) -> Record | None:
    return None if record is None else evolve(record, phase=Phase.EXITED)


def _is_released(record: Record | None) -> bool:
    return (
        record is not None
        and record.phase is Phase.ACKED
        and not record.output_held
        and record.acked_at == ACKED_AT
    )


def _states(execs: list[str]) -> tuple[Property, ...]:
    return tuple(
        prop
        for name in execs
        for prop in (
            Always(
                name=f"output is never released before ack ({name})",
                reads=(name,),
                holds=lambda record: record is None or record.output_held or record.phase is Phase.ACKED,
                witness="an exec runs, exits and is acked",
                faults=("an exit releases the output", "a refused ack releases"),
                meaning="Output nobody has acknowledged is there to be read (a.6).",
            ),
            Always(
                name=f"a retried start never spawns twice ({name})",
                reads=(name,),
                holds=lambda record: record is None or record.spawns == 1,
                witness="a start is retried",
                faults=("a retried start spawns again",),
                meaning="One id has one child, however often it is started (a.2).",
            ),
            Always(
                name=f"no exec before bootstrap ({name})",
                reads=("boot", name),
                holds=lambda boot, record: record is None or installed(boot).installed,
                witness="a request comes before bootstrap",
                faults=("the control API opens early",),
                meaning="What comes before bootstrap creates nothing (i.3).",
            ),
        )
    )


def _progress(name: str) -> tuple[Property, ...]:
    return (
        LeadsTo(
            name="every running exec is published",
            reads=(name,),
            when=lambda record: record is not None and record.phase is Phase.RUNNING,
            then=lambda record: record is None or record.phase is not Phase.RUNNING,
            fair=(Fair(frozenset({"exit"}), about={"id": 0}),),
            witness="an exec runs, exits and is acked",
            faults=("an exit is forgotten",),
            meaning="Once its child has exited nothing can keep an exec running (c.5).",
        ),
        LeadsTo(
            name="every acked exec is collected",
            reads=(name,),
            when=lambda record: record is not None and record.phase is Phase.ACKED,
            then=lambda record: record is None,
            fair=(Fair(frozenset({"sweep_due"}), about={"id": 0}),),
            witness="an acked exec is collected",
            faults=("the sweep is late",),
            meaning="A sweep that keeps coming frees every acknowledged record (c.8).",
        ),
    )


def _edge(name: str, kinds: set[str], holds: EdgePredicate, meaning: str = "") -> SometimesOnEdge:
    reads = ("boot",) if kinds & CONTROL else ()
    return SometimesOnEdge(name=name, kinds=frozenset(kinds), reads=reads, holds=holds, meaning=meaning)


def _witnesses() -> tuple[Property, ...]:
    return (
        Sometimes(
            name="bootstrap completes",
            reads=("boot",),
            holds=lambda boot: boot == (Bootstrap(HOST), "platform"),
        ),
        _edge(
            "a hijack is refused with 409",
            {"run"},
            lambda e: e.event.actor == "attacker" and e.response is RunVerdict.CONFLICT,
        ),
        _edge("an identical replay is accepted", {"run"}, lambda e: e.response is RunVerdict.REPLAYED),
        _edge("a request comes before bootstrap", {"poll"}, lambda e: token(e) is None),
        _edge("an unauthorized caller is refused", {"start"}, lambda e: e.response is Access.UNAUTHORIZED),
        _edge("an exec starts", {"start"}, lambda e: e.response is Start.SPAWN),
        _edge("a spawn fails", {"start_unspawned"}, lambda e: e.response == "spawn_failed"),
        _edge("a start is retried", {"start"}, lambda e: e.response is Start.RETRIED),
        _edge("a poll shows the outcome", {"poll"}, lambda e: e.response == (Phase.EXITED, True)),
        _edge("an ack comes too early", {"ack"}, lambda e: e.response is Ack.STILL_RUNNING),
        _edge("an exec runs, exits and is acked", {"ack"}, lambda e: e.response is Ack.RELEASED),
        _edge("an exec keeps the VM busy", {"health"}, lambda e: e.response is True),
        _edge("an exit is reported twice", {"late_exit"}, lambda e: phase(e) is Phase.ACKED),
        _edge(
            "the sweep meets an acked exec before its time",
            {"sweep_young"},
            lambda e: phase(e) is Phase.ACKED,
        ),
        _edge("an acked exec is collected", {"sweep_due"}, lambda e: record_after(e) is None),
    )

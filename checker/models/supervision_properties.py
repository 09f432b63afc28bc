"""What must hold of a child's end (contract a.2, a.3, c.5 to c.8)."""

from agentd.rules.execs import Phase, Record
from agentd.rules.supervision import Cause, Escalation, EscalationStep, Supervision
from checker.model import Edge
from checker.models.supervision_terms import (
    DEADLINES,
    GRACE,
    escalates,
    publishes,
    sup_after,
    sup_before,
    world_after,
    world_before,
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
    StatePredicate,
    response_table,
    unchanged_by,
)

HAPPENINGS = frozenset({"exit", "killed", "pipes", "deadline", "kill", "linger", "look", "late", "stray"})


def _edge(
    name: str,
    kinds: frozenset[str],
    holds: EdgePredicate,
    witness: str,
    faults: tuple[str, ...],
    meaning: str,
) -> OnEdge:
    return OnEdge(name=name, kinds=kinds, holds=holds, witness=witness, faults=faults, meaning=meaning)


def _always(
    name: str,
    reads: tuple[str, ...],
    holds: StatePredicate,
    witness: str,
    faults: tuple[str, ...],
    meaning: str,
) -> Always:
    def guarded(sup: Supervision | None, *rest: object) -> bool:
        return sup is None or holds(sup, *rest)

    return Always(name=name, reads=reads, holds=guarded, witness=witness, faults=faults, meaning=meaning)


def properties(*, late: bool, helpers: bool) -> tuple[Property, ...]:
    """Every property."""
    return (
        *_result(),
        *_escalation(),
        *_causes(),
        *_lateness(),
        *_progress(),
        *_witnesses(),
    )


def _result() -> tuple[Property, ...]:
    return (
        _always(
            "the result is published at most once",
            ("sup", "world"),
            lambda sup, world: world.published <= 1 and (world.published == 1) == sup.published,
            "a result is published",
            ("a result is published twice", "publishing is not remembered"),
            "One result, one record, one end of streams (c.5).",
        ),
        _always(
            "the record is running until the result is published",
            ("world", "record"),
            lambda world, record: (record.phase is Phase.RUNNING) == (world.published == 0),
            "a result is published",
            ("an exit is forgotten", "a running exec can be acked"),
            "Polls say running through escalation and linger (c.5).",
        ),
        _edge(
            "nothing is published before the child has exited",
            HAPPENINGS,
            lambda e: not publishes(e) or sup_after(e).exited,
            "a result is published",
            ("pipes that end publish",),
            "Neither pipes nor deadlines nor kills are an exit (c.5).",
        ),
        _edge(
            "nothing is published while a deadline or a reap brings the group down",
            HAPPENINGS,
            lambda e: not publishes(e) or not world_after(e).held,
            "an escalation holds the result back",
            ("a result does not wait for the reap", "a result does not wait for the deadline"),
            "What the escalation flushes out belongs to the result (c.5, c.7).",
        ),
        _edge(
            "a result comes from ended pipes or from an expired linger",
            HAPPENINGS,
            lambda e: not publishes(e) or sup_after(e).pipes_ended or e.event.kind == "linger",
            "a result is published",
            ("the linger is skipped",),
            "Output is read until its end or until the linger is over (c.5).",
        ),
        _edge(
            "a linger starts after the exit and after a held escalation",
            HAPPENINGS,
            lambda e: (
                world_after(e).lingers == world_before(e).lingers
                or (sup_after(e).exited and not world_after(e).held and world_after(e).piping)
            ),
            "a linger starts",
            ("the linger starts before the exit", "the linger does not wait"),
            "The clock starts once what was asked for is down (c.5).",
        ),
        _always(
            "a linger starts at most once",
            ("sup", "world"),
            lambda sup, world: world.lingers == int(sup.lingering),
            "a linger starts",
            ("a linger starts again",),
            "A second start would let a writer hold the result back for ever.",
        ),
        _always(
            "writers may be alive exactly when reading was given up",
            ("sup", "world"),
            lambda sup, world: sup.writers_may_be_alive != world.reading,
            "reading is given up",
            ("writers are forgotten", "reading goes on"),
            "True only when the linger ran out on open pipes (c.5).",
        ),
        _always(
            "no timer is armed once the result is published",
            ("sup", "world"),
            lambda sup, world: not sup.published or not (world.deadline or world.linger),
            "a result is published",
            ("timers are not cancelled",),
            "Nothing is left behind that could fire later.",
        ),
    )


def _escalation() -> tuple[Property, ...]:
    return (
        _edge(
            "an escalation never starts while one runs",
            HAPPENINGS,
            lambda e: not escalates(e) or not world_before(e).escalating,
            "a kill joins an escalation",
            ("a kill escalates again", "a deadline escalates again", "a reap escalates again"),
            "A kill request joins the escalation that runs (c.6, c.7).",
        ),
        _always(
            "the rules know whether an escalation runs",
            ("sup", "world"),
            lambda sup, world: world.escalating == (sup.escalation is Escalation.RUNNING),
            "a kill joins an escalation",
            ("the end of an escalation is forgotten", "a kill is forgotten"),
            "Its start and its end are both taken in.",
        ),
        _edge(
            "a kill brings the group down",
            frozenset({"kill"}),
            lambda e: world_after(e).escalating,
            "a kill comes after the result",
            ("a kill is forgotten", "a kill comes too late"),
            "In any phase, for what is left of the group (a.7).",
        ),
        _edge(
            "a deadline brings the group down",
            frozenset({"deadline"}),
            lambda e: sup_before(e).exited or (world_after(e).escalating and sup_after(e).timed_out),
            "a deadline comes",
            ("a deadline is forgotten", "a deadline does not escalate"),
            "timed_out, and TERM (c.7).",
        ),
        _edge(
            "a reap brings the group down before the result",
            frozenset({"exit", "killed"}),
            lambda e: (
                not sup_before(e).reap
                or sup_before(e).timed_out
                or (world_after(e).escalating and not publishes(e))
            ),
            "an exit is reaped",
            ("a reap is forgotten", "a result does not wait for the reap"),
            "As soon as the child exits, before the linger (c.5).",
        ),
        _edge(
            "deadline and reap escalate once together",
            frozenset({"exit", "killed"}),
            lambda e: not sup_before(e).timed_out or not escalates(e),
            "a reaped exec times out",
            ("a reap escalates after the deadline",),
            "Not twice when both were asked for (c.7).",
        ),
        _edge(
            "nothing else escalates",
            frozenset({"exit", "killed", "pipes", "linger", "look", "late", "stray"}),
            lambda e: not escalates(e) or (sup_before(e).reap and e.event.kind in ("exit", "killed")),
            "an exit is reaped",
            ("every exit is reaped",),
            "A group is only signalled when somebody asked for it (c.5, c.6).",
        ),
        response_table(
            "what an escalation does at a look",
            ("look",),
            ("group",),
            case=lambda e: (e.before["group"].alive, e.event.args["waited"]),  # type: ignore[attr-defined]
            table={
                (False, 0.0): EscalationStep(send_kill=False, finished=True),
                (False, GRACE): EscalationStep(send_kill=False, finished=True),
                (True, 0.0): EscalationStep(send_kill=False, finished=False),
                (True, GRACE): EscalationStep(send_kill=True, finished=True),
            },
            witness="KILL is sent",
            faults=(
                "the grace is never over",
                "KILL goes to a group that is gone",
                "the grace is not waited for",
            ),
            meaning="Over as soon as no member lives, KILL at the end of the grace (c.6).",
        ),
    )


def _cause(edge: Edge) -> Cause:
    """The cause a poll must tell of a published result."""
    sup, args = sup_before(edge), edge.event.args
    if sup.timed_out and not sup.kill_requested:
        return Cause.TIMEOUT
    if args["signalled"] and args["starved"]:
        return Cause.OUT_OF_MEMORY
    if sup.kill_requested:
        return Cause.KILLED
    return Cause.SIGNAL if args["signalled"] else Cause.EXIT


def _causes() -> tuple[Property, ...]:
    return (
        _edge(
            "a poll tells the cause",
            frozenset({"poll"}),
            lambda e: not isinstance(e.response, Cause) or e.response is _cause(e),
            "a time-out is told",
            (
                "a time-out that exits well is an exit",
                "a kill is only a signal",
                "lack of memory is only a signal",
                "every signal is lack of memory",
                "any lack of memory is the cause",
            ),
            "Deadline, memory, kill, signal, exit: the first that applies (c.7).",
        ),
        _edge(
            "a poll tells the cause of nothing that runs",
            frozenset({"poll"}),
            lambda e: (
                isinstance(record := e.before["record"], Record)
                and isinstance(e.response, Cause) == (record.phase is Phase.EXITED)
            ),
            "a time-out is told",
            ("a running exec shows its outcome", "no poll shows the outcome"),
            "The outcome shows once it is published and until it is acked (a.3).",
        ),
        _edge(
            "only a deadline times out",
            HAPPENINGS,
            lambda e: (
                sup_before(e).timed_out == sup_after(e).timed_out
                or (e.event.kind == "deadline" and not sup_before(e).exited)
            ),
            "a deadline comes",
            ("a deadline after the exit counts",),
            "An exec that exited before its deadline did not time out (c.7).",
        ),
        _edge(
            "only a kill in time is the cause",
            HAPPENINGS,
            lambda e: (
                sup_after(e).kill_requested
                == (
                    sup_before(e).kill_requested
                    or (e.event.kind == "kill" and not sup_before(e).exited and not sup_before(e).timed_out)
                )
            ),
            "a kill comes after the result",
            ("a kill after the exit counts", "a kill is only a signal to come"),
            "A kill of a child that had exited, or run out of time, did not end it.",
        ),
        response_table(
            "which time-outs may be asked for",
            ("timeout",),
            case=lambda e: str(e.event.args["timeout"]),
            table={str(timeout): meaning for timeout, meaning in DEADLINES.items()},
            witness="a time-out is asked for",
            faults=(
                "no time-out is too long",
                "a time-out of nothing is valid",
                "a huge time-out is a deadline",
            ),
            meaning="Positive, finite, and within the duration type; beyond the clock's range it is none (a.2).",
        ),
    )


def _lateness() -> tuple[Property, ...]:
    return (
        unchanged_by(
            "what comes late changes nothing",
            ("late",),
            witness="something comes late",
            faults=("a second exit counts", "a deadline after the exit counts", "pipes can end twice"),
            meaning="Callbacks on their way when they became pointless do no harm (c.5).",
        ),
        unchanged_by(
            "the end of no escalation changes nothing",
            ("stray",),
            witness="something comes late",
            faults=("an escalation can end twice",),
            meaning="Only an escalation that runs can end.",
        ),
    )


def _progress() -> tuple[Property, ...]:
    fair = (Fair(frozenset({"linger", "look", "pipes", "killed"})),)
    return (
        LeadsTo(
            name="every exit is published",
            reads=("sup",),
            when=lambda sup: sup is not None and sup.exited,
            then=lambda sup: sup is not None and sup.published,
            fair=fair,
            witness="a result is published",
            faults=(
                "the end of an escalation is forgotten",
                "the grace is never over",
                "pipes that end are forgotten",
            ),
            meaning="Whoever holds the pipes, the linger ends the wait (c.5).",
        ),
        LeadsTo(
            name="every deadline ends the exec",
            reads=("sup",),
            when=lambda sup: sup is not None and sup.timed_out,
            then=lambda sup: sup is not None and sup.published,
            fair=fair,
            witness="a time-out is told",
            faults=("the grace is never over",),
            meaning="TERM, then KILL, then the result (c.7).",
        ),
    )


def _some(name: str, kinds: set[str], holds: EdgePredicate) -> SometimesOnEdge:
    reads = ("sup", "world") if kinds <= HAPPENINGS else ()
    return SometimesOnEdge(name=name, kinds=frozenset(kinds), reads=reads, holds=holds)


def _witnesses() -> tuple[Property, ...]:
    return (
        _some("a result is published", {"pipes", "linger", "exit", "look"}, publishes),
        _some("reading is given up", {"linger"}, lambda e: not world_after(e).reading),
        _some(
            "a linger starts", {"exit", "look"}, lambda e: world_after(e).lingers > world_before(e).lingers
        ),
        _some("a kill joins an escalation", {"kill"}, lambda e: world_before(e).escalating),
        _some("a kill comes after the result", {"kill"}, lambda e: sup_before(e).published),
        _some("a deadline comes", {"deadline"}, lambda e: sup_after(e).timed_out),
        _some("an exit is reaped", {"exit"}, escalates),
        _some("a reaped exec times out", {"exit"}, lambda e: sup_before(e).reap and sup_before(e).timed_out),
        _some("something comes late", {"late"}, lambda e: sup_before(e).published),
        _some("a time-out is told", {"poll"}, lambda e: e.response is Cause.TIMEOUT),
        _some("a time-out is asked for", {"timeout"}, lambda e: bool(e.response)),
        SometimesOnEdge(
            name="KILL is sent",
            kinds=frozenset({"look"}),
            holds=lambda e: isinstance(e.response, EscalationStep) and e.response.send_kill,
        ),
        Sometimes(
            name="an escalation holds the result back",
            reads=("sup", "world"),
            holds=lambda sup, world: sup is not None and sup.exited and sup.pipes_ended and world.held,
        ),
    )

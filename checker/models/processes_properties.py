"""What must hold of the table of background processes (environments 6)."""

from agentd.rules.processes import Record, Stage
from checker.model import Edge
from checker.models.processes_terms import (
    LIMIT,
    NOWHERE,
    Leader,
    deleted,
    done,
    holds_slot,
    in_table,
    proc_after,
    proc_before,
    record_after,
    record_before,
    slots_after,
    slots_before,
    span_after,
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
    unchanged_by,
)


def _edge(
    name: str, kinds: set[str], holds: EdgePredicate, witness: str, faults: tuple[str, ...], meaning: str
) -> OnEdge:
    return OnEdge(
        name=name, kinds=frozenset(kinds), holds=holds, witness=witness, faults=faults, meaning=meaning
    )


def _some(name: str, kind: str, holds: EdgePredicate) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, kinds=frozenset({kind}), holds=holds)


def table(procs: list[str], read: bool) -> tuple[Property, ...]:
    """Every property of slots and records, for processes that are these components; is the first one read?"""
    return (
        *_slots(procs),
        *_records(procs),
        *_signals(),
        *_ends(procs[0], ("attached",) if read else ()),
        *_table_witnesses(),
    )


def _slots(procs: list[str]) -> tuple[Property, ...]:
    return (
        Always(
            name="records and starts are never more than the limit",
            reads=tuple(procs),
            holds=lambda *processes: sum(map(holds_slot, processes)) <= LIMIT,
            witness="a start finds no slot",
            faults=(
                "a slot is taken after the start",
                "one more slot than the limit",
                "an exit frees the slot",
            ),
            meaning="Running, exited and starting together, however parallel the requests (6.1).",
        ),
        Always(
            name="slots taken are records and starts",
            reads=("slots", *procs),
            holds=lambda slots, *processes: slots.taken == sum(map(holds_slot, processes)),
            witness="a start finds no slot",
            faults=(
                "a slot is taken after the start",
                "a slot is not given back",
                "a slot is given back twice",
                "an exit frees the slot",
                "a start that fails keeps its slot",
            ),
            meaning="Each slot is freed exactly once (6.1, 6.3).",
        ),
        response_table(
            "a start is refused exactly when all slots are taken",
            ("ask",),
            case=lambda e: slots_before(e).taken < LIMIT,
            table={True: True, False: False},
            witness="a start finds no slot",
            faults=("the last slot is never taken", "one more slot than the limit"),
            meaning="429, and nothing is started (6.1).",
        ),
        unchanged_by(
            "a refused start changes nothing",
            ("ask",),
            unless=lambda e: e.response is True,
            witness="a start finds no slot",
            faults=("a refused start takes a slot",),
            meaning="Neither a slot nor a record (6.1).",
        ),
        _edge(
            "a start that fails gives its slot back",
            {"failed"},
            lambda e: slots_after(e).taken == slots_before(e).taken - 1 and proc_after(e) is None,
            "a start fails",
            ("a start that fails keeps its slot", "a slot is not given back", "a slot is given back twice"),
            "No record remains (6.1).",
        ),
        _edge(
            "a deletion gives the slot back at once",
            {"delete"},
            lambda e: (
                slots_after(e).taken == slots_before(e).taken - (1 if in_table(proc_before(e)) else 0)
                and not in_table(proc_after(e))
            ),
            "a running process is deleted",
            ("a slot is not given back", "a slot is given back twice", "a deletion keeps the record"),
            "Record and slot are gone when it is answered; a second one finds nothing (6.3).",
        ),
        _edge(
            "an exit frees no slot",
            {"drain"},
            lambda e: slots_after(e) == slots_before(e),
            "an exit is shown",
            ("an exit frees the slot",),
            "Only a deletion frees the slot of a process (6.1).",
        ),
    )


def _records(procs: list[str]) -> tuple[Property, ...]:
    return (
        *(
            Always(
                name=f"the rules know whose the number is ({name})",
                reads=(name,),
                holds=lambda process: (
                    process is None
                    or process.record is None
                    or (process.record.stage is Stage.RUNNING) == (process.leader is not Leader.REAPED)
                ),
                witness="a signal comes after the reap",
                faults=("a number that was reaped is kept", "a deletion counts as a reap"),
                meaning="Ours until the leader's status is taken (6.4).",
            )
            for name in procs
        ),
        unchanged_by(
            "a reap that is noticed late changes nothing",
            ("late_reap",),
            witness="a reap is noticed after the exit",
            faults=("a late reap reopens the record",),
            meaning="What has exited stays exited (6.2).",
        ),
        _edge(
            "a drain shows the exit and nothing else",
            {"drain"},
            lambda e: record_after(e) in (None, _exited(e)),
            "an exit is shown",
            ("a drain is forgotten", "a drain revives what was deleted"),
            "Of a deleted process too, for those who are attached (6.2, 6.3).",
        ),
        response_table(
            "an exit shows exactly from the drain on",
            ("look",),
            case=lambda e: span_after(e).closed if in_table(proc_before(e)) else NOWHERE,
            table={True: True, False: False, NOWHERE: NOWHERE},
            witness="a process is looked at between reap and drain",
            faults=("a reaped process shows its exit", "no process shows its exit", "a reap is an exit"),
            meaning="Whoever sees it exited has all of its output before them (6.2).",
        ),
        _edge(
            "a deletion is for good",
            {"reap", "late_reap", "drain", "signal", "stop", "delete"},
            lambda e: not deleted(record_before(e)) or proc_after(e) is None or deleted(record_after(e)),
            "a process is deleted twice",
            ("a reap revives what was deleted", "a drain revives what was deleted"),
            "No request ever finds it again (6.3).",
        ),
    )


def _exited(edge: Edge) -> Record | None:
    record = record_before(edge)
    return None if record is None else Record(Stage.EXITED, record.deleted)


def _ours(edge: Edge) -> bool:
    process = proc_before(edge)
    return process is not None and process.leader is not Leader.REAPED


def _signals() -> tuple[Property, ...]:
    return (
        _edge(
            "nothing is sent to a number that was reaped",
            {"signal", "stop", "delete"},
            lambda e: done(e) not in ("sent", "killed") or _ours(e),
            "a signal comes after the reap",
            (
                "a process is signalled until its exit shows",
                "everything is signalled",
                "a deletion always kills",
                "a number that was reaped is kept",
            ),
            "The kernel may have given it to somebody else (6.3, 6.4).",
        ),
        _edge(
            "nothing is sent to what was deleted",
            {"signal", "stop"},
            lambda e: not deleted(record_before(e)) or e.response != "sent",
            "the daemon stops what was deleted",
            ("a deleted process is signalled", "everything is signalled"),
            "Its deletion has killed it (6.3).",
        ),
        response_table(
            "what runs gets its signal",
            ("signal",),
            case=lambda e: _ours(e) if in_table(proc_before(e)) else NOWHERE,
            table={True: "sent", False: "nothing", NOWHERE: NOWHERE},
            witness="a signal comes after the reap",
            faults=("nothing is signalled", "a process is signalled until its exit shows"),
            meaning="And what has exited gets none, with the same answer; what is not there is not found (6.4).",
        ),
        _edge(
            "a deletion kills exactly what runs",
            {"delete"},
            lambda e: (
                done(e) == (("killed" if _ours(e) else "removed") if in_table(proc_before(e)) else NOWHERE)
            ),
            "a running process is deleted",
            ("a deletion kills nothing", "a deletion always kills"),
            "Of what was reaped only the record is removed; of what is not there, nothing (6.3).",
        ),
    )


def _ends(proc: str, readers: tuple[str, ...]) -> tuple[Property, ...]:
    about = {"id": 0}
    return (
        LeadsTo(
            name="a deleted process is let go",
            reads=(proc, *readers),
            when=lambda process, *attached: process is not None and deleted(process.record),
            then=lambda process, *attached: process is None or any(attached),
            fair=(Fair(frozenset({"killed", "reap", "read", "drain", "let_go"}), about=about),),
            witness="a running process is deleted",
            faults=("a drain is forgotten", "a deletion kills nothing"),
            meaning="Once its kill is reaped and nobody is attached, nothing of it is kept.",
        ),
    )


def _table_witnesses() -> tuple[Property, ...]:
    return (
        _some("a start finds no slot", "ask", lambda e: e.response is False),
        _some("a start fails", "failed", lambda e: True),
        _some("a running process is deleted", "delete", lambda e: done(e) == "killed"),
        _some("a process is deleted twice", "delete", lambda e: done(e) == NOWHERE),
        _some("an exit is shown", "drain", lambda e: record_after(e) is not None),
        _some(
            "a signal comes after the reap",
            "signal",
            lambda e: in_table(proc_before(e)) and not _ours(e),
        ),
        _some("the daemon stops what was deleted", "stop", lambda e: deleted(record_before(e))),
        _some(
            "a reap is noticed after the exit",
            "late_reap",
            lambda e: record_before(e) == Record(Stage.EXITED),
        ),
        _some(
            "a process is looked at between reap and drain",
            "look",
            lambda e: not _ours(e) and not span_after(e).closed,
        ),
    )

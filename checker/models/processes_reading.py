"""What must hold of those who read a process' output (environments 7 and 8)."""

from agentd.rules.output import End, Span
from agentd.rules.processes import Phase, Verdict
from checker.model import Edge
from checker.models.processes_terms import (
    NOWHERE,
    REPLY,
    Reply,
    asked_after,
    asked_before,
    deleted,
    in_table,
    proc_before,
    record_before,
    reply,
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
    unchanged_by,
)


def _edge(
    name: str, kinds: set[str], holds: EdgePredicate, witness: str, faults: tuple[str, ...], meaning: str
) -> OnEdge:
    """About the process that is read."""

    def about(edge: Edge) -> bool:
        return edge.event.args["id"] != 0 or holds(edge)

    return OnEdge(
        name=name, kinds=frozenset(kinds), holds=about, witness=witness, faults=faults, meaning=meaning
    )


def _some(name: str, kind: str, holds: EdgePredicate) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, kinds=frozenset({kind}), holds=holds)


CHANGES = {"read", "drain"}
POLLED = {"poll", "read", "drain", "expire", "delete"}


def _waited(edge: Edge) -> bool:
    """Whether a long poll was waiting."""
    asked = asked_before(edge)
    return asked is not None and asked.poll.phase is not Phase.OVER


def _since(edge: Edge) -> int:
    asked = asked_before(edge) or asked_after(edge)
    return 0 if asked is None else asked.poll.since


def _owed(edge: Edge) -> int:
    return span_after(edge).total - _since(edge)


def _page(holds: EdgePredicate) -> EdgePredicate:
    """Of every reply that has output."""
    return lambda edge: (told := reply(edge)) is None or told.page is None or holds(edge)


def _start(edge: Edge) -> int:
    told = reply(edge)
    return told.page.start if told is not None and told.page is not None else -1


def _end(edge: Edge) -> int:
    told = reply(edge)
    return told.page.end if told is not None and told.page is not None else -1


def _final(edge: Edge) -> bool:
    told = reply(edge)
    return told is not None and told.final


def _verdict(edge: Edge) -> Verdict | None:
    told = reply(edge)
    return None if told is None else told.verdict


def _first_answer(edge: Edge) -> str:
    """The case of a poll that has just come."""
    if not in_table(proc_before(edge)):
        return NOWHERE
    if _owed(edge) < 0:
        return "beyond"
    return "answer" if _owed(edge) or span_after(edge).closed or not edge.event.args["patient"] else "wait"


def _after_change(edge: Edge) -> str:
    """The case of a change of the output."""
    if not _waited(edge):
        return "over"
    if span_after(edge).closed or _owed(edge) >= REPLY:
        return "answer"
    asked = asked_before(edge)
    waiting = asked is not None and asked.poll.phase is Phase.WAITING
    return "collect" if waiting and _owed(edge) > 0 else "wait"


def reading() -> tuple[Property, ...]:
    """Every property of what reads a process' output."""
    return (*_replies(), *_waiting(), *_attached(), *_reading_witnesses())


def _replies() -> tuple[Property, ...]:
    return (
        _edge(
            "a reply begins where it was asked for, or where replay begins",
            POLLED,
            _page(lambda e: _start(e) == max(_since(e), _replay(e).start)),
            "a reply comes too late for the window",
            ("a reply begins where replay begins", "a reply begins where it was asked for"),
            "What was evicted shows as a gap between offsets (7.3).",
        ),
        _edge(
            "a reply holds all that it may",
            POLLED,
            _page(lambda e: _end(e) == max(_start(e), min(_replay(e).total, _start(e) + REPLY))),
            "a reply is cut",
            ("a reply holds all there is", "a reply is one byte short"),
            "Up to the end, or up to what one reply holds (7.3).",
        ),
        _edge(
            "the exit shows on the reply that reaches the end, and on no other",
            POLLED,
            _page(lambda e: _final(e) == (_replay(e).closed and _end(e) == _replay(e).total)),
            "a reply shows the exit",
            (
                "the exit shows on the first page",
                "the exit never shows",
                "the exit shows while output may come",
            ),
            "A loop that stops at the exit loses no tail (7.3).",
        ),
        _edge(
            "what shows the exit has one to show",
            POLLED,
            lambda e: not _final(e) or ((told := reply(e)) is not None and told.exit),
            "a reply shows the exit",
            ("no process shows its exit", "a drain is forgotten"),
            "`exit` is there exactly if `exited` is true (7.3).",
        ),
    )


def _replay(edge: Edge) -> Span:
    """The output a reply is made of."""
    return span_after(edge)


def _waiting() -> tuple[Property, ...]:
    return (
        Always(
            name="a poll is answered exactly once",
            reads=("poll",),
            holds=lambda asked: (
                asked is None or asked.answers == (1 if asked.poll.phase is Phase.OVER else 0)
            ),
            witness="a poll waits, collects and is answered",
            faults=(
                "a poll that is over is answered by a change",
                "a poll that is over is answered by its timer",
                "a poll is answered and goes on",
                "a poll ends without an answer",
            ),
            meaning="It ends with its answer, and whatever comes later is not for it (7.3).",
        ),
        _edge(
            "a poll waits only for what is to come",
            {"poll"},
            lambda e: (
                _verdict(e)
                == {
                    NOWHERE: None,
                    "beyond": Verdict.BEYOND_END,
                    "answer": Verdict.ANSWER,
                    "wait": Verdict.WAIT,
                }[_first_answer(e)]
            ),
            "a poll comes from beyond the end",
            (
                "a poll from beyond the end waits",
                "a poll at the end of everything waits",
                "every poll waits",
                "the end is beyond the end",
            ),
            "At once when there is output, or an end, or no patience; 400 beyond the end (7.3).",
        ),
        _edge(
            "a change answers, collects, or is waited for",
            CHANGES,
            lambda e: (
                asked_before(e) is None
                or _verdict(e)
                is {
                    "over": Verdict.WAIT,
                    "answer": Verdict.ANSWER,
                    "collect": Verdict.COLLECT,
                    "wait": Verdict.WAIT,
                }[_after_change(e)]
            ),
            "a poll waits, collects and is answered",
            (
                "the first byte answers",
                "every byte starts the collecting anew",
                "a full reply goes on collecting",
                "an exit is slept through",
            ),
            "A fixed time from the first byte, cut short by a full reply or the end (7.3).",
        ),
        _edge(
            "time ends every poll",
            {"expire"},
            lambda e: _verdict(e) is (Verdict.ANSWER if _waited(e) else Verdict.WAIT),
            "a poll's time is over with nothing come",
            ("time is not over for who collects", "a poll that is over is answered by its timer"),
            "With what there is, and that may be nothing (7.3).",
        ),
        _edge(
            "a deletion ends polls with not found",
            {"delete"},
            lambda e: not _waited(e) or (_verdict(e) is Verdict.NOT_FOUND and not _waits(e)),
            "a process is deleted under a poll",
            ("a deletion answers polls", "a deletion forgets who waits"),
            "At once, as if the process had never been (6.3).",
        ),
        unchanged_by(
            "what comes late is not for a poll that is over",
            ("read", "drain", "expire", "delete"),
            ("poll",),
            unless=_waited,
            witness="output comes after the answer",
            faults=("a poll that is over is answered by a change", "a poll wakes up again"),
            meaning="It was answered (7.3).",
        ),
        LeadsTo(
            name="every poll is answered",
            reads=("poll",),
            when=lambda asked: asked is not None and asked.poll.phase is not Phase.OVER,
            then=lambda asked: asked is None or asked.answers > 0,
            fair=(Fair(frozenset({"expire"})),),
            witness="a poll's time is over with nothing come",
            faults=("time is not over for who collects",),
            meaning="In its time, whatever the process does (7.3).",
        ),
    )


def _waits(edge: Edge) -> bool:
    asked = asked_after(edge)
    return asked is not None and asked.poll.phase is not Phase.OVER


def _attached() -> tuple[Property, ...]:
    return (
        _edge(
            "an attached client is told of the exit when it has everything",
            {"attend"},
            lambda e: (
                isinstance(e.response, tuple)
                and (not isinstance(e.response[0], End) or (e.response[1] is True and span_after(e).closed))
            ),
            "an attached client is told of the exit",
            ("no process shows its exit", "a drain is forgotten"),
            "The exit message has the exit, and comes last (8.2).",
        ),
        LeadsTo(
            name="an attached client is told of a deleted process' exit",
            reads=("proc.0", "attached"),
            when=lambda process, attached: (
                attached is not None and process is not None and deleted(process.record)
            ),
            then=lambda process, attached: attached is None or attached.told > 0,
            fair=(Fair(frozenset({"killed", "reap", "read", "drain", "attend"})),),
            witness="an attached client is told of a deletion",
            faults=("a deletion kills nothing",),
            meaning="When the kill is reaped, and then it is closed (6.3).",
        ),
    )


def _reading_witnesses() -> tuple[Property, ...]:
    return (
        _some("a reply comes too late for the window", "poll", _paged(lambda e: _start(e) > _since(e))),
        _some("a reply is cut", "poll", _paged(lambda e: _end(e) < span_after(e).total)),
        _some("a reply shows the exit", "poll", _final),
        _some("a poll comes from beyond the end", "poll", lambda e: _verdict(e) is Verdict.BEYOND_END),
        _some(
            "a poll waits, collects and is answered",
            "read",
            lambda e: (
                (asked := asked_before(e)) is not None
                and asked.poll.phase is Phase.COLLECTING
                and _verdict(e) is Verdict.ANSWER
            ),
        ),
        _some(
            "a poll's time is over with nothing come",
            "expire",
            lambda e: _paged(lambda edge: _start(edge) == _end(edge))(e) and _waited(e),
        ),
        _some("a process is deleted under a poll", "delete", _waited),
        _some(
            "output comes after the answer",
            "read",
            lambda e: asked_before(e) is not None and not _waited(e),
        ),
        _some(
            "an attached client is told of the exit",
            "attend",
            lambda e: isinstance(e.response, tuple) and isinstance(e.response[0], End),
        ),
        _some(
            "an attached client is told of a deletion",
            "attend",
            lambda e: (
                isinstance(e.response, tuple) and isinstance(e.response[0], End) and deleted(record_before(e))
            ),
        ),
    )


def _paged(holds: EdgePredicate) -> EdgePredicate:
    return lambda edge: isinstance(edge.response, Reply) and edge.response.page is not None and holds(edge)

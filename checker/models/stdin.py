"""Writes to a child's stdin: contract a.5, over `rules.stdin`.

A client writes data of every sort that is judged differently, with and without an end of file; the child
closes its end, or does not read; the result is published whenever it likes.
"""

from collections.abc import Hashable

from agentd.rules import stdin
from agentd.rules.stdin import Refusal, Result, Stdin
from checker.model import Component, Edge, Event, Model, Values
from checker.models import Config
from checker.properties import (
    EdgePredicate,
    Fair,
    LeadsTo,
    OnEdge,
    Property,
    SometimesOnEdge,
    response_table,
    unchanged_by,
)

CAP = 4
"""Bytes one write may hold."""
SIZES = (None, 0, CAP, CAP + 1)
"""Decoded lengths: not base64, nothing, the most there may be, and one byte more."""
SIGNALS = (None, "eof", "hup")


def _spawn(requested: bool) -> Event:
    words = "with" if requested else "without"
    return Event(
        f"an exec starts {words} stdin",
        "spawn",
        "client",
        ("stdin",),
        ("stdin",),
        lambda state: ((Stdin.at_spawn(requested),), None),
        lambda state: state is None,
        {"requested": requested},
    )


def _write(signal: str | None, size: int | None, result: Result) -> Event:
    """A write request, and how the pipe takes it if it gets that far."""

    def effect(state: Stdin) -> tuple[Values, Hashable]:
        refusal = stdin.judge(state, signal, size, CAP)
        if refusal is not None:
            return (state,), refusal
        return (stdin.written(state, result, signal == "eof"),), result

    told = "what is not base64" if size is None else f"{size} bytes"
    name = f"the client writes {told}, signal {signal or 'none'}; the pipe: {result.value}"
    args = {"signal": signal, "size": size, "result": result}
    return Event(
        name, "write", "client", ("stdin",), ("stdin",), effect, lambda state: state is not None, args
    )


def _published() -> Event:
    return Event(
        "the result is published",
        "publish",
        "child",
        ("stdin",),
        ("stdin",),
        lambda state: ((stdin.closed(state),), None),
        lambda state: state is not None,
    )


def _state(edge: Edge) -> Stdin:
    state = edge.before["stdin"]
    assert isinstance(state, Stdin)
    return state


def _then(edge: Edge) -> Stdin:
    state = edge.after["stdin"]
    assert isinstance(state, Stdin)
    return state


def _first_refusal(edge: Edge) -> Hashable:
    """What answers first, in the order of the contract."""
    signal, size = edge.event.args["signal"], edge.event.args["size"]
    if not _state(edge).requested:
        return Refusal.NOT_REQUESTED
    if signal == "hup" or size is None:
        return Refusal.MALFORMED
    if size == CAP + 1:
        return Refusal.TOO_LARGE
    return "written" if _state(edge).open else Refusal.CLOSED


def _closes(edge: Edge) -> bool:
    result = edge.response
    return result is Result.BROKEN or (result is Result.WRITTEN and edge.event.args["signal"] == "eof")


def _write_property(
    name: str, holds: EdgePredicate, witness: str, faults: tuple[str, ...], meaning: str
) -> OnEdge:
    kinds = frozenset({"write"})
    return OnEdge(name=name, kinds=kinds, holds=holds, witness=witness, faults=faults, meaning=meaning)


def properties() -> tuple[Property, ...]:
    """Every property."""
    return (
        OnEdge(
            name="stdin is open exactly if it was asked for",
            kinds=frozenset({"spawn"}),
            holds=lambda e: _then(e) == Stdin(*[bool(e.event.args["requested"])] * 2),
            witness="a write gets through",
            faults=("every exec has a stdin", "a stdin starts closed"),
            meaning="A pipe if asked for, else nothing (c.1).",
        ),
        response_table(
            "the first refusal answers",
            ("write",),
            case=lambda e: (_first_refusal(e), e.event.args["result"]),
            table={
                (case, result): result if case == "written" else case
                for case in ("written", *Refusal)
                for result in Result
            },
            witness="a write to a closed stdin is refused",
            faults=(
                "what was not asked for is closed",
                "a closed stdin answers before the size",
                "any signal is an end of file",
                "a full write is too large",
                "what is not base64 is nothing",
                "a closed stdin takes writes",
            ),
            meaning="409, 400, 400, 413, 410, in this order (a.5).",
        ),
        unchanged_by(
            "a refused write changes nothing",
            ("write",),
            unless=lambda e: e.response in (Result.BROKEN, Result.WRITTEN),
            witness="a write to a closed stdin is refused",
            faults=("a time-out closes", "a failure closes"),
            meaning="Nor does one that timed out or failed, end of file or not (a.5).",
        ),
        _write_property(
            "a write closes when the child did or an end of file went through",
            lambda e: _then(e).open == (_state(e).open and not _closes(e)),
            "an end of file goes through",
            (
                "an end of file is forgotten",
                "a broken pipe stays open",
                "every write closes",
                "a time-out closes",
            ),
            "A prefix may be written by a time-out, and the pipe stays open (a.5).",
        ),
        OnEdge(
            name="stdin never opens again",
            holds=lambda e: e.before["stdin"] is None or _state(e).open or not _then(e).open,
            kinds=frozenset({"write", "publish"}),
            witness="a write to a closed stdin is refused",
            faults=("publishing opens",),
            meaning="Closed is for good (a.5).",
        ),
        OnEdge(
            name="a published result closes stdin",
            kinds=frozenset({"publish"}),
            holds=lambda e: _then(e) == Stdin(_state(e).requested, False),
            witness="a result is published",
            faults=("publishing leaves stdin open", "publishing opens"),
            meaning="The daemon drops its end (c.5).",
        ),
        LeadsTo(
            name="every stdin is closed in the end",
            reads=("stdin",),
            when=lambda state: state is not None and state.open,
            then=lambda state: state is None or not state.open,
            fair=(Fair(frozenset({"publish"})),),
            witness="a result is published",
            faults=("publishing leaves stdin open",),
            meaning="With the result at the latest (c.5).",
        ),
        _some("a write gets through", lambda e: e.response is Result.WRITTEN),
        _some(
            "an end of file goes through",
            lambda e: _state(e).open and not _then(e).open and not e.event.args["size"],
        ),
        _some("a write to a closed stdin is refused", lambda e: e.response is Refusal.CLOSED),
        SometimesOnEdge(
            name="a result is published", kinds=frozenset({"publish"}), holds=lambda e: _state(e).open
        ),
    )


def _some(name: str, holds: EdgePredicate) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, kinds=frozenset({"write"}), holds=holds)


CONFIGS = {
    "writes": Config(
        lambda name: Model(
            "stdin",
            name,
            (Component("stdin", None, meaning="the daemon's end of the pipe"),),
            (
                _spawn(True),
                _spawn(False),
                *(_write(signal, size, result) for signal in SIGNALS for size in SIZES for result in Result),
                _published(),
            ),
            properties(),
            bounds={"cap": CAP},
            meaning="writes to a child's stdin, until it is closed",
        )
    ),
}

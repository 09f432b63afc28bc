"""The queue before a process' stdin: environments 8.3, over `rules.processes`."""

from collections.abc import Callable, Hashable

from agentd.rules import processes
from agentd.rules.processes import Fault, Input
from checker.model import Edge, Event
from checker.models.processes_terms import QUEUE, Effect, input_after, input_before
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


# --- Events ------------------------------------------------------------------------------------------------


def takes(state: Input, size: int | None) -> tuple[Input, Fault | None]:
    """A message with so many bytes of stdin, or with the end of it."""
    fault = processes.judge_input(state, size, QUEUE)
    if fault is not None:
        return state, fault
    return (processes.ended(state) if size is None else processes.queued(state, size)), None


def _on_input(
    kind: str,
    name: str,
    actor: str,
    operation: Callable[[Input], tuple[Input, Hashable]],
    guard: Callable[[Input], bool] = lambda state: True,
    size: int | None = None,
) -> Event:
    def effect(state: Input) -> Effect:
        then, response = operation(state)
        return (then,), response

    def may(state: Input | None) -> bool:
        return state is not None and guard(state)

    return Event(name, kind, actor, ("input",), ("input",), effect, may, {"size": size})


def _begin_input(requested: bool) -> Event:
    words = "with" if requested else "without"
    return Event(
        f"a process starts {words} stdin",
        "begin",
        "client",
        ("input",),
        ("input",),
        lambda state: ((Input(requested, requested),), None),
        lambda state: state is None,
        {"requested": requested},
    )


def _message(size: int | None) -> Event:
    def operation(state: Input) -> tuple[Input, Hashable]:
        return takes(state, size)

    told = "the end of stdin" if size is None else f"{size} bytes of stdin"
    return _on_input("message", f"a client sends {told}", "client", operation, size=size)


def input_events() -> tuple[Event, ...]:
    return (
        _begin_input(True),
        _begin_input(False),
        *(_message(size) for size in (None, 0, 1, QUEUE, QUEUE + 1)),
        _on_input(
            "pump",
            "a byte goes into the pipe",
            "daemon",
            lambda state: (processes.drained(state, 1), None),
            lambda state: state.queued > 0 and state.open,
        ),
        _on_input(
            "finish",
            "the end of file goes into the pipe",
            "daemon",
            lambda state: (processes.closed(state), None),
            lambda state: state.ended and state.open and not state.queued,
        ),
        _on_input(
            "broken", "the process closes its stdin", "child", lambda state: (processes.closed(state), None)
        ),
        _on_input(
            "show",
            "a client looks whether stdin can be written",
            "client",
            lambda state: (state, processes.writable(state)),
        ),
    )


# --- Properties --------------------------------------------------------------------------------------------


def _first_fault(edge: Edge) -> Fault | None:
    """What a message is refused for, in the order of the contract."""
    state, size = input_before(edge), edge.event.args["size"]
    if not state.requested:
        return Fault.NOT_REQUESTED
    if size is None:
        return None
    if state.ended:
        return Fault.ENDED
    if not state.open:
        return Fault.CLOSED
    assert isinstance(size, int)
    return Fault.FULL if state.queued + size > QUEUE else None


def stdin() -> tuple[Property, ...]:
    """Every property of the queue before a process' stdin."""
    return (
        response_table(
            "why a message is refused",
            ("message",),
            case=_first_fault,
            table={fault: fault for fault in (None, *Fault)},
            witness="a message finds the queue full",
            faults=(
                "what was not asked for takes messages",
                "an end of file can be followed",
                "a broken stdin takes messages",
                "the queue has no bound",
                "a message that just fits is refused",
                "a second end of file is refused",
            ),
            meaning="Not asked for, ended, closed, full: the first that applies (8.3).",
        ),
        unchanged_by(
            "a refused message changes nothing",
            ("message",),
            unless=lambda e: e.response is None,
            witness="a message finds the queue full",
            faults=("a refusal is only a word",),
            meaning="It is taken whole or not at all (8.3).",
        ),
        _edge(
            "a message waits in the queue",
            {"message"},
            lambda e: (
                e.response is not None
                or input_after(e).queued
                == input_before(e).queued + (size if isinstance(size := e.event.args["size"], int) else 0)
            ),
            "a message finds the queue full",
            ("a message is not counted",),
            "Until the pipe takes it (8.3).",
        ),
        Always(
            name="the queue is bounded",
            reads=("input",),
            holds=lambda state: state is None or 0 <= state.queued <= QUEUE,
            witness="a message finds the queue full",
            faults=("the queue has no bound", "what is written is counted twice"),
            meaning="A process that does not read costs no more than that (8.3).",
        ),
        _edge(
            "what goes into the pipe leaves the queue",
            {"pump"},
            lambda e: input_after(e).queued == input_before(e).queued - 1 and input_after(e).open,
            "a byte goes out ahead of an end of file",
            ("what is written stays queued", "what is written is counted twice"),
            "Byte for byte.",
        ),
        _edge(
            "an end of file waits behind what is queued",
            {"message"},
            lambda e: (
                e.event.args["size"] is not None
                or e.response is not None
                or (
                    input_after(e).ended
                    and input_after(e).queued == input_before(e).queued
                    and input_after(e).open == input_before(e).open
                )
            ),
            "a byte goes out ahead of an end of file",
            ("an end of file drops what is queued", "an end of file is not remembered"),
            "Nothing that was taken is lost to it (8.3).",
        ),
        _edge(
            "nobody's stdin holds nothing",
            {"broken", "finish"},
            lambda e: not input_after(e).open and input_after(e).queued == 0,
            "a stdin breaks with bytes queued",
            ("a broken stdin keeps its queue", "a broken stdin stays open"),
            "What was queued is dropped with the pipe (8.3).",
        ),
        response_table(
            "stdin shows as long as it can be written",
            ("show",),
            case=lambda e: input_before(e).requested and input_before(e).open and not input_before(e).ended,
            table={True: True, False: False},
            witness="a byte goes out ahead of an end of file",
            faults=("stdin shows after its end", "stdin never shows"),
            meaning="`stdin` of a process is true while more can be sent (6.2).",
        ),
        LeadsTo(
            name="an end of file gets through",
            reads=("input",),
            when=lambda state: state is not None and state.requested and state.ended,
            then=lambda state: state is not None and not state.open,
            fair=(Fair(frozenset({"pump", "finish"})),),
            witness="a byte goes out ahead of an end of file",
            faults=("what is written stays queued", "a broken stdin stays open"),
            meaning="Once the process has read what came before it (8.3).",
        ),
        _some("a message finds the queue full", "message", lambda e: e.response is Fault.FULL),
        _some(
            "a byte goes out ahead of an end of file",
            "pump",
            lambda e: input_before(e).ended,
        ),
        _some("a stdin breaks with bytes queued", "broken", lambda e: input_before(e).queued > 0),
    )

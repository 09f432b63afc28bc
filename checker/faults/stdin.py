"""Wrong versions of `agentd.rules.stdin`."""

from attrs import evolve

from agentd.rules.stdin import Refusal, Result, Stdin
from checker.faults import Function, fault

MODULE = "agentd.rules.stdin"


@fault("every exec has a stdin", MODULE, "Stdin.at_spawn")
def _every(right: Function, cls: type[Stdin], requested: bool) -> Stdin:
    return Stdin(True, True)


@fault("a stdin starts closed", MODULE, "Stdin.at_spawn")
def _starts_closed(right: Function, cls: type[Stdin], requested: bool) -> Stdin:
    return Stdin(requested, False)


def _judge(right: Function, state: Stdin, signal: str | None, size: int | None, cap: int) -> Refusal | None:
    refusal: Refusal | None = right(state, signal, size, cap)
    return refusal


@fault("what was not asked for is closed", MODULE, "judge")
def _is_closed(
    right: Function, state: Stdin, signal: str | None, size: int | None, cap: int
) -> Refusal | None:
    return _judge(right, evolve(state, requested=True), signal, size, cap)


@fault("a closed stdin answers before the size", MODULE, "judge")
def _closed_first(
    right: Function, state: Stdin, signal: str | None, size: int | None, cap: int
) -> Refusal | None:
    refusal = _judge(right, state, signal, size, cap)
    return Refusal.CLOSED if refusal is Refusal.TOO_LARGE and not state.open else refusal


@fault("any signal is an end of file", MODULE, "judge")
def _any_signal(
    right: Function, state: Stdin, signal: str | None, size: int | None, cap: int
) -> Refusal | None:
    return _judge(right, state, None, size, cap)


@fault("a full write is too large", MODULE, "judge")
def _full(right: Function, state: Stdin, signal: str | None, size: int | None, cap: int) -> Refusal | None:
    return _judge(right, state, signal, size, cap - 1)


@fault("what is not base64 is nothing", MODULE, "judge")
def _nothing(right: Function, state: Stdin, signal: str | None, size: int | None, cap: int) -> Refusal | None:
    return _judge(right, state, signal, size or 0, cap)


@fault("a closed stdin takes writes", MODULE, "judge")
def _takes(right: Function, state: Stdin, signal: str | None, size: int | None, cap: int) -> Refusal | None:
    return _judge(right, evolve(state, open=True), signal, size, cap)


@fault("an end of file is forgotten", MODULE, "written")
def _forgotten(right: Function, state: Stdin, result: Result, eof: bool) -> Stdin:
    written: Stdin = right(state, result, False)
    return written


@fault("a broken pipe stays open", MODULE, "written")
def _stays_open(right: Function, state: Stdin, result: Result, eof: bool) -> Stdin:
    return state if result is Result.BROKEN else right(state, result, eof)


@fault("every write closes", MODULE, "written")
def _closes(right: Function, state: Stdin, result: Result, eof: bool) -> Stdin:
    return right(state, result, True) if result is Result.WRITTEN else right(state, result, eof)  # type: ignore[no-any-return]


@fault("a time-out closes", MODULE, "written")
def _time_out(right: Function, state: Stdin, result: Result, eof: bool) -> Stdin:
    return evolve(state, open=False) if result is Result.TIMED_OUT and eof else right(state, result, eof)


@fault("a failure closes", MODULE, "written")
def _failure(right: Function, state: Stdin, result: Result, eof: bool) -> Stdin:
    return evolve(state, open=False) if result is Result.FAILED else right(state, result, eof)


@fault("publishing leaves stdin open", MODULE, "closed")
def _leaves_open(right: Function, state: Stdin) -> Stdin:
    return state


@fault("publishing opens", MODULE, "closed")
def _publishing_opens(right: Function, state: Stdin) -> Stdin:
    return evolve(state, open=True)

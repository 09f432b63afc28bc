"""A write to a child's stdin: the order of refusals, and what closes the pipe (contract a.5)."""

import itertools

import pytest

from agentd.rules import stdin
from agentd.rules.stdin import Refusal, Result, Stdin

CAP = 10
ASKED = Stdin.at_spawn(True)
CLOSED = stdin.closed(ASKED)
NEVER = Stdin.at_spawn(False)


def test_at_spawn_it_is_open_if_it_was_asked_for() -> None:
    assert Stdin(requested=True, open=True) == ASKED
    assert Stdin(requested=False, open=False) == NEVER


@pytest.mark.parametrize(
    ("state", "signal", "size", "refusal"),
    [
        (ASKED, None, 0, None),
        (ASKED, "eof", 0, None),
        (ASKED, "eof", CAP, None),
        (ASKED, None, CAP + 1, Refusal.TOO_LARGE),
        (ASKED, None, None, Refusal.MALFORMED),
        (ASKED, "EOF", 0, Refusal.MALFORMED),
        (ASKED, "", 0, Refusal.MALFORMED),
        (ASKED, "term", 0, Refusal.MALFORMED),
        (CLOSED, None, 0, Refusal.CLOSED),
        (CLOSED, "eof", 0, Refusal.CLOSED),
        (NEVER, None, 0, Refusal.NOT_REQUESTED),
        (NEVER, "eof", None, Refusal.NOT_REQUESTED),
    ],
)
def test_each_request_has_its_refusal(
    state: Stdin, signal: str | None, size: int | None, refusal: Refusal | None
) -> None:
    assert stdin.judge(state, signal, size, CAP) is refusal


def test_of_several_faults_the_first_of_the_contract_answers() -> None:
    order = [Refusal.NOT_REQUESTED, Refusal.MALFORMED, Refusal.MALFORMED, Refusal.TOO_LARGE, Refusal.CLOSED]
    for faults in itertools.product([False, True], repeat=5):
        requested, signal, base64, size, is_open = faults
        if base64 and size:
            continue  # what is not base64 has no size
        state = Stdin(requested=not requested, open=not is_open)
        found = stdin.judge(
            state, "what" if signal else "eof", None if base64 else CAP + 1 if size else 1, CAP
        )
        assert found is next((name for fault, name in zip(faults, order, strict=True) if fault), None)


@pytest.mark.parametrize("eof", [False, True])
@pytest.mark.parametrize("result", list(Result))
def test_only_an_end_written_through_or_a_broken_pipe_closes(result: Result, eof: bool) -> None:
    closes = result is Result.BROKEN or (result is Result.WRITTEN and eof)
    assert stdin.written(ASKED, result, eof) == (CLOSED if closes else ASKED)


@pytest.mark.parametrize("eof", [False, True])
@pytest.mark.parametrize("result", list(Result))
def test_what_is_closed_stays_closed(result: Result, eof: bool) -> None:
    assert stdin.written(CLOSED, result, eof) == CLOSED
    assert stdin.closed(CLOSED) == CLOSED


def test_the_published_result_closes_it_and_remembers_that_it_was_asked_for() -> None:
    assert stdin.closed(ASKED).requested
    assert stdin.judge(stdin.closed(ASKED), None, 0, CAP) is Refusal.CLOSED
    assert stdin.judge(stdin.closed(NEVER), None, 0, CAP) is Refusal.NOT_REQUESTED

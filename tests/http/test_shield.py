"""Work that is finished whether or not anybody waits for it."""

import gc

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogEvent, globalLogPublisher

from agentd.http.shield import shielded


def outcome(deferred: "Deferred[object]") -> list[object]:
    """What it has fired with: a result, or the type of a failure."""
    seen: list[object] = []
    deferred.addCallbacks(seen.append, lambda failure: seen.append(failure.type))
    return seen


def test_the_result_is_passed_on() -> None:
    """Now or later."""
    step: Deferred[int] = Deferred()

    async def work() -> int:
        return await step + 1

    seen = outcome(shielded(work()))
    assert seen == []
    step.callback(1)
    assert seen == [2]


def test_a_failure_is_passed_on() -> None:
    """To whoever waits."""

    async def work() -> None:
        raise KeyError("x")

    assert outcome(shielded(work())) == [KeyError]


def test_the_work_goes_on_when_the_wait_is_cancelled() -> None:
    """To its end, and its result goes nowhere."""
    step: Deferred[int] = Deferred()
    done: list[int] = []

    async def work() -> None:
        done.append(await step)

    waiting = shielded(work())
    seen = outcome(waiting)
    waiting.cancel()
    assert seen == [CancelledError]
    assert done == []
    step.callback(5)
    assert done == [5]
    assert seen == [CancelledError]


def test_a_failure_nobody_waits_for_is_logged(request: pytest.FixtureRequest) -> None:
    """Rather than lost."""
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    request.addfinalizer(lambda: globalLogPublisher.removeObserver(events.append))
    steps: list[Deferred[int]] = [Deferred()]

    async def work() -> None:
        await steps[0]
        raise KeyError("x")

    waiting = shielded(work())
    outcome(waiting)
    waiting.cancel()
    steps.pop().callback(1)
    gc.collect()
    assert any("log_failure" in event and event["log_failure"].check(KeyError) for event in events)

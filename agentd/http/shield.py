"""Work that a request started and that is finished whether or not its caller stays.

A handler is cancelled when its caller leaves. That is right for waiting and reading, and wrong for work that has an
effect of its own: half a write to a pipe, a lifecycle hook whose platform lost patience. `shielded` is the line
between the two.
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


def shielded(work: Coroutine[Any, Any, T]) -> "Deferred[T]":
    """The result of `work`, which begins now and goes on when the wait for it is cancelled.

    A failure that nobody waits for any more is logged as an unhandled one.
    """
    waiting: Deferred[T] = Deferred()

    def done(result: T) -> None:
        if not waiting.called:
            waiting.callback(result)

    def failed(failure: Failure) -> Failure | None:
        if waiting.called:
            return failure
        waiting.errback(failure)
        return None

    Deferred.fromCoroutine(work).addCallbacks(done, failed)
    return waiting

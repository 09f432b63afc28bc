"""Work that blocks, kept off the reactor thread: the seam to the pool, and what a pool lacks.

A thread cannot be interrupted, so three things have to be arranged around `deferToThreadPool`:

* its Deferred can be cancelled while the thread goes on, and then the result is dropped. If the result is a
  descriptor, that is a leak: `shielded` hands a late result to `dispose` instead;
* a job that takes minutes holds one of a handful of threads, and everybody else's small reads queue behind
  it. `run_sliced` takes a generator, runs it for a slice of time per visit to the pool, and so shares the
  threads fairly; between two slices the job can be cancelled, and the generator's `finally` blocks clean up;
* a descriptor that is not ready (a FIFO) must wait in the reactor, not in a thread: `when_ready`.
"""

import time
from collections.abc import Callable, Generator
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadDescriptor, IWriteDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

T = TypeVar("T")
P = ParamSpec("P")

SLICE_SECONDS = 0.02
"""How long a sliced job holds a pool thread at a time."""

_log = Logger()


class Reactor(Protocol):
    """What is needed of the reactor here: `IReactorFDSet` in words that a type checker follows."""

    def addReader(self, reader: Any, /) -> object: ...
    def addWriter(self, writer: Any, /) -> object: ...
    def removeReader(self, reader: Any, /) -> object: ...
    def removeWriter(self, writer: Any, /) -> object: ...


class RunInThread(Protocol):
    """Run a function in a pool thread; `functools.partial(deferToThreadPool, reactor, pool)` is one."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Deferred[T]: ...


def shielded(running: Deferred[T], dispose: Callable[[T], object]) -> Deferred[T]:
    """A Deferred for the result of `running` that may be cancelled: a result that comes later is disposed of."""
    handed_on: Deferred[T] = Deferred(lambda _: None)

    def succeed(result: T) -> None:
        if handed_on.called:
            dispose(result)
        else:
            handed_on.callback(result)

    def fail(reason: Failure) -> None:
        if not handed_on.called:
            handed_on.errback(reason)

    running.addCallbacks(succeed, fail).addErrback(_logged)
    return handed_on


def run_sliced(
    run_in_thread: RunInThread,
    steps: Generator[None, None, T],
    dispose: Callable[[T], object] = lambda _: None,
    slice_seconds: float = SLICE_SECONDS,
) -> Deferred[T]:
    """Run `steps` to its end in pool threads, a slice at a time; fires with what it returns or raises.

    `steps` yields wherever it may be suspended. Cancelling closes it at its next yield; if it ends first, its
    result goes to `dispose`.
    """
    done: Deferred[T] = Deferred(lambda _: None)

    def visit() -> None:
        run_in_thread(_slice, steps, slice_seconds).addCallbacks(visited, failed).addErrback(_logged)

    def visited(result: "_Ended[T] | None") -> None:
        if result is not None:
            if done.called:
                dispose(result.value)
            else:
                done.callback(result.value)
        elif done.called:
            run_in_thread(steps.close).addErrback(_logged)
        else:
            visit()

    def failed(reason: Failure) -> None:
        if not done.called:
            done.errback(reason)

    visit()
    return done


def _slice(steps: Generator[None, None, T], seconds: float) -> "_Ended[T] | None":
    deadline = time.monotonic() + seconds
    try:
        while True:
            next(steps)
            if time.monotonic() >= deadline:
                return None
    except StopIteration as ended:
        return _Ended(ended.value)


@frozen
class _Ended(Generic[T]):
    value: T


def _logged(reason: Failure) -> None:
    _log.failure("clean-up after a cancelled operation failed", reason)


class Ending:
    """Something that is over once, and whoever waits for that."""

    def __init__(self) -> None:
        self._over = False
        self._waiting: list[Deferred[None]] = []

    def wait(self) -> Deferred[None]:
        """Fires when it is over, at once if it is. Cancelling stops the waiting."""
        waiting: Deferred[None] = Deferred(lambda _: None)
        if self._over:
            waiting.callback(None)
        else:
            self._waiting.append(waiting)
        return waiting

    def over(self) -> None:
        """It is over."""
        self._over = True
        waiters, self._waiting = self._waiting, []
        for waiting in waiters:
            if not waiting.called:
                waiting.callback(None)


@implementer(IReadDescriptor, IWriteDescriptor)
class _Readiness:
    """Waits once for one descriptor; the descriptor stays its owner's."""

    def __init__(self, reactor: Reactor, fd: int, writing: bool) -> None:
        self._fd = fd
        self._add, self._remove = (
            (reactor.addWriter, reactor.removeWriter)
            if writing
            else (reactor.addReader, reactor.removeReader)
        )
        self.fired: Deferred[None] = Deferred(self._cancelled)

    def start(self) -> None:
        self._add(self)

    def fileno(self) -> int:
        return self._fd

    def _cancelled(self, _: Deferred[None]) -> None:
        self._remove(self)

    def logPrefix(self) -> str:
        return "files"

    def _ready(self) -> None:
        if not self.fired.called:
            self._remove(self)
            self.fired.callback(None)

    doRead = doWrite = _ready

    def connectionLost(self, reason: Failure) -> None:
        # The reactor met a hang-up or an error on the descriptor: the next read or write says which.
        self._ready()


def when_ready(reactor: Reactor, fd: int, writing: bool = False) -> Deferred[None]:
    """Fires when `fd` can be read (or written) without blocking. Raises OSError if it cannot be watched."""
    waiting = _Readiness(reactor, fd, writing)
    waiting.start()
    return waiting.fired

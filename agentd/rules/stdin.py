"""A write to a child's stdin: which refusal comes first, and what closes the pipe.

Theory of operation
-------------------
The order of checks is part of the contract (a.5), because a client branches on which one answered:

    known exec (404) → stdin asked for (409) → signal word (400) → base64 (400) → size (413) → open (410)

The pipe is open from spawn until an end of file was asked for and written through, the child closed its end
(EPIPE), or the result was published. It never opens again. A write that timed out leaves it open, and with
it an end of file that came in the same request (contract a.5).
"""

from enum import Enum, unique

from attrs import evolve, frozen


@unique
class Refusal(Enum):
    """Why a write is refused, by the slug of the wire."""

    NOT_REQUESTED = "stdin_not_requested"
    MALFORMED = "malformed_request"
    TOO_LARGE = "stdin_write_too_large"
    CLOSED = "stdin_closed"


@unique
class Result(Enum):
    """How a write to the pipe ended."""

    WRITTEN = "written"
    BROKEN = "broken"
    """EPIPE: the child closed its end."""
    TIMED_OUT = "timed_out"
    FAILED = "failed"


@frozen
class Written:
    """What became of one write: how it ended, and how many of its bytes are in the pipe."""

    result: Result
    accepted: int


@frozen
class Stdin:
    """The daemon's end of one child's stdin."""

    requested: bool
    open: bool

    @classmethod
    def at_spawn(cls, requested: bool) -> "Stdin":
        """A pipe if one was asked for, else ``/dev/null``."""
        return cls(requested, requested)


def judge(state: Stdin, signal: str | None, size: int | None, cap: int) -> Refusal | None:
    """The refusal of one request, or None to go on and write.

    `signal` is the request's word (None or ``eof``); `size` is the decoded length in bytes, or None when the
    data was not base64; `cap` is the most bytes one write may hold.
    """
    if not state.requested:
        return Refusal.NOT_REQUESTED
    if signal is not None and signal != "eof":
        return Refusal.MALFORMED
    if size is None:
        return Refusal.MALFORMED
    if size > cap:
        return Refusal.TOO_LARGE
    if not state.open:
        return Refusal.CLOSED
    return None


def written(state: Stdin, result: Result, eof: bool) -> Stdin:
    """The pipe after a write that ended as `result`, with an end of file asked for or not."""
    if result is Result.BROKEN or (result is Result.WRITTEN and eof):
        return evolve(state, open=False)
    return state


def closed(state: Stdin) -> Stdin:
    """The pipe once the exec's result is published."""
    return evolve(state, open=False)

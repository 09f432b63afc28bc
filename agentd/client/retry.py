"""What a failed request means for the next one: try again, mend the credential, or give up.

A pure classification by status, and a back-off that is a value. Theory: every route of the protocol that
changes something is either idempotent on a name its caller minted (start, kill, ack, a file write) or says
that it is not (a write to standard input), so the only question after a failure is whether the same request
could come out otherwise. Contract section (d), last paragraph; disk pressure is 507 exactly so that it is
not mistaken for a passing fault (contract e.4).
"""

import enum

from attrs import field, frozen

PERMANENT_SLUGS = frozenset({"spawn_failed", "stdin_write_failed"})
"""Answers of class 500 that name a fault of the request's own: the program is not there, the pipe is broken.

They are retryable by the letter of the contract (the exec's id is still free, contract a.2), but to repeat
them unasked only delays the news, so the client reports them and leaves the retry to its caller.
"""


class Fault(enum.Enum):
    """The three ways a request fails, by what its caller can do about it."""

    RETRYABLE = "retryable"
    """The same request may succeed later: no answer, 408, 503, or a class 500 other than 507."""
    CREDENTIAL = "credential"
    """401: the token is not the one the daemon holds."""
    FINAL = "final"
    """The daemon understood and refused; the same request is refused again."""


def classify(status: int) -> Fault:
    """Classify the status of an answer that is not a success (contract section (d))."""
    if status == 401:
        return Fault.CREDENTIAL
    if status == 408 or (500 <= status <= 599 and status != 507):
        return Fault.RETRYABLE
    return Fault.FINAL


def repeats_unasked(status: int, slug: str) -> bool:
    """Whether the client itself repeats an idempotent request that was answered so."""
    return classify(status) is Fault.RETRYABLE and slug not in PERMANENT_SLUGS


def _none_negative(_: object, __: object, value: tuple[float, ...]) -> None:
    if any(not delay >= 0 for delay in value):
        raise ValueError("a back-off delay must be zero or more seconds")


@frozen
class Backoff:
    """The pauses, in seconds, between attempts that follow one another without progress.

    One entry is one repetition; when they are used up the fault is reported. Any progress (a byte, a gap, an
    answer) starts the ladder again.
    """

    delays: tuple[float, ...] = field(default=(0.25, 0.5, 1.0, 2.0, 4.0), validator=_none_negative)

    def after(self, failures: int) -> float | None:
        """The pause after this many failures in a row (1 or more), or None when it is time to give up."""
        return self.delays[failures - 1] if 1 <= failures <= len(self.delays) else None


NO_RETRY = Backoff(())
"""Report the first fault."""

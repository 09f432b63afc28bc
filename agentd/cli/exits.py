"""What `agentctl` exits with, and the one line it says then.

| Status | Meaning |
|---|---|
| 0 | done; for `run`, the command exited with 0 |
| 1 | the daemon refused: there is no such exec, no such file, the disk is full … |
| 2 | usage: an option or argument that cannot be |
| 69 | the daemon cannot be reached, or the connection was lost for good |
| 70 | a fault in agentctl itself |
| 74 | reading or writing on this side failed, or a digest was not the right one |
| 75 | not now: not bootstrapped yet, shutting down, or another passing fault |
| 76 | what answered does not speak the protocol |
| 77 | the token is missing or not this machine's |
| 126 | `run`: the command could not be started |
| 128 + n | `run`: signal n ended the command. Otherwise: agentctl itself was interrupted by it |
| any other | `run`: the command's own status; 124 if it exited with 0 after its timeout had expired |

The numbers from 69 on are those of sysexits.h, 124 and 126 those of timeout(1) and env(1).
"""

import signal

from agentd.client.errors import (
    AgentError,
    AnswerError,
    DigestMismatch,
    LocalFault,
    ProtocolFault,
    SpawnFailed,
    TransportFault,
)
from agentd.client.messages import PollResponse
from agentd.client.retry import Fault

OK = 0
REFUSED = 1
USAGE = 2
UNREACHABLE = 69
INTERNAL = 70
IO_ERROR = 74
TRY_LATER = 75
PROTOCOL = 76
CREDENTIAL = 77
TIMED_OUT = 124
NOT_STARTED = 126
SIGNALLED = 128


class Refusal(Exception):
    """A failure that is no exception's fault: what to say, and what to exit with."""

    def __init__(self, text: str, status: int) -> None:
        self.status = status
        super().__init__(text)


def status_of(fault: BaseException) -> int:
    """The exit status that an exception means."""
    if isinstance(fault, Refusal):
        return fault.status
    if isinstance(fault, (DigestMismatch, LocalFault, OSError)):
        return IO_ERROR
    if isinstance(fault, ProtocolFault):
        return PROTOCOL
    if isinstance(fault, SpawnFailed):
        return NOT_STARTED
    if isinstance(fault, AgentError):
        if fault.fault is Fault.CREDENTIAL:
            return CREDENTIAL
        if isinstance(fault, TransportFault):
            return UNREACHABLE
        return TRY_LATER if fault.fault is Fault.RETRYABLE else REFUSED
    if isinstance(fault, ValueError):
        return USAGE
    return INTERNAL


def explain(fault: BaseException) -> str:
    """One line about an exception, for standard error."""
    if isinstance(fault, OSError) and fault.strerror:
        where = f": {fault.filename}" if fault.filename is not None else ""
        return f"{fault.strerror}{where}"
    if isinstance(fault, (AgentError, Refusal, ValueError, OSError)):
        return " ".join(str(fault).split())
    return f"unexpected {type(fault).__name__}: {' '.join(str(fault).split())}"


def slug_of(fault: BaseException) -> str:
    """A word for scripts: the daemon's own, or the exception's name."""
    if isinstance(fault, AnswerError) and fault.slug:
        return fault.slug
    return type(fault).__name__


def outcome_status(outcome: PollResponse) -> int:
    """The exit status that a command's outcome means to its caller."""
    if outcome.exit_code is None:
        return SIGNALLED + outcome.signal if outcome.signal else REFUSED
    if outcome.exit_code == 0 and outcome.timed_out:
        return TIMED_OUT
    return outcome.exit_code


def outcome_note(outcome: PollResponse) -> str:
    """What to tell a person about an outcome beyond its status; empty when there is nothing."""
    if outcome.timed_out:
        return "the command's timeout expired"
    if outcome.cause == "out_of_memory":
        return "the command was ended because memory ran out"
    if outcome.exit_code is None and outcome.signal:
        try:
            return f"the command was ended by {signal.Signals(outcome.signal).name}"
        except ValueError:
            return f"the command was ended by signal {outcome.signal}"
    return ""

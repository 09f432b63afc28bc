"""Everything the client library raises.

One tree under `AgentError`. An answer of the daemon becomes the class of its slug, or else of its status, so a
caller catches what it can act on by name and reads `status`, `slug` and `detail` off the rest. `fault` says
what class of failure it is (`agentd.client.retry`), `retryable` is the shorthand. Texts never hold a token, a
seed or the value of an environment variable: whatever came back over the wire is passed through
`Secret.scrub` first and cut to `DETAIL_LIMIT`.
"""

from typing import ClassVar, final

from agentd.client.retry import Fault, classify

DETAIL_LIMIT = 2048
"""How many characters of an answer's prose an error keeps."""


class AgentError(Exception):
    """The root of all of them; `fault` is what the caller can do about it."""

    fault: Fault = Fault.FINAL
    attempts: int = 1
    """How often the request was sent before this was reported."""

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.fault is Fault.RETRYABLE


class RunPayloadTooLarge(AgentError):
    """The run payload is over the platform's ceiling; nothing was sent (contract b, g.1).

    Args:
        size: the payload, in UTF-8 bytes.
        ceiling: how many are allowed, inclusive.
        env: how many of them the launch environment takes.
    """

    def __init__(self, size: int, ceiling: int, env: int) -> None:
        self.size, self.ceiling, self.env = size, ceiling, env
        super().__init__(
            f"the run payload is {size} bytes and the platform takes {ceiling}; env accounts for {env} of them"
        )


class TransportFault(AgentError):
    """No whole answer came: refused, reset, cut short, timed out, or idle for too long."""

    fault = Fault.RETRYABLE


class Unreachable(TransportFault):
    """No connection could be made at all."""


class IdleTimeout(TransportFault):
    """Connected, but nothing arrived within the limit, not even a keep-alive comment."""


class StreamLost(TransportFault):
    """A followed stream was cut and could not be had again; `cursor` is the offset to resume from."""

    def __init__(self, cursor: int, cause: str) -> None:
        self.cursor = cursor
        super().__init__(f"the output stream was lost at offset {cursor}: {cause}")


class ProtocolFault(AgentError):
    """The answer breaks the wire contract: not the JSON it should be, an oversized event, bad base64."""


class DigestMismatch(AgentError):
    """The bytes stored or received are not the bytes sent."""


class LocalFault(AgentError):
    """Reading or writing on this side failed, or an archive from the VM holds what may not be extracted."""


class WaitTimedOut(AgentError):
    """`Exec.wait` reached its limit; the command still runs and can be waited for again."""

    fault = Fault.RETRYABLE


class OutputReleased(AgentError):
    """The exec was acknowledged before this caller read its result, so the result is gone (contract a.3)."""


class AnswerError(AgentError):
    """The daemon, or what stands before it, answered and it was not a success.

    Args:
        status: the HTTP status.
        slug: the `error` word of the body, empty where there is none; callers branch on it (contract a.0).
        detail: prose for a person, cleaned and cut.
        written: bytes accepted before a write to standard input failed, where the daemon says so.
    """

    text: ClassVar[str] = ""
    """What the status means here, for an answer that brings no prose of its own."""

    @final
    def __init__(self, status: int, slug: str = "", detail: str = "", written: int | None = None) -> None:
        self.status, self.slug, self.detail, self.written = status, slug, detail, written
        self.fault = classify(status)
        words = [f"{status}", slug, detail or self.text]
        super().__init__(" ".join(word for word in words if word))


class CredentialFault(AnswerError):
    """401: the token is missing or is not the one this VM was bootstrapped with."""

    text = "the token is missing or not this machine's"


class Unavailable(AnswerError):
    """503: no token is installed yet, or the daemon is shutting down."""

    text = "not bootstrapped yet, or shutting down"


class BootstrapConflict(AnswerError):
    """409 from the run hook: another token is installed and stays (contract g.2)."""

    text = "another token is already installed"


class MalformedRequest(AnswerError):
    """400: the daemon refused the request as it stands."""


class UnknownUser(MalformedRequest):
    """400: the guest has no such user."""


class UnknownGroup(MalformedRequest):
    """400: the guest has no such group."""


class UnknownShell(MalformedRequest):
    """400: the guest has no such shell."""


class SpawnFailed(AnswerError):
    """500: the command could not be started; its id is free again."""


class NotFound(AnswerError):
    """404: no such file or directory, or no such route."""

    text = "not found"


class UnknownExec(NotFound):
    """404: no exec of this id is registered."""


class StillRunning(AnswerError):
    """409: only an exited exec can be acknowledged."""


class AlreadyAcked(AnswerError):
    """409: the exec was acknowledged before."""


class StdinNotRequested(AnswerError):
    """409: the exec was started without standard input."""


class StdinClosed(AnswerError):
    """410: the child or an earlier end-of-file closed the pipe; writing again cannot help."""


class StdinWriteTimeout(AnswerError):
    """408: the child does not read; the pipe stays open and a prefix may have been taken."""


class StdinWriteFailed(AnswerError):
    """500: writing to the pipe failed for another reason."""


class Forbidden(AnswerError):
    """403: the agent user of the environment may not."""

    text = "permission denied"


class TooManyProcesses(AnswerError):
    """429: every place for a background process is taken; deleting one makes room."""


class TooLarge(AnswerError):
    """413: over one of the daemon's limits."""


class DiskFull(AnswerError):
    """507: the guest's disk is below its reserve."""

    text = "the guest's disk is too full"


BY_SLUG: dict[str, type[AnswerError]] = {
    "malformed_request": MalformedRequest,
    "unknown_user": UnknownUser,
    "unknown_group": UnknownGroup,
    "unknown_shell": UnknownShell,
    "spawn_failed": SpawnFailed,
    "unknown_exec": UnknownExec,
    "still_running": StillRunning,
    "already_acked": AlreadyAcked,
    "stdin_not_requested": StdinNotRequested,
    "stdin_closed": StdinClosed,
    "stdin_write_timeout": StdinWriteTimeout,
    "stdin_write_too_large": TooLarge,
    "exec_failed": SpawnFailed,
    "forbidden": Forbidden,
    "too_many_processes": TooManyProcesses,
    "stdin_write_failed": StdinWriteFailed,
}
"""The exec family's slugs (contract a.2 to a.7)."""

BY_STATUS: dict[int, type[AnswerError]] = {
    400: MalformedRequest,
    401: CredentialFault,
    404: NotFound,
    413: TooLarge,
    503: Unavailable,
    507: DiskFull,
}


def answer_error(status: int, slug: str = "", detail: str = "", written: int | None = None) -> AnswerError:
    """The error an unsuccessful answer becomes: by slug, else by status."""
    kind = BY_SLUG.get(slug) or BY_STATUS.get(status, AnswerError)
    return kind(status, slug, one_line(detail), written)


def one_line(text: str) -> str:
    """Prose as one printable line: a hostile guest must not steer the terminal that shows the error."""
    words = "".join(c if c.isprintable() else " " for c in text[: DETAIL_LIMIT + 1]).split()
    line = " ".join(words)
    return line if len(line) <= DETAIL_LIMIT else line[: DETAIL_LIMIT - 1] + "…"

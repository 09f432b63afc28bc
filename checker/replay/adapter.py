"""What turns the events of a model into what is done to a daemon: the adapter of model-based testing.

A model speaks of verdicts and records, a daemon of requests, statuses and children. An `Adapter` knows, for each kind
of event of one model, what to do and what must be answered (a table from verdicts to the contract's statuses, never
a decision of its own), and for each component of the state where the daemon keeps it. What it does it does to a
`Subject`: a daemon in memory (`checker.replay.memory`) or one on a socket (`checker.replay.sockets`).
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol

from attrs import field, frozen

from agentd.rules.bootstrap import Access
from checker.model import Event, Model
from checker.replay.wire import Answer, NoAnswer, Says
from checker.result import Step

HOOKS: Final = "/aws/lambda-microvms/runtime/v1"
"""Where the lifecycle hooks are (contract a.1)."""

REFUSED: Final[dict[Hashable, Says]] = {
    Access.UNAVAILABLE: Says(503, empty=True),
    Access.UNAUTHORIZED: Says(401, empty=True),
}
"""What the guard of the bearer routes answers (contract i.3)."""


class Subject(Protocol):
    """A daemon that a run is played to."""

    in_memory: bool
    """Whether its time, its children and its state are ours."""

    def ask(
        self,
        method: str,
        target: str,
        *,
        token: bytes | None = None,
        authorization: bytes | None = None,
        value: object = None,
    ) -> Answer:
        """Make a request and return its answer; `value` goes as JSON. Raises NoAnswer."""

    def exit(self, exec_id: str, code: int = 0) -> None:
        """Let the child of an exec end with a status, and wait until the daemon has published that."""

    def kill(self, exec_id: str) -> None:
        """The same by a signal."""

    def close(self) -> list[str]:
        """End everything; what of it the daemon has not let go of, a line each."""


@frozen
class Names:
    """What the names of a model are on the wire."""

    tokens: Mapping[bytes, bytes] = field(repr=False)
    """Token of the model to the real one."""
    prefix: str = "exec"
    """What the ids of this run begin with, so that no run meets the execs of another."""

    def exec(self, number: object) -> str:
        """The id of an exec."""
        return f"{self.prefix}-{number}"

    def token(self, token: Hashable) -> bytes:
        """The real token."""
        assert isinstance(token, bytes)
        return self.tokens.get(token, token)


IN_MEMORY: Final = Names({})


class Adapter:
    """How the events of one model are done.

    A subclass has a method ``on_KIND(step, values)`` for each kind of event that it can do, which gives what differs
    from the model, a line each; and `state`, the same for the state.
    """

    memory_only: ClassVar[frozenset[str]] = frozenset()
    """Kinds of events that only a daemon in memory can be put through."""
    needs: ClassVar[Mapping[str, str]] = {}
    """Modules that a plain installation lacks, and the extra that brings them."""
    variants: ClassVar[tuple[str, ...]] = ("",)
    """Ways in which the environment may be what the model leaves open; the model is replayed once for each."""

    def __init__(self, subject: Subject, names: Names, variant: str = "") -> None:
        self.subject = subject
        self.names = names
        self.variant = variant

    @classmethod
    def settings(cls, model: Model) -> dict[str, Any]:
        """What a daemon in memory is configured with, for a configuration of the model."""
        return {}

    @classmethod
    def can(cls, event: Event, in_memory: bool, variant: str) -> bool:
        """Whether an event can be done."""
        return hasattr(cls, f"on_{event.kind}") and (in_memory or event.kind not in cls.memory_only)

    @classmethod
    def wants(cls, event: Event, variant: str) -> bool:
        """Whether runs of a variant have to go over an event's edges: for what all have in common one is enough."""
        return True

    @classmethod
    def sees(cls, event: Event) -> Sequence[str] | None:
        """The components that whoever does an event can see, if those are not all."""
        return None

    @classmethod
    def ways(cls, model: Model) -> Sequence[str]:
        """The variants that there are of a configuration: none if it is about a daemon of another version."""
        return cls.variants

    @classmethod
    def begins(cls, model: Model, in_memory: bool) -> Model:
        """The model as a run of this subject begins: on a socket, with a daemon that may have been bootstrapped."""
        return model

    def begin(self, model: Model) -> None:
        """Before the first step."""

    def play(self, step: Step, values: Mapping[str, Hashable]) -> Iterator[str]:
        """Do one step; `values` are the components after it. Yields what differs."""
        do: Callable[[Step, Mapping[str, Hashable]], Iterator[str]] = getattr(self, f"on_{step.event.kind}")
        yield from do(step, values)

    def finish(self) -> Iterator[str]:
        """After the last step everything ends. Yields what the daemon has not let go of."""
        yield from self.subject.close()

    def state(self, values: Mapping[str, Hashable]) -> Iterator[str]:
        """What of the daemon's state is not as these components say."""
        return iter(())


def install(subject: Subject, token: bytes) -> None:
    """Bootstrap a daemon, or find it bootstrapped with this token."""
    answer = subject.ask("POST", f"{HOOKS}/run", value=run_payload(token))
    if answer.status != 200:
        raise NoAnswer(f"the run hook was answered with {answer.status}")


def run_payload(token: bytes, **payload: object) -> dict[str, str]:
    """The body of a run hook (contract g.1)."""
    return {"runHookPayload": json.dumps({"agent_token": token.decode("latin-1"), **payload})}


def compared(what: str, expected: object, found: object) -> Iterator[str]:
    """A line when two values differ."""
    if expected != found:
        yield f"{what}: the model has {expected}, the daemon {found}"

"""A recorded history: what was asked of each exec, from when to when, and what was answered.

The file format, version 1, is JSON lines. The first is the header:

    {"history": 1, "ttl": 900.0}

``ttl`` is the seconds for which the daemon keeps an acknowledged exec, null for ever. Every other line is an operation:

    {"client": 0, "exec": "a", "op": "ack", "invoked": 0.31, "responded": 0.32, "status": 404, "error": "unknown_exec"}

``invoked`` is when the caller began to send and ``responded`` when it had the answer, in seconds of one monotonic
clock; without ``responded`` the caller never learned what became of it. ``op`` is one of `Op`. ``phase`` is what the
answer says the phase is, and ``outcome`` whether it came with the outcome. Operations may be in any order.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, unique
from pathlib import Path
from typing import Any, Final

from attrs import asdict, evolve, frozen

from checker.model import ModelError
from checker.replay.wire import Answer

VERSION: Final = 1


@unique
class Op(Enum):
    """What can be asked of an exec."""

    START = "start"
    START_UNSPAWNED = "start_unspawned"
    """A start of something that cannot be spawned: it changes nothing, unless the id is known."""
    POLL = "poll"
    ACK = "ack"
    RELEASE = "release"
    """The line on its stdin after which the child ends."""


@frozen
class Operation:
    """One request."""

    client: int
    exec: str
    op: Op
    invoked: float
    responded: float | None = None
    status: int | None = None
    error: str | None = None
    """The slug of an error body."""
    phase: str | None = None
    outcome: bool = False

    @property
    def pending(self) -> bool:
        """Whether nobody knows what became of it: it may have happened at any later time, or never."""
        return self.responded is None


def answered(operation: Operation, responded: float, answer: Answer) -> Operation:
    """An operation with its answer: of a body no more than what the specification speaks of."""
    fields = answer.fields()
    return evolve(
        operation,
        responded=responded,
        status=answer.status,
        error=fields.get("error"),
        phase=fields.get("phase"),
        outcome="exit_code" in fields,
    )


@frozen
class History:
    """Operations by the time they were invoked."""

    operations: tuple[Operation, ...]
    ttl: float | None = None

    def by_exec(self) -> dict[str, tuple[Operation, ...]]:
        """The history of each exec alone. One of all of them is linearizable if and only if each of these is
        (locality: Herlihy and Wing 1990, theorem 1)."""
        found: dict[str, list[Operation]] = {}
        for operation in self.operations:
            found.setdefault(operation.exec, []).append(operation)
        return {name: tuple(operations) for name, operations in found.items()}


def history(operations: Iterable[Operation], ttl: float | None = None) -> History:
    """A history of operations in whatever order they come."""
    return History(tuple(sorted(operations, key=lambda operation: operation.invoked)), ttl)


def lines(recorded: History) -> Iterator[str]:
    """The lines of its file."""
    yield json.dumps({"history": VERSION, "ttl": recorded.ttl})
    for operation in recorded.operations:
        told = {**asdict(operation), "op": operation.op.value}
        yield json.dumps({name: value for name, value in told.items() if value is not None})


def save(recorded: History, path: str) -> None:
    """Write a history to a file. Raises OSError."""
    Path(path).write_text("".join(f"{line}\n" for line in lines(recorded)))


def load(path: str) -> History:
    """The history in a file. Raises ModelError for what is none; OSError."""
    found: list[Operation] = []
    ttl: float | None = None
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise TypeError
            if number == 1:
                ttl = _header(entry, path)
            else:
                found.append(_operation(entry))
        except ModelError:
            raise
        except (ValueError, TypeError, LookupError):
            raise ModelError(f"{path}:{number}: not a line of a history of version {VERSION}") from None
    return history(found, ttl)


def _header(entry: Mapping[str, Any], path: str) -> float | None:
    if entry["history"] != VERSION:
        raise ModelError(f"{path}: a history of version {entry['history']!r}, this reads version {VERSION}")
    ttl = entry.get("ttl")
    return None if ttl is None else float(ttl)


def _operation(entry: Mapping[str, Any]) -> Operation:
    responded = entry.get("responded")
    operation = Operation(
        client=int(entry["client"]),
        exec=str(entry["exec"]),
        op=Op(entry["op"]),
        invoked=float(entry["invoked"]),
        responded=None if responded is None else float(responded),
        status=None if responded is None else int(entry["status"]),
        error=entry.get("error"),
        phase=entry.get("phase"),
        outcome=bool(entry.get("outcome", False)),
    )
    if operation.responded is not None and operation.responded < operation.invoked:
        raise ValueError
    return operation

"""What the `coder::*` functions share: requests that do not fit, entries that fail by themselves (reference B4)."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any, TypeVar

import msgspec
from attrs import frozen
from msgspec import Meta, Struct

from agentd.worker.coder_paths import CoderPaths, CoderPlace
from agentd.worker.errors import CoderError, Misfit
from agentd.worker.function import Call, Function

T = TypeVar("T", bound=Struct)

Small = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class EntryError(Struct):
    """Why one entry of a batch failed."""

    code: str
    message: str

    @classmethod
    def of(cls, reason: CoderError) -> "EntryError":
        return cls(reason.coder_code, reason.text)


def coder_function(
    name: str, description: str, request: type[T], run: Callable[[Call, T], Awaitable[Any]]
) -> Function:
    """The function ``coder::<name>``."""

    def parse(data: object) -> T:
        try:
            return msgspec.convert({} if data is None else data, request)
        except (ValueError, RecursionError) as reason:
            raise Misfit(f"coder::{name}: {reason}") from None

    return Function(f"coder::{name}", description, parse, run)


@frozen
class Resolved:
    """An entry's path: where it is, or why it cannot be used."""

    given: str
    place: CoderPlace | None
    error: CoderError | None

    @property
    def shown(self) -> str:
        """The path for a result: canonical, or as it was given."""
        return self.given if self.place is None else self.place.shown

    def usable(self) -> CoderPlace:
        """The place. Raises `CoderError`."""
        if self.error is not None or self.place is None:
            raise self.error or CoderError("C216", "not resolved")
        return self.place


def resolve_all(paths: CoderPaths, given: Iterable[str]) -> list[Resolved]:
    """Every path of a batch. Raises `CoderError` if one leaves the jail: then nothing of the batch is done."""
    found = []
    for path in given:
        place = None
        try:
            place = paths.resolve(path)
            paths.check(place)
        except CoderError as reason:
            if reason.coder_code == "C215":
                raise
            found.append(Resolved(path, place, reason))
        else:
            found.append(Resolved(path, place, None))
    return found


def refuse_empty(entries: tuple[Any, ...], name: str) -> None:
    """Raises `CoderError` C210 for a batch of nothing."""
    if not entries:
        raise CoderError("C210", f"{name} is empty: give at least one entry")

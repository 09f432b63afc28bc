"""Commands of the command line, each a module with `add`, which declares it, and `run`."""

from argparse import Namespace
from typing import TYPE_CHECKING, Any, Final, Protocol

from checker.commands import (
    check,
    conform,
    footprints,
    history,
    models,
    mutants,
    oracle,
    pin,
    replay,
    schedules,
    show,
    slice,
)

if TYPE_CHECKING:
    from checker.check import Exit


class Command(Protocol):
    """One command."""

    def add(self, commands: Any) -> None:
        """Declare it."""

    def run(self, given: Namespace) -> "Exit":
        """Run it; what it raises is a line on standard error."""


COMMANDS: Final[dict[str, Command]] = {
    "check": check,
    "mutants": mutants,
    "replay": replay,
    "schedules": schedules,
    "conform": conform,
    "history": history,
    "show": show,
    "slice": slice,
    "oracle": oracle,
    "models": models,
    "footprints": footprints,
    "pin": pin,
}

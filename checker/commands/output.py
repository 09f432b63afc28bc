"""What several commands do with what they have to say, and with what they were asked for."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checker.check import Exit
    from checker.replay.edges import Replayed


def write(lines: Iterable[str]) -> None:
    """Write lines to standard output."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def keys(named: Sequence[str], default_only: bool = True) -> list[str]:
    """The configurations that were named, or all of them, or those of a check of everything."""
    from checker import models

    return list(named) or list(models.every(default_only))


def tell_replayed(replayed: "Iterable[Replayed]", form: str) -> "Exit":
    """Say what came of replaying, each model as soon as it is done, and what that comes to."""
    from checker.check import Exit, worst
    from checker.report.replayed import data, lines

    codes, found = [Exit.HOLDS], []
    for one in replayed:
        if one.divergences:
            codes.append(Exit.DIVERGED)
        elif not one.complete:
            codes.append(Exit.INCOMPLETE)
        if form == "json":
            found.append(data(one))
        else:
            write(lines(one))
    code = worst(codes)
    if form == "json":
        write([json.dumps({"exit": int(code), "replayed": found}, indent=2)])
    return code

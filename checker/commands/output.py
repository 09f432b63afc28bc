"""What several commands do with what they have to say, and with what they were asked for."""

import sys
from collections.abc import Iterable, Sequence


def write(lines: Iterable[str]) -> None:
    """Write lines to standard output."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def keys(named: Sequence[str], default_only: bool = True) -> list[str]:
    """The configurations that were named, or all of them, or those of a check of everything."""
    from checker import models

    return list(named) or list(models.every(default_only))

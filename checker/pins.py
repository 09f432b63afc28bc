"""The pinned counts: what each configuration was last found to have, so that a change of the rules that changes
the space without violating anything is seen, and has to be agreed to (``python -m checker pin``).
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from checker.model import ModelError
from checker.result import Result

FILE = Path(__file__).with_name("pins.json")
COUNTS = ("states", "transitions", "stutters", "depth")

Counts = Mapping[str, int]

UNPINNED = "no counts are pinned"


def counts(result: Result) -> dict[str, int]:
    """The counts of a result that are pinned."""
    return {name: getattr(result, name) for name in COUNTS}


def load(file: Path = FILE) -> dict[str, Counts]:
    """The pinned counts by ``model:config``. Raises ModelError when the file cannot be read."""
    try:
        pinned: dict[str, Counts] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"the pinned counts cannot be read: {error}") from None
    return pinned


def drift(result: Result, pinned: Mapping[str, Counts]) -> str | None:
    """What differs from the pinned counts, or None when nothing does."""
    expected = pinned.get(result.model.key)
    if expected is None:
        return UNPINNED
    found = counts(result)
    wrong = [
        f"{found[name]:,} {name} instead of {expected[name]:,}"
        for name in COUNTS
        if found[name] != expected[name]
    ]
    return ", ".join(wrong) or None


def save(results: Iterable[Result], file: Path = FILE) -> None:
    """Pin the counts of complete results, keeping the pins of other configurations."""
    pinned = load(file) if file.exists() else {}
    pinned.update({result.model.key: counts(result) for result in results})
    file.write_text(json.dumps(dict(sorted(pinned.items())), indent=2) + "\n")

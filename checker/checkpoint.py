"""What a search leaves on disk so that another process can go on: its levels, and how to number values.

A checkpoint is a directory: one file of raw states for each level, and ``search.json``, which is replaced after
each level and names everything else. Values are not written down. The journal of rule calls is, and running
the same calls in the same order gives every value its number again (`checker.table`).
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from checker.layout import Layout
from checker.model import ModelError
from checker.packed import Packed
from checker.properties import Property
from checker.result import Hit
from checker.runs import FileRun, Run, write_run
from checker.table import RULES_RETURN, Table

FORMAT = 1
SUMMARY = "search.json"


class Checkpoint:
    """One checkpoint being written."""

    def __init__(self, directory: Path, space: Packed) -> None:
        self.directory = directory
        self.space = space
        self._saved = 0
        """Levels whose files are complete."""

    def save(self, levels: Sequence[Run], transitions: int, stutters: int) -> None:
        """Write the levels that are new since the last time, then the summary, which makes them count."""
        self.directory.mkdir(parents=True, exist_ok=True)
        space = self.space
        for depth in range(self._saved, len(levels)):
            write_run(_level(self.directory, depth), levels[depth].blocks(), levels[depth].dtype)
        self._saved = len(levels)
        summary = {
            "format": FORMAT,
            "model": space.table.model.key,
            "digest": space.table.model.digest(),
            "symmetric": space.symmetric,
            "widths": space.layout.widths,
            "journal": space.table.journal,
            "levels": [len(level) for level in levels],
            "transitions": transitions,
            "stutters": stutters,
            "hits": [[prop.name, hit.state, hit.event, hit.depth] for prop, hit in space.hits.items()],
        }
        partial = self.directory / (SUMMARY + ".partial")
        partial.write_text(json.dumps(summary))
        os.replace(partial, self.directory / SUMMARY)

    def resumed(self, levels: int) -> None:
        """Say that so many levels are on disk already."""
        self._saved = levels


class Saved:
    """One checkpoint being read. Raises ModelError when it is none of this model's."""

    def __init__(self, directory: Path, table: Table, symmetric: bool) -> None:
        try:
            told: Any = json.loads((directory / SUMMARY).read_text())
        except (OSError, ValueError) as error:
            raise ModelError(f"{directory}: no checkpoint there ({error})") from None
        model = table.model
        if not isinstance(told, dict):
            raise ModelError(f"{directory}: no checkpoint there")
        if told.get("format") != FORMAT:
            raise ModelError(f"{directory}: a checkpoint of another format")
        if (told["model"], told["digest"]) != (model.key, model.digest()):
            raise ModelError(f"{directory}: a checkpoint of {told['model']}, not of this {model.key}")
        if told["symmetric"] is not symmetric:
            raise ModelError(f"{directory}: the checkpoint was made with the other setting of symmetry")
        table.replay((event, tuple(reads)) for event, reads in told["journal"])
        self.directory = directory
        self.layout = Layout(told["widths"])
        self.transitions: int = told["transitions"]
        self.stutters: int = told["stutters"]
        self._counts: list[int] = told["levels"]
        known = {prop.name: prop for prop in (*model.properties, RULES_RETURN)}
        self.hits: dict[Property, Hit] = {}
        for name, state, event, depth in told["hits"]:
            if name not in known:
                raise ModelError(
                    f"{directory}: the checkpoint decides {name!r}, which the model does not ask"
                )
            self.hits[known[name]] = Hit(state, event, depth)

    def levels(self, dtype: np.dtype[Any]) -> list[FileRun]:
        """The levels, in their files. Raises ModelError when one is not as long as it should be."""
        runs = []
        for depth, count in enumerate(self._counts):
            path = _level(self.directory, depth)
            if not path.exists() or path.stat().st_size != count * dtype.itemsize:
                raise ModelError(f"{path}: not the {count:,} states of the checkpoint")
            runs.append(FileRun(path, dtype, count, shared=True))
        return runs


def _level(directory: Path, depth: int) -> Path:
    return directory / f"level-{depth:05}.bin"

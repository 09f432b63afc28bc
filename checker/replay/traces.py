"""Stored runs: the steps of `checker show --format json`, read back and replayed.

A stored run names its events, and the digest of the model it is a run of. One of another digest would be a run of
something else, so it is refused.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from checker import models
from checker.model import ModelError
from checker.packed import replay as follow
from checker.replay.adapter import Adapter
from checker.replay.adapters import adapter
from checker.replay.edges import Replayed, in_memory
from checker.replay.run import play
from checker.result import Trace


def read(path: str) -> Trace:
    """The run in a file. Raises ModelError for what is none, or is one of another model; OSError."""
    try:
        stored = json.loads(Path(path).read_text())
        key, digest = stored["model"], stored["digest"]
        names = [str(step["event"]) for step in stored["steps"]]
    except (ValueError, TypeError, LookupError):
        raise ModelError(f"{path}: not a trace as `checker show --format json` writes it") from None
    model = models.load(str(key))
    if model.digest() != digest:
        raise ModelError(f"{path}: a run of a model of digest {_word(digest)}, {key} has {model.digest()}")
    try:
        return follow(model, names)
    except ModelError as reason:
        raise ModelError(f"{path}: {reason}") from None


def replay(path: str) -> Iterator[Replayed]:
    """Replay a stored run in memory, once for each variant of its model."""
    trace = read(path)
    kind = adapter(trace.model.name)
    for variant in kind.ways(trace.model):
        able, left_out = doable(kind, trace, True, variant)
        started = perf_counter()
        found = play(in_memory(trace.model, variant), able)
        yield Replayed(
            trace.model.key,
            variant,
            len({step.after for step in able.steps} | {trace.model.initial}),
            len(able.steps),
            1,
            len(able.steps),
            perf_counter() - started,
            left_out,
            len(able.steps) == len(trace.steps),
            () if found is None else (found,),
        )


def doable(kind: type[Adapter], trace: Trace, in_memory: bool, variant: str) -> tuple[Trace, Counter[str]]:
    """A run up to the first step that cannot be done, without steps that cannot be done and change nothing."""
    steps, left_out = [], Counter[str]()
    for step in trace.steps:
        if kind.can(step.event, in_memory, variant):
            steps.append(step)
            continue
        left_out[step.event.kind] += 1
        if step.before != step.after:
            break
    return Trace(trace.model, tuple(steps)), left_out


def _word(value: Any) -> str:
    return str(value)[:32]

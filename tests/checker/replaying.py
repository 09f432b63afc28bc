"""Looking for the first run of a model that a daemon, perhaps one made wrong, does not do as the model says."""

from typing import Final

from checker import models
from checker.replay import edges
from checker.replay.adapters import adapter
from checker.replay.run import Divergence, play

MOST: Final = 20_000
"""States of a graph."""


def first_divergence(key: str, *variants: str) -> Divergence | None:
    """The first run of a configuration, in these variants or all, after which the daemon differs, made short."""
    model = models.load(key)
    for variant in variants or adapter(model.name).ways(model):
        whole, runs = edges.plan(model, variant, MOST)
        begin = edges.in_memory(model, variant)
        for run in runs:
            found = play(begin, whole.trace(run))
            if found is not None:
                return edges.distinct(begin, whole, [found])[0]
    return None

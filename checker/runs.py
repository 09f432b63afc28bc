"""Sorted sets of packed states, in memory or in files, with the few operations a search needs.

Theory of operation
-------------------
The set of visited states grows by one sorted array a level. It is kept as a log-structured merge: runs of
geometrically growing size, so that a state is rewritten a logarithmic number of times and a membership test
looks into a handful of runs. A run is an array, or, when a directory to spill to is given and memory for
arrays is used up, a file that is only ever read from its beginning to its end, block by block: what a search
then costs beyond its blocks is disk space and bandwidth, not memory.

States of up to 62 bits are `numpy.int64`; of up to 124 bits they are strings of 16 bytes, the higher word
first and each word big-endian, so that numpy's order of strings is the order of the states.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[Any]
"""A one-dimensional array of packed states."""
Mask = NDArray[np.bool_]

BLOCK = 1 << 20
"""States held in memory for each file being read."""


def distinct(keys: Keys) -> Keys:
    """The states, sorted, each once. Sorts `keys` in place."""
    keys.sort()
    if len(keys) < 2:
        return keys
    first = np.empty(len(keys), np.bool_)
    first[0] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys if first.all() else keys[first]


def _absent(needles: Keys, run: Keys) -> Mask:
    """Which of the sorted `needles` are not in the sorted `run`."""
    if not len(run):
        return np.ones(len(needles), np.bool_)
    places = np.searchsorted(run, needles)
    np.minimum(places, len(run) - 1, out=places)
    missing: Mask = run[places] != needles
    return missing


class Run(Protocol):
    """A sorted set of states."""

    dtype: np.dtype[Any]

    def __len__(self) -> int:
        """How many states it holds."""

    def shared(self) -> "Run":
        """The same set, which somebody else will drop."""

    def blocks(self) -> Iterator[Keys]:
        """Its states in order, in arrays of at most `BLOCK`."""

    def absent(self, needles: Keys) -> Mask:
        """Which of the sorted `needles` it does not hold."""

    def drop(self) -> None:
        """Free what it occupies."""


class MemoryRun:
    """A run in one array."""

    def __init__(self, keys: Keys, shared: bool = False) -> None:
        self.keys = keys
        self.dtype = keys.dtype
        self.held = 0 if shared else keys.nbytes
        """The bytes that dropping it frees."""

    def __len__(self) -> int:
        return len(self.keys)

    def shared(self) -> Run:
        """See `Run`."""
        return MemoryRun(self.keys, True)

    def blocks(self) -> Iterator[Keys]:
        """See `Run`."""
        for start in range(0, len(self.keys), BLOCK):
            yield self.keys[start : start + BLOCK]

    def absent(self, needles: Keys) -> Mask:
        """See `Run`."""
        return _absent(needles, self.keys)

    def drop(self) -> None:
        """See `Run`."""
        self.keys = self.keys[:0]


class FileRun:
    """A run in one file of raw states."""

    def __init__(self, path: Path, dtype: np.dtype[Any], count: int, shared: bool = False) -> None:
        self.path = path
        self.dtype = dtype
        self._count = count
        self._shared = shared

    def __len__(self) -> int:
        return self._count

    def shared(self) -> Run:
        """See `Run`."""
        return FileRun(self.path, self.dtype, self._count, True)

    def blocks(self) -> Iterator[Keys]:
        """See `Run`. Raises OSError when the file is shorter than the run."""
        left = self._count
        with open(self.path, "rb") as file:
            while left:
                block = np.fromfile(file, self.dtype, min(left, BLOCK))
                if not len(block):
                    raise OSError(f"{self.path}: {left} states are missing")
                left -= len(block)
                yield block

    def absent(self, needles: Keys) -> Mask:
        """See `Run`."""
        missing = np.ones(len(needles), np.bool_)
        done = 0
        for block in self.blocks():
            # Needles up to the last state of this block are decided by it.
            upto = int(np.searchsorted(needles, block[-1], "right"))
            if upto > done:
                missing[done:upto] = _absent(needles[done:upto], block)
                done = upto
            if done == len(needles):
                break
        return missing

    def drop(self) -> None:
        """See `Run`."""
        if not self._shared:
            self.path.unlink(missing_ok=True)


def write_run(path: Path, blocks: Iterable[Keys], dtype: np.dtype[Any]) -> FileRun:
    """Write a run that is complete under its name or not there at all."""
    partial = path.with_suffix(".partial")
    count = 0
    try:
        with open(partial, "wb") as file:
            for block in blocks:
                block.tofile(file)
                count += len(block)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return FileRun(path, dtype, count)


def merged(runs: Sequence[Run]) -> Iterator[Keys]:
    """The union of some runs, in order, each state once, holding one block of each."""
    sources = [run.blocks() for run in runs]
    heads = [next(source, None) for source in sources]
    while True:
        live = [number for number, head in enumerate(heads) if head is not None]
        if not live:
            return
        if len(live) == 1:
            (only,) = live
            yield heads[only]  # type: ignore[misc]
            yield from sources[only]
            return
        bound = min(heads[number][-1] for number in live)  # type: ignore[index]
        parts = []
        for number in live:
            head = heads[number]
            assert head is not None
            upto = int(np.searchsorted(head, bound, "right"))
            parts.append(head[:upto])
            heads[number] = head[upto:] if upto < len(head) else next(sources[number], None)
        yield distinct(np.concatenate(parts))


class Store:
    """Makes runs: in memory while `budget` bytes last, then in files of `directory`."""

    def __init__(self, dtype: np.dtype[Any], directory: Path | None = None, budget: int = 1 << 62) -> None:
        self.dtype = dtype
        self.directory = directory
        self.budget = budget if directory is not None else 1 << 62
        self.held = 0
        """Bytes of the runs in memory."""
        self._files = 0

    def fits(self, count: int) -> bool:
        """Whether a run of so many states would still be kept in memory."""
        return self.held + count * self.dtype.itemsize <= self.budget

    def keep(self, keys: Keys) -> Run:
        """A run of sorted states."""
        if self.fits(len(keys)):
            self.held += keys.nbytes
            return MemoryRun(keys)
        return write_run(self._path(), [keys], self.dtype)

    def union(self, runs: Sequence[Run]) -> Run:
        """One run of several, which are dropped."""
        total = sum(map(len, runs))
        run: Run
        if all(isinstance(run, MemoryRun) for run in runs) and self.fits(total):
            run = MemoryRun(
                distinct(np.concatenate([run.keys for run in runs if isinstance(run, MemoryRun)]))
            )
            self.held += run.keys.nbytes
        else:
            run = write_run(self._path(), merged(runs), self.dtype)
        for old in runs:
            self.drop(old)
        return run

    def drop(self, run: Run) -> None:
        """Free a run of this store."""
        if isinstance(run, MemoryRun):
            self.held -= run.held
        run.drop()

    def _path(self) -> Path:
        assert self.directory is not None
        self._files += 1
        return self.directory / f"run-{self._files:05}.bin"


class Visited:
    """The set of states visited so far."""

    GROWTH = 4
    """A run is merged with the next once it holds a quarter of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: list[Run] = []
        """From the largest to the smallest."""

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, run: Run) -> None:
        """Add states that are not in the set; the run becomes this object's to drop."""
        runs = self._runs
        runs.append(run)
        merge = 1
        size = len(run)
        while merge < len(runs) and len(runs[-merge - 1]) < self.GROWTH * size:
            size += len(runs[-merge - 1])
            merge += 1
        if merge > 1:
            runs[-merge:] = [self._store.union(runs[-merge:])]

    def minus(self, needles: Keys) -> Keys:
        """Those of the sorted `needles` that are not in the set."""
        for run in self._runs:
            if not len(needles):
                break
            missing = run.absent(needles)
            if not missing.all():
                needles = needles[missing]
        return needles

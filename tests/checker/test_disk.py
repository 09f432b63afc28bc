"""What a search puts on disk: spilled runs, checkpoints, and what is refused of them."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checker import frontier, packed, runs
from checker.frontier import Disk
from checker.limits import Limits, Watch
from checker.model import Model, ModelError
from checker.models import load
from checker.properties import Always, OnEdge, Sometimes
from checker.runs import FileRun, MemoryRun, Run, Store, Visited, distinct, merged, write_run
from checker.table import Table
from tests.checker.systems import counters

sets = st.lists(st.integers(0, 60), max_size=40)


def keys(values: list[int]) -> runs.Keys:
    return distinct(np.array(values, np.int64))


def listed(blocks: object) -> list[int]:
    return [int(value) for block in blocks for value in block]  # type: ignore[attr-defined]


@given(st.lists(sets, min_size=1, max_size=5), st.integers(1, 7))
@settings(max_examples=80, deadline=None)
def test_merging_is_a_sorted_union(given_sets: list[list[int]], block: int) -> None:
    saved = runs.BLOCK
    runs.BLOCK = block
    try:
        found = listed(merged([MemoryRun(keys(values)) for values in given_sets]))
    finally:
        runs.BLOCK = saved
    assert found == sorted(set().union(*given_sets))


@given(st.lists(sets, max_size=6), sets)
@settings(max_examples=80, deadline=None)
def test_a_visited_set_is_a_set(added: list[list[int]], needles: list[int]) -> None:
    visited = Visited(Store(np.dtype(np.int64)))
    known: set[int] = set()
    for values in added:
        fresh = sorted(set(values) - known)
        known.update(fresh)
        visited.add(MemoryRun(keys(fresh)))
    assert len(visited) == len(known)
    assert listed([visited.minus(keys(needles))]) == sorted(set(needles) - known)


def test_files_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "BLOCK", 8)
    values = list(range(0, 100, 3))
    run: Run = write_run(tmp_path / "run.bin", [keys(values)], np.dtype(np.int64))
    assert len(run) == len(values)
    assert listed(run.blocks()) == values
    assert [int(v) for v in keys(list(range(100)))[run.absent(keys(list(range(100))))]] == [
        v for v in range(100) if v % 3
    ]
    run.shared().drop()
    assert (tmp_path / "run.bin").exists()
    run.drop()
    assert list(tmp_path.iterdir()) == []


def test_a_file_cut_short_is_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run.bin", [keys([1, 2, 3])], np.dtype(np.int64))
    os.truncate(tmp_path / "run.bin", 16)
    with pytest.raises(OSError, match="1 states are missing"):
        listed(run.blocks())


def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def blocks() -> object:
        yield keys([1])
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_run(tmp_path / "run.bin", blocks(), np.dtype(np.int64))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


FAR = Sometimes(name="far", reads=("n0", "n1", "n2"), holds=lambda *n: n == (9, 9, 9))
NEVER = Always(name="never", reads=("n0", "n1"), holds=lambda a, b: (a, b) != (7, 6))
EDGE = OnEdge(name="edge", holds=lambda e: e.after[e.event.writes[0]] != 8)


@pytest.mark.parametrize("budget", [1, 2_000, 1 << 30])
def test_spilling_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    monkeypatch.setattr(frontier, "PENDING", 200)
    monkeypatch.setattr(frontier, "CHUNK", 64)
    monkeypatch.setattr(runs, "BLOCK", 50)
    model = counters(3, 9, (FAR, NEVER, EDGE))
    plain = packed.search(Table(model))
    result = frontier.search(Table(model), disk=Disk(spill=tmp_path, budget=budget))
    assert (result.states, result.transitions, result.levels) == (1_000, 2_700, plain.levels)
    assert {prop.name: hit.depth for prop, hit in result.hits.items()} == {
        prop.name: hit.depth for prop, hit in plain.hits.items()
    }
    assert [len(result.trace(prop).steps) for prop in (FAR, NEVER, EDGE)] == [27, 13, 8]
    assert list(tmp_path.iterdir()) == []


def test_spilling_uses_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    real = runs.write_run

    def spy(path: Path, *rest: object) -> FileRun:
        written.append(path)
        return real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "write_run", spy)
    frontier.search(Table(counters(3, 9)), disk=Disk(spill=tmp_path, budget=1_000))
    assert written
    assert all(path.is_relative_to(tmp_path) for path in written)


def test_wide_states_spill_too(tmp_path: Path) -> None:
    names = 9
    model = counters(names, 1, ())
    wide = Model(
        model.name,
        model.config,
        (*model.components, *counters(40, 1).components[names:]),
        model.events,
    )
    result = frontier.search(Table(wide), disk=Disk(spill=tmp_path, budget=1))
    assert (result.states, result.transitions) == (2**names, names * 2 ** (names - 1))


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_search_goes_on_from_its_checkpoint(tmp_path: Path, symmetric: bool) -> None:
    model = load("bootstrap_exec:three_ids")
    whole = frontier.search(Table(model), symmetric=symmetric)
    for depth in (3, 9):
        part = frontier.search(
            Table(model),
            Watch(Limits(depth=depth)),
            symmetric=symmetric,
            disk=Disk(checkpoint=tmp_path / "c", resume=depth > 3),
        )
        assert part.limit == f"depth {depth}"
    rest = frontier.search(
        Table(model), symmetric=symmetric, disk=Disk(checkpoint=tmp_path / "c", resume=True)
    )
    assert (rest.states, rest.transitions, rest.stutters, rest.levels) == (
        whole.states,
        whole.transitions,
        whole.stutters,
        whole.levels,
    )
    assert {p.name: h.depth for p, h in rest.hits.items()} == {p.name: h.depth for p, h in whole.hits.items()}
    for prop in rest.witnessed():
        assert len(rest.trace(prop).steps) == len(whole.trace(_same(whole, prop.name)).steps)


def _same(result: object, name: str) -> object:
    return next(prop for prop in result.hits if prop.name == name)  # type: ignore[attr-defined]


def test_a_checkpoint_rebuilds_values_it_does_not_store(tmp_path: Path) -> None:
    model = load("published:deployment_invariant_held")
    frontier.search(Table(model), Watch(Limits(depth=6)), disk=Disk(checkpoint=tmp_path))
    table = Table(model)
    result = frontier.search(table, disk=Disk(checkpoint=tmp_path, resume=True))
    assert (result.states, result.generated) == (3_303, 42_518)
    assert "Record" not in (tmp_path / "search.json").read_text()


def checkpoint(tmp_path: Path) -> tuple[Model, Path]:
    model = load("bootstrap_exec")
    frontier.search(Table(model), Watch(Limits(depth=4)), disk=Disk(checkpoint=tmp_path))
    return model, tmp_path / "search.json"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": 0}, "another format"),
        ({"digest": "0"}, "a checkpoint of bootstrap_exec:deployment_invariant_held, not of this"),
        ({"model": "other:one"}, "a checkpoint of other:one"),
        ({"symmetric": True}, "the other setting of symmetry"),
        ({"levels": [1, 3, 6, 16, 30]}, "not the 3 states of the checkpoint"),
        ({"hits": [["no such", 0, None, 0]]}, "decides 'no such'"),
        ({"journal": [[0, [9, 9]]]}, "the rules changed"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    model, summary = checkpoint(tmp_path)
    summary.write_text(json.dumps({**json.loads(summary.read_text()), **change}))
    with pytest.raises(ModelError, match=complaint):
        frontier.search(Table(model), disk=Disk(checkpoint=tmp_path, resume=True))


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "search.json").write_text(text)
    with pytest.raises(ModelError, match="no checkpoint there"):
        frontier.search(Table(load("stdin")), disk=Disk(checkpoint=tmp_path, resume=True))

"""The table of background jobs: places, ends, and what is forgotten."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules import jobs
from agentd.rules.jobs import Job, Kill, Status, Table

RUNNING = jobs.spawned(jobs.reserve(Table(), 1)[0], "a", 100)


def one(table: Table) -> Job:
    (job,) = table.jobs
    return job


def test_a_place_is_taken_before_the_start_and_kept_by_the_job() -> None:
    table, free = jobs.reserve(Table(), 2)
    assert free
    table, free = jobs.reserve(table, 2)
    assert free
    assert jobs.reserve(table, 2) == (table, False)
    table = jobs.spawned(table, "a", 1)
    assert jobs.reserve(table, 2) == (table, False)
    table = jobs.abandoned(table)
    assert jobs.running(table) == 1
    assert jobs.reserve(table, 2)[1]
    assert not jobs.reserve(Table(), 0)[1]


@pytest.mark.parametrize(
    ("exit_code", "capped", "status"),
    [
        (0, False, Status.FINISHED),
        (1, False, Status.FAILED),
        (None, False, Status.FAILED),
        (None, True, Status.KILLED),
        (0, True, Status.KILLED),
    ],
)
def test_how_a_job_ends(exit_code: int | None, capped: bool, status: Status) -> None:
    job = one(jobs.finished(RUNNING, "a", exit_code, capped, 200))
    assert (job.status, job.exit_code, job.finished_ms, job.complete) == (status, exit_code, 200, True)


def test_a_kill_is_final_and_keeps_its_time() -> None:
    killed, verdict = jobs.kill(RUNNING, "a", 150)
    assert verdict is Kill.KILLED
    job = one(killed)
    assert (job.status, job.finished_ms, job.complete) == (Status.KILLED, 150, False)
    assert jobs.kill(killed, "a", 160) == (killed, Kill.NOT_RUNNING)
    late = one(jobs.finished(killed, "a", 0, False, 170))
    assert (late.status, late.finished_ms, late.complete) == (Status.KILLED, 150, True)


def test_what_is_not_there_changes_nothing() -> None:
    assert jobs.kill(Table(), "x", 1) == (Table(), Kill.UNKNOWN)
    assert jobs.finished(Table(), "x", 0, False, 1) == Table()
    assert jobs.abandoned(Table()) == Table()
    done = jobs.finished(RUNNING, "a", 0, False, 200)
    assert jobs.kill(done, "a", 300) == (done, Kill.NOT_RUNNING)


def test_ended_jobs_go_when_they_are_older_than_the_retention() -> None:
    done = jobs.finished(RUNNING, "a", 0, False, 200)
    assert jobs.sweep(done, 300, 100, 9) is done
    assert jobs.sweep(done, 301, 100, 9).jobs == ()
    assert jobs.sweep(RUNNING, 10**9, 0, 0) is RUNNING


def test_of_too_many_the_oldest_ends_go_first() -> None:
    table = Table(
        (
            *tuple(
                Job(str(n), n, Status.FINISHED, finished_ms=100 - n, exit_code=0, complete=True)
                for n in range(5)
            ),
            Job("r", 9),
            Job("k", 9, Status.KILLED, finished_ms=1),
        )
    )
    assert [job.id for job in jobs.sweep(table, 100, 10**6, 3).jobs] == ["0", "1", "r", "k"]


@pytest.mark.parametrize(("retention", "pause"), [(0, 1), (1, 1), (5, 2), (59, 29), (60, 30), (3600, 30)])
def test_the_pause_between_sweeps(retention: int, pause: int) -> None:
    assert jobs.sweep_pause(retention) == pause


EVENTS = st.lists(
    st.one_of(
        st.just(("reserve",)),
        st.just(("abandon",)),
        st.just(("spawn",)),
        st.tuples(st.just("kill"), st.integers(0, 4)),
        st.tuples(st.just("finish"), st.integers(0, 4), st.sampled_from([0, 3, None]), st.booleans()),
        st.tuples(st.just("sweep"), st.integers(0, 6), st.integers(0, 4)),
    ),
    max_size=60,
)


@given(EVENTS, st.integers(0, 4))
def test_laws(events: list[tuple[object, ...]], cap: int) -> None:
    """Never more than the cap, an end never changes, and what runs is never forgotten."""
    table, made = Table(), 0
    for now, event in enumerate(events, 1):
        before = table
        match event:
            case ("reserve",):
                table, _ = jobs.reserve(table, cap)
            case ("abandon",):
                table = jobs.abandoned(table)
            case ("spawn",) if table.reserved:
                table, made = jobs.spawned(table, str(made), now), made + 1
            case ("kill", int(id)):
                table, _ = jobs.kill(table, str(id), now)
            case ("finish", int(id), exit_code, bool(capped)):
                table = jobs.finished(table, str(id), exit_code, capped, now)  # type: ignore[arg-type]
            case ("sweep", int(retention), int(most)):
                table = jobs.sweep(table, now, retention, most)
        assert jobs.running(table) <= max(cap, jobs.running(before))
        assert jobs.running(table) <= cap
        for old in before.jobs:
            new = jobs.find(table, old.id)
            assert (old.status is Status.RUNNING) == (old.finished_ms is None)
            if old.status is Status.RUNNING:
                assert new is not None
            elif new is not None:
                same = evolve(new, complete=old.complete, exit_code=old.exit_code)
                assert same == old
                assert new.complete >= old.complete

"""Wrong versions of `agentd.rules.jobs`."""

from attrs import evolve

from agentd.rules.jobs import Job, Kill, Status, Table
from checker.faults import Function, fault

MODULE = "agentd.rules.jobs"


def _put(table: Table, changed: Job) -> Table:
    return evolve(table, jobs=tuple(changed if job.id == changed.id else job for job in table.jobs))


def _find(table: Table, id: str) -> Job | None:
    return next((job for job in table.jobs if job.id == id), None)


@fault("what is being started does not count", MODULE, "running")
def _not_counted(right: Function, table: Table) -> int:
    return sum(job.status is Status.RUNNING for job in table.jobs)


@fault("one more may run", MODULE, "reserve")
def _one_more(right: Function, table: Table, cap: int) -> tuple[Table, bool]:
    return right(table, cap + 1)  # type: ignore[no-any-return]


@fault("what came to nothing keeps its place", MODULE, "abandoned")
def _keeps(right: Function, table: Table) -> Table:
    return table


@fault("what was started keeps its place", MODULE, "spawned")
def _started_keeps(right: Function, table: Table, id: str, now: int) -> Table:
    after: Table = right(table, id, now)
    return evolve(after, reserved=table.reserved)


@fault("an exit overwrites a kill", MODULE, "finished")
def _overwrites(
    right: Function, table: Table, id: str, exit_code: int | None, capped: bool, now: int
) -> Table:
    job = _find(table, id)
    if job is not None and not job.complete:
        table = _put(table, evolve(job, status=Status.RUNNING, finished_ms=None))
    return right(table, id, exit_code, capped, now)  # type: ignore[no-any-return]


@fault("a killed job never completes", MODULE, "finished")
def _never_completes(
    right: Function, table: Table, id: str, exit_code: int | None, capped: bool, now: int
) -> Table:
    job = _find(table, id)
    if job is not None and job.status is Status.KILLED:
        return table
    return right(table, id, exit_code, capped, now)  # type: ignore[no-any-return]


@fault("a death by signal is a success", MODULE, "finished")
def _success(right: Function, table: Table, id: str, exit_code: int | None, capped: bool, now: int) -> Table:
    after: Table = right(table, id, exit_code or 0, capped, now)
    return after


@fault("what was capped has failed", MODULE, "finished")
def _has_failed(
    right: Function, table: Table, id: str, exit_code: int | None, capped: bool, now: int
) -> Table:
    return right(table, id, exit_code, False, now)  # type: ignore[no-any-return]


@fault("an ended job can be killed", MODULE, "kill")
def _again(right: Function, table: Table, id: str, now: int) -> tuple[Table, Kill]:
    after, verdict = right(table, id, now)
    return after, Kill.KILLED if verdict is Kill.NOT_RUNNING else verdict


@fault("an unknown job is not running", MODULE, "kill")
def _unknown(right: Function, table: Table, id: str, now: int) -> tuple[Table, Kill]:
    after, verdict = right(table, id, now)
    return after, Kill.NOT_RUNNING if verdict is Kill.UNKNOWN else verdict


@fault("a second kill moves the end", MODULE, "kill")
def _moves(right: Function, table: Table, id: str, now: int) -> tuple[Table, Kill]:
    after, verdict = right(table, id, now)
    job = _find(after, id)
    if verdict is Kill.NOT_RUNNING and job is not None:
        after = _put(after, evolve(job, finished_ms=now))
    return after, verdict


@fault("a kill waits for the exit", MODULE, "kill")
def _waits(right: Function, table: Table, id: str, now: int) -> tuple[Table, Kill]:
    return table, right(table, id, now)[1]


@fault("a kill completes", MODULE, "kill")
def _completes(right: Function, table: Table, id: str, now: int) -> tuple[Table, Kill]:
    after, verdict = right(table, id, now)
    job = _find(after, id)
    if verdict is Kill.KILLED and job is not None:
        after = _put(after, evolve(job, complete=True))
    return after, verdict


@fault("the sweep takes what runs", MODULE, "sweep")
def _takes_running(right: Function, table: Table, now: int, retention: int, most: int) -> Table:
    after: Table = right(table, now, retention, most)
    return evolve(
        after,
        jobs=tuple(job for job in after.jobs if job.status is not Status.RUNNING or job.started_ms == now),
    )


@fault("the sweep of jobs comes early", MODULE, "sweep")
def _early(right: Function, table: Table, now: int, retention: int, most: int) -> Table:
    return right(table, now, retention - 1, most)  # type: ignore[no-any-return]


@fault("nothing is forgotten for its age", MODULE, "sweep")
def _ageless(right: Function, table: Table, now: int, retention: int, most: int) -> Table:
    return right(table, now, now, most)  # type: ignore[no-any-return]


@fault("nothing is forgotten for its number", MODULE, "sweep")
def _numberless(right: Function, table: Table, now: int, retention: int, most: int) -> Table:
    return right(table, now, retention, len(table.jobs))  # type: ignore[no-any-return]


@fault("the newest go first", MODULE, "sweep")
def _newest(right: Function, table: Table, now: int, retention: int, most: int) -> Table:
    after: Table = right(table, now, retention, len(table.jobs))
    ended = [job for job in after.jobs if job.finished_ms is not None]
    going = sorted(ended, key=lambda job: (not job.complete, job.finished_ms))[most:]
    return evolve(after, jobs=tuple(job for job in after.jobs if job not in going))

"""The background jobs of the worker: how many may run, how each ends once, and when it is forgotten.

Theory of operation
-------------------
                reserve          spawned                 finished, exit 0
    (cap) ───────────► reserved ─────────► RUNNING ───────────────────────► FINISHED ─┐
                          │                  │  │ ─────── otherwise ──────► FAILED   ─┤ age > retention
                          │ abandoned        │  └──────── finished, capped ► KILLED  ─┼───────────────► (unknown)
                          ▼                  │                                ▲       │
                        (none)               └──────────── kill ──────────────┘ ──────┘

* A start takes its place before it does anything that can take time, so that two starts at once cannot both get the
  last one: the check and the insertion are one step (reference B1).
* An end is final. A kill ends a job at once, and its output comes in afterwards (`complete`); whatever the child's
  exit says then changes neither the state nor the time.
* Output is shown from the moment it is complete, which for every end but a kill is the moment of the end.
* Ended jobs are forgotten when they are old. So that memory is bounded by configuration and not by how fast somebody
  starts jobs, only so many are kept: beyond that the oldest go first.

Times are milliseconds of the wall clock, as records show them. Every function is total: what names a job that is not
there any more changes nothing.
"""

from enum import Enum, unique

from attrs import evolve, frozen


@unique
class Status(Enum):
    """What a job is, in the words of the wire."""

    RUNNING = "running"
    FINISHED = "finished"
    KILLED = "killed"
    FAILED = "failed"


@frozen
class Job:
    """What the rules remember of one job."""

    id: str
    started_ms: int
    status: Status = Status.RUNNING
    finished_ms: int | None = None
    exit_code: int | None = None
    complete: bool = False
    """Whether its child is gone and its output is all there will be."""


@frozen
class Table:
    """Every job that is known, in the order of their starts, and how many are being started."""

    jobs: tuple[Job, ...] = ()
    reserved: int = 0


@unique
class Kill(Enum):
    """What a kill did."""

    UNKNOWN = "unknown"
    NOT_RUNNING = "not_running"
    KILLED = "killed"


def find(table: Table, id: str) -> Job | None:
    """The job of that id."""
    return next((job for job in table.jobs if job.id == id), None)


def running(table: Table) -> int:
    """How many count against the cap: those that run and those that are being started."""
    return table.reserved + sum(job.status is Status.RUNNING for job in table.jobs)


def reserve(table: Table, cap: int) -> tuple[Table, bool]:
    """Take a place for a start, if there is one. A place is given back by `spawned` or `abandoned`."""
    if running(table) >= cap:
        return table, False
    return evolve(table, reserved=table.reserved + 1), True


def abandoned(table: Table) -> Table:
    """A start with a place came to nothing."""
    return evolve(table, reserved=max(0, table.reserved - 1))


def spawned(table: Table, id: str, now: int) -> Table:
    """A start with a place has its child."""
    return Table((*table.jobs, Job(id, now)), max(0, table.reserved - 1))


def kill(table: Table, id: str, now: int) -> tuple[Table, Kill]:
    """End a job by request. On `Kill.KILLED` its group is to be killed."""
    job = find(table, id)
    if job is None:
        return table, Kill.UNKNOWN
    if job.status is not Status.RUNNING:
        return table, Kill.NOT_RUNNING
    return _put(table, evolve(job, status=Status.KILLED, finished_ms=now)), Kill.KILLED


def finished(table: Table, id: str, exit_code: int | None, capped: bool, now: int) -> Table:
    """The child is gone and its output complete. `exit_code` None: by a signal; `capped`: at the cap of its time."""
    job = find(table, id)
    if job is None:
        return table
    if job.status is not Status.RUNNING:
        return _put(table, evolve(job, complete=True, exit_code=exit_code))
    status = Status.FINISHED if exit_code == 0 else Status.FAILED
    if capped:
        status = Status.KILLED
    return _put(table, evolve(job, status=status, finished_ms=now, exit_code=exit_code, complete=True))


def sweep(table: Table, now: int, retention: int, most: int) -> Table:
    """Forget what ended more than `retention` ms ago, and the oldest beyond the `most` ended jobs that are kept."""
    kept = [job for job in table.jobs if not _due(job, now, retention)]
    # Ended first, goes first; those without their output yet are the newest.
    ended = sorted(
        (not job.complete, job.finished_ms, at) for at, job in enumerate(kept) if job.finished_ms is not None
    )
    going = {at for _, _, at in ended[: max(0, len(ended) - most)]}
    left = tuple(job for at, job in enumerate(kept) if at not in going)
    return table if len(left) == len(table.jobs) else evolve(table, jobs=left)


def _due(job: Job, now: int, retention: int) -> bool:
    return job.finished_ms is not None and now - job.finished_ms > retention


def sweep_pause(retention_secs: int) -> int:
    """Seconds between two sweeps."""
    return min(30, max(1, retention_secs // 2))


def _put(table: Table, changed: Job) -> Table:
    return evolve(table, jobs=tuple(changed if job.id == changed.id else job for job in table.jobs))

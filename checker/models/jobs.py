"""The worker's background jobs: `rules.jobs`, with the cap on what runs, kills, retention and the limit of records.

Callers start jobs, some of which come to nothing, and kill them, also ones that they do not know. Children exit by
themselves, by a signal or at the cap of their time. A clock goes on, and the sweep comes when it likes. Who lives and
who is being started is kept by the environment, so that what the table says of them can be compared.
"""

from collections.abc import Hashable

from agentd.rules import jobs
from agentd.rules.jobs import Job, Kill, Status, Table
from checker.model import Component, Edge, Event, Model, Values
from checker.models import Config
from checker.properties import EdgePredicate, Fair, LeadsTo, OnEdge, Property, SometimesOnEdge, response_table

CAP = 2
"""Jobs that may run at once."""
IDS = ("a", "b")
"""Jobs that are ever started."""
LAST = 2
"""Where the clock stops."""
RETENTION = 1
MOST = 1
"""Ended jobs that are kept."""
EXITS = ((0, False), (1, False), (None, False), (None, True), (0, True))
"""How a child ends: its exit code, None for a signal; and whether the cap of its time brought that about."""
OTHER_EXITS = ((0, False), (None, True))
"""How all but the first may end: what else there is about an end has to do with one job alone."""

Alive = frozenset[str]


# -- events --------------------------------------------------------------------------------------------------------


def _reserve() -> Event:
    def effect(table: Table, starting: int) -> tuple[Values, Hashable]:
        after, free = jobs.reserve(table, CAP)
        return (after, starting + free), "place" if free else "refused"

    return Event(
        "a caller wants to start a job",
        "reserve",
        "caller",
        ("table", "starting"),
        ("table", "starting"),
        effect,
    )


def _spawn() -> Event:
    def effect(table: Table, starting: int, made: int, alive: Alive, clock: int) -> tuple[Values, Hashable]:
        id = IDS[made]
        return (jobs.spawned(table, id, clock), starting - 1, made + 1, alive | {id}), id

    return Event(
        "the child of a start is there",
        "spawn",
        "system",
        ("table", "starting", "made", "alive", "clock"),
        ("table", "starting", "made", "alive"),
        effect,
        lambda starting, made: starting > 0 and made < len(IDS),
        when=("starting", "made"),
    )


def _abandon() -> Event:
    return Event(
        "a start comes to nothing",
        "abandon",
        "system",
        ("table", "starting"),
        ("table", "starting"),
        lambda table, starting: ((jobs.abandoned(table), starting - 1), None),
        lambda table, starting: starting > 0,
    )


def _kill(id: str) -> Event:
    def effect(table: Table, clock: int) -> tuple[Values, Hashable]:
        after, verdict = jobs.kill(table, id, clock)
        return (after,), verdict

    return Event(
        f"a caller kills {id}", "kill", "caller", ("table", "clock"), ("table",), effect, args={"id": id}
    )


def _exit(id: str, code: int | None, capped: bool) -> Event:
    def effect(table: Table, alive: Alive, clock: int) -> tuple[Values, Hashable]:
        return (jobs.finished(table, id, code, capped, clock), alive - {id}), None

    how = "a signal" if code is None else f"exit {code}"
    return Event(
        f"the child of {id} ends by {how}{' at its cap' if capped else ''}",
        "exit",
        "child",
        ("table", "alive", "clock"),
        ("table", "alive"),
        effect,
        lambda table, alive, clock: id in alive,
        {"id": id, "code": code, "capped": capped},
    )


def _tick() -> Event:
    return Event(
        "time passes",
        "tick",
        "clock",
        ("clock",),
        ("clock",),
        lambda clock: ((clock + 1,), None),
        lambda clock: clock < LAST,
    )


def _sweep() -> Event:
    return Event(
        "the sweep comes",
        "sweep",
        "clock",
        ("table", "clock"),
        ("table",),
        lambda table, clock: ((jobs.sweep(table, clock, RETENTION, MOST),), None),
    )


# -- what is seen --------------------------------------------------------------------------------------------------


def _before(edge: Edge) -> Table:
    table = edge.before["table"]
    assert isinstance(table, Table)
    return table


def _after(edge: Edge) -> Table:
    table = edge.after["table"]
    assert isinstance(table, Table)
    return table


def _job(table: Table, edge: Edge) -> Job | None:
    return next((job for job in table.jobs if job.id == edge.event.args["id"]), None)


def _runs(table: Table) -> int:
    return sum(job.status is Status.RUNNING for job in table.jobs)


def _room(edge: Edge) -> bool:
    starting = edge.before["starting"]
    assert isinstance(starting, int)
    return _runs(_before(edge)) + starting < CAP


def _within_cap(edge: Edge) -> bool:
    starting = edge.after["starting"]
    assert isinstance(starting, int)
    return _runs(_after(edge)) + starting <= CAP


def _known(edge: Edge) -> str:
    job = _job(_before(edge), edge)
    if job is None:
        return "unknown"
    return "running" if job.status is Status.RUNNING else "ended"


def _expected(edge: Edge) -> Job | None:
    """The record that an exit has to leave."""
    job = _job(_before(edge), edge)
    if job is None:
        return None
    code, capped, clock = edge.event.args["code"], edge.event.args["capped"], edge.before["clock"]
    assert code is None or isinstance(code, int)
    assert isinstance(clock, int)
    if job.status is not Status.RUNNING:
        return Job(job.id, job.started_ms, job.status, job.finished_ms, code, True)
    status = Status.KILLED if capped else Status.FINISHED if code == 0 else Status.FAILED
    return Job(job.id, job.started_ms, status, clock, code, True)


def _ends_stay(edge: Edge) -> bool:
    after = {job.id: job for job in _after(edge).jobs}
    for job in _before(edge).jobs:
        if job.status is Status.RUNNING:
            continue
        now = after.get(job.id)
        if now is not None and (now.status, now.finished_ms) != (job.status, job.finished_ms):
            return False
    return True


def _killed_at_once(edge: Edge) -> bool:
    if edge.response is not Kill.KILLED:
        return _after(edge) == _before(edge)
    job = _job(_after(edge), edge)
    return job is not None and (job.status, job.finished_ms) == (Status.KILLED, edge.before["clock"])


def _complete_is_gone(edge: Edge) -> bool:
    alive = edge.after["alive"]
    assert isinstance(alive, frozenset)
    return all(job.complete == (job.id not in alive) for job in _after(edge).jobs)


def _due(job: Job, edge: Edge) -> bool:
    clock = edge.before["clock"]
    assert isinstance(clock, int)
    return job.finished_ms is not None and clock - job.finished_ms > RETENTION


def _right_ones_stay(edge: Edge) -> bool:
    """What runs and what is young stays, what is old goes; of too many young ones the newest ends stay."""
    kept = set(_after(edge).jobs)
    young = [job for job in _before(edge).jobs if job.finished_ms is not None and not _due(job, edge)]
    left = [job for job in young if job in kept]
    gone = [job for job in young if job not in kept]
    return (
        {job for job in _before(edge).jobs if job.status is Status.RUNNING} <= kept <= set(_before(edge).jobs)
        and not any(_due(job, edge) for job in kept)
        and len(left) == min(len(young), MOST)
        and all(_age(one) <= _age(other) for one in gone for other in left)
    )


def _age(job: Job) -> tuple[bool, int]:
    return not job.complete, job.finished_ms or 0


# -- properties ----------------------------------------------------------------------------------------------------


def _on(
    name: str,
    kinds: tuple[str, ...],
    holds: EdgePredicate,
    witness: str,
    faults: tuple[str, ...],
    meaning: str,
    reads: tuple[str, ...] = ("table",),
) -> OnEdge:
    return OnEdge(
        name=name,
        reads=reads,
        kinds=frozenset(kinds),
        holds=holds,
        witness=witness,
        faults=faults,
        meaning=meaning,
    )


CHANGES = ("reserve", "spawn", "abandon", "kill", "exit", "sweep")


def properties() -> tuple[Property, ...]:
    """Every property."""
    return (
        response_table(
            "a start gets a place exactly if one is free",
            ("reserve",),
            ("table", "starting"),
            case=_room,
            table={True: "place", False: "refused"},
            witness="a start is refused",
            faults=("what is being started does not count", "one more may run"),
            meaning="Those that run and those that are being started (B1).",
        ),
        _on(
            "a place is held exactly as long as a start is under way",
            ("reserve", "spawn", "abandon"),
            lambda e: _after(e).reserved == e.after["starting"],
            "a start comes to nothing after all",
            ("what came to nothing keeps its place", "what was started keeps its place"),
            "Check and insertion are one step (B1).",
            ("table", "starting"),
        ),
        _on(
            "no more run or are started than may",
            CHANGES,
            _within_cap,
            "a start is refused",
            ("what is being started does not count", "one more may run"),
            "However the starts overlap (B1).",
            ("table", "starting"),
        ),
        _on(
            "an end is final",
            CHANGES,
            _ends_stay,
            "a child ends after it was killed",
            ("an exit overwrites a kill", "a second kill moves the end"),
            "State and time of the first end stay (B1).",
        ),
        response_table(
            "a kill says what it found",
            ("kill",),
            ("table",),
            case=_known,
            table={"unknown": Kill.UNKNOWN, "running": Kill.KILLED, "ended": Kill.NOT_RUNNING},
            witness="a job that has ended is killed",
            faults=("an ended job can be killed", "an unknown job is not running"),
            meaning="S211, killed, not running (B1).",
        ),
        _on(
            "a kill ends the record at once",
            ("kill",),
            _killed_at_once,
            "a job is killed",
            ("a kill waits for the exit", "a second kill moves the end"),
            "Its output comes afterwards (B1).",
            ("table", "clock"),
        ),
        _on(
            "an exit leaves the record that it should",
            ("exit",),
            lambda e: _job(_after(e), e) == _expected(e),
            "a child ends at its cap",
            (
                "a death by signal is a success",
                "what was capped has failed",
                "an exit overwrites a kill",
                "a killed job never completes",
            ),
            "finished, failed or killed (B1).",
            ("table", "clock"),
        ),
        _on(
            "output is complete exactly when the child is gone",
            ("spawn", "kill", "exit"),
            _complete_is_gone,
            "a job is killed",
            ("a killed job never completes", "a kill completes"),
            "State and output appear in one step (B1).",
            ("table", "alive"),
        ),
        _on(
            "the sweep takes the right ones",
            ("sweep",),
            _right_ones_stay,
            "a job is forgotten for its age",
            (
                "the sweep takes what runs",
                "the sweep of jobs comes early",
                "nothing is forgotten for its age",
                "nothing is forgotten for its number",
                "the newest go first",
            ),
            "By age, then by number, oldest first; never what runs (B1).",
            ("table", "clock"),
        ),
        LeadsTo(
            name="every job ends",
            reads=("table", "alive"),
            when=lambda table, alive: bool(alive),
            then=lambda table, alive: (
                not any(job.status is Status.RUNNING or not job.complete for job in table.jobs)
            ),
            fair=tuple(Fair(frozenset({"exit"}), about={"id": id}) for id in IDS),
            witness="a child ends after it was killed",
            faults=("a killed job never completes",),
            meaning="Once its child has.",
        ),
        _some("a start is refused", "reserve", lambda e: e.response == "refused"),
        _some("a start comes to nothing after all", "abandon", lambda e: True),
        _some("a job is killed", "kill", lambda e: e.response is Kill.KILLED),
        _some("a job that has ended is killed", "kill", lambda e: e.response is Kill.NOT_RUNNING),
        _some("a child ends after it was killed", "exit", lambda e: _known(e) == "ended"),
        _some(
            "a child ends at its cap",
            "exit",
            lambda e: e.event.args["capped"] is True and _known(e) == "running",
        ),
        _some("a child ends that nobody knows any more", "exit", lambda e: _known(e) == "unknown"),
        _some("a job is forgotten for its age", "sweep", lambda e: any(_due(j, e) for j in _before(e).jobs)),
    )


def _some(name: str, kind: str, holds: EdgePredicate) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, reads=("table", "clock"), kinds=frozenset({kind}), holds=holds)


CONFIGS = {
    "jobs": Config(
        lambda name: Model(
            "jobs",
            name,
            (
                Component("table", Table(), meaning="the worker's jobs"),
                Component("starting", 0, meaning="starts under way"),
                Component("made", 0, meaning="jobs ever started"),
                Component("alive", frozenset(), meaning="jobs whose child lives"),
                Component("clock", 0, meaning="milliseconds"),
            ),
            (
                _reserve(),
                _spawn(),
                _abandon(),
                *(_kill(id) for id in IDS),
                *(_exit(IDS[0], *how) for how in EXITS),
                *(_exit(id, *how) for id in IDS[1:] for how in OTHER_EXITS),
                _tick(),
                _sweep(),
            ),
            properties(),
            bounds={"cap": CAP, "jobs": len(IDS), "retention": RETENTION, "most": MOST, "clock": LAST},
            meaning="background jobs, from their start until they are forgotten",
        )
    ),
}

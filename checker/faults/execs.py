"""Wrong versions of `agentd.rules.execs`."""

from attrs import evolve

from agentd.rules.execs import Ack, Phase, Record, Start
from checker.faults import Function, fault

MODULE = "agentd.rules.execs"
Acked = tuple[Record | None, Ack]
Started = tuple[Record, Start]


@fault("a retried start spawns again", MODULE, "start")
def _respawns(right: Function, record: Record | None) -> Started:
    started, verdict = right(record)
    if verdict is Start.RETRIED:
        return evolve(started, spawns=started.spawns + 1), Start.SPAWN
    return started, verdict


@fault("a retried start restarts an exited exec", MODULE, "start")
def _restarts(right: Function, record: Record | None) -> Started:
    if record is not None and record.phase is Phase.EXITED:
        return evolve(record, phase=Phase.RUNNING, starts=record.starts + 1), Start.RETRIED
    started: Started = right(record)
    return started


@fault("a retried start is not counted", MODULE, "start")
def _uncounted(right: Function, record: Record | None) -> Started:
    started, verdict = right(record)
    return (started if record is None else record), verdict


@fault("an unknown id counts as retried", MODULE, "start")
def _known(right: Function, record: Record | None) -> Started:
    return right(record)[0], Start.RETRIED


@fault("a new exec holds no output", MODULE, "start")
def _holds_nothing(right: Function, record: Record | None) -> Started:
    started, verdict = right(record)
    return (evolve(started, output_held=False) if record is None else started), verdict


@fault("a running exec can be acked", MODULE, "ack")
def _early_ack(right: Function, record: Record | None, now: float) -> Acked:
    if record is not None and record.phase is Phase.RUNNING:
        return evolve(record, phase=Phase.ACKED, output_held=False, acked_at=now), Ack.RELEASED
    acked: Acked = right(record, now)
    return acked


@fault("a second ack wins too", MODULE, "ack")
def _second_ack(right: Function, record: Record | None, now: float) -> Acked:
    acked, verdict = right(record, now)
    return acked, Ack.RELEASED if verdict is Ack.ALREADY_ACKED else verdict


@fault("the loser of two acks is told it runs", MODULE, "ack")
def _loser(right: Function, record: Record | None, now: float) -> Acked:
    acked, verdict = right(record, now)
    return acked, Ack.STILL_RUNNING if verdict is Ack.ALREADY_ACKED else verdict


@fault("an unknown id can be acked", MODULE, "ack")
def _unknown_ack(right: Function, record: Record | None, now: float) -> Acked:
    return (Record(Phase.ACKED, False, 1, 1, now), Ack.RELEASED) if record is None else right(record, now)


@fault("a refused ack releases", MODULE, "ack")
def _refused_releases(right: Function, record: Record | None, now: float) -> Acked:
    acked, verdict = right(record, now)
    if verdict is Ack.STILL_RUNNING and acked is not None:
        return evolve(acked, output_held=False), verdict
    return acked, verdict


@fault("an ack keeps the output", MODULE, "ack")
def _keeps(right: Function, record: Record | None, now: float) -> Acked:
    acked, verdict = right(record, now)
    return (None if acked is None else evolve(acked, output_held=True)), verdict


@fault("an ack forgets its time", MODULE, "ack")
def _timeless(right: Function, record: Record | None, now: float) -> Acked:
    acked, verdict = right(record, now)
    return (None if acked is None else evolve(acked, acked_at=None)), verdict


@fault("an exit is forgotten", MODULE, "exited")
def _forgotten(right: Function, record: Record) -> Record:
    return record


@fault("an exit releases the output", MODULE, "exited")
def _exit_releases(right: Function, record: Record) -> Record:
    published: Record = right(record)
    return evolve(published, output_held=False)


@fault("a late exit reopens the record", MODULE, "exited")
def _reopens(right: Function, record: Record) -> Record:
    return evolve(record, phase=Phase.EXITED)


@fault("an exit acks", MODULE, "exited")
def _exit_acks(right: Function, record: Record) -> Record:
    published: Record = right(record)
    return evolve(published, phase=Phase.ACKED, output_held=False, acked_at=0.0)


@fault("a running exec shows its outcome", MODULE, "shows_outcome")
def _shows_running(right: Function, record: Record) -> bool:
    return record.output_held


@fault("an acked exec shows its outcome", MODULE, "shows_outcome")
def _shows_acked(right: Function, record: Record) -> bool:
    return record.phase is not Phase.RUNNING


@fault("no poll shows the outcome", MODULE, "shows_outcome")
def _shows_nothing(right: Function, record: Record) -> bool:
    return False


@fault("an exec is busy until its ack", MODULE, "busy")
def _busy_long(right: Function, record: Record) -> bool:
    return record.phase is not Phase.ACKED


@fault("no exec is busy", MODULE, "busy")
def _never_busy(right: Function, record: Record) -> bool:
    return False


@fault("the sweep takes what is exited", MODULE, "collect")
def _collects_exited(right: Function, record: Record, now: float, ttl: float) -> Record | None:
    return None if record.phase is Phase.EXITED else right(record, now, ttl)


@fault("the sweep comes early", MODULE, "collect")
def _collects_early(right: Function, record: Record, now: float, ttl: float) -> Record | None:
    return None if record.phase is Phase.ACKED else record


@fault("the sweep is late", MODULE, "collect")
def _collects_late(right: Function, record: Record, now: float, ttl: float) -> Record | None:
    if record.acked_at is not None and now - record.acked_at <= ttl:
        return record
    kept: Record | None = right(record, now, ttl)
    return kept


@fault("the sweep takes everything", MODULE, "collect")
def _collects_all(right: Function, record: Record, now: float, ttl: float) -> Record | None:
    return None


@fault("polling takes the output", MODULE, "poll")
def _poll_takes(right: Function, record: Record) -> tuple[Record, bool]:
    then, shown = right(record)
    return evolve(then, output_held=False), shown


@fault("polling acks", MODULE, "poll")
def _poll_acks(right: Function, record: Record) -> tuple[Record, bool]:
    then, shown = right(record)
    return evolve(then, phase=Phase.ACKED, acked_at=0.0) if shown else then, shown

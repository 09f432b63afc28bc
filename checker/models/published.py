"""Bootstrap and exec in the encoding of the published model, so that its counts can be compared (contract j.1).

Over the same functions as `checker.models.bootstrap_exec`: execs in a list in order of start, ghost variables
for what went wrong, the last action and its response in the state, and collection as a request that sweeps
everything old enough. The published counts are the unique states and, as "transitions", what
`Result.generated` counts: the initial state and every transition that changes something.
"""

from collections.abc import Hashable

from agentd.rules import bootstrap, execs
Execs = tuple[tuple[int, Record], ...]


def list_events(ids: int, hooks: int, starts: int, held: bool) -> tuple[Event, ...]:
    """The events of the published encoding; each also writes the last action and its response."""
    events = []
    for actor, token in (("platform", HOST), PRINCIPALS[1]):
        events.append(_listrun_hook(actor, token, hooks, held))
    for actor, token in PRINCIPALS:
        for number in range(ids):
            for kind, operation in (("start", start), ("poll", poll), ("ack", ack)):
                events.append(_list_control(kind, actor, token, number, operation, starts, held))
        events.append(_list_collect(actor, token, held))
    return (*events, *(_list_exit(number) for number in range(ids)))


def _listrun_hook(actor: str, token: bytes, hooks: int, held: bool) -> Event:
    name = f"{actor} posts the run hook"

    def effect(boot: Boot, seen: int, replaced: int) -> tuple[Values, Hashable]:
        then, seen, verdict = run_hook(boot, seen, actor, token)
        replaced += boot[0].installed and then[0] != boot[0]
        return (then, seen, replaced, (name, verdict)), verdict

    def guard(boot: Boot, seen: int, replaced: int) -> bool:
        return seen < hooks and may_act(boot, actor, held)

    places = ("boot", "hooks_seen", "token_replacements")
    return Event(name, "run", actor, places, (*places, "last"), effect, guard, {"token": token})


def _find(table: Execs, number: int) -> Record | None:
    return next((record for known, record in table if known == number), None)


def _store(table: Execs, number: int, record: Record | None) -> Execs:
    if record is None:
        return table
    if _find(table, number) is None:
        return (*table, (number, record))
    return tuple((known, record if known == number else old) for known, old in table)


def _served(verdict: Hashable) -> bool:
    return verdict not in (Access.UNAUTHORIZED, Access.UNAVAILABLE)


def _list_control(
    kind: str, actor: str, token: bytes, number: int, operation: Operation, starts: int, held: bool
) -> Event:
    name = f"{actor} {kind}s exec {number}"

    def effect(boot: Boot, table: Execs, authorized: bool) -> tuple[Values, Hashable]:
        response: Hashable = admit(boot, token)
        if response is Access.GRANTED:
            authorized = authorized or actor == "attacker"
            record, response = operation(_find(table, number))
            table = _store(table, number, record)
        return (table, authorized, (name, response)), response

    def guard(boot: Boot, table: Execs, authorized: bool) -> bool:
        record = _find(table, number)
        offered = (record is None or record.starts < starts) if kind == "start" else record is not None
        return offered and may_act(boot, actor, held)

    reads = ("boot", "execs", "attacker_authorized")
    writes = ("execs", "attacker_authorized", "last")
    return Event(name, kind, actor, reads, writes, effect, guard, {"token": token, "id": number})


def _list_collect(actor: str, token: bytes, held: bool) -> Event:
    name = f"{actor} has everything due collected"

    def effect(boot: Boot, table: Execs, authorized: bool, lost: bool) -> tuple[Values, Hashable]:
        response: Hashable = admit(boot, token)
        if response is Access.GRANTED:
            authorized = authorized or actor == "attacker"
            kept = tuple((number, record) for number, record in table if swept(record, DUE) is not None)
            gone = [record for entry in table if entry not in kept for record in entry[1:]]
            lost = lost or any(isinstance(record, Record) and record.output_held for record in gone)
            table = kept
        return (table, authorized, lost, (name, response)), response

    def guard(boot: Boot, table: Execs, authorized: bool, lost: bool) -> bool:
        return may_act(boot, actor, held)

    reads = ("boot", "execs", "attacker_authorized", "released_without_ack")
    return Event(name, "collect", actor, reads, (*reads[1:], "last"), effect, guard, {"token": token})


def _list_exit(number: int) -> Event:
    name = f"the child of exec {number} exits"

    def effect(table: Execs) -> tuple[Values, Hashable]:
        record = _find(table, number)
        assert record is not None
        return (_store(table, number, execs.exited(record)), (name, None)), None

    def guard(table: Execs) -> bool:
        record = _find(table, number)
        return record is not None and record.phase is Phase.RUNNING

    return Event(name, "exit", "child", ("execs",), ("execs", "last"), effect, guard, {"id": number})

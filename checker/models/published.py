"""Bootstrap and exec in the encoding of the published model, so that its counts can be compared (contract j.1).

Over the same functions as `checker.models.bootstrap_exec`: execs in a list in order of start, ghost variables
for what went wrong, the last action and its response in the state, and collection as a request that sweeps
everything old enough. The published counts are the unique states and, as "transitions", what
`Result.generated` counts: the initial state and every transition that changes something.
"""

from collections.abc import Hashable

from agentd.rules import execs
from agentd.rules.bootstrap import Access, Bootstrap, RunVerdict
from agentd.rules.execs import Phase, Record
from checker.model import Component, Event, Model, Values
from checker.models import Config
from checker.models.bootstrap_exec import (
    CALLERS,
    DUE,
    Boot,
    Operation,
    ack,
    admit,
    may_act,
    poll,
    run_hook,
    start,
    swept,
)
from checker.models.bootstrap_exec_terms import ATTACKER, HOST, TAKEOVER
from checker.properties import Always, Property, Sometimes, StatePredicate

Execs = tuple[tuple[int, Record], ...]
"""Ids and records, in order of start."""


def _find(table: Execs, number: int) -> Record | None:
    return next((record for known, record in table if known == number), None)


def _store(table: Execs, number: int, record: Record | None) -> Execs:
    if record is None:
        return table
    if _find(table, number) is None:
        return (*table, (number, record))
    return tuple((known, record if known == number else old) for known, old in table)


def _run(actor: str, token: bytes, hooks: int, held: bool) -> Event:
    name = f"{actor} posts the run hook"

    def effect(boot: Boot, seen: int, replaced: int) -> tuple[Values, Hashable]:
        then, seen, verdict = run_hook(boot, seen, actor, token)
        replaced += boot[0].installed and then[0] != boot[0]
        return (then, seen, replaced, (name, verdict)), verdict

    def guard(boot: Boot, seen: int, replaced: int) -> bool:
        return seen < hooks and may_act(boot, actor, held)

    places = ("boot", "hooks_seen", "token_replacements")
    return Event(name, "run", actor, places, (*places, "last"), effect, guard, {"token": token})


def _control(
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


def _collect(actor: str, token: bytes, held: bool) -> Event:
    name = f"{actor} has everything due collected"

    def effect(boot: Boot, table: Execs, authorized: bool, lost: bool) -> tuple[Values, Hashable]:
        response: Hashable = admit(boot, token)
        if response is Access.GRANTED:
            authorized = authorized or actor == "attacker"
            gone = [record for _, record in table if swept(record, DUE) is None]
            lost = lost or any(record.output_held for record in gone)
            table = tuple(entry for entry in table if swept(entry[1], DUE) is not None)
        return (table, authorized, lost, (name, response)), response

    def guard(boot: Boot, table: Execs, authorized: bool, lost: bool) -> bool:
        return may_act(boot, actor, held)

    reads = ("boot", "execs", "attacker_authorized", "released_without_ack")
    return Event(name, "collect", actor, reads, (*reads[1:], "last"), effect, guard, {"token": token})


def _exit(number: int) -> Event:
    name = f"the child of exec {number} exits"

    def effect(table: Execs) -> tuple[Values, Hashable]:
        record = _find(table, number)
        assert record is not None
        return (_store(table, number, execs.exited(record)), (name, None)), None

    def guard(table: Execs) -> bool:
        record = _find(table, number)
        return record is not None and record.phase is Phase.RUNNING

    return Event(name, "exit", "child", ("execs",), ("execs", "last"), effect, guard, {"id": number})


def events(ids: int, hooks: int, starts: int, held: bool) -> tuple[Event, ...]:
    """The published actions."""
    found = [_run("platform", HOST, hooks, held), _run("attacker", ATTACKER, hooks, held)]
    for actor, token in CALLERS:
        for number in range(ids):
            for kind, operation in (("start", start), ("poll", poll), ("ack", ack)):
                found.append(_control(kind, actor, token, number, operation, starts, held))
        found.append(_collect(actor, token, held))
    return (*found, *(_exit(number) for number in range(ids)))


def _last_is(response: Hashable) -> StatePredicate:
    return lambda last: last is not None and last[1] is response


PROPERTIES: tuple[Property, ...] = (
    Always(
        name="attacker never authorized",
        reads=("attacker_authorized",),
        holds=lambda authorized: not authorized,
        witness="an unauthorized caller is refused",
        faults=("any token opens",),
    ),
    Always(
        name="AGENTD-3 bootstrap is one-shot",
        reads=("token_replacements",),
        holds=lambda replaced: replaced == 0,
        witness="a hijack is refused with 409",
        faults=("the last run hook wins",),
    ),
    Always(
        name="output is never released before ack",
        reads=("execs",),
        holds=lambda table: all(r.output_held or r.phase is Phase.ACKED for _, r in table),
        witness="an exec runs, exits and is acked",
        faults=("an exit releases the output",),
    ),
    Always(
        name="nothing is collected while its output is held",
        reads=("released_without_ack",),
        holds=lambda lost: not lost,
        witness="an exec runs, exits and is acked",
        faults=("the sweep takes what is exited",),
    ),
    Always(
        name="a retried start never spawns twice",
        reads=("execs",),
        holds=lambda table: all(record.spawns == 1 for _, record in table),
        witness="a start is retried",
        faults=("a retried start spawns again",),
    ),
    Sometimes(name="a hijack is refused with 409", reads=("last",), holds=_last_is(RunVerdict.CONFLICT)),
    Sometimes(name="an identical replay is accepted", reads=("last",), holds=_last_is(RunVerdict.REPLAYED)),
    Sometimes(name="an unauthorized caller is refused", reads=("last",), holds=_last_is(Access.UNAUTHORIZED)),
    Sometimes(name="a start is retried", reads=("last",), holds=_last_is(execs.Start.RETRIED)),
    Sometimes(name="an exec runs, exits and is acked", reads=("last",), holds=_last_is(execs.Ack.RELEASED)),
)


def build(config: str, ids: int, hooks: int, starts: int, held: bool) -> Model:
    """The published model within bounds."""
    return Model(
        "published",
        config,
        (
            Component("boot", (Bootstrap(), "nobody")),
            Component("execs", ()),
            Component("last", None, meaning="the last action and its response"),
            Component("token_replacements", 0),
            Component("attacker_authorized", False),
            Component("released_without_ack", False),
            Component("hooks_seen", 0),
        ),
        events(ids, hooks, starts, held),
        PROPERTIES,
        (),
        frozenset() if held else TAKEOVER,
        {"ids": ids, "hooks": hooks, "starts": starts},
        "bootstrap and execs as published, in the unreduced encoding",
    )


CONFIGS = {
    "deployment_invariant_held": Config(lambda name: build(name, 2, 3, 2, True)),
    "deployment_invariant_broken": Config(lambda name: build(name, 2, 3, 2, False), default=False),
    "wide": Config(lambda name: build(name, 3, 4, 2, True), default=False),
}

"""Bootstrap and exec with an attacker inside the VM: contract j.1, over `rules.bootstrap` and `rules.execs`.

Who acts
--------
* the **platform** posts the run hook with the token H, and may post it again;
* the **client** drives the control API with H: start, poll, acknowledge, health;
* the **attacker** runs inside the VM, knows every route and not H: it posts run hooks and control requests
  with a token A of its own. Under the deployment invariant it acts only once the VM is bootstrapped, because
  nothing of the workload runs before; the counterfactual configuration drops that, and shows how it wins;
* the **children** exit when they like, and the **sweep** comes when it likes.

There is one component an exec, so that execs are independent and interchangeable. The clock is a choice of the
sweep's, which comes before or at the end of a record's time. What the published model keeps in its state to
judge the past (ghost variables, the last action and its response) is judged on edges here;
`checker.models.published` has that encoding over the same functions. What must hold is in
`checker.models.bootstrap_exec_properties`.
"""

from collections.abc import Callable, Hashable

from agentd.rules import bootstrap, execs
from agentd.rules.bootstrap import Access, Bootstrap, RunVerdict
from agentd.rules.execs import Phase, Record, Start
from checker.model import Component, Event, Model, Values
from checker.models import Config
from checker.models.bootstrap_exec_properties import properties
from checker.models.bootstrap_exec_terms import ACKED_AT, ATTACKER, HOST, TAKEOVER

TTL = 900.0
"""How long an acknowledged record is kept, in seconds."""
YOUNG, DUE = ACKED_AT + TTL - 1.0, ACKED_AT + TTL
"""When the sweep comes: before a record's time, and at the very end of it."""

CALLERS = (("client", HOST), ("attacker", ATTACKER))
UNSPAWNED = "spawn_failed"
UNKNOWN = "unknown_exec"

Boot = tuple[Bootstrap, str]
"""What is installed, and who installed it (the environment's knowledge, not the daemon's)."""
Operation = Callable[[Record | None], tuple[Record | None, Hashable]]


# --- Requests: a rule, and the answer that comes of it -----------------------------------------------------


def start(record: Record | None) -> tuple[Record | None, Hashable]:
    """A start whose spawn succeeds."""
    return execs.start(record)


def start_unspawned(record: Record | None) -> tuple[Record | None, Hashable]:
    """A start whose spawn fails if one is attempted: the record does not stand."""
    started, verdict = execs.start(record)
    return (record, UNSPAWNED) if verdict is Start.SPAWN else (started, verdict)


def poll(record: Record | None) -> tuple[Record | None, Hashable]:
    """A poll: the phase, and whether the outcome comes with it."""
    if record is None:
        return None, UNKNOWN
    record, shown = execs.poll(record)
    return record, (record.phase, shown)


def ack(record: Record | None) -> tuple[Record | None, Hashable]:
    """An acknowledgement, at the one time the model has for it."""
    return execs.ack(record, ACKED_AT)


def health(record: Record | None) -> tuple[Record | None, Hashable]:
    """Whether health counts this exec as keeping the VM busy."""
    return record, record is not None and execs.busy(record)


def swept(record: Record | None, now: float) -> Record | None:
    """The record after the sweep of `now`."""
    return None if record is None else execs.collect(record, now, TTL)


def admit(boot: Boot, token: bytes) -> Access:
    """What the guard of the bearer routes says to a request with this token."""
    return bootstrap.authorize(boot[0], bootstrap.bearer_token(b"Bearer " + token))


def run_hook(boot: Boot, seen: int, actor: str, token: bytes) -> tuple[Boot, int, RunVerdict]:
    """A run hook by `actor`, and the count of run hooks that bounds the model."""
    state, verdict = bootstrap.run_hook(boot[0], token)
    return (state, actor if verdict is RunVerdict.INSTALLED else boot[1]), seen + 1, verdict


def may_act(boot: Boot, actor: str, held: bool) -> bool:
    """The deployment invariant: nothing hostile runs before the platform's hook has been served."""
    return actor != "attacker" or not held or boot[0].installed


# --- Events ------------------------------------------------------------------------------------------------


def exec_name(number: int) -> str:
    """The component of one exec."""
    return f"exec.{number}"


def exec_events(ids: int, hooks: int, starts: int, held: bool) -> tuple[Event, ...]:
    """Every event, for so many exec ids, run hooks, and starts of an id."""
    events = [_run(actor, token, hooks, held) for actor, token in (("platform", HOST), CALLERS[1])]
    events += [_probe(*header, held) for header in HEADERS]
    for number in range(ids):
        for actor, token in CALLERS:
            phrase = f"{actor} starts exec {number}"
            unspawned = f"{phrase}, and no child can be spawned"
            events.append(_control("start", phrase, actor, token, number, start, starts, held))
            events.append(
                _control("start_unspawned", unspawned, actor, token, number, start_unspawned, starts, held)
            )
            events.append(
                _control("poll", f"{actor} polls exec {number}", actor, token, number, poll, None, held)
            )
            events.append(
                _control("ack", f"{actor} acks exec {number}", actor, token, number, ack, None, held)
            )
        events.append(_on_exec("health", f"health looks at exec {number}", "client", number, health, _any))
        events.append(_on_exec("exit", f"the child of exec {number} exits", "child", number, _exited, _runs))
        late = f"the exit of exec {number} is reported once more"
        events.append(_on_exec("late_exit", late, "child", number, _exited, _ran))
        early = f"the sweep looks at exec {number} before its time"
        events.append(_on_exec("sweep_young", early, "sweep", number, _swept_young, _exists))
        due = f"the sweep looks at exec {number} at the end of its time"
        events.append(_on_exec("sweep_due", due, "sweep", number, _swept_due, _exists))
    return tuple(events)


def _run(actor: str, token: bytes, hooks: int, held: bool) -> Event:
    def effect(boot: Boot, seen: int) -> tuple[Values, Hashable]:
        boot, seen, verdict = run_hook(boot, seen, actor, token)
        return (boot, seen), verdict

    def guard(boot: Boot, seen: int) -> bool:
        return seen < hooks and may_act(boot, actor, held)

    places = ("boot", "hooks_seen")
    return Event(f"{actor} posts the run hook", "run", actor, places, places, effect, guard, {"token": token})


def _control(
    kind: str,
    name: str,
    actor: str,
    token: bytes,
    number: int,
    operation: Operation,
    starts: int | None,
    held: bool,
) -> Event:
    place = exec_name(number)

    def effect(boot: Boot, record: Record | None) -> tuple[Values, Hashable]:
        access = admit(boot, token)
        if access is not Access.GRANTED:
            return (record,), access
        record, response = operation(record)
        return (record,), response

    def guard(boot: Boot, record: Record | None) -> bool:
        few = starts is None or record is None or record.starts < starts
        return few and may_act(boot, actor, held)

    args = {"token": token, "id": number}
    return Event(name, kind, actor, ("boot", place), (place,), effect, guard, args)


def _on_exec(
    kind: str,
    name: str,
    actor: str,
    number: int,
    operation: Operation,
    guard: Callable[[Record | None], bool],
) -> Event:
    def effect(record: Record | None) -> tuple[Values, Hashable]:
        record, response = operation(record)
        return (record,), response

    place = exec_name(number)
    return Event(name, kind, actor, (place,), (place,), effect, guard, {"id": number})


def _exited(record: Record | None) -> tuple[Record | None, Hashable]:
    assert record is not None
    return execs.exited(record), None


def _swept_young(record: Record | None) -> tuple[Record | None, Hashable]:
    return swept(record, YOUNG), None


def _swept_due(record: Record | None) -> tuple[Record | None, Hashable]:
    return swept(record, DUE), None


def _any(record: Record | None) -> bool:
    return True


def _exists(record: Record | None) -> bool:
    return record is not None


def _runs(record: Record | None) -> bool:
    return record is not None and record.phase is Phase.RUNNING


def _ran(record: Record | None) -> bool:
    return record is not None and record.phase is not Phase.RUNNING


HEADERS: tuple[tuple[bytes | None, bytes | None], ...] = (
    (None, None),
    (b"Bearer H", HOST),
    (b"bEARER H", HOST),
    (b"Bearer A", ATTACKER),
    (b"Bearer ", b""),
    (b"Bearer  H", b" H"),
    (b"BearerH", None),
    (b"Bearer", None),
    (b"Basic H", None),
)
"""Authorization headers, and the token each presents (contract i.2)."""


def _probe(header: bytes | None, presents: bytes | None, held: bool) -> Event:
    """A control request that does nothing but present a credential."""

    def effect(boot: Boot) -> tuple[Values, Hashable]:
        return (), bootstrap.authorize(boot[0], bootstrap.bearer_token(header))

    def guard(boot: Boot) -> bool:
        return may_act(boot, "attacker" if presents == ATTACKER else "anyone", held)

    shown = "no credential" if header is None else repr(header.decode())
    name = f"somebody presents {shown}"
    args = {"presents": presents, "header": header}
    return Event(name, "probe", "anyone", ("boot",), (), effect, guard, args)


# --- Configurations ----------------------------------------------------------------------------------------


def build(config: str, ids: int, hooks: int, starts: int, held: bool) -> Model:
    """The model within bounds: so many exec ids, run hooks, and starts of one id."""
    names = [exec_name(number) for number in range(ids)]
    return Model(
        "bootstrap_exec",
        config,
        (
            Component("boot", (Bootstrap(), "nobody"), meaning="what is installed, and by whom"),
            Component("hooks_seen", 0, meaning="run hooks so far, to bound them"),
            *(Component(name, None, "exec", "one exec's record") for name in names),
        ),
        exec_events(ids, hooks, starts, held),
        properties(names),
        (tuple((name,) for name in names),),
        frozenset() if held else TAKEOVER,
        {"ids": ids, "hooks": hooks, "starts": starts},
        "one-shot bootstrap and execs, with an attacker inside the VM",
    )


CONFIGS = {
    "deployment_invariant_held": Config(lambda name: build(name, 2, 3, 2, True)),
    "deployment_invariant_broken": Config(lambda name: build(name, 2, 3, 2, False)),
    "three_ids": Config(lambda name: build(name, 3, 4, 2, True), default=False),
    "wide": Config(lambda name: build(name, 5, 4, 3, True), default=False),
}

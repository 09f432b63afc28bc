"""A child's end: exit, pipes, deadline, kill, escalation, linger, result: contract c.5 to c.7, over
`rules.supervision`, with the record of `rules.execs` behind it.

The environment has a child and, in its group, a helper that the child may have left behind; either holds the
pipes open while it lives. TERM may or may not end them; KILL ends both. Timers fire when they are armed, and
an escalation looks at the group before and at the end of its grace. Whatever `step` says is to be done is done
to the environment, as the daemon would; events may also come late, as callbacks that were on their way do.
"""

from collections.abc import Callable, Hashable

from attrs import evolve

from agentd.rules import execs, supervision
from agentd.rules.execs import Record
from agentd.rules.supervision import Action, Supervision
from agentd.rules.supervision import Event as Happening
from checker.model import Component, Event, Model, Values
from checker.models import Config
from checker.models.supervision_properties import properties
from checker.models.supervision_terms import DEADLINES, GRACE, Group, World

Effect = tuple[Values, Hashable]
OVER = Happening.LINGER_EXPIRED
PLACES = ("sup", "world", "record")
Cast = tuple[Supervision, World, Record]


# --- What stands for the daemon: doing what the rules say --------------------------------------------------


def perform(actions: supervision.Actions, world: World, record: Record) -> tuple[World, Record]:
    """Do some actions, in order."""
    for action in actions:
        if action is Action.ESCALATE:
            world = evolve(world, escalating=True, escalations=min(3, world.escalations + 1))
        elif action is Action.START_LINGER:
            world = evolve(world, linger=True, lingers=min(2, world.lingers + 1))
        elif action is Action.STOP_READING:
            world = evolve(world, reading=False)
        elif action is Action.CANCEL_TIMERS:
            world = evolve(world, deadline=False, linger=False)
        else:
            world = evolve(world, published=min(2, world.published + 1))
            record = execs.exited(record)
    return world, record


def happen(happening: Happening, sup: Supervision, world: World, record: Record) -> Effect:
    """Put one thing that happened to the rules, and do what they say."""
    expires = happening is Happening.DEADLINE and not sup.exited and not world.expired
    reaps = happening is Happening.EXITED and sup.reap and not sup.exited and not world.expired
    sup, actions = supervision.step(sup, happening)
    world, record = perform(actions, world, record)
    if expires or reaps:
        # The environment's own account of what the result waits for, to judge the rules' account by.
        world = evolve(world, expired=world.expired or expires, held=world.escalating)
    return (sup, world, record), actions


# --- Events ------------------------------------------------------------------------------------------------


def _start(reap: bool, timeout: bool, helper: bool) -> Event:
    def effect(sup: None, world: None, record: None, group: None) -> Effect:
        return (
            Supervision(reap=reap),
            World(deadline=timeout),
            execs.start(None)[0],
            Group(helper=helper),
        ), None

    def guard(sup: Supervision | None) -> bool:
        return sup is None

    words = [word for word, on in (("reap", reap), ("a deadline", timeout), ("a helper", helper)) if on]
    name = f"an exec starts with {' and '.join(words) or 'nothing special'}"
    places = (*PLACES, "group")
    return Event(name, "start", "client", places, places, effect, guard, when=("sup",))


def _dies(name: str, *, killed: bool = False) -> Event:
    """The child ends; the daemon learns it at once."""

    def effect(sup: Supervision, world: World, record: Record, group: Group) -> Effect:
        written, actions = happen(Happening.EXITED, sup, world, record)
        return (*written, evolve(group, child="ended")), actions

    def guard(group: Group | None) -> bool:
        return group is not None and group.child == "running" and group.doomed == killed

    places = (*PLACES, "group")
    kind = "killed" if killed else "exit"
    return Event(name, kind, "child", places, places, effect, guard, when=("group",))


def _helper_ends() -> Event:
    def guard(group: Group | None) -> bool:
        return group is not None and group.helper

    return Event(
        "the helper ends",
        "helper",
        "helper",
        ("group",),
        ("group",),
        lambda group: ((evolve(group, helper=False),), None),
        guard,
    )


def _pipes_end() -> Event:
    def effect(sup: Supervision, world: World, record: Record, group: Group) -> Effect:
        written, actions = happen(Happening.PIPES_ENDED, sup, evolve(world, piping=False), record)
        return written, actions

    def guard(world: World | None, group: Group | None) -> bool:
        return world is not None and world.piping and world.reading and group is not None and not group.helper

    reads = (*PLACES, "group")
    return Event("the pipes end", "pipes", "kernel", reads, PLACES, effect, guard, when=("world", "group"))


def _on_sup(
    kind: str,
    name: str,
    actor: str,
    happening: Happening,
    guard: Callable[[Supervision, World], bool],
    change: Callable[[World], World] = lambda world: world,
) -> Event:
    def effect(sup: Supervision, world: World, record: Record) -> Effect:
        return happen(happening, sup, change(world), record)

    def may(sup: Supervision | None, world: World | None) -> bool:
        return sup is not None and world is not None and guard(sup, world)

    args = {"happening": happening}
    return Event(name, kind, actor, PLACES, PLACES, effect, may, args, when=("sup", "world"))


def _look(when: str, waited: float) -> Event:
    """One look of an escalation at the group; at the end of the grace it may have to kill."""

    def effect(sup: Supervision, world: World, record: Record, group: Group) -> Effect:
        step = supervision.escalate(group.alive, waited, GRACE)
        if step.send_kill:
            group = evolve(group, doomed=group.child == "running", helper=False)
        if step.finished:
            (sup, world, record), _ = _ended(sup, world, record)  # type: ignore[assignment]
        return (sup, world, record, group), step

    def guard(world: World | None) -> bool:
        return world is not None and world.escalating

    places = (*PLACES, "group")
    name, args = f"the escalation looks {when}", {"waited": waited}
    return Event(name, "look", "timer", places, places, effect, guard, args, when=("world",))


def _ended(sup: Supervision, world: World, record: Record) -> Effect:
    return happen(Happening.ESCALATION_ENDED, sup, evolve(world, escalating=False, held=False), record)


def _poll(how: str, signalled: bool, starved: bool) -> Event:
    """A poll, with what the kernel says of the child's end, which only matters once there is one."""

    def effect(sup: Supervision, record: Record) -> Effect:
        record, shown = execs.poll(record)
        if not shown:
            return (), record.phase
        return (), supervision.cause(sup, signalled, starved)

    def guard(record: Record | None) -> bool:
        return record is not None

    name, args = (
        f"the client polls; if the child ended, it {how}",
        {"signalled": signalled, "starved": starved},
    )
    return Event(name, "poll", "client", ("sup", "record"), (), effect, guard, args, when=("record",))


ENDS = (
    ("exited", False, False),
    ("was killed by a signal", True, False),
    ("was killed for memory", True, True),
    ("exited, while another was killed for memory", False, True),
)


def _ack() -> Event:
    def effect(record: Record) -> Effect:
        acked, verdict = execs.ack(record, 0.0)
        return (acked,), verdict

    def guard(record: Record | None) -> bool:
        return record is not None

    return Event("the client acks", "ack", "client", ("record",), ("record",), effect, guard)


def _validate(timeout: float | None) -> Event:
    """What a start request's time-out means, before there is anything to time."""

    def effect() -> Effect:
        return (), supervision.valid_timeout(timeout) and ("after", supervision.deadline(timeout))

    return Event(
        f"a start asks for the time-out {timeout}",
        "timeout",
        "client",
        (),
        (),
        effect,
        None,
        {"timeout": timeout},
    )


def events(late: bool, helpers: bool) -> tuple[Event, ...]:
    """Every event; `late` lets callbacks come after what made them pointless."""
    found = [
        _start(reap, timeout, helper)
        for reap in (False, True)
        for timeout in (False, True)
        for helper in ((False, True) if helpers else (False,))
    ]
    found += [
        _dies("the child ends"),
        _dies("KILL ends the child", killed=True),
        _helper_ends(),
        _pipes_end(),
        _on_sup(
            "deadline", "the deadline comes", "timer", Happening.DEADLINE, lambda s, w: w.deadline, _spent
        ),
        _on_sup("kill", "somebody asks to kill", "client", Happening.KILL, lambda s, w: w.escalations < 2),
        _on_sup(
            "linger",
            "the linger is over",
            "timer",
            Happening.LINGER_EXPIRED,
            lambda s, w: w.linger,
            _lingered,
        ),
        _look("before its grace is over", 0.0),
        _look("at the end of its grace", GRACE),
        *(_poll(*end) for end in ENDS),
        _ack(),
        *(_validate(timeout) for timeout in DEADLINES),
    ]
    if late:
        for happening in (
            Happening.EXITED,
            Happening.DEADLINE,
            Happening.PIPES_ENDED,
            Happening.LINGER_EXPIRED,
        ):
            name = f"{happening.value} comes once more"
            found.append(_on_sup("late", name, "kernel", happening, _over(happening)))
        found.append(
            _on_sup(
                "stray", "an escalation ends once more", "timer", Happening.ESCALATION_ENDED, _not_escalating
            )
        )
    return tuple(found)


def _spent(world: World) -> World:
    return evolve(world, deadline=False)


def _lingered(world: World) -> World:
    return evolve(world, linger=False)


def _not_escalating(sup: Supervision, world: World) -> bool:
    return not world.escalating


def _over(happening: Happening) -> Callable[[Supervision, World], bool]:
    """Whether something that can only be late would come now."""

    def late(sup: Supervision, world: World) -> bool:
        if happening is Happening.EXITED:
            return sup.exited
        if happening is Happening.DEADLINE:
            return sup.exited or sup.timed_out
        if happening is Happening.PIPES_ENDED:
            return sup.published or sup.pipes_ended
        return sup.published or not world.lingers

    return late


def build(config: str, *, late: bool, helpers: bool) -> Model:
    """The model, with or without late callbacks and with or without helpers."""
    return Model(
        "supervision",
        config,
        (
            Component("sup", None, meaning="what the rules know"),
            Component("world", None, meaning="timers, pipes, and what was done"),
            Component("record", None, meaning="the exec's record"),
            Component("group", None, meaning="the processes there really are"),
        ),
        events(late, helpers),
        properties(late=late, helpers=helpers),
        bounds={"escalations": 3, "late callbacks": late, "helpers": helpers},
        meaning="a child from spawn to published result, in whatever order things come",
    )


CONFIGS = {
    "racing": Config(lambda name: build(name, late=True, helpers=True)),
}

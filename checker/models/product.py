"""Bootstrap, execs, a stream of one exec's output, and the daemon's own life, together.

The parts are the events and components of `bootstrap_exec`, `output` and `lifecycle`. They meet where the daemon
has them meet: a stopped daemon serves nothing; a start of an unknown id is refused while draining; exec 0 writes
while it runs, and its exit closes its output; whoever attaches to that output needs the token, and is a request in
flight as long as it is attached; the drain deadline cuts it off.

``small`` is searched with everything else. ``large`` has more ids, hooks and bytes, and some hundred million states.
"""

from collections.abc import Hashable
from typing import Final, cast

from attrs import evolve

from agentd.rules import lifecycle
from agentd.rules.bootstrap import Access, Bootstrap
from agentd.rules.execs import Phase, Record, Start
from agentd.rules.lifecycle import Lifecycle, Stage, TerminateMode
from agentd.rules.output import Span
from checker.model import Component, Event, Model
from checker.models import Config, output
from checker.models import lifecycle as life_model
from checker.models.bootstrap_exec import CALLERS, UNKNOWN, Boot, admit, exec_events, exec_name
from checker.models.compose import Now, tied
from checker.models.output import Head, Reader
from checker.models.product_properties import DRAINING, properties

STREAMED: Final = 0
"""The exec whose output is streamed."""


# --- Where the parts meet ----------------------------------------------------------------------------------


def _life(now: Now) -> Lifecycle:
    return cast("Lifecycle", now["life"])


def _up(now: Now) -> bool:
    """Whether the daemon still does anything."""
    return _life(now).stage is not Stage.STOPPED


def _follows(now: Now) -> bool:
    """Whether a reader is attached and not done."""
    reader = now["reader.0"]
    return isinstance(reader, Reader) and not reader.ended


def _streamed(now: Now) -> Record | None:
    return cast("Record | None", now[exec_name(STREAMED)])


def _cut(now: Now, then: dict[str, Hashable], response: Hashable) -> None:
    """A daemon that has stopped has nobody attached."""
    if not _up(then):
        then["reader.0"] = None


# --- Events ------------------------------------------------------------------------------------------------


def _start(event: Event) -> Event:
    """A start: refused while draining if it would spawn."""
    number, token = cast("int", event.args["id"]), cast("bytes", event.args["token"])
    streamed = number == STREAMED
    span = ("span", "head.stdout")

    def before(now: Now) -> Hashable:
        granted = admit(cast("Boot", now["boot"]), token) is Access.GRANTED
        new = now[exec_name(number)] is None
        return DRAINING if granted and new and not lifecycle.may_start(_life(now)) else None

    def within(now: Now) -> bool:
        # An id comes back with another output; who follows the old one is let to its end first.
        return _up(now) and not (streamed and now[exec_name(number)] is None and now["reader.0"] is not None)

    def after(now: Now, then: dict[str, Hashable], response: Hashable) -> None:
        if streamed and response is Start.SPAWN:
            then["span"], then["head.stdout"] = Span(), Head()

    return tied(
        event,
        reads=("boot", "life", *(span if streamed else ())),
        writes=span if streamed else (),
        within=within,
        looks=("life", exec_name(number), "reader.0") if streamed else ("life",),
        before=before,
        after=after,
    )


def _exit(event: Event) -> Event:
    """The exit of the exec that is streamed: its output is closed when the result is published."""

    def after(now: Now, then: dict[str, Hashable], response: Hashable) -> None:
        (then["span"],), _ = CLOSE.effect(then["span"])

    return tied(event, reads=("span",), writes=("span",), within=_up, looks=("life",), after=after)


def _part(event: Event) -> Event:
    """An event of bootstrap and execs, while the daemon is there."""
    if event.kind in ("start", "start_unspawned"):
        return _start(event)
    if event.kind == "exit" and event.args["id"] == STREAMED:
        return _exit(event)
    return tied(event, within=_up, looks=("life",))


def _life_event(event: Event) -> Event:
    """An event of the daemon's life: a stream is one of the requests in flight, and not one that just ends."""
    looks = ("life", "reader.0")
    if event.kind == "end":
        return tied(event, within=lambda now: _up(now) and _life(now).in_flight > _follows(now), looks=looks)
    return tied(event, reads=looks, writes=("reader.0",), within=_up, looks=("life",), after=_cut)


CLOSE: Final = output.close_event()


def _write(count: int, most: int) -> Event:
    def within(now: Now) -> bool:
        record = _streamed(now)
        return _up(now) and record is not None and record.phase is Phase.RUNNING

    event = output.write_event("stdout", count, most)
    return tied(event, within=within, looks=("life", exec_name(STREAMED)))


def _attach(actor: str, token: bytes) -> Event:
    """A caller attaches to the output from its beginning, if it may and there is one."""

    def before(now: Now) -> Hashable:
        access = admit(cast("Boot", now["boot"]), token)
        if access is not Access.GRANTED:
            return access
        return UNKNOWN if _streamed(now) is None else None

    def after(now: Now, then: dict[str, Hashable], response: Hashable) -> None:
        then["life"] = lifecycle.request_began(_life(now))

    def within(now: Now) -> bool:
        return _up(now) and _life(now).in_flight < life_model.REQUESTS

    event = output.attach_event(0, 0)
    tied_event = tied(
        event,
        reads=("boot", exec_name(STREAMED)),
        writes=("life",),
        within=within,
        looks=("life",),
        before=before,
        after=after,
    )
    name = f"{actor} attaches to exec {STREAMED}"
    return evolve(tied_event, name=name, actor=actor, args={**event.args, "token": token})


def _left(now: Now, then: dict[str, Hashable], response: Hashable) -> None:
    """A stream that is over is no request any more."""
    if _follows(now) and not _follows(then):
        then["life"] = lifecycle.request_ended(_life(now))


def events(ids: int, hooks: int, starts: int, most: int) -> tuple[Event, ...]:
    """Every event within bounds."""
    return (
        *map(_part, exec_events(ids, hooks, starts, True)),
        *(_life_event(event) for event in life_model.events() if event.kind != "start"),
        *(_write(count, most) for count in (1, 2)),
        *(_attach(actor, token) for actor, token in CALLERS),
        tied(output.deliver_event(0), reads=("life",), writes=("life",), after=_left),
        tied(output.detach_event(0), reads=("life",), writes=("life",), after=_left),
    )


# --- Configurations ----------------------------------------------------------------------------------------


def build(config: str, ids: int, hooks: int, starts: int, most: int) -> Model:
    """The product within bounds: exec ids, run hooks, starts of an id, and bytes that exec 0 writes."""
    names = [exec_name(number) for number in range(ids)]
    return Model(
        "product",
        config,
        (
            Component("boot", (Bootstrap(), "nobody"), meaning="what is installed, and by whom"),
            Component("hooks_seen", 0, meaning="run hooks so far, to bound them"),
            Component("life", Lifecycle(), meaning="the stage, and requests in flight"),
            Component("mode", TerminateMode.DRAIN, meaning="what the terminate hook does"),
            Component("span", Span(), meaning="the output of exec 0"),
            Component("head.stdout", Head(), "head"),
            Component("reader.0", None, "reader", "who is attached to that output"),
            *(Component(name, None, "exec", "one exec's record") for name in names),
        ),
        events(ids, hooks, starts, most),
        properties(),
        (tuple((name,) for name in names[1:]),) if ids > 2 else (),
        bounds={"ids": ids, "hooks": hooks, "starts": starts, "bytes": most},
        meaning="bootstrap, execs, a stream and the daemon's life, together",
    )


CONFIGS = {
    "small": Config(lambda name: build(name, 1, 2, 1, 2)),
    "two_ids": Config(lambda name: build(name, 2, 2, 2, 4), default=False),
    "large": Config(lambda name: build(name, 5, 2, 3, 7), default=False),
}

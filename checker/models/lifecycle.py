"""The daemon's own end: contract a.1, i.7, over `rules.lifecycle`.

Requests come and go, SIGTERM or a terminate hook asks the daemon to leave, and the drain has a deadline. The
configurations are the two settings of the knob that says what the terminate hook does.
"""

from collections.abc import Hashable

from agentd.rules import lifecycle
from agentd.rules.lifecycle import Lifecycle, Stage, TerminateMode
from checker.model import Component, Edge, Event, Model, Values
from checker.models import Config
from checker.properties import (
    Always,
    EdgePredicate,
    Fair,
    LeadsTo,
    OnEdge,
    Property,
    SometimesOnEdge,
    response_table,
    unchanged_by,
)

REQUESTS = 3
"""Requests in flight at a time."""


def _on_life(kind: str, name: str, actor: str) -> Event:
    """One thing that happens to the daemon's life; what it means is looked up when it happens."""

    def effect(life: Lifecycle, mode: TerminateMode) -> tuple[Values, Hashable]:
        then = {
            "terminate": lambda: lifecycle.terminate(life, mode),
            "signal": lambda: lifecycle.stop(life),
            "begin": lambda: lifecycle.request_began(life),
            "end": lambda: lifecycle.request_ended(life),
            "expire": lambda: lifecycle.drain_expired(life),
            "start": lambda: life,
        }[kind]()
        return (then,), lifecycle.may_start(life) if kind == "start" else then.stage

    def guard(life: Lifecycle, mode: TerminateMode) -> bool:
        if kind == "begin":
            return life.stage is not Stage.STOPPED and life.in_flight < REQUESTS
        return kind != "end" or life.in_flight > 0

    return Event(name, kind, actor, ("life", "mode"), ("life",), effect, guard)


def events() -> tuple[Event, ...]:
    """Every event."""
    return (
        _on_life("terminate", "the terminate hook was answered", "platform"),
        _on_life("signal", "SIGTERM comes", "kernel"),
        _on_life("begin", "a request begins", "client"),
        _on_life("end", "a request ends", "client"),
        _on_life("expire", "the drain deadline passes", "timer"),
        _on_life("start", "a client asks for an exec", "client"),
    )


def _before(edge: Edge) -> Lifecycle:
    life = edge.before["life"]
    assert isinstance(life, Lifecycle)
    return life


def _after(edge: Edge) -> Lifecycle:
    life = edge.after["life"]
    assert isinstance(life, Lifecycle)
    return life


ORDER = (Stage.SERVING, Stage.DRAINING, Stage.STOPPED)
ALL = frozenset({"terminate", "signal", "begin", "end", "expire"})


def _edge(
    name: str, kinds: set[str], holds: EdgePredicate, witness: str, faults: tuple[str, ...], meaning: str
) -> OnEdge:
    return OnEdge(
        name=name, kinds=frozenset(kinds), holds=holds, witness=witness, faults=faults, meaning=meaning
    )


def _drains(edge: Edge) -> bool:
    """A serving daemon drains, which is over at once when nothing is in flight."""
    then = Stage.DRAINING if _before(edge).in_flight else Stage.STOPPED
    return _before(edge).stage is not Stage.SERVING or _after(edge) == Lifecycle(
        then, _before(edge).in_flight
    )


def properties(mode: TerminateMode) -> tuple[Property, ...]:
    """Every property, for one setting of the knob."""
    if mode is TerminateMode.DRAIN:
        terminate: Property = _edge(
            "a terminate hook drains",
            {"terminate"},
            _drains,
            "a terminate finds requests in flight",
            (
                "a terminate hook is forgotten",
                "a drain does not stop an idle daemon",
                "a terminate cuts requests off",
            ),
            "Stop taking on work, finish what is in flight, leave.",
        )
    else:
        terminate = unchanged_by(
            "a terminate hook is only acknowledged",
            ("terminate",),
            witness="a terminate finds requests in flight",
            faults=("every terminate hook drains",),
            meaning="The knob keeps any process of the VM from stopping the daemon.",
        )
    return (
        terminate,
        _edge(
            "a signal drains",
            {"signal"},
            _drains,
            "a signal finds requests in flight",
            ("a signal is forgotten", "a drain does not stop an idle daemon", "a drain cuts requests off"),
            "Whatever the knob says (i.7).",
        ),
        _edge(
            "requests in flight are counted",
            {"begin", "end"},
            lambda e: _after(e).in_flight - _before(e).in_flight == (1 if e.event.kind == "begin" else -1),
            "a request ends while draining",
            ("a request is not counted", "a request never ends"),
            "Each once when it begins and once when it ends.",
        ),
        _edge(
            "a stage is never left for an earlier one",
            set(ALL),
            lambda e: ORDER.index(_after(e).stage) >= ORDER.index(_before(e).stage),
            "a request ends while draining",
            ("a request revives the daemon", "a terminate hook revives the daemon"),
            "Serving, draining, stopped.",
        ),
        Always(
            name="a daemon that drains has requests in flight",
            reads=("life",),
            holds=lambda life: life.stage is not Stage.DRAINING or life.in_flight > 0,
            witness="a request ends while draining",
            faults=(
                "the last request does not stop a draining daemon",
                "a drain does not stop an idle daemon",
            ),
            meaning="With the last of them it is done.",
        ),
        _edge(
            "a daemon stops only when it may",
            set(ALL),
            lambda e: (
                _after(e).stage is not Stage.STOPPED
                or _before(e).stage is Stage.STOPPED
                or _after(e).in_flight == 0
                or (e.event.kind == "expire" and _before(e).stage is Stage.DRAINING)
            ),
            "the drain deadline cuts a request off",
            ("a drain cuts requests off", "a serving daemon can expire"),
            "When nothing is in flight any more, or the drain has taken too long.",
        ),
        _edge(
            "the drain deadline ends a drain and nothing else",
            {"expire"},
            lambda e: (
                _after(e)
                == (
                    Lifecycle(Stage.STOPPED, _before(e).in_flight)
                    if _before(e).stage is Stage.DRAINING
                    else _before(e)
                )
            ),
            "the drain deadline cuts a request off",
            ("a serving daemon can expire", "a drain never expires"),
            "A drain has a deadline.",
        ),
        _edge(
            "serving goes on until it is asked to end",
            {"begin", "end", "expire"},
            lambda e: _before(e).stage is not Stage.SERVING or _after(e).stage is Stage.SERVING,
            "the last request ends while serving",
            ("an idle daemon stops", "a serving daemon can expire"),
            "No request and no timer ends a daemon that nobody asked to leave.",
        ),
        response_table(
            "execs are taken on exactly while serving",
            ("start",),
            case=lambda e: _before(e).stage,
            table={Stage.SERVING: True, Stage.DRAINING: False, Stage.STOPPED: False},
            witness="an exec is asked for while draining",
            faults=("a draining daemon takes on execs", "no exec is taken on"),
            meaning="While draining, new execs are refused; everything owed is still given.",
        ),
        LeadsTo(
            name="every drain ends",
            reads=("life",),
            when=lambda life: life.stage is Stage.DRAINING,
            then=lambda life: life.stage is Stage.STOPPED,
            fair=(Fair(frozenset({"expire"})),),
            witness="the drain deadline cuts a request off",
            faults=("a drain never expires",),
            meaning="Requests that never end do not keep the daemon.",
        ),
        *_witnesses(),
    )


def _some(name: str, kind: str, holds: EdgePredicate) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, kinds=frozenset({kind}), holds=holds)


def _witnesses() -> tuple[Property, ...]:
    return (
        _some("a terminate finds requests in flight", "terminate", lambda e: _before(e).in_flight > 0),
        _some("a signal finds requests in flight", "signal", lambda e: _before(e).in_flight > 0),
        _some("a request ends while draining", "end", lambda e: _before(e).stage is Stage.DRAINING),
        _some(
            "the last request ends while serving",
            "end",
            lambda e: _before(e) == Lifecycle(Stage.SERVING, 1),
        ),
        _some(
            "the drain deadline cuts a request off",
            "expire",
            lambda e: _after(e).stage is Stage.STOPPED and _after(e).in_flight > 0,
        ),
        _some("an exec is asked for while draining", "start", lambda e: _before(e).stage is Stage.DRAINING),
    )


def build(config: str, mode: TerminateMode) -> Model:
    """The model for one setting of the knob."""
    return Model(
        "lifecycle",
        config,
        (
            Component("life", Lifecycle(), meaning="the stage, and requests in flight"),
            Component("mode", mode, meaning="what the terminate hook does"),
        ),
        events(),
        properties(mode),
        bounds={"requests": REQUESTS},
        meaning="the daemon serving, draining and stopped",
    )


CONFIGS = {
    "drain": Config(lambda name: build(name, TerminateMode.DRAIN)),
    "acknowledge": Config(lambda name: build(name, TerminateMode.ACKNOWLEDGE)),
}

"""A process that writes, and the long poll and the attached client that read what it writes."""

from collections.abc import Hashable

from attrs import evolve

from agentd.rules import output, processes
from agentd.rules.output import End
from agentd.rules.processes import Poll, Slots, Verdict
from checker.model import Event
from checker.models.processes_table import answered, on_process, told_all
from checker.models.processes_terms import (
    MOST,
    NOWHERE,
    REPLY,
    WINDOW,
    Asked,
    Attached,
    Effect,
    Process,
    in_table,
    proc_name,
    started,
)


def output_events(number: int) -> tuple[Event, ...]:
    """A process that writes, the long poll and the attached client that read what it writes."""
    place = proc_name(number)

    def writes(process: object) -> bool:
        return isinstance(process, Process) and started(process) and not process.span.closed

    def read(count: int) -> Event:
        def operation(slots: Slots, process: Process) -> tuple[Slots, Process, Hashable]:
            span = output.publish(process.span, count, WINDOW)
            # A read that completes no character adds nothing to the log, and there is more to read.
            return slots, evolve(process, span=span, unread=not count), None

        def guard(process: object) -> bool:
            return isinstance(process, Process) and process.unread and process.span.total + count <= MOST

        def change(poll: Poll, process: Process) -> tuple[Poll, Verdict]:
            return processes.changed(poll, process.span, REPLY)

        name = f"{count} bytes of process {number} are read"
        return told_all("read", name, number, ("poll",), operation, change, guard, {"count": count})

    def may_write(process: object) -> bool:
        return isinstance(process, Process) and writes(process) and process.span.total < MOST

    return (
        on_process(
            "write",
            f"process {number} writes",
            "child",
            number,
            lambda process: (evolve(process, unread=True), None),
            may_write,
        ),
        *(read(count) for count in (0, 1, 2)),
        *(_poll(place, since, patient) for since in (0, 3, MOST + 1) for patient in (True, False)),
        _times_out(place),
        Event(
            "the poll's client leaves",
            "leave",
            "client",
            ("poll",),
            ("poll",),
            lambda asked: ((None,), None),
            lambda asked: asked is not None,
        ),
        _attach(place),
        _attend(place),
        _detach(),
    )


def _poll(place: str, since: int, patient: bool) -> Event:
    def effect(process: Process | None, asked: None) -> Effect:
        if process is None or not in_table(process):
            return (asked,), NOWHERE
        after, told = answered(None, process, processes.ask(since, process.span, patient))
        return (after,), told

    def guard(asked: object) -> bool:
        return asked is None

    name = f"a client polls from {since}" + ("" if patient else ", and does not wait")
    args = {"id": 0, "since": since, "patient": patient}
    return Event(name, "poll", "client", (place, "poll"), ("poll",), effect, guard, args, when=("poll",))


def _times_out(place: str) -> Event:
    def effect(process: Process | None, asked: Asked) -> Effect:
        after, told = answered(asked, process or Process(), processes.expired(asked.poll))
        return (after,), told

    def guard(asked: object) -> bool:
        return asked is not None

    name = "the time of the poll is over"
    places = (place, "poll")
    return Event(name, "expire", "timer", places, ("poll",), effect, guard, {"id": 0}, when=("poll",))


def _attach(place: str) -> Event:
    def guard(attached: object) -> bool:
        return attached is None

    def effect(process: Process | None, attached: None) -> Effect:
        return ((Attached(),), None) if in_table(process) else ((None,), NOWHERE)

    places, args = (place, "attached"), {"id": 0}
    return Event(
        "a client attaches",
        "attach",
        "client",
        places,
        ("attached",),
        effect,
        guard,
        args,
        when=("attached",),
    )


def _attend(place: str) -> Event:
    """The attached client is served what is next; it is told of the exit at the end of all output."""

    def effect(process: Process, attached: Attached) -> Effect:
        step = output.next_step(attached.cursor, process.span, REPLY)
        assert process.record is not None
        told = attached.told + isinstance(step, End)
        after = Attached(output.advance(attached.cursor, step), min(2, told))
        return (after,), (step, processes.shows_exit(process.record))

    def guard(attached: object) -> bool:
        return isinstance(attached, Attached) and not attached.told

    places, args = (place, "attached"), {"id": 0}
    name = "the attached client is served"
    return Event(name, "attend", "daemon", places, ("attached",), effect, guard, args, when=("attached",))


def _detach() -> Event:
    return Event(
        "the attached client leaves",
        "detach",
        "client",
        ("attached",),
        ("attached",),
        lambda attached: ((None,), None),
        lambda attached: attached is not None,
        {"id": 0},
    )

"""What happens to the table of processes: starts, exits, reaps, drains, signals, deletions.

The functions at the top stand for what `agentd.environments.table` does around the rules, and faults are planted in
them as in rules.
"""

from collections.abc import Callable, Hashable

from attrs import evolve

from agentd.rules import output, processes
from agentd.rules.processes import Poll, Slots, Verdict
from checker.model import Event
from checker.models.processes_terms import (
    NOWHERE,
    REPLY,
    Asked,
    Effect,
    Leader,
    Process,
    Reply,
    in_table,
    proc_name,
    started,
)

Operation = Callable[[Slots, Process], tuple[Slots, Process | None, Hashable]]

# --- What stands for the daemon's table --------------------------------------------------------------------


def begins(slots: Slots) -> tuple[Slots, bool]:
    """A request for a start: whether it has a slot."""
    taken = processes.reserve(slots)
    return (slots, False) if taken is None else (taken, True)


def fails(slots: Slots) -> Slots:
    """A start that has a slot fails."""
    return processes.release(slots)


def sends(process: Process) -> tuple[Process, str]:
    """A signal request, or the daemon on its way out: KILL, if anything may be sent."""
    assert process.record is not None
    if not processes.may_signal(process.record):
        return process, "nothing"
    return _killed(process), "sent"


def deletes(slots: Slots, process: Process) -> tuple[Slots, Process, str]:
    """A deletion of what is in the table."""
    assert process.record is not None
    record, kill = processes.delete(process.record)
    process = evolve(process, record=record)
    return processes.release(slots), _killed(process) if kill else process, "killed" if kill else "removed"


def drains(slots: Slots, process: Process) -> tuple[Slots, Process]:
    """The pipes have ended or fallen silent: the output is complete, and the exit can be shown."""
    assert process.record is not None
    return slots, evolve(process, span=output.close(process.span), record=processes.published(process.record))


def answered(asked: Asked | None, process: Process, step: tuple[Poll, Verdict]) -> tuple[Asked, Reply]:
    """Put a long poll where a rule says, and answer it if the rule says so."""
    poll, verdict = step
    answers = 0 if asked is None else asked.answers
    if verdict in (Verdict.WAIT, Verdict.COLLECT):
        return Asked(poll, answers), Reply(verdict)
    after = Asked(poll, min(2, answers + 1))
    if verdict is not Verdict.ANSWER:
        return after, Reply(verdict)
    assert process.record is not None
    page = processes.page(poll.since, process.span, REPLY)
    final = processes.final(page.end, process.span)
    return after, Reply(verdict, page, final, processes.shows_exit(process.record))


def _killed(process: Process) -> Process:
    return evolve(process, leader=Leader.DOOMED) if process.leader is Leader.ALIVE else process


def _over(process: object) -> bool:
    """Whether a process was deleted and its end is known."""
    record = process.record if isinstance(process, Process) else None
    return record is not None and record.deleted and processes.shows_exit(record)


# --- Events ------------------------------------------------------------------------------------------------


def _on_slots(
    kind: str, name: str, actor: str, number: int, operation: Operation, guard: Callable[[object], bool]
) -> Event:
    place = proc_name(number)

    def effect(slots: Slots, process: Process) -> Effect:
        slots, then, response = operation(slots, process)
        return (slots, then), response

    places = ("slots", place)
    return Event(name, kind, actor, places, places, effect, guard, {"id": number}, when=(place,))


def on_process(
    kind: str,
    name: str,
    actor: str,
    number: int,
    operation: Callable[[Process], tuple[Process | None, Hashable]],
    guard: Callable[[object], bool],
) -> Event:
    place = proc_name(number)

    def effect(process: Process) -> Effect:
        then, response = operation(process)
        return (then,), response

    return Event(name, kind, actor, (place,), (place,), effect, guard, {"id": number})


def _asks(number: int) -> Event:
    place = proc_name(number)

    def effect(slots: Slots, process: Process | None) -> Effect:
        slots, begun = begins(slots)
        return (slots, Process() if begun else process), begun

    places = ("slots", place)
    name = f"a request asks for process {number}"
    return Event(
        name, "ask", "client", places, places, effect, lambda p: p is None, {"id": number}, when=(place,)
    )


def _starting(process: object) -> bool:
    return isinstance(process, Process) and process.record is None


def _leads(*leaders: Leader) -> Callable[[object], bool]:
    return lambda process: isinstance(process, Process) and started(process) and process.leader in leaders


def _reaps(process: Process) -> tuple[Process, Hashable]:
    assert process.record is not None
    return evolve(process, leader=Leader.REAPED, record=processes.reaped(process.record)), None


def _looks(process: Process) -> tuple[Process, Hashable]:
    if not in_table(process) or process.record is None:
        return process, NOWHERE
    return process, processes.shows_exit(process.record)


def _signals(process: Process) -> tuple[Process, Hashable]:
    return sends(process) if in_table(process) else (process, NOWHERE)


def table_events(number: int) -> tuple[Event, ...]:
    """What happens to one process, but for what its readers have a part in."""

    def start_fails(slots: Slots, process: Process) -> tuple[Slots, Process | None, Hashable]:
        return fails(slots), None, None

    return (
        _asks(number),
        on_process(
            "started",
            f"the start of process {number} succeeds",
            "daemon",
            number,
            lambda process: (evolve(process, record=processes.Record()), None),
            _starting,
        ),
        _on_slots("failed", f"the start of process {number} fails", "daemon", number, start_fails, _starting),
        on_process(
            "exit",
            f"the leader of process {number} exits",
            "child",
            number,
            lambda process: (evolve(process, leader=Leader.ZOMBIE), None),
            _leads(Leader.ALIVE),
        ),
        on_process(
            "killed",
            f"KILL ends the leader of process {number}",
            "kernel",
            number,
            lambda process: (evolve(process, leader=Leader.ZOMBIE), None),
            _leads(Leader.DOOMED),
        ),
        on_process("reap", f"process {number} is reaped", "daemon", number, _reaps, _leads(Leader.ZOMBIE)),
        on_process(
            "late_reap",
            f"the reaping of process {number} is noticed once more",
            "daemon",
            number,
            _reaps,
            _leads(Leader.REAPED),
        ),
        on_process("signal", f"a client signals process {number}", "client", number, _signals, started),
        on_process("stop", f"the daemon stops process {number}", "daemon", number, sends, started),
        on_process("look", f"a client looks at process {number}", "client", number, _looks, started),
    )


def _drainable(process: object) -> bool:
    return (
        isinstance(process, Process)
        and process.record is not None
        and process.leader is Leader.REAPED
        and not process.span.closed
        and not process.unread
    )


def told_all(
    kind: str,
    name: str,
    number: int,
    others: tuple[str, ...],
    operation: Callable[[Slots, Process], tuple[Slots, Process, Hashable]],
    wakes: Callable[[Poll, Process], tuple[Poll, Verdict]],
    guard: Callable[[object], bool],
    args: dict[str, Hashable] | None = None,
) -> Event:
    """Something that changes a process and `others`, and that a long poll is told of if it is among those."""
    place = proc_name(number)
    places = (place, *others)

    def effect(*values: Hashable) -> Effect:
        now = dict(zip(places, values, strict=True))
        slots, process, response = operation(now.get("slots"), now[place])  # type: ignore[arg-type]
        then: dict[str, Hashable] = {**now, "slots": slots}
        asked = now.get("poll")
        if isinstance(asked, Asked):
            then["poll"], told = answered(asked, process, wakes(asked.poll, process))
            response = told if response is None else (response, told)
        then[place] = process
        return tuple(then[one] for one in places), response

    return Event(
        name,
        kind,
        "client" if kind == "delete" else "daemon",
        places,
        places,
        effect,
        guard,
        {"id": number, **(args or {})},
        when=(place,),
    )


def shared_events(number: int, read: bool) -> tuple[Event, ...]:
    def delete(slots: Slots, process: Process) -> tuple[Slots, Process, Hashable]:
        return deletes(slots, process) if in_table(process) else (slots, process, NOWHERE)

    def drain(slots: Slots, process: Process) -> tuple[Slots, Process, Hashable]:
        return (*drains(slots, process), None)

    def forget(poll: Poll, process: Process) -> tuple[Poll, Verdict]:
        return processes.forgotten(poll)

    def change(poll: Poll, process: Process) -> tuple[Poll, Verdict]:
        return processes.changed(poll, process.span, REPLY)

    others = ("slots", "poll") if read else ("slots",)
    return (
        told_all("delete", f"a client deletes process {number}", number, others, delete, forget, started),
        told_all("drain", f"process {number} is drained", number, others, drain, change, _drainable),
        _lets_go(number, read),
    )


def _lets_go(number: int, read: bool) -> Event:
    """A deleted process whose end is known to all who are attached is no longer kept."""
    place = proc_name(number)

    def guard(process: object, attached: object = None) -> bool:
        return _over(process) and attached is None

    return Event(
        f"process {number} is let go",
        "let_go",
        "daemon",
        (place, "attached") if read else (place,),
        (place,),
        lambda *_: ((None,), None),
        guard,
        {"id": number},
    )

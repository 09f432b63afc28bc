"""The background processes of an environment: environments 6 to 8, over `rules.processes` and `rules.output`.

More requests for a start come at once than there are slots; children exit, are reaped and drained, are signalled
and deleted, in any order; a long poll and an attached client read one process' output meanwhile. A number that
was reaped may be anybody's, so that whatever is still sent to it is sent to a stranger: the kernel's view of each
leader is in the state beside the record.

``slots`` is about the table, ``polls`` about the readers, ``stdin`` about the queue before a process' stdin;
``together`` has the first two in one.
"""

from agentd.rules.processes import Slots
from checker.model import Component, Event, Model
from checker.models import Config
from checker.models.processes_properties import table
from checker.models.processes_readers import output_events
from checker.models.processes_reading import reading
from checker.models.processes_stdin import input_events, stdin
from checker.models.processes_table import shared_events, table_events
from checker.models.processes_terms import LIMIT, MOST, QUEUE, proc_name


def build(config: str, ids: int, read: bool) -> Model:
    """The table with so many requests for a start, and with readers of the first process or without."""
    names = [proc_name(number) for number in range(ids)]
    events: list[Event] = []
    for number in range(ids):
        events += table_events(number)
        events += shared_events(number, read and number == 0)
    components = [Component("slots", Slots(LIMIT), meaning="how many records there may be, and are")]
    components += [Component(name, None, "proc", "a start, or a process") for name in names]
    properties = table(names, read) if ids > 1 else ()
    alike = names[1:] if read else names
    if read:
        events += output_events(0)
        components += [
            Component("poll", None, meaning="a long poll on process 0"),
            Component("attached", None, meaning="a client attached to process 0"),
        ]
        properties = (*properties, *reading())
    return Model(
        "processes",
        config,
        tuple(components),
        tuple(events),
        properties,
        (tuple((name,) for name in alike),) if len(alike) > 1 else (),
        bounds={"ids": ids, "limit": LIMIT, "bytes": MOST if read else 0},
        meaning="background processes: slots, records, signals, deletions and readers",
    )


CONFIGS = {
    "slots": Config(lambda name: build(name, LIMIT + 1, False)),
    "polls": Config(lambda name: build(name, 1, True)),
    "stdin": Config(
        lambda name: Model(
            "processes",
            name,
            (Component("input", None, meaning="what waits for a process to read it"),),
            input_events(),
            stdin(),
            bounds={"queue": QUEUE},
            meaning="the queue before a process' stdin",
        )
    ),
    "together": Config(lambda name: build(name, LIMIT + 1, True), default=False),
}

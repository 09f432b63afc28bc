"""Putting models together: an event of one of them, tied to what others have.

A product has the components and the events of its parts. Where the parts meet, an event takes in more: whether it
is offered depends on another part as well (`within`), it is refused before its own rules are asked (`before`), or
something else follows from what it did (`after`). The event's own effect stays the one of its model.
"""

from collections.abc import Callable, Hashable, Mapping

from attrs import evolve

from checker.model import Event, Values

Now = Mapping[str, Hashable]
"""Component to value, of those the event reads."""

Before = Callable[[Now], Hashable]
"""The answer with which the event is refused, or None."""

After = Callable[[Now, dict[str, Hashable], Hashable], None]
"""Takes what was, what is after the event's own effect, and its answer; changes the second."""


def tied(
    event: Event,
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    within: Callable[[Now], bool] | None = None,
    looks: tuple[str, ...] = (),
    before: Before | None = None,
    after: After | None = None,
) -> Event:
    """The event with more that it reads and writes. What it writes it has to read, by itself or by `reads`;
    `looks` is what `within` takes."""
    all_reads = tuple(dict.fromkeys((*event.reads, *looks, *reads)))
    own = () if event.guard is None else event.reads if event.when is None else event.when
    when = tuple(dict.fromkeys((*looks, *own)))
    all_writes = tuple(dict.fromkeys((*event.writes, *writes)))

    def effect(*values: Hashable) -> tuple[Values, Hashable]:
        now = dict(zip(all_reads, values, strict=True))
        if before is not None:
            refusal = before(now)
            if refusal is not None:
                return tuple(now[name] for name in all_writes), refusal
        written, response = event.effect(*(now[name] for name in event.reads))
        then = {**now, **dict(zip(event.writes, written, strict=True))}
        if after is not None:
            after(now, then, response)
        return tuple(then[name] for name in all_writes), response

    def guard(*values: Hashable) -> bool:
        now = dict(zip(when, values, strict=True))
        if within is not None and not within(now):
            return False
        return event.guard is None or event.guard(*(now[name] for name in own))

    return evolve(event, reads=all_reads, writes=all_writes, effect=effect, guard=guard, when=when)

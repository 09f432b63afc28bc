"""One exec's output and who reads it: contract d and c.5, over `rules.output`.

A child writes to two streams that share one offset space, of which a window of the last bytes can be replayed,
and closes them. Readers attach wherever they like, are slow as they like, and leave; each asks for its next
step, is given it, and comes back, at once or after it was held up. A reader follows live once it has had what there
was when it attached; only then may it be taken to the present when it owes too much. Beside the offsets there is the
head of each stream, which is what a poll returns.

Sizes are a few bytes where the daemon has thousands: the rules only compare and add them.
"""

from collections.abc import Callable, Hashable

from attrs import evolve, frozen

from agentd.rules import output
from agentd.rules.output import Bytes, End, Gap, Span, Wait
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
)

WINDOW, PIECE, SLACK, CAP = 4, 2, 2, 2
"""Bytes that can be replayed, of one delivery, that a live reader may owe, and of one head."""
STREAMS = ("stdout", "stderr")


@frozen
class Reader:
    """A reader that is attached."""

    cursor: int
    replay_end: int = 0
    """What there was when it attached; 0 once it has had that, when it does not matter any more."""
    ended: bool = False

    @property
    def live(self) -> bool:
        """Whether it has had its replay."""
        return self.cursor >= self.replay_end


@frozen
class Head:
    """What a poll has of one stream, and how much the stream has had."""

    held: int = 0
    truncated: bool = False
    seen: int = 0


# --- Events ------------------------------------------------------------------------------------------------


def write_event(stream: str, count: int, most: int) -> Event:
    """A piece of output is read from the child, as long as there are at most `most` bytes."""

    def effect(span: Span, head: Head) -> tuple[Values, Hashable]:
        kept, cut = output.head_room(head.held, CAP, count)
        head = Head(head.held + kept, head.truncated or cut, head.seen + count)
        return (output.publish(span, count, WINDOW), head), None

    def guard(span: Span, head: Head) -> bool:
        return not span.closed and span.total + count <= most

    places = ("span", f"head.{stream}")
    name = f"the child writes {count} to {stream}"
    return Event(name, "write", "child", places, places, effect, guard, {"count": count, "stream": stream})


def close_event() -> Event:
    """The child has closed its output."""
    return Event(
        "the child closes its output",
        "close",
        "child",
        ("span",),
        ("span",),
        lambda span: ((output.close(span),), None),
        lambda span: not span.closed,
    )


def attach_event(number: int, offset: int) -> Event:
    """A reader attaches, from some offset on."""
    place = f"reader.{number}"
    return Event(
        f"reader {number} attaches at {offset}",
        "attach",
        f"reader {number}",
        (place, "span"),
        (place,),
        lambda reader, span: ((_reading(offset, span.total),), None),
        lambda reader: reader is None,
        {"reader": number, "offset": offset},
        when=(place,),
    )


def _reading(cursor: int, replay_end: int, ended: bool = False) -> Reader:
    return Reader(cursor, replay_end if cursor < replay_end else 0, ended)


def deliver_event(number: int, held_up: bool = True) -> Event:
    """A reader is given what is next, once it could take it again or at once."""

    def effect(span: Span, reader: Reader) -> tuple[Values, Hashable]:
        slack = output.slack(held_up, reader.cursor, reader.replay_end, SLACK)
        step = output.next_step(reader.cursor, span, PIECE, slack)
        cursor = output.advance(reader.cursor, step)
        return (_reading(cursor, reader.replay_end, isinstance(step, End)),), step

    def guard(span: Span, reader: Reader | None) -> bool:
        return reader is not None and not reader.ended

    place = f"reader.{number}"
    name = f"reader {number} asks for what is next" + (", after a pause" if held_up else "")
    args = {"reader": number, "held_up": held_up}
    return Event(name, "deliver", f"reader {number}", ("span", place), (place,), effect, guard, args)


def detach_event(number: int) -> Event:
    """A reader leaves."""
    place = f"reader.{number}"
    return Event(
        f"reader {number} leaves",
        "detach",
        f"reader {number}",
        (place,),
        (place,),
        lambda reader: ((None,), None),
        lambda reader: reader is not None,
        {"reader": number},
    )


# --- Properties --------------------------------------------------------------------------------------------


def _span(edge: Edge) -> Span:
    span = edge.before["span"]
    assert isinstance(span, Span)
    return span


def _reader(values: dict[str, Hashable], edge: Edge) -> Reader:
    reader = values[f"reader.{edge.event.args['reader']}"]
    assert isinstance(reader, Reader)
    return reader


def _before(edge: Edge) -> Reader:
    return _reader(dict(edge.before), edge)


def _after(edge: Edge) -> Reader:
    return _reader(dict(edge.after), edge)


def _owes(edge: Edge) -> int:
    return _span(edge).total - _before(edge).cursor


def _overdue(edge: Edge) -> bool:
    """Whether a reader that follows live and was held up owes more than it may, with the writer still writing."""
    return (
        bool(edge.event.args["held_up"])
        and _before(edge).live
        and not _span(edge).closed
        and _owes(edge) > SLACK
    )


def _deliveries(
    name: str, holds: EdgePredicate, witness: str, faults: tuple[str, ...], meaning: str
) -> OnEdge:
    return OnEdge(
        name=name,
        kinds=frozenset({"deliver"}),
        holds=holds,
        witness=witness,
        faults=faults,
        meaning=meaning,
    )


def _tiles(edge: Edge) -> bool:
    step, before, after = edge.response, _before(edge).cursor, _after(edge).cursor
    if isinstance(step, (Bytes, Gap)):
        return step.start == before and step.end == after and step.end > step.start
    return after == before


def _readers() -> tuple[Property, ...]:
    return (
        _deliveries(
            "bytes and gaps tile",
            _tiles,
            "bytes are replayed",
            ("a gap is one byte short", "the cursor stands still", "bytes come twice"),
            "Each step begins where the one before ended, and ends further on: no hole and no overlap (d).",
        ),
        _deliveries(
            "only bytes that are there are delivered",
            lambda e: (
                not isinstance(e.response, Bytes)
                or (_span(e).start <= e.response.start and e.response.end <= _span(e).total)
            ),
            "bytes are replayed",
            ("bytes are taken from before the window", "bytes are taken from beyond the end"),
            "What is delivered is within the window and was written.",
        ),
        _deliveries(
            "a delivery is no larger than a piece",
            lambda e: not isinstance(e.response, Bytes) or e.response.end - e.response.start <= PIECE,
            "a delivery is a full piece",
            ("a delivery is all there is",),
            "Memory for a reader is bounded by the piece (b).",
        ),
        _deliveries(
            "a gap is what was lost",
            lambda e: (
                not isinstance(e.response, Gap)
                or e.response.end == (_span(e).total if _overdue(e) else _span(e).start)
            ),
            "a reader comes too late for the window",
            ("a gap skips the window", "a gap is one byte short"),
            "A gap ends where replay begins, or at the present for a live reader that owes too much (d).",
        ),
        _deliveries(
            "nothing that can be replayed is skipped",
            lambda e: not isinstance(e.response, Gap) or _overdue(e) or _before(e).cursor < _span(e).start,
            "bytes are replayed",
            (
                "a reader that catches up is cut short",
                "a closed output still has slack",
                "the slack is one byte less",
            ),
            "Only lost bytes and an overdue live reader make a gap (d).",
        ),
        _deliveries(
            "a live reader that owes too much is taken to the present",
            lambda e: not _overdue(e) or e.response == Gap(_before(e).cursor, _span(e).total),
            "a live reader owes too much",
            ("a slow reader stays behind", "the slack is one byte more"),
            "Following stays following: older bytes are given up in one gap (d).",
        ),
        _deliveries(
            "a reader waits exactly when there is nothing yet",
            lambda e: isinstance(e.response, Wait) == (_owes(e) <= 0 and not _span(e).closed),
            "a reader waits beyond the end",
            ("a reader waits for ever at the end", "the end comes before the close"),
            "At the end of an open output, and wherever beyond it a reader has attached (d).",
        ),
        _deliveries(
            "the end comes after everything, and only after the close",
            lambda e: isinstance(e.response, End) == (_owes(e) <= 0 and _span(e).closed),
            "a reader gets to the end",
            ("the end comes before the last bytes", "the end comes before the close"),
            "A body that ends without its end has failed, so the end is told once everything was (d).",
        ),
    )


def _writers() -> tuple[Property, ...]:
    return (
        Always(
            name="the window holds as much as it may",
            reads=("span",),
            holds=lambda span: span.total - span.start == min(span.total, WINDOW),
            witness="a byte leaves the window",
            faults=("the window never moves", "the window is one byte less"),
            meaning="Exactly the last bytes can be replayed (b, d).",
        ),
        OnEdge(
            name="every byte written counts",
            kinds=frozenset({"write"}),
            holds=lambda e: (
                isinstance(then := e.after["span"], Span)
                and then.total == _span(e).total + int(str(e.event.args["count"]))
                and not then.closed
            ),
            witness="a byte leaves the window",
            faults=("a write does not count", "a write closes"),
            meaning="One offset space for both streams, in the order of reading (d).",
        ),
        OnEdge(
            name="closing only closes",
            kinds=frozenset({"close"}),
            holds=lambda e: e.after["span"] == evolve(_span(e), closed=True),
            witness="an output is closed with bytes in it",
            faults=("closing forgets the window", "closing is forgotten"),
            meaning="What was written stays to be replayed after the exit (d).",
        ),
        *(
            Always(
                name=f"the head of {stream} is its first bytes",
                reads=(f"head.{stream}",),
                holds=lambda head: head.held == min(head.seen, CAP),
                witness=f"{stream} overflows its head",
                faults=("the head keeps one byte more", "the head forgets"),
                meaning="A poll returns the first bytes of each stream, up to the cap (c.5).",
            )
            for stream in STREAMS
        ),
        *(
            Always(
                name=f"{stream} is truncated exactly when a byte is missing",
                reads=(f"head.{stream}",),
                holds=lambda head: head.truncated == (head.seen > CAP),
                witness=f"{stream} fills its head",
                faults=("exactly full is truncated", "truncation is not told"),
                meaning="Output of exactly the cap is not truncated (c.5).",
            )
            for stream in STREAMS
        ),
    )


def _witness(name: str, kind: str, holds: EdgePredicate) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, kinds=frozenset({kind}), holds=holds)


def _head(stream: str, test: Callable[[Head], bool]) -> EdgePredicate:
    def holds(edge: Edge) -> bool:
        head = edge.after.get(f"head.{stream}")
        return isinstance(head, Head) and test(head)

    return holds


def _witnesses() -> tuple[Property, ...]:
    return (
        _witness("bytes are replayed", "deliver", lambda e: isinstance(e.response, Bytes)),
        _witness(
            "a delivery is a full piece",
            "deliver",
            lambda e: isinstance(e.response, Bytes) and e.response.end - e.response.start == PIECE,
        ),
        _witness(
            "a reader comes too late for the window",
            "deliver",
            lambda e: isinstance(e.response, Gap) and not _before(e).live,
        ),
        _witness("a live reader owes too much", "deliver", _overdue),
        _witness(
            "a reader waits beyond the end",
            "deliver",
            lambda e: isinstance(e.response, Wait) and _owes(e) < 0,
        ),
        _witness("a reader gets to the end", "deliver", lambda e: isinstance(e.response, End)),
        _witness("a byte leaves the window", "write", lambda e: _span(e).total == WINDOW),
        _witness("an output is closed with bytes in it", "close", lambda e: _span(e).total > 0),
        *(
            prop
            for stream in STREAMS
            for prop in (
                _witness(f"{stream} fills its head", "write", _head(stream, lambda head: head.seen == CAP)),
                _witness(
                    f"{stream} overflows its head", "write", _head(stream, lambda head: head.seen > CAP)
                ),
            )
        ),
    )


def _progress() -> tuple[Property, ...]:
    return (
        LeadsTo(
            name="every reader that stays gets to the end",
            reads=("span", "reader.0"),
            when=lambda span, reader: span.closed and reader is not None,
            then=lambda span, reader: reader is None or reader.ended,
            fair=(Fair(frozenset({"deliver"}), about={"reader": 0}),),
            witness="a reader gets to the end",
            faults=("a reader waits for ever at the end", "the cursor stands still"),
            meaning="Once the output is closed, asking on is enough to see its end (d).",
        ),
    )


# --- Configurations ----------------------------------------------------------------------------------------


def build(config: str, readers: int, most: int) -> Model:
    """The model of so many readers and bytes."""
    offsets = (0, 1, most + 1)
    events = [write_event(stream, count, most) for stream in STREAMS for count in (1, 2)]
    events.append(close_event())
    for number in range(readers):
        events += [attach_event(number, offset) for offset in offsets]
        events += [deliver_event(number), deliver_event(number, held_up=False), detach_event(number)]
    return Model(
        "output",
        config,
        (
            Component("span", Span(), meaning="the stretch of bytes published, and whether it is closed"),
            *(Component(f"head.{stream}", Head(), "head") for stream in STREAMS),
            *(Component(f"reader.{number}", None, "reader") for number in range(readers)),
        ),
        tuple(events),
        (*_readers(), *_writers(), *_progress(), *_witnesses()),
        (tuple((f"reader.{number}",) for number in range(readers)),) if readers > 1 else (),
        bounds={
            "readers": readers,
            "bytes": most,
            "window": WINDOW,
            "piece": PIECE,
            "slack": SLACK,
            "cap": CAP,
        },
        meaning="one exec's output: writers, window, readers, gaps and the end",
    )


CONFIGS = {
    "one_reader": Config(lambda name: build(name, 1, 7)),
    "two_readers": Config(lambda name: build(name, 2, 7), default=False),
}

"""Wrong versions of `agentd.rules.output`."""

from attrs import evolve

from agentd.rules.output import END, WAIT, Bytes, End, Gap, Span, Step, Wait
from checker.faults import Function, fault

MODULE = "agentd.rules.output"


@fault("the window never moves", MODULE, "publish")
def _never_moves(right: Function, span: Span, count: int, window: int) -> Span:
    return evolve(span, total=span.total + count)


@fault("the window is one byte less", MODULE, "publish")
def _window_less(right: Function, span: Span, count: int, window: int) -> Span:
    published: Span = right(span, count, window - 1)
    return published


@fault("a write does not count", MODULE, "publish")
def _uncounted(right: Function, span: Span, count: int, window: int) -> Span:
    published: Span = right(span, count - 1, window)
    return published


@fault("a write closes", MODULE, "publish")
def _closes(right: Function, span: Span, count: int, window: int) -> Span:
    return evolve(right(span, count, window), closed=True)  # type: ignore[no-any-return]


@fault("closing forgets the window", MODULE, "close")
def _forgets_window(right: Function, span: Span) -> Span:
    return Span(span.total, span.total, True)


@fault("closing is forgotten", MODULE, "close")
def _close_forgotten(right: Function, span: Span) -> Span:
    return span


def _next(right: Function, cursor: int, span: Span, piece: int, slack: int | None) -> Step:
    step: Step = right(cursor, span, piece, slack)
    return step


@fault("a gap is one byte short", MODULE, "next_step")
def _short_gap(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    step = _next(right, cursor, span, piece, slack)
    return Gap(step.start, step.end - 1) if isinstance(step, Gap) else step


@fault("a gap skips the window", MODULE, "next_step")
def _skips(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    step = _next(right, cursor, span, piece, slack)
    return Gap(step.start, span.total) if isinstance(step, Gap) else step


@fault("bytes come twice", MODULE, "next_step")
def _twice(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    step = _next(right, cursor, span, piece, slack)
    return Bytes(max(0, step.start - 1), step.end) if isinstance(step, Bytes) else step


@fault("bytes are taken from before the window", MODULE, "next_step")
def _before_window(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    return _next(right, cursor, evolve(span, start=0), piece, slack)


@fault("bytes are taken from beyond the end", MODULE, "next_step")
def _beyond(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    step = _next(right, cursor, span, piece, slack)
    return Bytes(step.start, step.start + piece) if isinstance(step, Bytes) else step


@fault("a delivery is all there is", MODULE, "next_step")
def _all_there_is(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    return _next(right, cursor, span, span.total + 1, slack)


@fault("a reader that catches up is cut short", MODULE, "next_step")
def _cut_short(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    return _next(right, cursor, span, piece, 1)


@fault("a closed output still has slack", MODULE, "next_step")
def _slack_when_closed(
    right: Function, cursor: int, span: Span, piece: int, slack: int | None = None
) -> Step:
    if slack is not None and span.total - cursor > slack - 1 and span.closed:
        return Gap(cursor, span.total)
    return _next(right, cursor, span, piece, slack)


@fault("the slack is one byte less", MODULE, "next_step")
def _slack_less(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    return _next(right, cursor, span, piece, None if slack is None else slack - 1)


@fault("the slack is one byte more", MODULE, "next_step")
def _slack_more(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    return _next(right, cursor, span, piece, None if slack is None else slack + 1)


@fault("a slow reader stays behind", MODULE, "next_step")
def _stays_behind(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    return _next(right, cursor, span, piece, None)


@fault("a reader waits for ever at the end", MODULE, "next_step")
def _waits(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    step = _next(right, cursor, span, piece, slack)
    return WAIT if isinstance(step, End) else step


@fault("the end comes before the close", MODULE, "next_step")
def _early_end(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    step = _next(right, cursor, span, piece, slack)
    return END if isinstance(step, Wait) else step


@fault("the end comes before the last bytes", MODULE, "next_step")
def _lost_tail(right: Function, cursor: int, span: Span, piece: int, slack: int | None = None) -> Step:
    return END if span.closed else _next(right, cursor, span, piece, slack)


@fault("the cursor stands still", MODULE, "advance")
def _stands_still(right: Function, cursor: int, step: Step) -> int:
    return cursor


@fault("the cursor passes gaps only", MODULE, "advance")
def _gaps_only(right: Function, cursor: int, step: Step) -> int:
    return step.end if isinstance(step, Gap) else cursor


@fault("the head keeps one byte more", MODULE, "head_room")
def _one_more(right: Function, held: int, cap: int, count: int) -> tuple[int, bool]:
    room: tuple[int, bool] = right(held, cap + 1, count)
    return room


@fault("the head forgets", MODULE, "head_room")
def _head_forgets(right: Function, held: int, cap: int, count: int) -> tuple[int, bool]:
    return 0, count > 0


@fault("exactly full is truncated", MODULE, "head_room")
def _exactly(right: Function, held: int, cap: int, count: int) -> tuple[int, bool]:
    kept, cut = right(held, cap, count)
    return kept, cut or held + count == cap


@fault("truncation is not told", MODULE, "head_room")
def _not_told(right: Function, held: int, cap: int, count: int) -> tuple[int, bool]:
    return right(held, cap, count)[0], False

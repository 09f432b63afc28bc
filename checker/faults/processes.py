"""Wrong versions of `agentd.rules.processes`, and of what the model has in place of the daemon's table."""

from attrs import evolve

from agentd.rules.output import Span
from agentd.rules.processes import Fault, Input, Page, Phase, Poll, Record, Slots, Stage, Verdict
from checker.faults import Function, fault
from checker.models.processes_terms import Process

MODULE = "agentd.rules.processes"
TABLE = "checker.models.processes_table"
STDIN = "checker.models.processes_stdin"
Decided = tuple[Poll, Verdict]


# -- slots ------------------------------------------------------------------------------------------------------


@fault("a slot is taken after the start", MODULE, "reserve")
def _taken_later(right: Function, slots: Slots) -> Slots | None:
    return None if right(slots) is None else slots


@fault("one more slot than the limit", MODULE, "reserve")
def _one_more(right: Function, slots: Slots) -> Slots | None:
    return evolve(slots, taken=slots.taken + 1) if slots.taken <= slots.limit else None


@fault("the last slot is never taken", MODULE, "reserve")
def _last(right: Function, slots: Slots) -> Slots | None:
    return None if slots.taken + 1 >= slots.limit else right(slots)


@fault("a refused start takes a slot", TABLE, "begins")
def _refused_takes(right: Function, slots: Slots) -> tuple[Slots, bool]:
    then, begun = right(slots)
    return (then if begun else evolve(then, limit=then.limit - 1)), begun


@fault("a slot is not given back", MODULE, "release")
def _kept(right: Function, slots: Slots) -> Slots:
    return slots


@fault("a slot is given back twice", MODULE, "release")
def _twice(right: Function, slots: Slots) -> Slots:
    released: Slots = right(right(slots))
    return released


@fault("a start that fails keeps its slot", TABLE, "fails")
def _fails(right: Function, slots: Slots) -> Slots:
    return slots


@fault("an exit frees the slot", TABLE, "drains")
def _exit_frees(right: Function, slots: Slots, process: Process) -> tuple[Slots, Process]:
    then, drained = right(slots, process)
    deleted = process.record is not None and process.record.deleted
    return (then if deleted else evolve(then, taken=then.taken - 1)), drained


# -- records ----------------------------------------------------------------------------------------------------


@fault("a number that was reaped is kept", MODULE, "reaped")
def _unreaped(right: Function, record: Record) -> Record:
    return record


@fault("a reap is an exit", MODULE, "reaped")
def _reap_exits(right: Function, record: Record) -> Record:
    return evolve(record, stage=Stage.EXITED)


@fault("a late reap reopens the record", MODULE, "reaped")
def _reopens(right: Function, record: Record) -> Record:
    return evolve(record, stage=Stage.REAPED)


@fault("a reap revives what was deleted", MODULE, "reaped")
def _reap_revives(right: Function, record: Record) -> Record:
    return evolve(right(record), deleted=False)  # type: ignore[no-any-return]


@fault("a drain is forgotten", MODULE, "published")
def _undrained(right: Function, record: Record) -> Record:
    return record


@fault("a drain revives what was deleted", MODULE, "published")
def _drain_revives(right: Function, record: Record) -> Record:
    return evolve(right(record), deleted=False)  # type: ignore[no-any-return]


@fault("a process is signalled until its exit shows", MODULE, "may_signal")
def _late_signal(right: Function, record: Record) -> bool:
    return record.stage is not Stage.EXITED and not record.deleted


@fault("everything is signalled", MODULE, "may_signal")
def _all_signalled(right: Function, record: Record) -> bool:
    return True


@fault("nothing is signalled", MODULE, "may_signal")
def _none_signalled(right: Function, record: Record) -> bool:
    return False


@fault("a deleted process is signalled", MODULE, "may_signal")
def _deleted_signalled(right: Function, record: Record) -> bool:
    return record.stage is Stage.RUNNING


@fault("a deletion keeps the record", MODULE, "delete")
def _keeps(right: Function, record: Record) -> tuple[Record, bool]:
    return record, right(record)[1]


@fault("a deletion always kills", MODULE, "delete")
def _always_kills(right: Function, record: Record) -> tuple[Record, bool]:
    return right(record)[0], True


@fault("a deletion kills nothing", MODULE, "delete")
def _kills_nothing(right: Function, record: Record) -> tuple[Record, bool]:
    return right(record)[0], False


@fault("a deletion counts as a reap", MODULE, "delete")
def _delete_reaps(right: Function, record: Record) -> tuple[Record, bool]:
    deleted, kill = right(record)
    return evolve(deleted, stage=Stage.REAPED if kill else deleted.stage), kill


@fault("a reaped process shows its exit", MODULE, "shows_exit")
def _shows_early(right: Function, record: Record) -> bool:
    return record.stage is not Stage.RUNNING


@fault("no process shows its exit", MODULE, "shows_exit")
def _shows_never(right: Function, record: Record) -> bool:
    return False


# -- reading ----------------------------------------------------------------------------------------------------


@fault("a poll from beyond the end waits", MODULE, "beyond")
def _beyond_waits(right: Function, since: int, span: Span) -> bool:
    return False


@fault("the end is beyond the end", MODULE, "beyond")
def _end_beyond(right: Function, since: int, span: Span) -> bool:
    return since >= span.total


@fault("a reply begins where replay begins", MODULE, "page")
def _page_replay(right: Function, since: int, span: Span, limit: int) -> Page:
    page: Page = right(span.start, span, limit)
    return page


@fault("a reply begins where it was asked for", MODULE, "page")
def _page_asked(right: Function, since: int, span: Span, limit: int) -> Page:
    return Page(since, min(span.total, since + limit))


@fault("a reply holds all there is", MODULE, "page")
def _page_all(right: Function, since: int, span: Span, limit: int) -> Page:
    return Page(max(since, span.start), span.total)


@fault("a reply is one byte short", MODULE, "page")
def _page_short(right: Function, since: int, span: Span, limit: int) -> Page:
    page: Page = right(since, span, limit)
    return evolve(page, end=max(page.start, page.end - 1))


@fault("the exit shows on the first page", MODULE, "final")
def _first_page(right: Function, end: int, span: Span) -> bool:
    return span.closed


@fault("the exit never shows", MODULE, "final")
def _never_shows(right: Function, end: int, span: Span) -> bool:
    return False


@fault("the exit shows while output may come", MODULE, "final")
def _shows_open(right: Function, end: int, span: Span) -> bool:
    return end == span.total


@fault("a poll at the end of everything waits", MODULE, "ask")
def _end_waits(right: Function, since: int, span: Span, patient: bool) -> Decided:
    return right(since, evolve(span, closed=False), patient)  # type: ignore[no-any-return]


@fault("every poll waits", MODULE, "ask")
def _all_wait(right: Function, since: int, span: Span, patient: bool) -> Decided:
    return Poll(since), Verdict.WAIT


@fault("a poll that is over is answered by a change", MODULE, "changed")
def _change_again(right: Function, poll: Poll, span: Span, limit: int) -> Decided:
    return (poll, Verdict.ANSWER) if poll.phase is Phase.OVER else right(poll, span, limit)


@fault("a poll is answered and goes on", MODULE, "changed")
def _goes_on(right: Function, poll: Poll, span: Span, limit: int) -> Decided:
    return poll, right(poll, span, limit)[1]


@fault("a poll ends without an answer", MODULE, "changed")
def _unanswered(right: Function, poll: Poll, span: Span, limit: int) -> Decided:
    then, verdict = right(poll, span, limit)
    return then, Verdict.WAIT if verdict is Verdict.ANSWER else verdict


@fault("the first byte answers", MODULE, "changed")
def _first_byte(right: Function, poll: Poll, span: Span, limit: int) -> Decided:
    then, verdict = right(poll, span, limit)
    return (evolve(then, phase=Phase.OVER), Verdict.ANSWER) if verdict is Verdict.COLLECT else (then, verdict)


@fault("every byte starts the collecting anew", MODULE, "changed")
def _anew(right: Function, poll: Poll, span: Span, limit: int) -> Decided:
    waiting = evolve(poll, phase=Phase.WAITING) if poll.phase is Phase.COLLECTING else poll
    return right(waiting, span, limit)  # type: ignore[no-any-return]


@fault("a full reply goes on collecting", MODULE, "changed")
def _full(right: Function, poll: Poll, span: Span, limit: int) -> Decided:
    return right(poll, span, limit + 1)  # type: ignore[no-any-return]


@fault("an exit is slept through", MODULE, "changed")
def _slept(right: Function, poll: Poll, span: Span, limit: int) -> Decided:
    return right(poll, evolve(span, closed=False), limit)  # type: ignore[no-any-return]


@fault("time is not over for who collects", MODULE, "expired")
def _collects_on(right: Function, poll: Poll) -> Decided:
    return (poll, Verdict.WAIT) if poll.phase is Phase.COLLECTING else right(poll)


@fault("a poll that is over is answered by its timer", MODULE, "expired")
def _timer_again(right: Function, poll: Poll) -> Decided:
    return right(poll)[0], Verdict.ANSWER


@fault("a deletion answers polls", MODULE, "forgotten")
def _answers(right: Function, poll: Poll) -> Decided:
    then, verdict = right(poll)
    return then, Verdict.ANSWER if verdict is Verdict.NOT_FOUND else verdict


@fault("a deletion forgets who waits", MODULE, "forgotten")
def _forgets(right: Function, poll: Poll) -> Decided:
    return poll, Verdict.WAIT


@fault("a poll wakes up again", MODULE, "forgotten")
def _wakes(right: Function, poll: Poll) -> Decided:
    then, verdict = right(poll)
    return (evolve(then, phase=Phase.WAITING) if poll.phase is Phase.OVER else then), verdict


# -- stdin ------------------------------------------------------------------------------------------------------


@fault("what was not asked for takes messages", MODULE, "judge_input")
def _unasked(right: Function, state: Input, size: int | None, capacity: int) -> Fault | None:
    return right(evolve(state, requested=True), size, capacity)  # type: ignore[no-any-return]


@fault("an end of file can be followed", MODULE, "judge_input")
def _followed(right: Function, state: Input, size: int | None, capacity: int) -> Fault | None:
    return right(evolve(state, ended=False), size, capacity)  # type: ignore[no-any-return]


@fault("a broken stdin takes messages", MODULE, "judge_input")
def _broken_takes(right: Function, state: Input, size: int | None, capacity: int) -> Fault | None:
    return right(evolve(state, open=True), size, capacity)  # type: ignore[no-any-return]


@fault("the queue has no bound", MODULE, "judge_input")
def _unbounded(right: Function, state: Input, size: int | None, capacity: int) -> Fault | None:
    found: Fault | None = right(state, size, capacity)
    return None if found is Fault.FULL else found


@fault("a message that just fits is refused", MODULE, "judge_input")
def _just_fits(right: Function, state: Input, size: int | None, capacity: int) -> Fault | None:
    return right(state, size, capacity - 1)  # type: ignore[no-any-return]


@fault("a second end of file is refused", MODULE, "judge_input")
def _second_end(right: Function, state: Input, size: int | None, capacity: int) -> Fault | None:
    return right(state, size or 0, capacity) if state.ended else right(state, size, capacity)  # type: ignore[no-any-return]


@fault("a refusal is only a word", STDIN, "takes")
def _only_word(right: Function, state: Input, size: int | None) -> tuple[Input, Fault | None]:
    then, found = right(state, size)
    return (evolve(then, ended=True) if found is not None else then), found


@fault("a message is not counted", MODULE, "queued")
def _uncounted(right: Function, state: Input, size: int) -> Input:
    return state


@fault("what is written stays queued", MODULE, "drained")
def _stays(right: Function, state: Input, size: int) -> Input:
    return state


@fault("what is written is counted twice", MODULE, "drained")
def _counted_twice(right: Function, state: Input, size: int) -> Input:
    drained: Input = right(right(state, size), size)
    return drained


@fault("an end of file drops what is queued", MODULE, "ended")
def _drops(right: Function, state: Input) -> Input:
    return evolve(right(state), queued=0)  # type: ignore[no-any-return]


@fault("an end of file is not remembered", MODULE, "ended")
def _not_remembered(right: Function, state: Input) -> Input:
    return state


@fault("a broken stdin keeps its queue", MODULE, "closed")
def _keeps_queue(right: Function, state: Input) -> Input:
    return evolve(right(state), queued=state.queued)  # type: ignore[no-any-return]


@fault("a broken stdin stays open", MODULE, "closed")
def _stays_open(right: Function, state: Input) -> Input:
    return evolve(right(state), open=state.open)  # type: ignore[no-any-return]


@fault("stdin shows after its end", MODULE, "writable")
def _shows_ended(right: Function, state: Input) -> bool:
    return state.requested and state.open


@fault("stdin never shows", MODULE, "writable")
def _shows_not(right: Function, state: Input) -> bool:
    return False

"""Linearizability: what one order explains is accepted, what none does refused, and what is not known does not pass."""

import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from checker.cli import main
from checker.histories.history import History, Op, Operation, history, load, save
from checker.histories.linear import Verdict, judge, shortened
from checker.histories.record import WEIGHTS, Workload, record
from checker.histories.report import judge_all, report, worst
from checker.histories.specification import Answer, State, apply, silently
from tests.conftest import DaemonFactory

TOKEN = "history-token"


def op(
    kind: Op,
    invoked: float,
    responded: float | None,
    status: int | None = None,
    error: str | None = None,
    phase: str | None = None,
    outcome: bool = False,
) -> Operation:
    # What is answered at 1 was answered before what is asked for at 1.
    end = None if responded is None else responded - 0.01
    return Operation(0, "a", kind, invoked, end, status, error, phase, outcome)


def started(invoked: float, responded: float) -> Operation:
    return op(Op.START, invoked, responded, 200, phase="running")


def told(invoked: float, responded: float) -> Operation:
    return op(Op.RELEASE, invoked, responded, 200)


def acked(invoked: float, responded: float) -> Operation:
    return op(Op.ACK, invoked, responded, 200, phase="acked", outcome=True)


def polled(invoked: float, responded: float, phase: str | None) -> Operation:
    if phase is None:
        return op(Op.POLL, invoked, responded, 404, "unknown_exec")
    return op(Op.POLL, invoked, responded, 200, phase=phase, outcome=phase == "exited")


LIFE = (started(0, 1), polled(1, 2, "running"), told(2, 3), polled(3, 4, "exited"), acked(4, 5))


@pytest.mark.parametrize(
    "seen",
    [
        (),
        LIFE,
        (*LIFE, polled(5, 6, "acked"), op(Op.ACK, 6, 7, 409, "already_acked")),
        (polled(0, 9, None), started(1, 2)),  # it began before, so it may have been first
        (polled(0, 9, "running"), started(1, 2)),
        (started(0, 1), told(1, 2), polled(2, 3, "running"), polled(3, 4, "exited")),
        (op(Op.START, 0, None), polled(5, 6, "running")),  # nobody knows whether it happened: it did
        (op(Op.START, 0, None), polled(5, 6, None)),  # or did not
        (started(0, 1), told(1, 2), op(Op.ACK, 2, None), op(Op.ACK, 3, 4, 409, "already_acked")),
        (op(Op.START_UNSPAWNED, 0, 1, 500, "spawn_failed"), polled(1, 2, None)),
        (started(0, 1), op(Op.START_UNSPAWNED, 1, 2, 200, phase="running")),
        (started(0, 1), told(1, 2), op(Op.RELEASE, 2, 3, 410, "stdin_closed"), polled(3, 4, "running")),
    ],
)
def test_what_one_order_explains_is_accepted(seen: tuple[Operation, ...]) -> None:
    judged = judge(seen)
    assert judged.verdict is Verdict.LINEARIZABLE
    assert {number for number, one in enumerate(seen) if not one.pending} <= set(judged.order)


@pytest.mark.parametrize(
    "seen",
    [
        (started(0, 1), polled(1, 2, None)),  # lost
        (polled(0, 1, "running"), started(1, 2)),  # before it was asked for
        (started(0, 1), polled(1, 2, "exited")),  # ended, and nobody told it to
        (started(0, 1), told(1, 2), polled(2, 3, "exited"), polled(3, 4, "running")),  # back to life
        (*LIFE, acked(5, 6)),  # released twice
        (started(0, 1), told(1, 2), acked(2, 9), acked(3, 8)),  # also when they overlap
        (started(0, 1), told(1, 2), op(Op.ACK, 2, 3, 409, "already_acked")),
        (started(0, 1), op(Op.START, 1, 2, 200, phase="acked")),
        (op(Op.START_UNSPAWNED, 0, 1, 500, "spawn_failed"), polled(1, 2, "running")),
        (started(0, 1), op(Op.POLL, 1, 2, 200, phase="running", outcome=True)),
        (started(0, 1), op(Op.POLL, 1, 2, 500)),
        (*LIFE, polled(5, 6, None)),  # collected, in a daemon that keeps it for ever
    ],
)
def test_what_no_order_explains_is_refused(seen: tuple[Operation, ...]) -> None:
    assert judge(seen).verdict is Verdict.NOT
    part = shortened(seen)
    assert judge(part).verdict is Verdict.NOT
    assert len(part) <= len(seen)


def test_a_record_goes_when_its_time_is_over_and_not_before() -> None:
    gone = (*LIFE, polled(14.5, 15, None))
    assert judge(gone, ttl=10).verdict is Verdict.LINEARIZABLE
    assert judge(gone, ttl=11.5).verdict is Verdict.NOT


# --- Laws ---------------------------------------------------------------------------------------------------


@st.composite
def sequential(draw: st.DrawFn) -> list[Operation]:
    """A run of the specification, one operation after the other, in which callers then took longer than they did."""
    state, seen = State(), []
    for number in range(draw(st.integers(0, 12))):
        state = draw(st.sampled_from(list(silently(state, float("inf"), None))))
        kind = draw(st.sampled_from(list(WEIGHTS)))
        early, late = draw(st.integers(0, 25)) / 10, draw(st.integers(0, 25)) / 10
        asked = Operation(number, "a", kind, number - early, number + late)
        state, answers = apply(state, asked)
        answer = draw(st.sampled_from(answers))
        pending = draw(st.integers(0, 9)) == 0
        seen.append(
            evolve(asked, responded=None)
            if pending
            else evolve(
                asked, status=answer.status, error=answer.error, phase=answer.phase, outcome=answer.outcome
            )
        )
    return sorted(seen, key=lambda one: one.invoked)


@given(sequential())
def test_a_run_of_the_specification_is_linearizable(seen: list[Operation]) -> None:
    assert judge(seen).verdict is Verdict.LINEARIZABLE


def brute_force(operations: Sequence[Operation]) -> bool:
    """Every order of every choice of what happened, and everything that may happen by itself in between."""
    needed = [one for one in operations if not one.pending]
    for chosen in range(1 << (len(operations) - len(needed))):
        maybe = [one for one in operations if one.pending]
        happened = needed + [one for number, one in enumerate(maybe) if chosen >> number & 1]
        for order in permutations(happened):
            if any(
                later.responded is not None and later.responded < earlier.invoked
                for place, earlier in enumerate(order)
                for later in order[place + 1 :]
            ):
                continue
            if _explained(order, State()):
                return True
    return False


def _explained(order: Sequence[Operation], state: State) -> bool:
    if not order:
        return True
    for silent in silently(state, float("inf"), None):
        then, answers = apply(silent, order[0])
        if (order[0].pending or any(answer.explains(order[0]) for answer in answers)) and _explained(
            order[1:], then
        ):
            return True
    return False


ANSWERS = (
    Answer(200),
    Answer(200, phase="running"),
    Answer(200, phase="exited", outcome=True),
    Answer(200, phase="acked"),
    Answer(200, phase="acked", outcome=True),
    Answer(404, "unknown_exec"),
    Answer(409, "still_running"),
    Answer(409, "already_acked"),
    Answer(410, "stdin_closed"),
    Answer(500, "spawn_failed"),
)


@st.composite
def few(draw: st.DrawFn) -> list[Operation]:
    """Five operations at most, of which one was perhaps answered wrongly."""
    seen = draw(sequential().filter(lambda found: len(found) <= 5))
    for _ in range(draw(st.integers(0, 2))):
        if seen:
            place = draw(st.integers(0, len(seen) - 1))
            answer = draw(st.sampled_from(ANSWERS))
            if not seen[place].pending:
                seen[place] = evolve(
                    seen[place],
                    status=answer.status,
                    error=answer.error,
                    phase=answer.phase,
                    outcome=answer.outcome,
                )
    return seen


@settings(max_examples=150)
@given(few())
def test_the_search_agrees_with_every_order(seen: list[Operation]) -> None:
    assert (judge(seen).verdict is Verdict.LINEARIZABLE) is brute_force(seen)


@given(few())
def test_a_shortened_history_is_wrong_for_the_same_reason(seen: list[Operation]) -> None:
    if judge(seen).verdict is Verdict.NOT:
        part = shortened(seen)
        assert judge(part).verdict is Verdict.NOT
        assert not brute_force(part)
        asked = {(one.client, one.op, one.invoked) for one in seen}
        assert {(one.client, one.op, one.invoked) for one in part} <= asked


@given(sequential())
def test_a_budget_that_is_used_up_is_unknown(seen: list[Operation]) -> None:
    needed = judge(seen).looked_at
    assert judge(seen, budget=needed).verdict is Verdict.LINEARIZABLE
    for budget in range(needed):
        assert judge(seen, budget=budget).verdict is Verdict.UNKNOWN


@given(st.lists(few(), max_size=3))
def test_a_history_is_what_each_exec_is(several: list[list[Operation]]) -> None:
    whole = history(evolve(one, exec=str(name)) for name, seen in enumerate(several) for one in seen)
    judged = judge_all(whole)
    assert (worst(judged) is Verdict.LINEARIZABLE) is all(map(brute_force, several))
    assert list(report(whole, judged))


# --- Files and the command line -----------------------------------------------------------------------------


@given(sequential())
def test_a_file_holds_what_was_put_in(seen: list[Operation]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/h"
        save(History(tuple(seen), 900.0), path)
        assert load(path) == History(tuple(seen), 900.0)


def test_a_wrong_history_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "h.jsonl")
    noise = [polled(0.1 * number, 0.1 * number + 0.05, None) for number in range(5)]
    twice = [
        started(1, 2),
        polled(2, 3, "running"),
        told(3, 4),
        acked(4, 6),
        acked(5, 7),
        polled(8, 9, "acked"),
    ]
    save(history([*noise, *twice]), path)
    assert main(["history", path]) == 1
    out = capsys.readouterr().out
    assert "11 operations of 1 clients on 1 execs, 1 at the same time as another, 0 without an answer" in out
    assert "a: NOT LINEARIZABLE" in out
    assert out.count("ack  =>  200 acked with the outcome") == 2
    assert "poll" not in out
    assert "phase=acked" in out


def test_a_budget_is_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "h.jsonl")
    save(history(LIFE), path)
    assert main(["history", path, "--budget", "2"]) == 3
    assert "unknown: the budget of 2 is used up" in capsys.readouterr().out
    assert main(["history", path]) == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", None),
        ("nonsense\n", ":1: not a line of a history"),
        ("[]\n", ":1: not a line of a history"),
        ('{"history": 2}\n', "a history of version 2, this reads version 1"),
        ('{"history": 1}\n{"client": 0}\n', ":2: not a line of a history"),
        ('{"history": 1}\n{"client":0,"exec":"a","op":"jump","invoked":1}\n', ":2: not a line"),
        (
            '{"history": 1}\n{"client":0,"exec":"a","op":"poll","invoked":2,"responded":1,"status":1}\n',
            ":2: ",
        ),
    ],
)
def test_what_is_no_history_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str | None
) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(text)
    assert main(["history", str(path)]) == (4 if complaint is None else 2)
    error = capsys.readouterr().err
    assert (complaint or "") in error
    assert error.count("\n") == (0 if complaint is None else 1)


def test_usage_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTD_TOKEN", raising=False)
    for arguments, complaint in (
        ([], "history needs either files or --record"),
        (["x", "--record"], "history needs either files or --record"),
        (["--record"], "--record needs --url"),
        (["--record", "--url", "http://127.0.0.1:1"], "history needs the token"),
        (["--record", "--url", "x", "--token", "t"], "x: not the URL of a daemon"),
        (["--record", "--url", "http://127.0.0.1:1", "--token", "t"], "refused"),
        (["--record", "--url", "http://127.0.0.1:1", "--output", "/nonexistent/x"], "no such directory"),
        (["/nonexistent/h"], "No such file"),
    ):
        assert main(["history", *arguments]) == 2
        error = capsys.readouterr().err
        assert complaint in error
        assert error.count("\n") == 1


# --- Daemons ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_a_daemon_is_linearizable(
    make_daemon: DaemonFactory, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = make_daemon()
    daemon.bootstrap(TOKEN)
    kept = str(tmp_path / "h.jsonl")
    record_it = ["history", "--record", "--url", daemon.url, "--token", TOKEN, "--output", kept]
    assert main([*record_it, "--seed", str(seed), "--clients", "6"]) == 0
    assert "600 operations of 6 clients on 40 execs" in capsys.readouterr().out
    recorded = load(kept)
    # What makes it worth something: callers met, some never knew, and everything there is was answered.
    answers = {(one.op, one.status, one.error, one.phase) for one in recorded.operations}
    assert any(one.pending for one in recorded.operations)
    assert (Op.ACK, 409, "still_running", None) in answers
    assert (Op.ACK, 200, None, "acked") in answers
    assert (Op.START_UNSPAWNED, 500, "spawn_failed", None) in answers
    assert (Op.POLL, 404, "unknown_exec", None) in answers
    assert judge_all(recorded) == judge_all(load(kept))


def test_a_seed_fixes_what_is_asked(make_daemon: DaemonFactory) -> None:
    daemon = make_daemon()
    daemon.bootstrap(TOKEN)
    asked = []
    for _ in range(2):
        found = record(Workload(daemon.url, TOKEN.encode(), clients=2, operations=20, seed=7))
        asked.append(
            [[(one.op, one.exec) for one in found.operations if one.client == client] for client in range(2)]
        )
    assert asked[0] == asked[1]


LATE_ACK = """
import sys
from twisted.internet import reactor, task
from agentd.microvm.exec import ExecRoutes
right = ExecRoutes.ack
async def ack(self, request, id):
    # Looks, waits a turn, and answers from what it saw.
    entry = self._daemon.execs.get(id)
    before = entry and entry.record
    await task.deferLater(reactor, 0.002, lambda: None)
    if entry is not None:
        entry.record = before
    return await right(self, request, id)
ExecRoutes.ack = ack
from agentd.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_daemon_that_is_not_linearizable_is_found_out(
    make_daemon: DaemonFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = make_daemon(program=("-c", LATE_ACK))
    daemon.bootstrap(TOKEN)
    found = None
    for seed in range(20):
        recorded = record(Workload(daemon.url, TOKEN.encode(), clients=8, operations=60, seed=seed, execs=12))
        judged = judge_all(recorded)
        if worst(judged) is Verdict.NOT:
            found = list(report(recorded, judged))
            break
    assert found is not None
    assert any("NOT LINEARIZABLE" in line for line in found)
    assert json.dumps(found)

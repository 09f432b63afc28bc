"""Replay against the daemon in memory: that it covers every edge, and that a daemon made wrong is found out."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentd.environments.input import InputQueue
from agentd.environments.poll import LongPoll
from agentd.environments.table import Process, ProcessTable
from agentd.guest import accounts
from agentd.guest.handlers import HandlerRunner
from agentd.guest.state import Guest
from agentd.http.messages import Response
from agentd.http.router import Endpoint
from agentd.http.site import AgentSite
from agentd.microvm import exec as exec_routes
from agentd.process import escalation
from agentd.process.follow import Follower
from agentd.process.job import Job
from agentd.process.output import Output, Ring
from agentd.process.table import ExecTable
from agentd.rules.bootstrap import RunVerdict
from agentd.rules.resolution import Resolved
from agentd.rules.stdin import Refusal, Result
from agentd.worker.job_runner import JobRunner
from checker import models
from checker.check import Options, check
from checker.cli import main
from checker.model import ModelError
from checker.replay import adapters, edges, traces
from checker.replay.adapters import ADAPTERS, adapter
from checker.replay.tours import explore, graph, tours
from checker.replay.websocket import frames, text
from checker.replay.wire import Says, first_answer
from checker.replay.world import MemoryDaemon
from tests.checker.replaying import MOST, first_divergence
from tests.conftest import REPOSITORY

QUICK = (
    "bootstrap_exec:deployment_invariant_held",
    "stdin:writes",
    "lifecycle:drain",
    "lifecycle:acknowledge",
)


@pytest.mark.parametrize("key", QUICK)
def test_the_daemon_does_what_the_model_says(key: str) -> None:
    for found in edges.replay([key], edges.Extent(MOST), jobs=1):
        assert found.divergences == ()
        assert found.complete
        assert found.steps >= found.edges > 0


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_runs_go_over_every_edge(name: str) -> None:
    for key in models.every():
        if key.partition(":")[0] != name:
            continue
        kind = adapter(name)
        for variant in kind.ways(models.load(key)):
            whole, runs = edges.plan(models.load(key), variant, MOST)
            assert whole.complete
            taken = {arc for run in runs for arc in run}
            assert taken >= {
                (node, way)
                for node, ways in enumerate(whole.ways)
                for way in range(len(ways))
                if whole.asked[node][way]
            }
            for run in runs:  # and each is one: it begins at the beginning, and every step where the last led
                places = [0, *(whole.ways[node][number].to for node, number in run)]
                assert [node for node, _ in run] == places[:-1]


def test_the_graph_that_is_replayed_is_the_one_that_is_checked() -> None:
    model = models.load("bootstrap_exec:deployment_invariant_held")
    found = explore(model, [True] * len(model.events), MOST)
    whole = graph(found, reduced=False)
    assert (len(whole.values), whole.edges) == (148, 4436)
    assert sum(len(run) for run in tours(whole)) < 2 * whole.edges
    reduced = graph(found)
    symmetric = check(model, Options(symmetric=True))
    assert (sum(map(any, reduced.asked)), reduced.edges) == (symmetric.states, symmetric.transitions)


# --- Daemons made wrong -------------------------------------------------------------------------------------


def _no_sweep(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExecTable, "sweep", lambda self: 0)


def _sweeps_all(patch: pytest.MonkeyPatch) -> None:
    def sweep(self: ExecTable) -> int:
        self._execs.clear()
        return 1

    patch.setattr(ExecTable, "sweep", sweep)


def _spawns_again(patch: pytest.MonkeyPatch) -> None:
    right = ExecTable.start

    def start(self: ExecTable, exec_id: str, run: Callable[[], Job], reap: bool) -> Any:
        known = self.get(exec_id)
        if known is not None:
            run()
        return right(self, exec_id, run, reap)

    patch.setattr(ExecTable, "start", start)


def _keeps_the_record(patch: pytest.MonkeyPatch) -> None:
    """A spawn that fails leaves a record behind."""
    right = ExecTable.start

    def start(self: ExecTable, exec_id: str, run: Callable[[], Job], reap: bool) -> Any:
        try:
            return right(self, exec_id, run, reap)
        except Exception:
            self._running += 1
            raise

    patch.setattr(ExecTable, "start", start)


def _open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Endpoint, "refusal", lambda self, request: None)


def _first_refusal(patch: pytest.MonkeyPatch) -> None:
    """401 where no token is installed."""
    right = Endpoint.refusal

    def refusal(self: Endpoint, request: Any) -> Response | None:
        found = right(self, request)
        return self.refusals.unauthorized if found is self.refusals.unavailable else found

    patch.setattr(Endpoint, "refusal", refusal)


def _conflict_installs(patch: pytest.MonkeyPatch) -> None:
    right = Guest.run_hook

    def run_hook(self: Guest, payload: Any) -> RunVerdict:
        verdict = right(self, payload)
        return RunVerdict.REPLAYED if verdict is RunVerdict.CONFLICT else verdict

    patch.setattr(Guest, "run_hook", run_hook)


def _closed_is_409(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(exec_routes._STDIN_STATUS, Refusal.CLOSED, (409, "stdin is closed"))


def _time_out_has_no_slug(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(exec_routes._WRITE_STATUS, Result.TIMED_OUT, (408, "timeout", "too late"))


def _no_lag(patch: pytest.MonkeyPatch) -> None:
    right = Follower.resumeProducing

    def resume(self: Follower) -> None:
        self._lagging = False
        right(self)

    patch.setattr(Follower, "resumeProducing", resume)


def _short_piece(patch: pytest.MonkeyPatch) -> None:
    right = Ring.piece
    patch.setattr(Ring, "piece", lambda self, start, end: right(self, start, max(start + 1, end - 1)))


def _wrong_bytes(patch: pytest.MonkeyPatch) -> None:
    right = Ring.piece

    def piece(self: Ring, start: int, end: int) -> tuple[int, bytes]:
        tag, data = right(self, start, end)
        return tag, data[:-1] + b"?"

    patch.setattr(Ring, "piece", piece)


def _one_head(patch: pytest.MonkeyPatch) -> None:
    right = Output.feed
    patch.setattr(Output, "feed", lambda self, stream, data: right(self, 0, data))


def _timers_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(Job._actions, list(Job._actions)[3], lambda job: None)


def _impatient(patch: pytest.MonkeyPatch) -> None:
    right = escalation.bring_down

    async def bring_down(group: Any, clock: Any, grace: float | None) -> bool:
        return await right(group, clock, 0.0)

    patch.setattr(escalation, "bring_down", bring_down)


def _all_at_once(patch: pytest.MonkeyPatch) -> None:
    """Handlers do not wait for each other."""

    async def run(self: HandlerRunner, hook: Any, launch_env: Any) -> Any:
        return await self._run(hook, f"{self._directory}/{hook.value}", launch_env)

    patch.setattr(HandlerRunner, "run", run)


def _never_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AgentSite, "request_ended", lambda self: None)


def _no_groups(patch: pytest.MonkeyPatch) -> None:
    right = accounts._supported

    def supported(principal: Resolved, daemon: Any) -> Resolved:
        found = right(principal, daemon)
        return Resolved(found.uid, found.gid, None, found.identity)

    patch.setattr(accounts, "_supported", supported)


def _slots_leak(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProcessTable, "release", lambda self: None)


def _signals_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Process, "signal", lambda self, name: self.job.child.group.signal(9))


def _deaf_to_deletion(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LongPoll, "forgotten", lambda self: None)


def _no_eof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InputQueue, "end", lambda self: None)


def _never_sweeps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobRunner, "sweep", lambda self: None)


def _kills_nobody(patch: pytest.MonkeyPatch) -> None:
    right = JobRunner.kill

    def kill(self: JobRunner, id: str) -> Any:
        entry = self._entries.get(id)
        job = None if entry is None else entry.job
        if entry is not None:
            entry.job = None
        found = right(self, id)
        if entry is not None:
            entry.job = job
        return found

    patch.setattr(JobRunner, "kill", kill)


WRONG: tuple[tuple[Callable[[pytest.MonkeyPatch], None], str, str, int], ...] = (
    (_no_sweep, "bootstrap_exec:deployment_invariant_held", "sweep_due", 5),
    (_sweeps_all, "bootstrap_exec:deployment_invariant_held", "sweep_young", 3),
    (_spawns_again, "bootstrap_exec:deployment_invariant_held", "start", 3),
    (_keeps_the_record, "bootstrap_exec:deployment_invariant_held", "health", 3),
    (_open, "bootstrap_exec:deployment_invariant_held", "probe", 1),
    (_first_refusal, "bootstrap_exec:deployment_invariant_held", "probe", 1),
    (_conflict_installs, "bootstrap_exec:deployment_invariant_held", "run", 2),
    (_closed_is_409, "stdin:writes", "write", 3),
    (_time_out_has_no_slug, "stdin:writes", "write", 2),
    (_no_lag, "output:one_reader", "deliver", 4),
    (_short_piece, "output:one_reader", "deliver", 3),
    (_wrong_bytes, "output:one_reader", "deliver", 3),
    (_one_head, "output:one_reader", "write", 1),
    (_timers_stay, "supervision:racing", "pipes", 3),
    (_impatient, "supervision:racing", "look", 3),
    (_all_at_once, "hooks:flood", "hook", 2),
    (_never_over, "lifecycle:drain", "expire", 1),
    (_slots_leak, "processes:slots", "ask", 6),
    (_signals_anybody, "processes:slots", "signal", 6),
    (_deaf_to_deletion, "processes:polls", "delete", 4),
    (_no_eof, "processes:stdin", "message", 2),
    (_never_sweeps, "jobs", "sweep", 5),
    (_kills_nobody, "jobs", "kill", 2),
    (_no_groups, "exec_start:principals", "spawn", 9),
)


@pytest.mark.parametrize(
    ("plant", "key", "kind", "most"), WRONG, ids=[plant.__name__.strip("_") for plant, *_ in WRONG]
)
def test_a_daemon_made_wrong_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    key: str,
    kind: str,
    most: int,
) -> None:
    plant(monkeypatch)
    found = first_divergence(key)
    assert found is not None
    assert found.differences
    assert found.shortest
    assert len(found.trace.steps) <= most, [step.event.name for step in found.trace.steps]
    assert found.trace.steps[-1].event.kind == kind, (found.differences, kind)


# --- The command line ---------------------------------------------------------------------------------------


def test_a_divergence_is_told_and_exits_with_5(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _closed_is_409(monkeypatch)
    assert main(["replay", "stdin", "--jobs", "1"]) == 5
    told = capsys.readouterr().out
    assert "DIVERGES in 3 steps" in told
    assert ">> status 410 is expected, 409 came" in told


def test_json_has_the_shortest_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _closed_is_409(monkeypatch)
    assert main(["replay", "stdin:writes", "--jobs", "1", "--format", "json"]) == 5
    told = json.loads(capsys.readouterr().out)
    assert told["exit"] == 5
    (one,) = told["replayed"][0]["divergences"]
    assert one["shortest"]
    assert len(one["trace"]["steps"]) == 3


def test_a_graph_that_is_cut_off_is_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "stdin", "--states", "3", "--jobs", "1"]) == 3
    assert "nearest to the first" in capsys.readouterr().out


def test_a_stored_run_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "stdin", "a write to a closed stdin is refused", "--format", "json"]) == 0
    stored = tmp_path / "trace.json"
    stored.write_text(capsys.readouterr().out)
    assert main(["replay", "--trace", str(stored)]) == 0
    assert "the daemon does what the model says" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"digest": "0" * 16}, "a run of a model of digest 0000000000000000"),
        ({"model": "nosuch:thing"}, "nosuch"),
        ({"steps": [{"event": "the moon rises"}]}, "has no event 'the moon rises'"),
        ({"steps": 3}, "not a trace"),
        ({"steps": [{"event": "the result is published"}]}, "cannot happen here"),
    ],
    ids=["digest", "model", "event", "shape", "order"],
)
def test_what_is_no_run_of_the_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], told: str
) -> None:
    model = models.load("stdin")
    whole = {"model": model.key, "digest": model.digest(), "steps": []}
    stored = tmp_path / "trace.json"
    stored.write_text(json.dumps({**whole, **change}))
    assert main(["replay", "--trace", str(stored)]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_model_without_an_adapter_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "client"]) == 2
    assert capsys.readouterr().err == (
        f"checker: client cannot be replayed; these can: {', '.join(ADAPTERS)}\n"
    )


def test_what_a_plain_installation_lacks_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = adapters.find_spec
    monkeypatch.setattr(adapters, "find_spec", lambda name: None if name == "re2" else right(name))
    assert "jobs:jobs" not in edges.replayable()
    assert main(["replay", "jobs"]) == 2
    assert capsys.readouterr().err == "checker: jobs cannot be replayed here: install agentd[worker]\n"
    monkeypatch.setattr(edges, "replayable", lambda: ["stdin"])
    assert main(["replay", "--jobs", "1"]) == 0
    assert capsys.readouterr().err == "jobs is left out: it needs agentd[worker]\n"


def test_no_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--trace", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_nothing_of_a_replay_is_left(tmp_path: Path) -> None:
    """Whoever does the work, in this process or forked from it."""
    for jobs in ("1", "2"):
        command = [sys.executable, "-m", "checker", "replay", "hooks", "exec_start:environments", "jobs"]
        environ = {**os.environ, "TMPDIR": str(tmp_path)}
        command += ["--jobs", jobs, "--states", "30"]
        ran = subprocess.run(
            command, cwd=REPOSITORY, env=environ, capture_output=True, timeout=120, check=False
        )
        assert ran.returncode == 3, ran.stderr
        assert list(tmp_path.iterdir()) == []


# --- The parts ----------------------------------------------------------------------------------------------


def test_what_cannot_be_done_ends_a_run_or_is_left_out() -> None:
    model = models.load("supervision:racing")
    kind = adapter("supervision")
    variant = kind.variants[0]
    whole = graph(explore(model, [True] * len(model.events), MOST))
    stray = next(
        (node, number)
        for node, ways in enumerate(whole.ways)
        for number, way in enumerate(ways)
        if model.events[way.event].kind == "stray"
    )
    able, left = traces.doable(kind, whole.trace([*whole.path(stray[0]), stray]), True, variant)
    assert len(able.steps) == len(whole.path(stray[0]))
    assert left == {"stray": 1}


def test_a_daemon_in_memory_tells_what_is_left() -> None:
    memory = MemoryDaemon()
    connection = memory.connect()
    connection.send(b"POST /v1/exec/x/ack HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n1")
    memory.clock.callLater(7, print)
    assert len(memory.left()) >= 1
    connection.leave()
    assert [line for line in memory.left() if "request" in line] == []
    assert [line for line in memory.left() if "timer" in line] != []


def test_an_unknown_answer_is_told_apart() -> None:
    answer = first_answer(b'HTTP/1.1 409 Conflict\r\nContent-Length: 22\r\n\r\n{"error":"x","n":true}rest')
    assert answer is not None
    assert answer[1] == b"rest"
    assert list(Says(409, "x", {"n": True}).differences(answer[0])) == []
    assert list(Says(200, "y", {"n": 1, "m": None}, frozenset({"error"}), True).differences(answer[0])) == [
        "status 200 is expected, 409 came",
        "no body is expected, 22 bytes came",
        'error: "y" is expected, "x" came',
        "n: 1 is expected, true came",
        "m: null is expected, and it is not there",
        'error is not expected, "x" came',
    ]


@pytest.mark.parametrize(
    ("data", "ended", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", False, b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", False, None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", False, None),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", False, b"a"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", False, b""),
        (b"HTTP/1.0 200 OK\r\n\r\nabc", False, None),
        (b"HTTP/1.0 200 OK\r\n\r\nabc", True, b"abc"),
        (b"HTTP/1.1 200 OK\r\n", True, None),
    ],
)
def test_answers_are_taken_apart(data: bytes, ended: bool, body: bytes | None) -> None:
    found = first_answer(data, ended)
    assert (found[0].body if found else None) == body


def test_what_is_no_http_is_said() -> None:
    with pytest.raises(ValueError, match="not HTTP"):
        first_answer(b"SSH-2.0-OpenSSH\r\n\r\n")


def test_frames_of_a_server_are_taken_apart() -> None:
    short, middle, long = (
        b"\x81\x02hi",
        b"\x82\x7e\x01\x00" + b"m" * 256,
        b"\x81\x7f" + bytes(6) + b"\x01\x00",
    )
    whole = short + middle + long + b"l" * 256 + b"\x88\x02\x03\xe8"
    found, length = frames(whole)
    assert length == len(whole)
    assert [(opcode, len(payload)) for opcode, payload in found] == [(1, 2), (2, 256), (1, 256), (8, 2)]
    for cut in range(len(whole)):
        told, taken = frames(whole[:cut])
        assert found[: len(told)] == told
        assert frames(whole[taken:])[0] == found[len(told) :]


def test_a_message_of_a_client_is_masked() -> None:
    assert text("hi") == b"\x81\x82\0\0\0\0hi"
    with pytest.raises(ValueError, match="more than 125"):
        text("x" * 126)


def test_every_adapter_can_do_something_of_its_model() -> None:
    for name in ADAPTERS:
        kind = adapter(name)
        for variant in kind.variants:
            kinds = {event.kind for event in models.load(name).events if kind.can(event, True, variant)}
            assert kinds
    with pytest.raises(ModelError, match="cannot be replayed"):
        adapter("published")

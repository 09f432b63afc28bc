"""Schedules of the real code: that they hold, that they can be had again, and that a daemon made wrong is found out."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from agentd.guest.state import Guest
from agentd.http.messages import Response, refuse
from agentd.http.request import AgentRequest
from agentd.http.router import Endpoint
from agentd.http.site import AgentSite
from agentd.microvm.exec import ExecRoutes
from agentd.process.follow import Follower
from agentd.process.job import Job
from agentd.process.table import ExecTable
from agentd.rules import lifecycle
from agentd.rules import tunnel as tunnel_rules
from agentd.rules.bootstrap import RunVerdict
from agentd.rules.supervision import Action
from agentd.rules.tunnel import Do
from agentd.tunnel.relay import Relay
from agentd.tunnel.websocket import PeerSocket
from checker.cli import main
from checker.model import ModelError
from checker.schedules.scenarios import SCENARIOS, scenario
from checker.schedules.search import Ran, as_text, parse, run, search
from checker.schedules.stage import Asked
from tests.conftest import REPOSITORY


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_schedule_of_a_scenario_is_right(name: str) -> None:
    found = search(scenario(name), 2, 50, 1)
    assert found.failed is None
    assert found.complete
    assert found.schedules > 20


def test_a_scenario_can_be_exhausted() -> None:
    found = search(scenario("bootstrap"), 10, 5, 0)
    assert found.exhausted
    assert found.sampled == 0
    assert found.schedules == search(scenario("bootstrap"), 20, 0, 0).schedules


def test_no_schedule_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    from checker.schedules import search as searching

    seen: list[tuple[str, ...]] = []

    def noted(*arguments: Any) -> Ran:
        ran = run(*arguments)
        seen.append(ran.transcript)
        return ran

    monkeypatch.setattr(searching, "run", noted)
    assert search(scenario("waits"), 3, 0, 0).failed is None
    assert len(set(seen)) == len(seen) > 50


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_choices_are_a_schedule(name: str) -> None:
    """What was drawn at random is had again from its choices, to the letter."""
    drawn = run(scenario(name), (), random.Random(f"{name}/again"))
    again = run(scenario(name), drawn.choices)
    assert again == drawn
    assert parse(as_text(drawn.choices)) == drawn.choices


def test_a_seed_is_the_same_in_every_process() -> None:
    told = []
    for seed in ("0", "1", "random"):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "checker", "schedules", "disconnects", "stream", "--bound", "1"),
                *("--random", "20", "--seed", "7", "--format", "json", "--jobs", "1"),
            ],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        told.append(done.stdout)
    assert told[0] == told[1] == told[2]


def test_a_request_is_cut_where_it_is_told_to() -> None:
    asked = Asked("POST", "/v1/exec/start", {"exec_id": "a"}, cuts=(0.5, 1.0, 1.5))
    pieces = asked.pieces()
    whole = b"".join(Asked("POST", "/v1/exec/start", {"exec_id": "a"}).pieces())
    assert b"".join(pieces) == whole
    assert len(pieces) == 4
    assert pieces[1].endswith(b"\r\n\r\n")
    assert b"".join(pieces[2:]) == b'{"exec_id": "a"}'


# --- Daemons made wrong -------------------------------------------------------------------------------------


def _forgets(patch: pytest.MonkeyPatch) -> None:
    """A start overwrites what another start has made meanwhile."""
    right = ExecTable.start

    def start(self: ExecTable, exec_id: str, make: Callable[[], Job], reap: bool) -> Any:
        self._execs.pop(exec_id, None)
        return right(self, exec_id, make, reap)

    patch.setattr(ExecTable, "start", start)


def _refuses_late(patch: pytest.MonkeyPatch) -> None:
    """A daemon that drains spawns first, and then says that it does not."""
    right = ExecRoutes._spawn
    patch.setattr(lifecycle, "may_start", lambda life: True)

    def spawn(self: ExecRoutes, *arguments: Any) -> Any:
        entry = right(self, *arguments)
        if self._daemon.life().stage is not lifecycle.Stage.SERVING:
            raise refuse(503, "shutting_down", "too late")
        return entry

    patch.setattr(ExecRoutes, "_spawn", spawn)


def _refuses_early(patch: pytest.MonkeyPatch) -> None:
    """A start is answered by its headers, as if the exec had ended."""
    made = Endpoint.refusal

    def refusal(self: Endpoint, request: Any) -> Any:
        if self.route.path == "/v1/exec/start":
            return Response(409, b'{"error":"still_running","detail":""}')
        return made(self, request)

    patch.setattr(Endpoint, "refusal", refusal)


def _answers_first(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement is answered, and not written down."""
    right = ExecTable.ack

    def ack(self: ExecTable, exec_id: str) -> Any:
        entry = self.get(exec_id)
        if entry is None:
            return right(self, exec_id)
        before = entry.record
        found = right(self, exec_id)
        entry.record = before
        return found

    patch.setattr(ExecTable, "ack", ack)


def _answers_twice(patch: pytest.MonkeyPatch) -> None:
    right = AgentRequest._send

    def send(self: AgentRequest, *arguments: Any) -> None:
        channel = self.channel
        right(self, *arguments)
        channel.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    patch.setattr(AgentRequest, "_send", send)


def _keeps_timers(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(Job._actions, Action.CANCEL_TIMERS, lambda job: None)


def _ignores_departures(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AgentRequest, "when_gone", lambda self, act: None)


def _any_token(patch: pytest.MonkeyPatch) -> None:
    """The second run hook installs its token over the first."""
    right = Guest.run_hook

    def run_hook(self: Guest, payload: Any) -> RunVerdict:
        if self.bootstrapped and self.launch_env == {}:
            self._bootstrap = type(self._bootstrap)()
        return right(self, payload)

    patch.setattr(Guest, "run_hook", run_hook)


def _never_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AgentSite, "request_ended", lambda self: None)


def _raises_late(patch: pytest.MonkeyPatch) -> None:
    """A poll that fails when the exec has been acknowledged."""
    right = ExecRoutes._state

    async def state(self: ExecRoutes, entry: Any) -> Any:
        assert entry.record.output_held
        return await right(self, entry)

    patch.setattr(ExecRoutes, "_state", state)


def _skips(patch: pytest.MonkeyPatch) -> None:
    """A reader that was held up goes on one byte further."""
    right = Follower.resumeProducing

    def resume(self: Follower) -> None:
        self.cursor += self.paused and 0 < self.cursor < self._output.span.total
        right(self)

    patch.setattr(Follower, "resumeProducing", resume)


def _listens_while_it_dials(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PeerSocket, "hold", lambda self: None)


def _forgets_what_waits(patch: pytest.MonkeyPatch) -> None:
    """What came while the guest was dialled is not parsed until more comes."""
    patch.setattr(PeerSocket, "_go_on", lambda self: self.transport.resumeProducing())


def _overtakes(patch: pytest.MonkeyPatch) -> None:
    """A guest's bytes go out a turn later, and its end at once."""
    right = Relay.guest_sent

    def sent(self: Relay, data: bytes) -> None:
        self._reactor.callLater(0, right, self, data)

    patch.setattr(Relay, "guest_sent", sent)


def _breaks_in_good_order(patch: pytest.MonkeyPatch) -> None:
    def failed(self: Relay, writing: bool) -> None:
        self._carry_out(tunnel_rules.guest_ended(self._tunnel))

    patch.setattr(Relay, "guest_failed", failed)


def _goes_on_dialling(patch: pytest.MonkeyPatch) -> None:
    def shut(self: Relay) -> None:
        if self._dialing is None and self._guest is not None:
            self._guest.shut()

    patch.setattr(Relay, "_DOINGS", {**Relay._DOINGS, Do.SHUT: shut})


WRONG: tuple[tuple[Callable[[pytest.MonkeyPatch], None], str, str, int], ...] = (
    (_forgets, "two_starts", "2 children", 0),
    (_refuses_late, "drain", "1 children, and may have 0", 1),
    (_refuses_early, "disconnects", "no order explains", 0),
    (_answers_first, "ack_and_exit", "no order explains", 2),
    (_answers_twice, "half_a_body", "was answered", 0),
    (_keeps_timers, "ack_and_exit", "there is still a timer", 0),
    (_ignores_departures, "disconnects", "a wait for whom has left", 2),
    (_never_over, "drain", "a request in flight", 0),
    (_raises_late, "ack_and_exit", "was answered 500", 1),
    (_skips, "stream", "was given bytes from", 3),
    (_listens_while_it_dials, "tunnel", "the caller closed, and the guest had", 3),
    (_forgets_what_waits, "tunnel", "the caller closed, and the guest had", 2),
    (_overtakes, "tunnel", "the caller was given", 3),
    (_breaks_in_good_order, "tunnel_cut", "the guest broke, and the caller was told of an end", 3),
    (_goes_on_dialling, "tunnel_cut", "dialled for a caller who has left", 3),
)


@pytest.mark.parametrize(
    ("plant", "name", "told", "most"), WRONG, ids=[plant.__name__.strip("_") for plant, *_ in WRONG]
)
def test_a_daemon_made_wrong_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    plant: Callable[[pytest.MonkeyPatch], None],
    name: str,
    told: str,
    most: int,
) -> None:
    plant(monkeypatch)
    found = search(scenario(name), 3, 100, 0).failed
    assert found is not None
    assert any(told in line for line in found.wrong), found.wrong
    assert sum(choice > 0 for choice in found.choices) <= most
    assert main(["schedules", name, "--schedule", as_text(found.choices)]) == 1
    out = capsys.readouterr().out
    assert out == "".join(
        [
            *(f"{line}\n" for line in found.transcript),
            *(f"    >> {line}\n" for line in found.wrong),
            f"  again: python -m checker schedules {name} --schedule {as_text(found.choices)}\n",
        ]
    )


# --- The command line ---------------------------------------------------------------------------------------


def test_a_wrong_schedule_is_told_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _never_over(monkeypatch)
    assert main(["schedules", "drain", "two_starts", "--bound", "0", "--random", "0", "--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "drain: 1 schedules" in out
    assert "WRONG" in out
    assert "  again: python -m checker schedules drain --schedule 0" in out
    assert (
        main(["schedules", "drain", "--bound", "0", "--random", "0", "--jobs", "1", "--format", "json"]) == 1
    )
    (told,) = json.loads(capsys.readouterr().out)
    assert told["failed"]["schedule"] == "0"
    assert told["failed"]["transcript"]


def test_time_that_is_over_is_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedules", "drain", "--seconds", "0.000001", "--jobs", "1"]) == 3
    assert "no time for more" in capsys.readouterr().out


def test_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedules", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(SCENARIOS)


def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, complaint in (
        (["nope"], "no scenario 'nope'; there are two_starts"),
        (["drain", "--schedule", "9.9"], "drain: at step 1 there are"),
        (["drain", "--schedule", "a.b"], "'a.b' is no schedule"),
        (["drain", "--schedule", "-1"], "is no schedule"),
        (["--schedule", "0"], "a schedule is of one scenario"),
        (["drain", "--bound", "-1"], "invalid number value"),
        (["bootstrap", "--schedule", ".".join(["0"] * 50 + ["1"])], "over after"),
    ):
        assert main(["schedules", *arguments]) == 2
        error = capsys.readouterr().err
        assert complaint in error
        assert error.count("\n") == 1


def test_a_choice_that_is_not_offered_is_refused() -> None:
    with pytest.raises(ModelError, match="there are 2 actions, and no 7"):
        run(scenario("two_starts"), (7,))

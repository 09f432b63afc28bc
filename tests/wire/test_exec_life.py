"""An exec's life through a socket: poll, ack, kill, procs, timeouts, capture (contract a.3, a.6 to a.8, c)."""

from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred, gatherResults

from tests.conftest import RunningDaemon
from tests.procs import alive
from tests.wire.support import Api

OUTCOME = {
    "exit_code",
    "signal",
    "timed_out",
    "stdout",
    "stderr",
    "truncated",
    "writers_may_be_alive",
    "cause",
    "usage",
}


# -- poll and ack ------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_a_poll_shows_the_outcome_between_exit_and_ack_only(api: Api) -> None:
    """All of its keys or none, and polling changes nothing (contract a.3, a.6)."""
    exec_id = await api.start("echo out; echo err >&2; read line; exit 3", stdin=True)
    assert await api.poll(exec_id) == {"exec_id": exec_id, "phase": "running"}
    await api.stdin(exec_id, signal="eof")
    first = await api.wait(exec_id)
    assert set(first) == {"exec_id", "phase", *OUTCOME}
    assert (first["exit_code"], first["signal"], first["timed_out"]) == (3, None, False)
    assert (first["stdout"], first["stderr"], first["truncated"]) == ("out\n", "err\n", False)
    assert (first["cause"], first["writers_may_be_alive"]) == ("exit", False)
    assert set(first["usage"]) == {"user_seconds", "system_seconds", "max_rss_bytes"}
    assert await api.poll(exec_id) == first
    ack = await api.post(f"/v1/exec/{exec_id}/ack")
    assert ack.json == {**first, "phase": "acked"}
    assert await api.poll(exec_id) == {"exec_id": exec_id, "phase": "acked"}
    again = await api.post(f"/v1/exec/{exec_id}/ack")
    assert again.key == (409, "already_acked")


@pytest_twisted.ensureDeferred
async def test_one_of_many_acks_wins(api: Api) -> None:
    """The others learn that they were not the first (contract a.6)."""
    exec_id = await api.start("head -c 2000000 /dev/zero")
    await api.wait(exec_id)
    replies = await gatherResults(
        [Deferred.fromCoroutine(api.post(f"/v1/exec/{exec_id}/ack")) for _ in range(8)]
    )
    assert sorted(reply.key for reply in replies) == [(200, ""), *([(409, "already_acked")] * 7)]
    (winner,) = (reply for reply in replies if reply.status == 200)
    assert len(winner.json["stdout"]) == 2_000_000


@pytest_twisted.ensureDeferred
async def test_an_ack_of_a_running_exec_changes_nothing(api: Api) -> None:
    """409, and its output is still there later."""
    exec_id = await api.start("echo kept; read line", stdin=True)
    assert (await api.post(f"/v1/exec/{exec_id}/ack")).slug == "still_running"
    await api.stdin(exec_id, signal="eof")
    await api.wait(exec_id)
    assert (await api.post(f"/v1/exec/{exec_id}/ack")).json["stdout"] == "kept\n"


@pytest_twisted.ensureDeferred
async def test_a_body_on_a_route_without_one_is_ignored(api: Api) -> None:
    """Whatever it is."""
    exec_id = await api.start("true")
    await api.wait(exec_id)
    reply = await api.post(f"/v1/exec/{exec_id}/ack", data=b"\xff{not json" * 1000)
    assert reply.status == 200
    assert (await api.call("GET", f"/v1/exec/{exec_id}", data=b"body of a GET")).status == 200


# -- kill and procs ----------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_a_kill_takes_the_group_and_answers_when_that_is_over(api: Api) -> None:
    """In any phase; false when there is nothing to signal."""
    exec_id = await api.start("sleep 998 & sleep 999 & echo up; wait")
    await api.first_output(exec_id)
    (group,) = [g for g in (await api.get("/v1/procs")).json["procs"] if g["exec_id"] == exec_id]
    assert len(group["pids"]) == 3
    reply = await api.post(f"/v1/exec/{exec_id}/kill")
    assert reply.json == {"exec_id": exec_id, "killed": True}
    assert [pid for pid in group["pids"] if alive(pid)] == []
    found = await api.wait(exec_id)
    assert (found["exit_code"], found["signal"], found["cause"]) == (None, 15, "killed")


@pytest_twisted.ensureDeferred
async def test_a_kill_of_what_has_ended_signals_nothing(api: Api) -> None:
    """Before and after the acknowledgement (contract a.7)."""
    exec_id = await api.start(["sleep", "300"])
    assert (await api.post(f"/v1/exec/{exec_id}/kill")).json["killed"] is True
    await api.wait(exec_id)
    assert (await api.post(f"/v1/exec/{exec_id}/kill")).json == {"exec_id": exec_id, "killed": False}
    await api.post(f"/v1/exec/{exec_id}/ack")
    assert (await api.post(f"/v1/exec/{exec_id}/kill")).json == {"exec_id": exec_id, "killed": False}


@pytest_twisted.ensureDeferred
async def test_a_group_that_ignores_term_is_killed_after_the_grace(api: Api) -> None:
    """Its children too."""
    exec_id = await api.start("trap '' TERM; sleep 997 & echo up; sleep 996")
    await api.first_output(exec_id)
    assert (await api.post(f"/v1/exec/{exec_id}/kill")).json["killed"] is True
    found = await api.wait(exec_id)
    assert (found["signal"], found["cause"]) == (9, "killed")


@pytest_twisted.ensureDeferred
async def test_procs_shows_every_exec_in_every_phase(api: Api) -> None:
    """With ascending live pids; an exited one has none (contract a.8)."""
    done = await api.start("true", reap_group_on_exit=True)
    await api.wait(done)
    running = await api.start("sleep 995 & sleep 994")
    found = {group["exec_id"]: group for group in (await api.get("/v1/procs")).json["procs"]}
    assert set(found[done]) == {"exec_id", "pgid", "started_at", "child_exited", "reap", "pids"}
    assert (found[done]["child_exited"], found[done]["pids"], found[done]["reap"]) == (True, [], True)
    group = found[running]
    assert (group["child_exited"], group["reap"]) == (False, False)
    assert group["pids"] == sorted(group["pids"])
    assert group["pgid"] in group["pids"]
    assert isinstance(group["started_at"], int)
    health = await api.health()
    assert health["busy"] is True
    assert health["execs"] == len(found)
    await api.post(f"/v1/exec/{running}/kill")
    await api.wait(running)
    after = {group["exec_id"]: group for group in (await api.get("/v1/procs")).json["procs"]}
    assert (after[running]["child_exited"], after[running]["pids"]) == (True, [])


# -- timeouts and capture ------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_a_timeout_is_told_whatever_the_exit_code(api: Api) -> None:
    """Contract c.7: a child that traps TERM and exits 0 was still timed out; partial output is kept."""
    trapped = await api.run("trap 'exit 0' TERM; echo part; while :; do sleep 0.05; done", timeout_sec=0.3)
    assert (trapped["exit_code"], trapped["signal"], trapped["timed_out"]) == (0, None, True)
    assert (trapped["stdout"], trapped["cause"]) == ("part\n", "timeout")
    plain = await api.run("sleep 993", timeout_sec=0.2)
    assert (plain["exit_code"], plain["signal"], plain["timed_out"], plain["cause"]) == (
        None,
        15,
        True,
        "timeout",
    )


@pytest.mark.parametrize("timeout", [1e9, 1e15, 9.1e18, 1.8e19, 18446744073709549568])
@pytest_twisted.ensureDeferred
async def test_an_absurd_timeout_is_no_deadline(api: Api, timeout: float) -> None:
    """Accepted, and nothing else suffers (contract a.2)."""
    assert (await api.run(["true"], timeout_sec=timeout))["timed_out"] is False


@pytest_twisted.ensureDeferred
async def test_output_past_the_cap_is_cut_and_said(make_daemon: Any) -> None:
    """Each stream on its own; exactly the cap is not truncated (contract c.5)."""
    daemon: RunningDaemon = make_daemon(env={"AGENTD_MAX_OUTPUT_BYTES": "1000"})
    daemon.bootstrap()
    api = Api(daemon.url, daemon.token)
    exact = await api.run("head -c 1000 /dev/zero; head -c 1000 /dev/zero >&2")
    assert (len(exact["stdout"]), len(exact["stderr"]), exact["truncated"]) == (1000, 1000, False)
    over = await api.run("head -c 1001 /dev/zero; printf x >&2")
    assert (len(over["stdout"]), over["stderr"], over["truncated"]) == (1000, "x", True)


@pytest_twisted.ensureDeferred
async def test_a_background_writer_delays_the_result_up_to_the_linger(api: Api) -> None:
    """Then the result says that it may still be alive (contract c.5)."""
    exec_id = await api.start("sleep 992 & echo ok")
    found = await api.wait(exec_id)
    assert (found["stdout"], found["exit_code"], found["writers_may_be_alive"]) == ("ok\n", 0, True)
    assert (await api.post(f"/v1/exec/{exec_id}/kill")).json["killed"] is True
    reaped = await api.run("sleep 991 & echo ok", reap_group_on_exit=True)
    assert (reaped["stdout"], reaped["writers_may_be_alive"]) == ("ok\n", False)

"""Handles to commands: what is sent, what may be repeated, and that a result is read, never inferred."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_twisted
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet import reactor

from agentd.client import errors
from agentd.client.execs import PIPE_BUF, start_body
from agentd.client.retry import NO_RETRY
from tests.client.conftest import Serve
from tests.client.support import Cut, Hang, Request, answer

RUNNING = {"exec_id": "e", "phase": "running"}
EXITED = {
    "exec_id": "e",
    "phase": "exited",
    "exit_code": 0,
    "signal": None,
    "stdout": "out",
    "stderr": "",
    "truncated": False,
    "writers_may_be_alive": False,
}
ACKED = {"exec_id": "e", "phase": "acked"}
HELD = {"Preference-Applied": "wait=25"}


# -- start -------------------------------------------------------------------------------------------------


def test_a_start_says_only_what_differs_from_the_defaults() -> None:
    assert start_body("e", ["true"]) == b'{"exec_id":"e","command":["true"]}'
    full = start_body(
        "e",
        ["a", "b"],
        shell="bash",
        cwd="/",
        env={"A": ""},
        user=0,
        group="staff",
        timeout=0.5,
        stdin=True,
        reap_group_on_exit=True,
        inherit_image_env=True,
        digest=True,
    )
    import json

    assert json.loads(full) == {
        "exec_id": "e",
        "command": ["a", "b"],
        "shell": "bash",
        "cwd": "/",
        "env": {"A": ""},
        "user": 0,
        "group": "staff",
        "timeout_sec": 0.5,
        "stdin": True,
        "reap_group_on_exit": True,
        "inherit_image_env": True,
        "digest": True,
    }


@pytest.mark.parametrize(("exec_id", "command"), [("", ["x"]), ("e", "x"), ("e", b"x"), ("e", ["x", 1])])
def test_a_start_that_cannot_be_is_refused_here(exec_id: str, command: Any) -> None:
    with pytest.raises(ValueError, match=r"exec id|command"):
        start_body(exec_id, command)


@pytest_twisted.ensureDeferred
async def test_a_start_is_repeated_with_the_same_id(serve: Serve) -> None:
    script, client = serve([Cut()], answer(503), answer(200, RUNNING))
    handle = await client.start(["true"])
    sent = [request.json["exec_id"] for request in script.requests]
    assert sent == [handle.exec_id] * 3
    assert script.requests[0].headers["content-type"] == "application/json"


@pytest_twisted.ensureDeferred
async def test_a_program_that_is_not_there_is_reported_at_once(serve: Serve) -> None:
    script, client = serve(answer(500, {"error": "spawn_failed", "detail": "nope: no such file"}))
    with pytest.raises(errors.SpawnFailed, match="nope"):
        await client.start(["nope"])
    assert len(script.requests) == 1


@pytest_twisted.ensureDeferred
async def test_one_round_trip_where_the_daemon_holds_the_start(serve: Serve) -> None:
    script, client = serve(answer(200, EXITED, HELD), answer(200, EXITED | {"phase": "acked"}))
    outcome = await client.run(["true"])
    assert (outcome.stdout, outcome.phase, outcome.succeeded) == ("out", "acked", True)
    assert script.requests[0].headers["prefer"] == "wait=25"
    assert [request.path.rpartition("/")[2] for request in script.requests] == ["start", "ack"]


@pytest_twisted.ensureDeferred
async def test_run_returns_what_it_read_though_the_ack_is_lost(serve: Serve) -> None:
    _, client = serve(answer(200, EXITED, HELD), [Cut()], backoff=NO_RETRY)
    assert (await client.run(["true"])).stdout == "out"


# -- wait --------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_a_wait_asks_to_be_held_and_asks_again_at_once(serve: Serve) -> None:
    script, client = serve(answer(200, RUNNING, HELD), answer(200, EXITED, HELD), poll_interval=1000)
    assert (await client.exec("e").wait()).stdout == "out"
    assert [request.headers["prefer"] for request in script.requests] == ["wait=25"] * 2


@pytest.mark.parametrize("header", [{}, {"Preference-Applied": "respond-async"}])
@pytest_twisted.ensureDeferred
async def test_a_daemon_that_does_not_hold_is_polled(serve: Serve, header: dict[str, str]) -> None:
    script, client = serve(*[answer(200, RUNNING, header)] * 3, answer(200, EXITED, header))
    began = reactor.seconds()
    assert (await client.exec("e").wait()).exit_code == 0
    assert len(script.requests) == 4
    assert reactor.seconds() - began >= 0.03


@pytest_twisted.ensureDeferred
async def test_a_wait_outlives_faults_and_does_not_take_one_for_an_exit(serve: Serve) -> None:
    _, client = serve(answer(200, RUNNING), [Cut()], answer(503), answer(200, EXITED | {"exit_code": 7}))
    assert (await client.exec("e").wait()).exit_code == 7


@pytest_twisted.ensureDeferred
async def test_a_wait_has_a_limit(serve: Serve) -> None:
    script, client = serve(*[answer(200, RUNNING)] * 100)
    with pytest.raises(errors.WaitTimedOut) as late:
        await client.exec("e").wait(0.1)
    assert late.value.retryable
    assert "prefer" not in script.requests[0].headers  # not one whole second is left to be held for


@pytest_twisted.ensureDeferred
async def test_somebody_else_acked(serve: Serve) -> None:
    _, client = serve(answer(200, ACKED))
    with pytest.raises(errors.OutputReleased, match="acknowledged"):
        await client.exec("e").wait()


@pytest_twisted.ensureDeferred
async def test_a_result_once_read_is_not_asked_for_again(serve: Serve) -> None:
    script, client = serve(answer(200, EXITED))
    handle = client.exec("e")
    assert await handle.wait() == await handle.wait()
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("change", "succeeded"),
    [
        ({}, True),
        ({"exit_code": 1}, False),
        ({"timed_out": True}, False),
        ({"exit_code": None, "signal": 9}, False),
    ],
)
@pytest_twisted.ensureDeferred
async def test_success_is_exit_0_in_time(serve: Serve, change: dict[str, Any], succeeded: bool) -> None:
    _, client = serve(answer(200, EXITED | change))
    assert (await client.exec("e").wait()).succeeded is succeeded


# -- ack and kill ------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_an_ack_whose_answer_was_lost_is_still_that_ack(serve: Serve) -> None:
    conflict = answer(409, {"error": "already_acked", "detail": "e"})
    _, client = serve(answer(200, EXITED), [Cut()], conflict)
    handle = client.exec("e")
    await handle.wait()
    acked = await handle.ack()
    assert (acked.phase, acked.stdout) == ("acked", "out")


@pytest_twisted.ensureDeferred
async def test_a_second_ack_is_a_conflict(serve: Serve) -> None:
    conflict = answer(409, {"error": "already_acked", "detail": "e"})
    _, client = serve(
        answer(200, EXITED), conflict, [Cut()], conflict, answer(409, {"error": "still_running"})
    )
    handle = client.exec("e")
    await handle.wait()
    with pytest.raises(errors.AlreadyAcked):
        await handle.ack()
    other = client.exec("e")
    with pytest.raises(errors.AlreadyAcked):  # whose ack it was cannot be known: nothing was read here
        await other.ack()
    with pytest.raises(errors.StillRunning):
        await other.ack()


@pytest_twisted.ensureDeferred
async def test_a_kill_may_be_repeated(serve: Serve) -> None:
    script, client = serve(
        [Cut()], answer(200, {"exec_id": "e", "killed": True}), answer(200, {"exec_id": "e", "killed": False})
    )
    handle = client.exec("e")
    assert [await handle.kill(), await handle.kill()] == [True, False]
    assert len(script.requests) == 3


# -- standard input ----------------------------------------------------------------------------------------


def wrote(request: Request) -> list[Any]:
    data = base64.b64decode(request.json.get("data_b64") or "")
    return answer(200, {"exec_id": "e", "written": len(data), "eof": request.json.get("signal") == "eof"})


async def source(*chunks: bytes) -> AsyncIterator[bytes]:
    for each in chunks:
        yield each


def received(script: Any) -> bytes:
    return b"".join(base64.b64decode(request.json.get("data_b64") or "") for request in script.requests)


@pytest_twisted.ensureDeferred
async def test_a_write_and_an_end_of_file(serve: Serve) -> None:
    script, client = serve(wrote, wrote)
    handle = client.exec("e")
    assert (await handle.write(b"\x00\xff", eof=True)).eof
    assert (await handle.close_stdin()).written == 0
    assert [request.json for request in script.requests] == [
        {"data_b64": "AP8=", "signal": "eof"},
        {"signal": "eof"},
    ]


@pytest.mark.parametrize("step", [[Cut()], answer(503), answer(500, {"error": "stdin_write_failed"})])
@pytest_twisted.ensureDeferred
async def test_a_write_is_sent_once(serve: Serve, step: list[Any]) -> None:
    script, client = serve(step, wrote)
    with pytest.raises(errors.AgentError):
        await client.exec("e").write(b"x")
    assert len(script.requests) == 1


@pytest_twisted.ensureDeferred
async def test_a_slow_child_gets_every_byte_once(serve: Serve) -> None:
    late = answer(408, {"error": "stdin_write_timeout"})
    script, client = serve(wrote, late, late, wrote, wrote, wrote)
    data = bytes(n % 256 for n in range(2 * PIPE_BUF + 10))
    assert await client.exec("e").feed(source(data)) == len(data)
    sizes = [len(base64.b64decode(request.json.get("data_b64") or "")) for request in script.requests]
    assert sizes == [PIPE_BUF, PIPE_BUF, PIPE_BUF, PIPE_BUF, 10, 0]
    assert script.requests[-1].json == {"signal": "eof"}


@pytest_twisted.ensureDeferred
async def test_larger_writes_go_on_after_what_was_taken(serve: Serve) -> None:
    def part(request: Request) -> list[Any]:
        return answer(408, {"error": "stdin_write_timeout", "detail": "slow", "written": 3})

    script, client = serve(part, wrote, wrote)
    assert await client.exec("e").feed(source(b"abcdefgh"), chunk=100_000) == 8
    assert [base64.b64decode(r.json.get("data_b64") or "") for r in script.requests] == [
        b"abcdefgh",
        b"defgh",
        b"",
    ]


@pytest_twisted.ensureDeferred
async def test_larger_writes_to_a_daemon_that_does_not_say_are_not_repeated(serve: Serve) -> None:
    script, client = serve(answer(408, {"error": "stdin_write_timeout"}))
    with pytest.raises(errors.StdinWriteTimeout):
        await client.exec("e").feed(source(b"abc"), chunk=100_000)
    assert len(script.requests) == 1


@pytest_twisted.ensureDeferred
async def test_a_child_that_has_enough_ends_the_feeding_and_the_count_is_told(serve: Serve) -> None:
    _, client = serve(wrote, wrote, answer(410, {"error": "stdin_closed", "written": 5}))
    with pytest.raises(errors.StdinClosed) as closed:
        await client.exec("e").feed(source(bytes(PIPE_BUF), b"abc", bytes(PIPE_BUF)))
    assert closed.value.written == PIPE_BUF + 3 + 5


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=6), st.integers(1, 7))
@pytest_twisted.ensureDeferred
async def test_fed_bytes_arrive_in_order_whatever_the_pieces(chunks: list[bytes], size: int) -> None:
    from tests.client.support import Script, client

    script = Script([wrote] * 200)
    made = client(script.listen())
    try:
        await made.exec("e").feed(source(*chunks), chunk=size)
        assert received(script) == b"".join(chunks)
    finally:
        await made.close()
        await script.close()


@pytest_twisted.ensureDeferred
async def test_an_empty_id_is_refused_before_any_call(serve: Serve) -> None:
    script, client = serve([Hang()])
    with pytest.raises(ValueError, match="exec id"):
        client.exec("")
    assert script.requests == []

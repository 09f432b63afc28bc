"""The worker's connection to an engine: what it says, in which order, and what it does when things go wrong."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol

from agentd._version import VERSION
from agentd.worker import engine as engine_module
from tests.process.support import reactor, soon, until
from tests.worker.conftest import Working
from tests.worker.engine import Failed, TestEngine
from tests.worker.support import PUBLISHED, UNJAILED, Clock, make_worker


def logged(caplog: Any) -> list[str]:
    """Messages of the log, as text."""
    return [record.getMessage() for record in caplog.records]


class Log:
    """What Twisted's log was told."""

    def __init__(self) -> None:
        from twisted.logger import globalLogPublisher

        self.events: list[dict[str, Any]] = []
        self._publisher = globalLogPublisher

    def __enter__(self) -> "Log":
        self._publisher.addObserver(self.events.append)
        return self

    def __exit__(self, *args: object) -> None:
        self._publisher.removeObserver(self.events.append)

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each.get("event") == event]

    @property
    def text(self) -> str:
        from twisted.logger import formatEvent

        return "\n".join(f"{formatEvent(each)} {each}" for each in self.events)


@pytest_twisted.ensureDeferred
async def test_it_announces_itself_and_registers_what_is_published(
    working: Working, engine: TestEngine
) -> None:
    await working(name="shell", namespace="tests")
    announced = engine.frames[0]
    assert announced["function_id"] == "engine::workers::register"
    assert announced["action"] == {"type": "void"}
    assert "invocation_id" not in announced
    data = announced["data"]
    assert (data["name"], data["namespace"], data["version"]) == ("shell", "tests", VERSION)
    assert (data["runtime"], data["pid"], data["isolation"]) == ("python", os.getpid(), None)
    registered = [frame for frame in engine.frames if frame["type"] == "registerfunction"]
    assert len({frame["id"] for frame in registered}) == len(registered)
    for frame in registered:
        facts = PUBLISHED[frame["id"]]
        assert frame["description"] == facts["description"]
        assert frame["request_format"] == facts["request_schema"]
        assert frame["response_format"] == facts["response_schema"]
        assert frame.get("metadata", {}) == facts["metadata"]
    listed = await soon(engine.call("engine::functions::list"))
    assert {entry["function_id"] for entry in listed["functions"]} == {frame["id"] for frame in registered}


@pytest_twisted.ensureDeferred
async def test_it_asks_for_reloads_before_it_serves(working: Working, engine: TestEngine) -> None:
    await working()
    said = [
        frame.get("id") if frame["type"] == "registerfunction" else frame.get("function_id")
        for frame in engine.frames
        if frame["type"] != "invocationresult"
    ]
    assert said[:7] == [
        "engine::workers::register",
        "configuration::get",
        "configuration::register",
        "configuration::get",
        "shell::on-config-change",
        "shell::on-config-change",
        "configuration::get",
    ]
    trigger = next(frame for frame in engine.frames if frame["type"] == "registertrigger")
    assert trigger["trigger_type"] == "configuration"
    assert trigger["config"] == {"configuration_id": "shell", "event_types": ["configuration:updated"]}


@pytest_twisted.ensureDeferred
async def test_calls_are_answered_once_under_their_number_in_any_order(
    working: Working, engine: TestEngine
) -> None:
    worker = await working()
    calls = [
        worker.engine.call("shell::exec", {"command": f"sh -c 'sleep 0.{9 - n}; echo {n}'"}) for n in range(5)
    ]
    assert [(await soon(call))["stdout"] for call in calls] == [f"{n}\n" for n in range(5)]
    # The engine asserts that nothing is answered twice; what nobody waits for is not answered at all.
    before = len(engine.frames)
    engine.route("shell::list", {}, "x", lambda body: None, void=True)
    engine.route("no-such", {}, "x", lambda body: None, void=True)
    await worker.call("shell::list")
    assert [frame["type"] for frame in engine.frames[before:]] == ["invocationresult"]


@pytest_twisted.ensureDeferred
async def test_a_void_call_runs(working: Working, engine: TestEngine, tmp_path: Path) -> None:
    await working()
    marker = tmp_path / "marker"
    engine.route("shell::exec", {"command": f"touch {marker}"}, "x", lambda body: None, void=True)
    await until(marker.exists, "the command")


@pytest_twisted.ensureDeferred
async def test_an_unknown_function_is_said_to_be(working: Working, engine: TestEngine) -> None:
    worker = await working()
    socket = engine.workers[0]
    engine.functions["shell::nothing"] = (socket, {})
    failed = await worker.fails("shell::nothing")
    assert failed.code == "function_not_found"


@pytest_twisted.ensureDeferred
async def test_frames_that_are_not_understood_are_dropped(working: Working, engine: TestEngine) -> None:
    worker = await working()
    socket = engine.workers[0]
    for text in (
        b"not json",
        b"[]",
        b"7",
        b'{"no":"type"}',
        b'{"type":7}',
        b'{"type":"observeradded","function_id":"x"}',
        b'{"type":"invokefunction"}',
        b'{"type":"invokefunction","function_id":7}',
        b'{"type":"invocationresult","invocation_id":"nobody\'s","function_id":"x","result":1}',
        b'{"type":"invocationresult"}',
        b'{"type":"triggerregistrationresult","id":"x"}',
        b'{"type":"pong"}',
        b"[" * 100_000,
        "\ud800".encode("utf-8", "surrogatepass"),
    ):
        socket.sendMessage(text)
    socket.sendMessage(b"OTLP\x00\x01", True)
    before = len(engine.frames)
    socket.say({"type": "ping"})
    await until(lambda: {"type": "pong"} in engine.frames[before:], "a pong")
    # JSON in a binary frame is a frame.
    socket.sendMessage(b'{"type":"ping"}', True)
    await until(lambda: engine.frames.count({"type": "pong"}) == 2, "a second pong")
    assert engine.connections == 1
    await worker.call("shell::list")


@pytest_twisted.ensureDeferred
async def test_a_refused_trigger_is_logged(working: Working, engine: TestEngine) -> None:
    await working()
    with Log() as log:
        error = {"code": "trigger_registration_failed", "message": "no such type"}
        engine.workers[0].say(
            {
                "type": "triggerregistrationresult",
                "id": "1",
                "trigger_type": "configuration",
                "function_id": "f",
                "error": error,
            }
        )
        await until(lambda: log.of("trigger_refused"), "a line")


@pytest_twisted.ensureDeferred
async def test_what_is_no_websocket_ends_the_connection(working: Working, engine: TestEngine) -> None:
    worker = await working(clock=Clock(10))
    engine.workers[0].transport.write(b"\xff\xff this is no frame")
    await until(lambda: engine.connections == 2, "another connection")
    await worker.ready()


@pytest.mark.parametrize("how", ["drop", "close", "stop"])
@pytest_twisted.ensureDeferred
async def test_it_comes_back_after_every_kind_of_end(working: Working, engine: TestEngine, how: str) -> None:
    worker = await working(clock=Clock(10))
    first = engine.workers[0]
    engine.frames.clear()
    if how == "drop":
        engine.drop()
    elif how == "close":
        engine.close(1001)
    else:
        await engine.stop()
        engine.schemas.clear()
        await until(lambda: not engine.workers, "the end of the connection")
        engine.start()
    await until(lambda: engine.connections == 2, "another connection")
    await worker.ready()
    assert engine.frames[0] == {
        "type": "reattach",
        "previous_worker_id": first.id,
        "reattach_token": first.token,
    }
    assert engine.frames[1]["function_id"] == "engine::workers::register"
    # The new engine has the schema again, and the configuration was looked at.
    await until(lambda: "shell" in engine.schemas, "the schema")
    await worker.exec("true")


@pytest_twisted.ensureDeferred
async def test_what_was_changed_while_it_was_away_is_found(working: Working, engine: TestEngine) -> None:
    worker = await working(clock=Clock(10))
    await engine.stop()
    engine.values["shell"] = {**UNJAILED, "denylist_patterns": ["^forbidden"]}
    await until(lambda: not engine.workers, "the end of the connection")
    engine.start()
    await worker.ready()

    async def refused() -> bool:
        return "denylist" in (await worker.fails("shell::exec", {"command": "forbidden"})).message

    while not await refused():
        pass


@pytest_twisted.ensureDeferred
async def test_what_was_under_way_ends_with_the_connection(
    working: Working, engine: TestEngine, tmp_path: Path
) -> None:
    worker = await working(clock=Clock(10))
    marker = tmp_path / "pid"
    running = engine.call(
        "shell::exec",
        {"command": "sh", "args": ["-c", f"echo $$ > {marker}.t; mv {marker}.t {marker}; sleep 30"]},
    )
    await until(marker.exists, "the command")
    asked: list[Any] = []

    def never(data: Any) -> Any:
        asked.append(data)
        return Deferred()

    engine.provided["sandbox::exec"] = never
    target = {"kind": "sandbox", "sandbox_id": "7f2c0c2e-1111-4222-8333-444455556666"}
    forwarded = engine.call("shell::exec", {"command": "x", "target": target})
    await until(lambda: asked, "the forwarded call")
    engine.drop()
    for call in (running, forwarded):
        with pytest.raises(Failed) as failed:
            await soon(call)
        assert failed.value.code == "invocation_stopped"
    pid = int(marker.read_text())
    await until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the command")
    await worker.ready()


@pytest_twisted.ensureDeferred
async def test_without_an_engine_it_complains_once_and_keeps_trying(
    working: Working, engine: TestEngine
) -> None:
    await engine.stop()
    with Log() as log:
        worker = await working(ready=False, clock=Clock(10))
        await until(lambda: log.of("engine_unreachable"), "a complaint")
        assert worker.worker.service is not None
        attempts = 0

        def more(event: dict[str, Any]) -> None:
            nonlocal attempts
            attempts += "no connection to the engine" in str(event.get("log_format"))

        from twisted.logger import globalLogPublisher

        globalLogPublisher.addObserver(more)
        await until(lambda: attempts >= 3, "more attempts")
        globalLogPublisher.removeObserver(more)
        complaints = log.of("engine_unreachable")
    assert len(complaints) == 1
    assert complaints[0]["log_level"].name == "error"
    assert complaints[0]["address"] == f"127.0.0.1:{engine.number}"
    assert not worker.failures
    engine.start()
    await worker.ready()


@pytest_twisted.ensureDeferred
async def test_a_name_that_is_taken_is_final_and_said(working: Working, engine: TestEngine) -> None:
    first = await working()
    with Log() as log:
        second = await working(ready=False, clock=Clock(10))
        await until(lambda: log.of("worker_rejected"), "the rejection")
    said = log.of("worker_rejected")[0]
    assert (said["code"], said["worker"]) == ("WORKER_NAMESPACE_CONFLICT", "shell")
    assert second.worker.service is not None
    assert second.worker.service.engine is not None
    assert second.worker.service.engine.over
    await until(lambda: len(engine.workers) == 1, "the end of the second connection")
    connections = engine.connections
    await first.exec("sleep", "1")  # 10 s of the second one's clock
    assert engine.connections == connections
    # Over HTTP the second one goes on.
    assert json.loads(await second.worker.service.invoke("shell::list", {})) == {"jobs": [], "count": 0}


@pytest_twisted.ensureDeferred
async def test_one_function_that_is_taken_costs_that_function_alone(
    working: Working, engine: TestEngine
) -> None:
    engine.owned.add("shell::kill")
    with Log() as log:
        worker = await working(ready=False)
        await until(lambda: "shell::status" in engine.functions, "the others")
        await until(lambda: log.of("function_conflict"), "a warning")
    assert log.of("function_conflict")[0]["function"] == "shell::kill"
    assert "shell::kill" not in engine.functions
    await worker.exec("true")
    assert engine.connections == 1


@pytest_twisted.ensureDeferred
async def test_a_refusal_is_logged_and_tried_again(working: Working, engine: TestEngine) -> None:
    engine.refuse_upgrade = True
    with Log() as log:
        worker = await working(ready=False, clock=Clock(10))
        await until(lambda: log.of("engine_unreachable"), "a complaint")
        engine.refuse_upgrade = False
        await worker.ready()
        refusal = {"type": "error", "error": {"code": "FORBIDDEN", "message": "not you"}}
        engine.workers[0].say(refusal)
        engine.close(1008)
        await until(lambda: log.of("engine_refused"), "the refusal")
        await until(lambda: engine.connections == 2, "another attempt")
    assert log.of("engine_refused")[0]["code"] == "FORBIDDEN"
    await worker.ready()


@pytest_twisted.ensureDeferred
async def test_a_silent_engine_is_left(working: Working, engine: TestEngine) -> None:
    worker = await working(clock=Clock(20))
    engine.drop()  # the next connection's timers run fast
    await until(lambda: engine.connections == 2, "a second connection")
    with Log() as log:
        engine.workers[0].transport.pauseProducing()  # neither reads nor answers pings
        await until(lambda: log.of("engine_silent"), "the watchdog")
        await until(lambda: engine.connections == 3, "another connection")
    engine.drop()
    await worker.ready()


@pytest_twisted.ensureDeferred
async def test_pings_keep_an_idle_link(working: Working, engine: TestEngine) -> None:
    await working(clock=Clock(20))
    engine.drop()  # the next connection's timers run fast
    await until(lambda: engine.connections == 2, "a second connection")
    pings: list[bytes] = []
    socket = engine.workers[0]
    answer = socket.onPing

    def counted(payload: bytes) -> None:
        pings.append(payload)
        answer(payload)

    socket.onPing = counted  # type: ignore[method-assign]
    await until(lambda: len(pings) >= 4, "pings for longer than the silence that ends a link")
    assert engine.connections == 2


@pytest_twisted.ensureDeferred
async def test_an_engine_that_accepts_and_says_nothing_is_given_up(
    engine: TestEngine, tmp_path: Path
) -> None:
    factory = Factory.forProtocol(Protocol)
    factory.noisy = False
    clock = Clock(50)
    port = reactor.listenTCP(0, factory, interface="127.0.0.1")
    worker = make_worker(engine, tmp_path / "none", url=f"ws://127.0.0.1:{port.getHost().port}", clock=clock)
    clock.hurry()
    with Log() as log:
        worker.worker.begin()
        await until(lambda: log.of("engine_unreachable"), "a complaint")
    await worker.stop()
    await soon(port.stopListening())


@pytest_twisted.ensureDeferred
async def test_headers_go_to_the_engine_and_nowhere_else(working: Working, engine: TestEngine) -> None:
    with Log() as log:
        worker = await working(headers={"Authorization": "Bearer very-secret", "X-Team": "tests"})
        engine.drop()
        await until(lambda: engine.connections == 2, "another connection")
        assert engine.workers[0].headers["authorization"] == "Bearer very-secret"
        assert engine.workers[0].headers["x-team"] == "tests"
        await worker.ready()
        token = engine.workers[0].token
    assert "very-secret" not in log.text
    assert token not in log.text
    assert worker.worker.service is not None
    assert "very-secret" not in repr(worker.worker.service.engine.address)  # type: ignore[union-attr]
    assert token not in repr(worker.worker.service.engine._previous)  # type: ignore[union-attr]


@pytest_twisted.ensureDeferred
async def test_too_many_calls_at_once_are_refused(
    working: Working, engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await working()
    monkeypatch.setattr(engine_module, "MOST_CALLS", 2)
    slow = [engine.call("shell::exec", {"command": "sleep 0.5"}) for _ in range(2)]
    failed = await worker.fails("shell::list")
    assert failed.code == "invocation_failed"
    assert "2 calls" in failed.message
    for call in slow:
        assert (await soon(call))["exit_code"] == 0
    await worker.call("shell::list")


@pytest_twisted.ensureDeferred
async def test_a_bug_is_s216_and_says_nothing(working: Working, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = await working()
    assert worker.worker.service is not None
    monkeypatch.setattr(worker.worker.service.jobs, "list", lambda: 1 / 0)
    with Log() as log:
        failed = await worker.fails("shell::list")
    assert (failed.code, failed.message) == ("S216", "internal error; the log says more")
    assert "ZeroDivisionError" in log.text


@pytest_twisted.ensureDeferred
async def test_a_call_of_ours_has_a_deadline(working: Working, engine: TestEngine) -> None:
    worker = await working(clock=Clock(10))
    engine.provided["sandbox::exec"] = lambda data: Deferred()
    target = {"kind": "sandbox", "sandbox_id": "7f2c0c2e-1111-4222-8333-444455556666"}
    failed = await worker.fails("shell::exec", {"command": "x", "target": target, "timeout_ms": 1000})
    assert failed.code == "S216"
    assert "TIMEOUT" in failed.message


@pytest_twisted.ensureDeferred
async def test_a_malformed_error_is_an_error(working: Working, engine: TestEngine) -> None:
    worker = await working()
    target = {"kind": "sandbox", "sandbox_id": "7f2c0c2e-1111-4222-8333-444455556666"}
    held: list[Any] = []
    engine.provided["sandbox::exec"] = lambda data: held.append(data) or Deferred()
    running = engine.call("shell::exec", {"command": "x", "target": target})
    await until(lambda: held, "the call")
    number = next(
        frame["invocation_id"]
        for frame in reversed(engine.frames)
        if frame.get("function_id") == "sandbox::exec"
    )
    engine.workers[0].say(
        {"type": "invocationresult", "invocation_id": number, "function_id": "x", "error": "boom"}
    )
    with pytest.raises(Failed) as failed:
        await soon(running)
    assert failed.value.code == "S216"
    assert worker.engine is engine

"""The life of the configuration: boot, reload, refusal, and what is never replaced by something worse."""

import json
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from agentd.worker.settings import SHIPPED, schema
from tests.process.support import reactor, soon, until
from tests.worker.conftest import Working
from tests.worker.engine import Failed, TestEngine
from tests.worker.support import UNJAILED, Clock, RunningWorker
from tests.worker.test_engine import Log

STATUS = "shell::config-status"
GOOD = {"last_outcome": "applied", "last_error": None, "rejected_reloads": 0}


async def refused(worker: RunningWorker) -> str:
    """Why a worker did not start. Nothing of it was visible."""
    await until(lambda: worker.failures, "the end of the start")
    assert not [id for id in worker.engine.functions if id != "shell::on-config-change"]
    (reason,) = worker.failures
    return reason


def registrations(engine: TestEngine) -> list[dict[str, Any]]:
    return [
        frame["data"]
        for frame in engine.frames
        if frame.get("function_id") == "configuration::register" and "data" in frame
    ]


# -- boot ----------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_without_seed_or_stored_value_the_shipped_one_is_stored(
    working: Working, engine: TestEngine
) -> None:
    worker = await working(None)
    (sent,) = registrations(engine)
    assert (sent["id"], sent["name"]) == ("shell", "Shell")
    assert sent["initial_value"] == SHIPPED == engine.values["shell"]
    assert sent["schema"] == schema()
    assert await worker.call(STATUS) == GOOD


@pytest_twisted.ensureDeferred
async def test_a_seed_is_stored_once_and_a_stored_value_stays(working: Working, engine: TestEngine) -> None:
    first = await working("fs:\n  allow_unjailed: true\nenv: {inherit: true}\ndefault_timeout_ms: 777\n")
    assert engine.values["shell"]["default_timeout_ms"] == 777
    await soon(first.worker.stop())
    await until(lambda: not engine.workers, "the end of the first")
    await working({**UNJAILED, "default_timeout_ms": 888})
    assert engine.values["shell"]["default_timeout_ms"] == 777
    assert "initial_value" not in registrations(engine)[-1]


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "workers:\n  - name: x\nport: 1\n"],
)
@pytest_twisted.ensureDeferred
async def test_somebody_elses_file_is_left_alone(working: Working, engine: TestEngine, text: str) -> None:
    await working(text)
    assert engine.values["shell"] == SHIPPED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fs: [", "not YAML at line"),
        ("\x00", "not YAML"),
        ("- a\n- list\n", "object"),
        ("inherit_env: true\n", "removed in 0.7.0"),
        ("allowlist: []\n", "removed in 0.8.0"),
        ("fs: {host_root: /tmp}\n", "fs.host_roots"),
        ("max_timeout_ms: 1\n", "fs.allow_unjailed"),
        ("fs: {allow_unjailed: yes}\nenv: {inherit_env: true}\n", "env.inherit"),
        ("fs: {host_roots: [/no/such/root]}\n", "/no/such/root"),
        ("fs: {allow_unjailed: true}\ncode: {non_accessible_globs: ['[']}\n", "non_accessible_globs"),
        ("fs: {allow_unjailed: true}\ndenylist_patterns: ['(']\n", "denylist_patterns"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_seed_that_cannot_be_used_ends_the_start(
    working: Working, engine: TestEngine, text: str, said: str
) -> None:
    worker = await working(text, ready=False)
    assert said in await refused(worker)
    assert "shell" not in engine.values


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (None, "null"),
        ([], "object"),
        ({"inherit_env": True, "fs": {"allow_unjailed": True}}, "removed in 0.7.0"),
        ({"fs": {}}, "fs.host_roots is empty"),
        ({"fs": {"host_roots": ["/no/such/root"]}}, "/no/such/root"),
        ({"fs": {"allow_unjailed": True}, "max_timeout_ms": "long"}, "SCHEMA_INVALID"),
        ({"fs": {"allow_unjailed": True}, "env": {"inherit": True, "alow": []}}, "SCHEMA_INVALID"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_stored_value_that_cannot_be_used_ends_the_start(
    working: Working, engine: TestEngine, stored: Any, said: str
) -> None:
    engine.values["shell"] = stored
    worker = await working(ready=False)
    assert said in await refused(worker)
    assert engine.values["shell"] == stored


@pytest_twisted.ensureDeferred
async def test_without_a_configuration_worker_the_start_ends(working: Working, engine: TestEngine) -> None:
    tried: list[float] = []

    def missing(data: Any) -> Any:
        tried.append(reactor.seconds())
        raise Failed("function_not_found", "Function 'configuration::get' not found")

    engine.provided["configuration::get"] = missing
    worker = await working(ready=False)
    assert "function_not_found" in await refused(worker)
    assert len(tried) == 3
    assert tried[1] - tried[0] >= 0.25
    assert tried[2] - tried[1] >= 0.5


@pytest_twisted.ensureDeferred
async def test_a_configuration_worker_that_is_late_is_waited_for(
    working: Working, engine: TestEngine
) -> None:
    tries = 0

    def late(data: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 2:
            del engine.provided["configuration::get"]
        raise Failed("function_not_found", "not yet")

    engine.provided["configuration::get"] = late
    await working()
    assert tries == 2


@pytest_twisted.ensureDeferred
async def test_a_call_that_is_never_answered_ends_the_start(working: Working, engine: TestEngine) -> None:
    engine.provided["configuration::register"] = lambda data: Deferred()
    worker = await working(ready=False, clock=Clock(50))
    assert "TIMEOUT" in await refused(worker)


@pytest_twisted.ensureDeferred
async def test_a_connection_lost_during_the_start_is_no_failure(working: Working, engine: TestEngine) -> None:
    def drop(data: Any) -> Any:
        del engine.provided["configuration::register"]
        engine.drop()
        return Deferred()

    engine.provided["configuration::register"] = drop
    worker = await working(ready=False, clock=Clock(10))
    await worker.ready()
    assert engine.connections == 2


@pytest_twisted.ensureDeferred
async def test_a_connection_lost_after_the_reload_was_announced_announces_it_once(
    working: Working, engine: TestEngine
) -> None:
    def get(data: Any) -> Any:
        if engine.triggers and engine.connections == 1:
            engine.drop()
            return Deferred()
        return engine._configuration_get(data)

    engine.provided["configuration::get"] = get
    worker = await working(ready=False, clock=Clock(10))
    await worker.ready()
    assert engine.connections == 2
    assert len(engine.triggers) == 1


@pytest_twisted.ensureDeferred
async def test_what_changes_during_the_start_is_in_force_after_it(
    working: Working, engine: TestEngine
) -> None:
    """Between the first fetch and the trigger nobody is told of a change: so it is fetched again."""
    fetched = 0

    def get(data: Any) -> Any:
        nonlocal fetched
        answer = engine._configuration_get(data)
        fetched += not data.get("raw")
        if fetched == 1:
            engine.values["shell"] = {**UNJAILED, "denylist_patterns": ["^late"]}
        return answer

    engine.provided["configuration::get"] = get
    worker = await working()
    assert "denylist" in (await worker.fails("shell::exec", {"command": "late"})).message


@pytest_twisted.ensureDeferred
async def test_a_bad_value_between_the_two_fetches_ends_the_start(
    working: Working, engine: TestEngine
) -> None:
    fetched = 0

    def get(data: Any) -> Any:
        nonlocal fetched
        fetched += not data.get("raw")
        return {"id": "shell", "value": {"fs": {}}} if fetched == 2 else engine._configuration_get(data)

    engine.provided["configuration::get"] = get
    worker = await working(ready=False)
    assert "fs.host_roots is empty" in await refused(worker)


# -- reload --------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_a_change_is_in_force_at_once_and_as_a_whole(
    working: Working, engine: TestEngine, tmp_path: Path
) -> None:
    worker = await working()
    running = engine.call("shell::exec", {"command": "sleep 0.4; true", "args": None})
    value = {
        "fs": {"host_roots": [str(tmp_path)]},
        "env": {"inherit": True},
        "working_dir": str(tmp_path),
    }
    await soon(engine.call("configuration::set", {"id": "shell", "value": value}))

    async def there() -> bool:
        return bool((await worker.exec("pwd"))["stdout"] == f"{tmp_path}\n")

    while not await there():
        pass
    assert (await worker.fails("shell::exec", {"command": "pwd", "cwd": "/"})).code == "S215"
    assert await worker.call(STATUS) == GOOD
    assert "exit_code" in await soon(running)


@pytest_twisted.ensureDeferred
async def test_a_bad_value_is_refused_and_the_last_good_one_stays(
    working: Working, engine: TestEngine
) -> None:
    worker = await working({**UNJAILED, "denylist_patterns": ["^no$"]})
    for count, bad in enumerate(
        [
            {"fs": {"allow_unjailed": True}, "denylist_patterns": ["("]},
            {"fs": {"allow_unjailed": True}, "inherit_env": True},
            {"fs": {"host_roots": ["/no/such/root"]}},
        ],
        1,
    ):
        with Log() as log:
            engine.edit("shell", bad)
            assert await worker.call("shell::on-config-change", {"id": "shell"}) == {"ok": True}
            await until(lambda: log.of("configuration_rejected"), "a line")
        # The event and the call above have both been refused.
        status = await worker.call(STATUS)
        assert (status["last_outcome"], status["rejected_reloads"]) == ("rejected", 2 * count)
        assert status["last_error"]
        assert "denylist" in (await worker.fails("shell::exec", {"command": "no"})).message
    await worker.set(UNJAILED)
    assert await worker.call(STATUS) == {"last_outcome": "applied", "last_error": None, "rejected_reloads": 6}
    await worker.fails("shell::exec", {"command": "no"})


@pytest_twisted.ensureDeferred
async def test_what_cannot_be_fetched_changes_nothing(working: Working, engine: TestEngine) -> None:
    worker = await working()
    engine.values["shell"] = None
    failed = await worker.fails("shell::on-config-change")
    assert failed.code == "S216"
    assert "SCHEMA_INVALID" in failed.message
    assert await worker.call(STATUS) == GOOD
    await worker.exec("true")


@pytest_twisted.ensureDeferred
async def test_anybody_may_ask_for_a_reload_and_nobody_can_say_what_to(
    working: Working, engine: TestEngine
) -> None:
    worker = await working()
    for data in (None, [], "x", {"id": "other"}, {"new_value": {"fs": {"host_roots": ["/"]}}}):
        assert await worker.call("shell::on-config-change", data) == {"ok": True}
    assert await worker.call(STATUS, {"anything": True}) == GOOD


@pytest_twisted.ensureDeferred
async def test_of_changes_that_come_together_the_last_wins(working: Working, engine: TestEngine) -> None:
    worker = await working()
    for number in range(20):
        engine.edit("shell", {**UNJAILED, "denylist_patterns": [f"^v{number}$"]})
    await worker.call("shell::on-config-change")
    assert "denylist" in (await worker.fails("shell::exec", {"command": "v19"})).message
    assert (await worker.fails("shell::exec", {"command": "v18"})).code == "S216"


@pytest_twisted.ensureDeferred
async def test_going_from_a_jail_to_none_is_warned_of(
    working: Working, engine: TestEngine, tmp_path: Path
) -> None:
    worker = await working({"fs": {"host_roots": [str(tmp_path)]}, "env": {"inherit": True}})
    with Log() as log:
        await worker.set({"fs": {"host_roots": [str(tmp_path)]}, "env": {"inherit": True}})
        assert not log.of("configuration_widened")
        await worker.set(UNJAILED)
        (said,) = log.of("configuration_widened")
    assert said["log_level"].name == "warn"
    assert (await worker.exec("pwd", cwd="/"))["stdout"] == "/\n"


@pytest_twisted.ensureDeferred
async def test_values_of_variables_are_in_no_log(working: Working, engine: TestEngine) -> None:
    with Log() as log:
        worker = await working(environ={"PATH": "/usr/bin:/bin", "SECRET": "in-the-environment"})
        await worker.exec("env", env={"MINE": "in-the-call"}, stdin="on-stdin")
        await worker.fails("shell::exec", {"command": "env", "env": {"PATH": "in-a-refused-call"}})
    for secret in ("in-the-environment", "in-the-call", "on-stdin", "in-a-refused-call"):
        assert secret not in log.text


def test_the_shipped_value_is_what_its_schema_says() -> None:
    import jsonschema

    jsonschema.validate(json.loads(json.dumps(SHIPPED)), schema())


@pytest_twisted.ensureDeferred
async def test_a_plain_installation_says_what_it_lacks(
    working: Working, engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentd.worker.face.find_spec", lambda name: None)
    worker = await working(ready=False)
    assert "agentd[worker]" in await refused(worker)
    assert not engine.frames

"""Background jobs over an engine: their records, their ends, and what forgets them (reference B1)."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest_twisted
from twisted.internet.defer import Deferred, DeferredList

from agentd.worker import job_runner
from tests.process.support import soon, until
from tests.procs import alive
from tests.worker.conftest import Working
from tests.worker.engine import Failed, TestEngine
from tests.worker.support import UNJAILED, Clock, RunningWorker
from tests.worker.test_exec import SANDBOX


async def start(worker: RunningWorker, script: str, **fields: Any) -> str:
    """The id of a new job."""
    result = await worker.call("shell::exec_bg", {"command": "sh", "args": ["-c", script], **fields})
    assert result["argv"] == ["sh", "-c", script]
    return str(result["job_id"])


async def record(worker: RunningWorker, id: str) -> dict[str, Any]:
    found: dict[str, Any] = (await worker.call("shell::status", {"job_id": id}))["job"]
    assert (found["finished_at_ms"] is None) == (found["status"] == "running")
    return found


async def ended(worker: RunningWorker, id: str, *, output: str = "") -> dict[str, Any]:
    """The record once it has ended, and its stdout begins with `output`."""
    while True:
        found = await record(worker, id)
        if found["status"] != "running" and found["stdout"].startswith(output):
            return found


@pytest_twisted.ensureDeferred
async def test_a_job_runs_and_its_output_comes_with_its_end(working: Working, tmp_path: Path) -> None:
    worker = await working()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    id = await start(worker, f"echo out; echo err >&2; read line < {gate}; exit 0")
    assert re.fullmatch(r"job-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", id)
    running = await record(worker, id)
    assert (running["status"], running["stdout"], running["exit_code"]) == ("running", "", None)
    with open(gate, "w") as file:
        file.write("go\n")
    found = await ended(worker, id)
    assert (found["status"], found["exit_code"]) == ("finished", 0)
    assert (found["stdout"], found["stderr"]) == ("out\n", "err\n")
    assert found["finished_at_ms"] >= found["started_at_ms"] > 1_600_000_000_000


@pytest_twisted.ensureDeferred
async def test_how_jobs_fail(working: Working) -> None:
    worker = await working()
    failed = await ended(worker, await start(worker, "exit 7"))
    assert (failed["status"], failed["exit_code"]) == ("failed", 7)
    struck = await ended(worker, await start(worker, "kill -TERM $$"))
    assert (struck["status"], struck["exit_code"]) == ("failed", None)


@pytest_twisted.ensureDeferred
async def test_a_job_ignores_the_callers_timeout_and_takes_stdin(working: Working) -> None:
    worker = await working()
    found = await ended(worker, await start(worker, "sleep 0.2; cat", timeout_ms=1, stdin="in", cwd="/"))
    assert (found["status"], found["stdout"]) == ("finished", "in")


@pytest_twisted.ensureDeferred
async def test_a_kill_ends_the_record_at_once_and_the_group(working: Working, tmp_path: Path) -> None:
    worker = await working()
    marker = tmp_path / "pid"
    id = await start(worker, f"echo said; sleep 50 & echo $! > {marker}.t; mv {marker}.t {marker}; wait")
    await until(marker.exists, "the job's own child")
    killed = await worker.call("shell::kill", {"job_id": id})
    assert killed == {"job_id": id, "killed": True, "status": "killed"}
    first = await record(worker, id)
    assert first["status"] == "killed"
    again = await worker.call("shell::kill", {"job_id": id})
    assert again == {"job_id": id, "killed": False, "status": "killed", "reason": "not running"}
    found = await ended(worker, id, output="said\n")
    assert (found["finished_at_ms"], found["exit_code"]) == (first["finished_at_ms"], None)
    pid = int(marker.read_text())
    await until(lambda: not alive(pid), "the end of the group")


@pytest_twisted.ensureDeferred
async def test_a_job_that_has_ended_is_not_killed(working: Working) -> None:
    worker = await working()
    id = await start(worker, "exit 0")
    await ended(worker, id)
    killed = await worker.call("shell::kill", {"job_id": id})
    assert killed == {"job_id": id, "killed": False, "status": "finished", "reason": "not running"}


@pytest_twisted.ensureDeferred
async def test_unknown_jobs_are_s211(working: Working) -> None:
    worker = await working()
    for function in ("shell::status", "shell::kill"):
        failed = await worker.fails(function, {"job_id": "job-of-nobody"})
        assert (failed.code, failed.message) == ("S211", "no such job: job-of-nobody")
        for data, said in [({}, "job_id"), ({"job_id": 3}, "job_id"), ([], "object")]:
            misfit = await worker.fails(function, data)
            assert misfit.code == "invocation_failed"
            assert said in misfit.message
            assert misfit.message.startswith("serialization error: ")


@pytest_twisted.ensureDeferred
async def test_a_list_sums_up_and_tells_nothing_confidential(working: Working) -> None:
    worker = await working({**UNJAILED, "max_output_bytes": 3})
    assert await worker.call("shell::list", {"anything": 1}) == {"jobs": [], "count": 0}
    one, two = await start(worker, "echo long enough; echo x >&2"), await start(worker, "exit 1")
    await ended(worker, one)
    await ended(worker, two)
    found = await worker.call("shell::list")
    assert found["count"] == 2
    by_id = {job["id"]: job for job in found["jobs"]}
    assert (by_id[one]["stdout_truncated"], by_id[one]["stderr_truncated"]) == (True, False)
    assert by_id[two]["status"] == "failed"
    assert not {"argv", "stdout", "stderr"} & set(by_id[one])


@pytest_twisted.ensureDeferred
async def test_only_so_many_run_at_once_however_they_are_started(
    working: Working, engine: TestEngine
) -> None:
    worker = await working({**UNJAILED, "max_concurrent_jobs": 3})
    request = {"command": "sleep", "args": ["50"], "cwd": "/"}
    results = await soon(
        DeferredList([engine.call("shell::exec_bg", request) for _ in range(8)], consumeErrors=True)
    )
    started = [result["job_id"] for good, result in results if good]
    refused = [result.value for good, result in results if not good]
    assert len(started) == 3
    assert len(refused) == 5
    for reason in refused:
        assert reason.code == "invocation_failed"
        assert "max concurrent jobs" in reason.message
        assert "3" in reason.message
    await worker.call("shell::kill", {"job_id": started[0]})
    assert await start(worker, "exit 0")
    # What came to nothing takes no place.
    await worker.fails("shell::exec_bg", {"command": "/nowhere"})
    await until_count(worker, 2)
    await start(worker, "exit 0")


async def until_count(worker: RunningWorker, running: int) -> None:
    while True:
        found = await worker.call("shell::list")
        if sum(job["status"] == "running" for job in found["jobs"]) <= running:
            return


@pytest_twisted.ensureDeferred
async def test_the_cap_on_a_jobs_time_is_that_of_its_start(working: Working) -> None:
    worker = await working({**UNJAILED, "max_bg_timeout_ms": 1500})
    id = await start(worker, "echo begun; sleep 50")
    await worker.set({**UNJAILED, "max_bg_timeout_ms": 0})
    found = await ended(worker, id)
    assert (found["status"], found["exit_code"], found["stdout"]) == ("killed", None, "begun\n")
    assert "1500 ms" in found["stderr"].splitlines()[-1]
    unbounded = await start(worker, "sleep 0.5")
    assert (await ended(worker, unbounded))["status"] == "finished"


@pytest_twisted.ensureDeferred
async def test_pipes_that_stay_open_are_given_up(working: Working) -> None:
    worker = await working(clock=Clock(20))
    id = await start(worker, "sleep 60 & echo $!")
    found = await ended(worker, id)
    assert (found["status"], found["stdout_truncated"], found["stderr_truncated"]) == ("finished", True, True)
    os.kill(int(found["stdout"]), signal.SIGKILL)


@pytest_twisted.ensureDeferred
async def test_jobs_age_out(working: Working) -> None:
    now = [1_700_000_000.0]
    worker = await working({**UNJAILED, "job_retention_secs": 100}, wall_clock=lambda: now[0])
    old, running = await start(worker, "exit 0"), await start(worker, "sleep 50")
    await ended(worker, old)
    now[0] += 100
    assert (await worker.call("shell::list"))["count"] == 2
    now[0] += 0.01
    assert [job["id"] for job in (await worker.call("shell::list"))["jobs"]] == [running]
    assert (await worker.fails("shell::status", {"job_id": old})).code == "S211"


@pytest_twisted.ensureDeferred
async def test_jobs_are_swept_without_being_asked_for(working: Working) -> None:
    now = [1_700_000_000.0]
    worker = await working({**UNJAILED, "job_retention_secs": 10}, wall_clock=lambda: now[0], clock=Clock(20))
    id = await start(worker, "exit 0")
    await ended(worker, id)
    now[0] += 11
    assert worker.worker.service is not None
    table = worker.worker.service.jobs
    await until(lambda: not table._entries, "a sweep")
    assert (await worker.fails("shell::status", {"job_id": id})).code == "S211"


@pytest_twisted.ensureDeferred
async def test_ended_jobs_cannot_fill_the_memory(working: Working, monkeypatch: Any) -> None:
    monkeypatch.setattr(job_runner, "KEPT_BYTES", 2500)
    worker = await working()
    ids = []
    for _ in range(4):
        ids.append(await start(worker, "head -c 1000 /dev/zero | tr '\\0' x"))
        await ended(worker, ids[-1], output="x")
    assert [job["id"] for job in (await worker.call("shell::list"))["jobs"]] == ids[2:]


@pytest_twisted.ensureDeferred
async def test_jobs_survive_a_lost_connection(working: Working, engine: TestEngine, tmp_path: Path) -> None:
    worker = await working(clock=Clock(10))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    id = await start(worker, f"read line < {gate}; echo $line")
    engine.drop()
    await until(lambda: not engine.functions, "the loss")
    await worker.ready()
    with open(gate, "w") as file:
        file.write("still here\n")
    assert (await ended(worker, id))["stdout"] == "still here\n"


@pytest_twisted.ensureDeferred
async def test_a_stopping_worker_takes_its_jobs_along(working: Working, tmp_path: Path) -> None:
    worker = await working()
    marker = tmp_path / "pid"
    await start(worker, f"echo $$ > {marker}.t; mv {marker}.t {marker}; sleep 50")
    await until(marker.exists, "the job")
    await soon(worker.worker.stop())
    assert not os.path.exists(f"/proc/{int(marker.read_text())}")


# -- in a sandbox ------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_a_job_in_a_sandbox(working: Working, engine: TestEngine) -> None:
    worker = await working()
    answers: list[Deferred[Any]] = []
    asked: list[Any] = []

    def run(data: Any) -> Any:
        asked.append(data)
        answers.append(Deferred())
        return answers[-1]

    engine.provided["sandbox::exec"] = run

    async def job() -> str:
        request = {"command": "make", "target": SANDBOX, "timeout_ms": 70_000}
        return str((await worker.call("shell::exec_bg", request))["job_id"])

    good, bad, killed = await job(), await job(), await job()
    await until(lambda: len(answers) == 3, "the forwarded calls")
    assert asked[0]["timeout_ms"] == 30_000
    answers[0].callback({"stdout": "done", "stderr": "", "exit_code": 0})
    answers[1].errback(Failed("S200", "it broke"))
    assert (await ended(worker, good))["stdout"] == "done"
    failed = await ended(worker, bad)
    assert failed["status"] == "failed"
    assert "S200" in failed["stderr"]
    said = await worker.call("shell::kill", {"job_id": killed})
    assert said["killed"]
    assert "sandbox::exec" in said["reason"]
    assert "timeout_ms" in said["reason"]
    answers[2].callback({"stdout": "late", "stderr": "", "exit_code": 0})
    found = await ended(worker, killed, output="late")
    assert found["status"] == "killed"

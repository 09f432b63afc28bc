"""A workload's own handlers of lifecycle hooks: real programs, run by the real runner (contract g.4)."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from agentd.guest.handlers import HandlerResult, HandlerRunner
from agentd.rules.hooks import Hook
from tests.process.support import Scene, make_tools, pending, reactor, result_of, soon, until
from tests.procs import alive


@frozen
class Workshop:
    """A directory of handlers, and a runner of them."""

    directory: Path

    def handler(self, hook: Hook, script: str, mode: int = 0o755) -> None:
        path = self.directory / hook.value
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(mode)

    def runner(self, budget: float = 20.0, environ: dict[str, str] | None = None) -> HandlerRunner:
        path = {"PATH": os.defpath}
        return HandlerRunner(make_tools(), str(self.directory), budget, path if environ is None else environ)

    async def run(self, hook: Hook, script: str, budget: float = 20.0) -> HandlerResult:
        self.handler(hook, script)
        result = await soon(self.runner(budget).run(hook, {}))
        assert result is not None
        return result

    def text(self, name: str) -> str:
        return (self.directory / name).read_text()


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest_twisted.ensureDeferred
async def test_without_a_handler_there_is_no_outcome(workshop: Workshop) -> None:
    assert await soon(workshop.runner().run(Hook.SUSPEND, {})) is None
    nowhere = HandlerRunner(make_tools(), "/nope/hooks.d", 1.0, {})
    assert await soon(nowhere.run(Hook.SUSPEND, {})) is None


@pytest.mark.parametrize("code", [0, 3])
@pytest_twisted.ensureDeferred
async def test_its_exit_is_the_outcome(workshop: Workshop, code: int) -> None:
    result = await workshop.run(Hook.RESUME, f"exit {code}")
    assert (result.exit_code, result.signal, result.timed_out, result.error) == (code, None, False, None)
    assert 0 <= result.duration_ms < 20_000


@pytest_twisted.ensureDeferred
async def test_its_death_is_the_outcome(workshop: Workshop) -> None:
    result = await workshop.run(Hook.RESUME, "kill -TERM $$")
    assert (result.exit_code, result.signal, result.timed_out) == (None, signal.SIGTERM, False)


@pytest_twisted.ensureDeferred
async def test_its_time_is_measured(workshop: Workshop) -> None:
    assert (await workshop.run(Hook.RESUME, "sleep 0.3")).duration_ms >= 300


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda path: os.mkfifo(path, 0o755), "not a regular file"),
        (lambda path: path.symlink_to("/dev/null"), "not a regular file"),
        (lambda path: path.write_text("#!/bin/sh\n"), "not executable"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_what_cannot_be_run(workshop: Workshop, spoil: Callable[[Path], Any], error: str) -> None:
    spoil(workshop.directory / "suspend")
    result = await soon(workshop.runner().run(Hook.SUSPEND, {}))
    assert result == HandlerResult(None, None, False, 0, error)


@pytest.mark.parametrize(
    ("content", "reason"),
    [("#!/nope/interpreter\n", "No such file or directory"), ("\0\1\2", "Exec format error")],
)
@pytest_twisted.ensureDeferred
async def test_a_start_that_fails(workshop: Workshop, content: str, reason: str) -> None:
    path = workshop.directory / "suspend"
    path.write_text(content)
    path.chmod(0o755)
    result = await soon(workshop.runner().run(Hook.SUSPEND, {}))
    assert result is not None
    assert result.error == f"spawn failed: {path}: {reason}"
    assert (result.exit_code, result.signal, result.timed_out) == (None, None, False)


@pytest_twisted.ensureDeferred
async def test_a_symbolic_link_to_a_program_is_one(workshop: Workshop) -> None:
    (workshop.directory / "suspend").symlink_to("/bin/true")
    result = await soon(workshop.runner().run(Hook.SUSPEND, {}))
    assert result is not None
    assert result.exit_code == 0


@pytest_twisted.ensureDeferred
async def test_where_and_with_what_it_runs(workshop: Workshop) -> None:
    """The daemon's own environment, not cleared, then the launch environment, then the hook's name."""
    out = workshop.directory
    look = "env > env; cat > stdin; cut -d ' ' -f 5 /proc/$$/stat > pgid"
    workshop.handler(Hook.SUSPEND, f"pwd > {out}/started-in; cd {out}; {look}")
    environ = {"PATH": os.defpath, "A": "daemon", "B": "daemon", "AGENTD_PORT": "9000"}
    launch = {"B": "launch", "AGENTD_HOOK": "forged"}
    result = await soon(workshop.runner(environ=environ).run(Hook.SUSPEND, launch))
    assert result is not None
    assert result.exit_code == 0
    seen = dict(line.split("=", 1) for line in workshop.text("env").splitlines())
    assert {key: seen[key] for key in ("A", "B", "AGENTD_PORT", "AGENTD_HOOK")} == {
        "A": "daemon",
        "B": "launch",
        "AGENTD_PORT": "9000",
        "AGENTD_HOOK": "suspend",
    }
    assert workshop.text("started-in") == "/\n"
    assert workshop.text("stdin") == ""
    assert int(workshop.text("pgid")) != os.getpgid(0)


@pytest_twisted.ensureDeferred
async def test_over_its_budget_the_whole_group_is_killed_without_a_term(workshop: Workshop) -> None:
    out = workshop.directory
    script = f"trap 'echo term > {out}/term' TERM; sleep 60 & echo $! > {out}/helper; wait; wait"
    result = await workshop.run(Hook.TERMINATE, script, budget=0.6)
    assert (result.exit_code, result.signal, result.timed_out) == (None, signal.SIGKILL, True)
    assert 600 <= result.duration_ms < 10_000
    assert not (out / "term").exists()
    helper = int(workshop.text("helper"))
    await until(lambda: not alive(helper))


@pytest_twisted.ensureDeferred
async def test_a_child_it_left_behind_delays_the_answer_by_little(workshop: Workshop) -> None:
    out = workshop.directory
    began = reactor.seconds()
    result = await workshop.run(Hook.RUN, f"sleep 60 & echo $! > {out}/helper; exit 4", budget=30.0)
    assert (result.exit_code, result.timed_out) == (4, False)
    assert reactor.seconds() - began < 10
    helper = int(workshop.text("helper"))
    assert alive(helper)  # what it started is its own business
    os.kill(helper, signal.SIGKILL)


def test_a_handler_that_was_in_time_did_not_time_out_because_of_what_it_left(workshop: Workshop) -> None:
    """The budget ends while its output is still awaited."""
    scene = Scene()
    workshop.handler(Hook.RUN, "")
    runner = HandlerRunner(scene.tools, str(workshop.directory), 1.0, {})
    running = Deferred.fromCoroutine(runner.run(Hook.RUN, {}))
    [child] = scene.children
    scene.clock.advance(0.9)
    child.exit(4)
    scene.clock.advance(0.2)
    assert pending(running)
    scene.clock.advance(0.2)
    result = result_of(running)
    assert result is not None
    assert (result.exit_code, result.timed_out) == (4, False)
    assert child.group.signals == []
    assert child.group.released
    assert scene.clock.getDelayedCalls() == []


@pytest_twisted.ensureDeferred
async def test_they_run_one_at_a_time(workshop: Workshop) -> None:
    out = workshop.directory
    for hook in (Hook.SUSPEND, Hook.RESUME, Hook.TERMINATE):
        alone = f"mkdir {out}/running || exit 9; echo {hook.value} >> {out}/order; sleep 0.05"
        workshop.handler(hook, f"{alone}; rmdir {out}/running")
    runner = workshop.runner()
    hooks = [Hook.SUSPEND, Hook.RESUME, Hook.SUSPEND, Hook.TERMINATE]
    results = [Deferred.fromCoroutine(runner.run(hook, {})) for hook in hooks]
    for result in results:
        found = await soon(result)
        assert found is not None
        assert found.exit_code == 0
    assert sorted(workshop.text("order").split()) == sorted(hook.value for hook in hooks)


@pytest_twisted.ensureDeferred
async def test_one_that_fails_does_not_hold_up_the_next(workshop: Workshop) -> None:
    runner = workshop.runner()
    path = workshop.directory / "suspend"
    path.write_text("\0")
    path.chmod(0o755)
    await soon(runner.run(Hook.SUSPEND, {}))
    workshop.handler(Hook.RESUME, "exit 0")
    found = await soon(runner.run(Hook.RESUME, {}))
    assert found is not None
    assert found.exit_code == 0


@pytest_twisted.ensureDeferred
async def test_its_output_goes_to_the_log_and_only_its_beginning(workshop: Workshop) -> None:
    events: list[dict[str, Any]] = []
    globalLogPublisher.addObserver(events.append)
    try:
        much = "head -c 100000 /dev/zero | tr '\\0' x"
        result = await workshop.run(
            Hook.SUSPEND, f"printf started; {much}; echo oops >&2; printf '\\377' >&2"
        )
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert result.exit_code == 0
    [event] = [event for event in events if event.get("stdout")]
    assert event["stdout"] == "started" + "x" * (4096 - 7)
    assert event["stderr"] == "oops\n\ufffd"
    assert event["hook"] == "suspend"

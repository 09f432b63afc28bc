"""The zygote: what it forks is the daemon's, and nothing is left of what befalls it (more in ``test_spawn``)."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import pytest_twisted
from twisted.internet import error
from twisted.internet.defer import Deferred

from agentd.process import zygote as module
from agentd.process.spawn import Credentials, GroupProcess, Plan, ProcessSpawner, SpawnFailed
from agentd.process.zygote import Zygote, Zygotes
from tests.conftest import REPOSITORY
from tests.process.support import Recorder, make_groups, reactor, sh, soon, until
from tests.procs import alive

ME = Credentials(os.getuid(), os.getgid())
"""What a zygote is asked for even where nothing changes: anybody may be himself."""


@pytest.fixture
def zygotes() -> Iterator[Zygotes]:
    made = Zygotes()
    pytest_twisted.blockon(Deferred.fromCoroutine(until(made.get)))
    yield made
    made.close()


@pytest.fixture
def spawner(zygotes: Zygotes) -> Iterator[ProcessSpawner]:
    made = ProcessSpawner(reactor, make_groups(), 5.0, zygotes)
    yield made
    assert made.children == {}


def there(zygotes: Zygotes) -> Zygote:
    found = zygotes.get()
    assert found is not None
    return found


async def ended(spawner: ProcessSpawner, plan: Plan) -> tuple[GroupProcess, Recorder]:
    recorder = Recorder()
    child = spawner(recorder, plan)
    await soon(recorder.over)
    return child, recorder


@pytest_twisted.ensureDeferred
async def test_a_child_is_the_daemons_and_reports_to_it(spawner: ProcessSpawner) -> None:
    """Its parent, its status by signal and by code, its usage."""
    child, recorder = await ended(spawner, sh("echo $PPID; echo err >&2; exit 7", credentials=ME))
    assert recorder.data[1].decode() == f"{os.getpid()}\n"
    assert bytes(recorder.data[2]) == b"err\n"
    assert isinstance(recorder.reason, error.ProcessTerminated)
    assert recorder.reason.exitCode == 7
    assert child.usage.ru_maxrss > 0
    _, recorder = await ended(spawner, sh("kill -9 $$", credentials=ME))
    assert isinstance(recorder.reason, error.ProcessTerminated)
    assert recorder.reason.signal == signal.SIGKILL


@pytest_twisted.ensureDeferred
async def test_it_is_small_and_holds_nothing_of_the_daemons(zygotes: Zygotes) -> None:
    pid = there(zygotes).pid
    with open(f"/proc/{pid}/statm") as statm:
        assert int(statm.read().split()[1]) * 4096 < 16 << 20
    with open(f"/proc/{pid}/environ", "rb") as environ:
        assert environ.read() == b""
    targets = [os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0] for fd in os.listdir(f"/proc/{pid}/fd")]
    assert sorted(targets) == ["/dev/null"] * 3 + ["socket"]


@pytest_twisted.ensureDeferred
async def test_without_credentials_it_is_not_asked(spawner: ProcessSpawner, zygotes: Zygotes) -> None:
    os.kill(there(zygotes).pid, signal.SIGSTOP)
    recorder = Recorder()
    spawner(recorder, sh("true"))
    await soon(recorder.over)


@pytest_twisted.ensureDeferred
async def test_one_that_was_killed_is_replaced(spawner: ProcessSpawner, zygotes: Zygotes) -> None:
    """Children go on being started meanwhile, and what it had started goes on."""
    survivor = Recorder()
    old = spawner(survivor, sh("read x; exit 3", stdin=True, credentials=ME))
    first = there(zygotes).pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: zygotes.get() is None)
    _, recorder = await ended(spawner, sh("exit 4", credentials=ME))
    assert isinstance(recorder.reason, error.ProcessTerminated)
    assert recorder.reason.exitCode == 4
    assert (await until(zygotes.get)).pid != first
    old.close_stdin()
    await soon(survivor.over)
    assert isinstance(survivor.reason, error.ProcessTerminated)
    assert survivor.reason.exitCode == 3


@pytest_twisted.ensureDeferred
async def test_one_that_does_not_answer_costs_one_start(
    spawner: ProcessSpawner, zygotes: Zygotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    stopped = there(zygotes)
    os.kill(stopped.pid, signal.SIGSTOP)
    stopped._ours.settimeout(0.05)
    with pytest.raises(SpawnFailed, match="cannot start a child: Input/output error"):
        spawner(Recorder(), sh("true", credentials=ME))
    assert not stopped.alive
    recorder = Recorder()
    spawner(recorder, sh("true", credentials=ME))
    await soon(recorder.over)
    zygotes.close()
    assert len(set(os.listdir("/proc/self/fd")) - before) == 0


@pytest_twisted.ensureDeferred
async def test_where_the_kernel_has_no_clone3_the_daemon_forks(
    spawner: ProcessSpawner, zygotes: Zygotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*arguments: object) -> int:
        raise module.StartFailed(errno.ENOSYS, "start")

    monkeypatch.setattr(Zygote, "spawn", missing)
    _, recorder = await ended(spawner, sh("exit 5", credentials=ME))
    assert isinstance(recorder.reason, error.ProcessTerminated)
    assert recorder.reason.exitCode == 5
    assert zygotes.get() is None


@pytest_twisted.ensureDeferred
async def test_where_none_can_be_started_the_daemon_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "executable", "/no/such/interpreter")
    zygotes = Zygotes()
    spawner = ProcessSpawner(reactor, make_groups(), 5.0, zygotes)
    _, recorder = await ended(spawner, sh("exit 6", credentials=ME))
    assert isinstance(recorder.reason, error.ProcessTerminated)
    assert recorder.reason.exitCode == 6
    assert zygotes.get() is None


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (Plan(("/no/such",), {}, credentials=ME), "/no/such: No such file or directory"),
        (Plan(("nowhere",), {"PATH": "/bin:/usr/bin"}, credentials=ME), "nowhere: No such file or directory"),
        (Plan(("/etc",), {}, credentials=ME), "/etc: Permission denied"),
        (Plan(("etc",), {"PATH": "/nope:/:/bin"}, credentials=ME), "etc: Permission denied"),
        (Plan(("/bin/true",), {}, cwd="/no/such", credentials=ME), "/no/such: No such file or directory"),
        (Plan(("/bin/true", "x" * 200_000), {}, credentials=ME), "/bin/true: Argument list too long"),
        (Plan(("/bin/true", *["x" * 100_000] * 50), {}, credentials=ME), "/bin/true: Argument list too long"),
        (Plan(("/bin/true", "a\0b"), {}, credentials=ME), "/bin/true: Invalid argument"),
        (Plan(("/bin/true",), {"A": "a\0b"}, credentials=ME), "/bin/true: Invalid argument"),
        (
            Plan(("/bin/true",), {}, credentials=Credentials(uid=2**32)),
            "cannot start a child: Invalid argument",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest_twisted.ensureDeferred
async def test_what_cannot_be_started_is_said_and_leaves_nothing(
    spawner: ProcessSpawner, zygotes: Zygotes, plan: Plan, text: str
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(SpawnFailed) as refused:
        spawner(Recorder(), plan)
    assert str(refused.value) == text
    assert set(os.listdir("/proc/self/fd")) == before
    recorder = Recorder()
    spawner(recorder, sh("true", credentials=ME))
    await soon(recorder.over)


@pytest_twisted.ensureDeferred
async def test_arguments_and_variables_arrive_as_they_are(spawner: ProcessSpawner) -> None:
    """Of any bytes but NUL, and many."""
    odd = os.fsdecode(bytes(range(1, 256)))
    argv = ("/bin/sh", "-c", 'printf %s "$@" "$VALUE"', "sh", odd, *["y" * 100_000] * 5)
    _, recorder = await ended(spawner, Plan(argv, {"VALUE": odd}, credentials=ME))
    assert bytes(recorder.data[1]) == os.fsencode(odd) + b"y" * 500_000 + os.fsencode(odd)


LEFT = """
import os, sys, time
from agentd.process.zygote import Zygotes
made = Zygotes()
while made.get() is None:
    pass
print(made.get().pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest_twisted.ensureDeferred
async def test_it_ends_with_the_daemon_however_that_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT], cwd=REPOSITORY, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)

    await until(lambda: not alive(pid))

"""Real children: how they start, what they start with, how they fail to, and how their end is seen."""

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import error
from twisted.internet.defer import Deferred

from agentd.linux import oom_score, pidfd
from agentd.process import signals
from agentd.process.spawn import Credentials, GroupProcess, Plan, ProcessSpawner, SpawnFailed
from agentd.process.zygote import Zygotes
from agentd.rules.stdin import Result
from tests.conftest import REPOSITORY
from tests.process.support import Recorder, make_groups, python, reactor, sh, signals_of, soon, until


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What needs root starts children of other users: by the daemon's own fork, and by its zygote."""
    if "spawner" in metafunc.fixturenames:
        root = metafunc.definition.get_closest_marker("root") is not None
        metafunc.parametrize("spawner", ["itself", "zygote"] if root else ["itself"], indirect=True)


@pytest.fixture
def spawner(request: pytest.FixtureRequest) -> Iterator[ProcessSpawner]:
    """A spawner whose children have all been reaped at the end of the test."""
    zygotes = Zygotes() if request.param == "zygote" else None
    made = ProcessSpawner(reactor, make_groups(), 5.0, zygotes)
    if zygotes is not None:
        pytest_twisted.blockon(Deferred.fromCoroutine(until(zygotes.get)))
    yield made
    assert made.children == {}
    if zygotes is not None:
        zygotes.close()


def start(spawner: ProcessSpawner, plan: Plan) -> tuple[GroupProcess, Recorder]:
    recorder = Recorder()
    return spawner(recorder, plan), recorder


async def finish(spawner: ProcessSpawner, plan: Plan) -> Recorder:
    _, recorder = start(spawner, plan)
    await soon(recorder.over)
    return recorder


async def said(spawner: ProcessSpawner, plan: Plan) -> str:
    """What a child that must succeed wrote to stdout."""
    recorder = await finish(spawner, plan)
    assert isinstance(recorder.reason, error.ProcessDone), bytes(recorder.data[2])
    return recorder.data[1].decode()


def refused(spawner: ProcessSpawner, plan: Plan) -> str:
    """Why a child could not be started. Nothing is left of the attempt."""
    before = set(os.listdir("/proc/self/fd"))
    recorder = Recorder()
    with pytest.raises(SpawnFailed) as failed:
        spawner(recorder, plan)
    assert set(os.listdir("/proc/self/fd")) == before
    assert spawner.children == {}
    assert recorder.events == []
    return str(failed.value)


# -- its end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
@pytest_twisted.ensureDeferred
async def test_an_exit_code_is_seen(spawner: ProcessSpawner, code: int) -> None:
    recorder = await finish(spawner, sh(f"exit {code}"))
    assert type(recorder.reason) is (error.ProcessTerminated if code else error.ProcessDone)
    assert (recorder.reason.exitCode, recorder.reason.signal) == (code, None)
    assert recorder.events[0] == "made"
    assert recorder.events[-1] == "ended"
    assert sorted(recorder.events) == ["ended", "exited", "lost 1", "lost 2", "made"]


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "HUP", "PIPE"])
@pytest_twisted.ensureDeferred
async def test_a_signal_is_seen(spawner: ProcessSpawner, name: str) -> None:
    recorder = await finish(spawner, sh(f"ulimit -c 0; kill -{name} $$"))
    assert (recorder.reason.exitCode, recorder.reason.signal) == (None, signal.Signals[f"SIG{name}"])


@pytest_twisted.ensureDeferred
async def test_usage_is_that_of_the_child(spawner: ProcessSpawner) -> None:
    busy = (
        "import time\n"
        "while time.process_time() < 0.2: pass\n"
        "kept = bytearray(80 << 20)\n"
        "kept[::4096] = bytes(20480)"
    )
    child, recorder = start(spawner, python(busy))
    assert child.usage is None
    await soon(recorder.over)
    assert child.usage.ru_utime + child.usage.ru_stime >= 0.2
    assert child.usage.ru_maxrss * 1024 >= 80 << 20
    idle, recorder = start(spawner, sh("exit 0"))
    await soon(recorder.over)
    assert idle.usage.ru_utime + idle.usage.ru_stime < 0.2


@pytest_twisted.ensureDeferred
async def test_its_end_and_that_of_its_pipes_are_two_things(spawner: ProcessSpawner) -> None:
    child, recorder = start(spawner, sh("echo out; sleep 60 & exit 4"))
    await until(lambda: "exited" in recorder.events)
    assert recorder.reason.exitCode == 4
    assert "ended" not in recorder.events
    child.signalProcess("KILL")
    await soon(recorder.over)
    assert recorder.data[1] == b"out\n"


@pytest_twisted.ensureDeferred
async def test_pipes_that_end_first(spawner: ProcessSpawner) -> None:
    _, recorder = start(spawner, sh("exec >&- 2>&-; read line", stdin=True))
    await until(lambda: {"lost 1", "lost 2"} <= set(recorder.events))
    assert "exited" not in recorder.events
    recorder.transport.closeStdin()  # type: ignore[union-attr]
    await soon(recorder.over)


@pytest_twisted.ensureDeferred
async def test_a_status_that_somebody_else_took_is_an_end_all_the_same(spawner: ProcessSpawner) -> None:
    child, recorder = start(spawner, sh("exit 7"))
    os.waitpid(child.pid, 0)
    await soon(recorder.over)
    assert (recorder.reason.exitCode, recorder.reason.signal) == (None, None)
    assert child.usage is None


@pytest_twisted.ensureDeferred
async def test_a_hang_up_of_the_watch_that_is_not_true_changes_nothing(spawner: ProcessSpawner) -> None:
    child, recorder = start(spawner, sh("read line; exit 5", stdin=True))
    reactor.removeReader(child._watch)
    child._watch.connectionLost(None)
    child._watch.doWrite()
    assert "exited" not in recorder.events
    child.closeStdin()
    await soon(recorder.over)
    assert recorder.reason.exitCode == 5


@pytest_twisted.ensureDeferred
async def test_it_lets_go_of_its_protocol_when_all_is_over(spawner: ProcessSpawner) -> None:
    child, recorder = start(spawner, sh("sleep 60 & exit 0"))
    await until(lambda: "exited" in recorder.events)
    child.stop_output()
    assert recorder.events[-1] == "ended"
    assert recorder not in [getattr(each, "__self__", each) for each in vars(child).values()]
    child.signalProcess("KILL")


# -- what it starts with -----------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_it_leads_a_session_and_a_group_of_its_own_without_a_terminal(spawner: ProcessSpawner) -> None:
    source = (
        "import os\n"
        "try: terminal = os.open('/dev/tty', os.O_RDWR)\n"
        "except OSError: terminal = None\n"
        "print(os.getpid() == os.getpgid(0) == os.getsid(0), os.getsid(0) != os.getsid(os.getppid()), terminal)"
    )
    assert await said(spawner, python(source)) == "True True None\n"


@pytest_twisted.ensureDeferred
async def test_only_the_three_standard_descriptors_are_open(spawner: ProcessSpawner) -> None:
    inheritable = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inheritable, True)
    try:
        source = "import os; print([fd for fd in range(4096) if os.path.exists(f'/proc/self/fd/{fd}')])"
        assert await said(spawner, python(source)) == "[0, 1, 2]\n"
    finally:
        os.close(inheritable)


@pytest.mark.parametrize("stdin", [False, True])
@pytest_twisted.ensureDeferred
async def test_its_pipes_are_ordinary_ones(spawner: ProcessSpawner, stdin: bool) -> None:
    """Separate, and blocking at the child's end however the daemon reads its own."""
    source = (
        "import os, stat\n"
        "print(*(stat.S_ISFIFO(os.fstat(fd).st_mode) for fd in range(3)),"
        " *(os.get_blocking(fd) for fd in range(3)),"
        " os.fstat(1).st_ino != os.fstat(2).st_ino, os.path.samefile('/proc/self/fd/0', '/dev/null'))"
    )
    found = await said(spawner, python(source, stdin=stdin))
    assert found == f"{stdin} True True True True True True {not stdin}\n"


@pytest_twisted.ensureDeferred
async def test_stdin_that_was_not_asked_for_is_at_its_end(spawner: ProcessSpawner) -> None:
    child, recorder = start(spawner, Plan(("cat",), {"PATH": os.defpath}))
    with pytest.raises(RuntimeError):
        child.write_stdin(b"x")
    child.close_stdin()
    await soon(recorder.over)
    assert recorder.reason.exitCode == 0


@pytest_twisted.ensureDeferred
async def test_its_environment_is_exactly_the_plans(
    spawner: ProcessSpawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_DAEMON", "secret")
    environment = {"A": "1", "EMPTY": "", "LINES": "a\nb\n", "Ä": "ü", "odd name": "=", "RAW": "\udcff"}
    recorder = await finish(spawner, Plan(("/usr/bin/env", "-0"), environment))
    entries = bytes(recorder.data[1]).split(b"\0")[:-1]
    assert sorted(entries) == sorted(os.fsencode(f"{key}={value}") for key, value in environment.items())


@pytest_twisted.ensureDeferred
async def test_an_empty_environment_is_empty(spawner: ProcessSpawner) -> None:
    assert await said(spawner, Plan(("/usr/bin/env",), {})) == ""


@pytest_twisted.ensureDeferred
async def test_a_bare_name_is_looked_up_on_the_childs_own_path(
    spawner: ProcessSpawner, tmp_path: Path
) -> None:
    tool = tmp_path / "only-here"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    assert await said(spawner, Plan(("only-here",), {"PATH": f"/nowhere:{tmp_path}"})) == "found\n"
    assert "No such file" in refused(spawner, Plan(("only-here",), {"PATH": "/nowhere"}))
    assert await said(spawner, Plan(("true",), {})) == ""  # libc's own path when there is none


@pytest_twisted.ensureDeferred
async def test_it_starts_where_the_plan_says(spawner: ProcessSpawner, tmp_path: Path) -> None:
    assert await said(spawner, Plan(("/bin/pwd",), {}, cwd=str(tmp_path))) == f"{tmp_path}\n"
    assert await said(spawner, Plan(("/bin/pwd",), {})) == f"{os.getcwd()}\n"


SIGNALS = """
import signal
status = open('/proc/self/status').read()
fields = dict(line.split(':\\t', 1) for line in status.splitlines() if ':\\t' in line)
# What Python ignores for itself is not what it was started with; and two signals are the C library's own (nptl(7)),
# of which posix_spawn leaves one ignored in whatever it starts.
mine = sum(1 << number - 1 for number in (signal.SIGPIPE, signal.SIGXFSZ, 32, 33))
print(int(fields['SigBlk'], 16), int(fields['SigIgn'], 16) & ~mine)
"""


@pytest_twisted.ensureDeferred
async def test_no_signal_is_blocked_or_ignored(spawner: ProcessSpawner) -> None:
    ignored = [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGRTMIN]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    try:
        assert await said(spawner, python(SIGNALS)) == "0 0\n"
        # The daemon itself goes on not minding them.
        for number in ignored:
            signal.raise_signal(number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest_twisted.ensureDeferred
async def test_a_broken_pipe_ends_it(spawner: ProcessSpawner) -> None:
    """SIGPIPE, which Python ignores, has its default again: `yes | head` ends."""
    recorder = await finish(spawner, sh("(yes; echo $? >&2) | head -n 1"))
    assert recorder.data[1] == b"y\n"
    assert recorder.data[2] == b"141\n"


def test_what_python_needs_ignored_stays_so() -> None:
    signals.keep_from_children()
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN


# -- stdin -------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_stdin_is_written_and_ended(spawner: ProcessSpawner) -> None:
    child, recorder = start(spawner, Plan(("/bin/cat",), {}, stdin=True))
    assert (await soon(child.write_stdin(b"hello"))).result is Result.WRITTEN
    child.close_stdin()
    await soon(recorder.over)
    assert recorder.data[1] == b"hello"
    assert (await soon(child.write_stdin(b"late"))).result is Result.BROKEN


@pytest_twisted.ensureDeferred
async def test_twisteds_ways_to_say_it_work_too(spawner: ProcessSpawner) -> None:
    child, recorder = start(spawner, Plan(("/bin/cat",), {}, stdin=True))
    child.write(b"a")
    child.writeToChild(0, b"b")
    child.writeSequence([b"c", b"d"])
    child.closeChildFD(0)
    await soon(recorder.over)
    assert recorder.data[1] == b"abcd"
    assert (child.getPeer(), child.getHost()) == (None, None)


@pytest_twisted.ensureDeferred
async def test_output_pipes_can_be_closed_one_by_one(spawner: ProcessSpawner) -> None:
    child, recorder = start(spawner, sh("read line; /bin/echo out; /bin/echo err >&2", stdin=True))
    child.closeStdout()
    child.write(b"\n")
    child.closeStdin()
    await soon(recorder.over)
    assert recorder.data == {1: b"", 2: b"err\n"}
    child, recorder = start(spawner, sh("read line; /bin/echo out; /bin/echo err >&2", stdin=True))
    child.closeStderr()
    child.loseConnection()
    await soon(recorder.over)
    assert recorder.data == {1: b"", 2: b""}
    with pytest.raises(error.ProcessExitedAlready):
        child.signalProcess(signal.SIGTERM)


# -- failing to start --------------------------------------------------------------------------------------------


def script(directory: Path, text: str, mode: int = 0o755) -> str:
    path = directory / "program"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_program_that_is_not_there(spawner: ProcessSpawner) -> None:
    assert (
        refused(spawner, Plan(("nope-bin",), {"PATH": os.defpath})) == "nope-bin: No such file or directory"
    )
    assert refused(spawner, Plan(("/nope/bin",), {})) == "/nope/bin: No such file or directory"


def test_a_directory_is_no_program(spawner: ProcessSpawner, tmp_path: Path) -> None:
    assert refused(spawner, Plan((str(tmp_path),), {})) == f"{tmp_path}: Permission denied"


def test_a_file_that_may_not_be_executed(spawner: ProcessSpawner, tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/sh\n", 0o644)
    assert refused(spawner, Plan((path,), {})) == f"{path}: Permission denied"


def test_an_interpreter_that_is_not_there(spawner: ProcessSpawner, tmp_path: Path) -> None:
    path = script(tmp_path, "#!/nope/interpreter\n")
    assert refused(spawner, Plan((path,), {})) == f"{path}: No such file or directory"


def test_a_file_of_no_known_format(spawner: ProcessSpawner, tmp_path: Path) -> None:
    path = script(tmp_path, "\0\1\2\3")
    assert refused(spawner, Plan((path,), {})) == f"{path}: Exec format error"


def test_a_path_through_a_file(spawner: ProcessSpawner) -> None:
    assert refused(spawner, Plan(("/etc/passwd/x",), {})) == "/etc/passwd/x: Not a directory"


@pytest.mark.parametrize("cwd", ["/nope", "/etc/passwd"])
def test_a_directory_that_cannot_be_entered(spawner: ProcessSpawner, cwd: str) -> None:
    message = refused(spawner, Plan(("/bin/true",), {}, cwd=cwd))
    assert message.startswith(f"{cwd}: ")


@pytest.mark.parametrize(
    "plan",
    [
        Plan(("/bin/true", "a\0b"), {}),
        Plan(("/bin/\0true",), {}),
        Plan(("/bin/true",), {"A": "secret\0value"}),
        Plan(("/bin/true",), {"secret\0name": "x"}),
        Plan(("/bin/true",), {"secret=name": "x"}),
        Plan(("/bin/true",), {"A": "secret\ud800"}),
        Plan(("/bin/true", "\ud800"), {}),
        Plan(("/bin/true",), {}, cwd="/tmp\0"),
        Plan(("",), {}),
    ],
)
def test_what_the_kernel_could_not_take(spawner: ProcessSpawner, plan: Plan) -> None:
    message = refused(spawner, plan)
    assert message
    assert "secret" not in message


def test_too_much_to_start_with(spawner: ProcessSpawner) -> None:
    message = refused(spawner, Plan(("/bin/true",), {"A": "x" * (1 << 20)}))
    assert message == "/bin/true: Argument list too long"


@pytest.fixture
def few_descriptors() -> Iterator[Any]:
    """A function that leaves so many free descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []

    def leave(free: int) -> None:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + free, before[1]))
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        for _ in range(free):
            os.close(held.pop())

    yield leave
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for fd in held:
        os.close(fd)


@pytest.mark.parametrize("free", range(8))
@pytest.mark.parametrize("stdin", [False, True])
def test_without_descriptors_there_is_no_child_and_no_leak(
    spawner: ProcessSpawner, few_descriptors: Any, free: int, stdin: bool
) -> None:
    """Whatever step it fails at, from the first pipe to the pipe that Popen itself needs."""
    few_descriptors(free)
    recorder = Recorder()
    needed = (6 if stdin else 5) + 2
    if free >= needed:
        child = spawner(recorder, Plan(("/bin/true",), {}, stdin=stdin))
        os.waitpid(child.pid, 0)
        child.reap()
        child.stop_output()
        return
    with pytest.raises(SpawnFailed, match="Too many open files"):
        spawner(recorder, Plan(("/bin/true",), {}, stdin=stdin))
    assert spawner.children == {}
    opened = []
    try:
        while True:
            opened.append(os.dup(0))
    except OSError:
        pass
    for fd in opened:
        os.close(fd)
    assert len(opened) == free


def test_a_child_that_cannot_be_watched_does_not_live(
    spawner: ProcessSpawner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(pid: int) -> int:
        pids.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    pids: list[int] = []
    monkeypatch.setattr(pidfd, "open", full)
    assert refused(spawner, sh("sleep 60")) == "cannot watch the child: Too many open files"
    assert not os.path.exists(f"/proc/{pids[0]}")


def test_many_failures_leave_nothing(spawner: ProcessSpawner) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(200):
        with pytest.raises(SpawnFailed):
            spawner(Recorder(), Plan(("/nope",), {}, stdin=True))
    assert set(os.listdir("/proc/self/fd")) == before


# -- users -------------------------------------------------------------------------------------------------------

STATUS = "exec grep -E '^({})' /proc/self/status"


async def status(spawner: ProcessSpawner, fields: str, credentials: Credentials) -> list[str]:
    """Fields of a child's status as the kernel shows them (proc(5)); any user may run a shell and grep."""
    return (await said(spawner, sh(STATUS.format(fields), credentials=credentials))).splitlines()


@pytest.mark.root
@pytest.mark.parametrize(
    ("credentials", "uid", "gid", "groups"),
    [
        (Credentials(uid=4001), 4001, 0, None),
        (Credentials(gid=4002), 0, 4002, None),
        (Credentials(uid=4001, gid=4002, groups=(4003, 4004)), 4001, 4002, (4003, 4004)),
        (Credentials(uid=4001, gid=4002, groups=()), 4001, 4002, ()),
    ],
)
@pytest_twisted.ensureDeferred
async def test_it_runs_as_whom_the_plan_says(
    spawner: ProcessSpawner, credentials: Credentials, uid: int, gid: int, groups: tuple[int, ...] | None
) -> None:
    """Real, effective, saved and file system ids, and no group that was not asked for."""
    found = await status(spawner, "Uid|Gid|Groups", credentials)
    expected = sorted(os.getgroups()) if groups is None else groups
    assert [line.split() for line in found] == [
        ["Uid:", *[str(uid)] * 4],
        ["Gid:", *[str(gid)] * 4],
        ["Groups:", *map(str, expected)],
    ]


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_as_another_user_it_has_its_own_session_and_nothing_of_the_daemons(
    spawner: ProcessSpawner,
) -> None:
    inheritable = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inheritable, True)
    try:
        script = "exec 2>&1; cut -d ' ' -f 1,5,6 /proc/$$/stat; ls /proc/$$/fd; env"
        child, recorder = start(
            spawner, Plan(("/bin/sh", "-c", script), {"A": "1"}, credentials=Credentials(4001, 4002, (4003,)))
        )
        await soon(recorder.over)
    finally:
        os.close(inheritable)
    pid = str(child.pid)
    lines = recorder.data[1].decode().splitlines()
    assert lines[0].split() == [pid] * 3
    assert lines[1:4] == ["0", "1", "2"]
    assert {line for line in lines[4:] if not line.startswith(("PWD=", "SHLVL=", "_="))} == {"A=1"}


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_its_signals_are_clean_as_another_user_too(spawner: ProcessSpawner) -> None:
    found = await status(spawner, "SigBlk|SigIgn", Credentials(4001))
    assert [signals_of(line.split()[1]) for line in found] == [0, 0]


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_a_working_directory_is_entered_through_its_descriptor(
    spawner: ProcessSpawner, tmp_path: Path
) -> None:
    """What `agentd.guest.accounts` hands over: opened with the user's rights, entered before they are taken."""
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        plan = Plan(("/bin/pwd", "-P"), {}, cwd=f"/proc/self/fd/{fd}", credentials=Credentials(4001))
        assert await said(spawner, plan) == f"{tmp_path.resolve()}\n"
    finally:
        os.close(fd)


@pytest.mark.parametrize(("own", "expected"), [(300, []), (0, []), (-500, [0])])
@pytest_twisted.ensureDeferred
async def test_a_child_is_not_spared_because_the_daemon_is(
    monkeypatch: pytest.MonkeyPatch, own: int, expected: list[int]
) -> None:
    """When memory runs out; what is no protection is left as it is."""
    written: list[tuple[int, int]] = []
    monkeypatch.setattr(oom_score, "read", lambda: own)
    monkeypatch.setattr(oom_score, "write", lambda pid, value: written.append((pid, value)))
    child, recorder = start(ProcessSpawner(reactor, make_groups(), 5.0), sh("true"))
    await soon(recorder.over)
    assert written == [(child.pid, value) for value in expected]


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_the_daemon_keeps_its_own_identity(spawner: ProcessSpawner) -> None:
    before = (os.getresuid(), os.getresgid(), os.getgroups())
    await finish(spawner, sh("true", credentials=Credentials(4001, 4002, (4003,))))
    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before


@pytest.mark.root
def test_an_unprivileged_daemon_cannot_change_user() -> None:
    """In a process of its own, because giving up root is for good."""
    source = (
        "import os\n"
        "from tests.process.support import *\n"
        "from agentd.process.spawn import *\n"
        "os.setgroups([]); os.setresgid(4002, 4002, 4002); os.setresuid(4001, 4001, 4001)\n"
        "for cwd in (None, '/'):\n"
        "    plan = sh('true', credentials=Credentials(uid=0), cwd=cwd)\n"
        "    try: ProcessSpawner(reactor, make_groups(), 1.0)(Recorder(), plan)\n"
        "    except SpawnFailed as reason: print(reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=REPOSITORY,
    )
    assert done.stdout == "cannot start a child: Operation not permitted\n" * 2, done.stderr

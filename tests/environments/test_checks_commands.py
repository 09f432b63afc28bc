"""Checks 1 to 30 of the contract's list: running commands."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred, DeferredList

from agentd.linux import oom_score
from tests.environments.conftest import Serve
from tests.environments.support import KEY, Home
from tests.environments.wire import checks, the_reactor, until
from tests.process.support import signals_of
from tests.procs import alive

MIB = 1024 * 1024


@checks(1, 5, 6, 11, 13, 19, 26)
@pytest.mark.parametrize(
    ("fields", "stdout", "exit_code"),
    [
        ({"argv": ["printf", "a b"]}, "a b", 0),
        ({"argv": ["printf", "%s|", "", "x"]}, "|x|", 0),
        ({"command": "exit 3"}, "", 3),
        ({"command": "exit 256"}, "", 0),
        ({"command": "no-such-program 2>&-"}, "", 127),
        ({"command": "exec >&- 2>&-; sleep 0.3; exit 7"}, "", 7),
        ({"command": "sh -c 'kill -TERM $$'; exit $?"}, "", 143),
        ({"argv": ["readlink", "/proc/self/fd/0"]}, "/dev/null\n", 0),
        ({"argv": ["cat"], "stdin": ""}, "", 0),
        ({"argv": ["cat"], "stdin": "é\0\n"}, "é\0\n", 0),
        ({"argv": ["true"], "env": None, "cwd": None, "timeout_secs": None, "stdin": None}, "", 0),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_command_and_its_result(
    serving: Serve, fields: dict[str, Any], stdout: str, exit_code: int
) -> None:
    """Exit codes and output."""
    server = await serving()
    result = await server.exec(**fields)
    assert result.pop("duration_ms") >= 0
    result.pop("stderr")
    assert result == {
        "exit_code": exit_code,
        "signal": None,
        "timed_out": False,
        "stdout": stdout,
        "stdout_truncated": False,
        "stderr_truncated": False,
    }


@checks(2)
@pytest_twisted.ensureDeferred
async def test_a_command_line_runs_in_a_login_shell(serving: Serve) -> None:
    server = await serving()
    result = await server.sh("echo $0; shopt -q login_shell && echo login")
    assert result["stdout"] == "bash\nlogin\n"


@checks(3, 4, 10, 35, 40)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "exactly one of argv and command is required"),
        ({"argv": ["a"], "command": "b"}, "exactly one of argv and command is required"),
        ({"argv": []}, "argv must not be empty"),
        ({"argv": [""]}, "argv[0] must not be empty"),
        ({"argv": ["a", "b\0c"]}, "argv[1] must not contain NUL"),
        ({"argv": ["true"] * 4097}, "argv must not have more than 4096 items"),
        ({"argv": ["true", "a" * 131_072]}, "argv[1] must not be longer than 131071 bytes"),
        ({"argv": ["true", "é" * 65_536]}, "argv[1] must not be longer than 131071 bytes"),
        ({"command": ""}, "command must not be empty"),
        ({"command": "a\0b"}, "command must not contain NUL"),
        ({"command": "#" * 131_072}, "command must not be longer than 131071 bytes"),
        ({"argv": ["true"], "cwd": ""}, "cwd must not be empty"),
        ({"argv": ["true"], "cwd": "a\0"}, "cwd must not contain NUL"),
        ({"argv": ["true"], "timeout_secs": 0}, "timeout_secs must be between 1 and 600"),
        ({"argv": ["true"], "timeout_secs": 601}, "timeout_secs must be between 1 and 600"),
        ({"argv": ["true"], "env": {"1A": "x"}}, "invalid variable name: 1A"),
        ({"argv": ["true"], "env": {"A-B": "x"}}, "invalid variable name: A-B"),
        ({"argv": ["true"], "env": {"A=B": "x"}}, "invalid variable name: A=B"),
        ({"argv": ["true"], "env": {"": "x"}}, "invalid variable name: "),
        ({"argv": ["true"], "env": {"É": "x"}}, "invalid variable name: É"),
        ({"argv": ["true"], "env": {"A\n": "x"}}, "invalid variable name: A\ufffd"),
        ({"argv": ["true"], "env": {"A": "secret\0"}}, "env.A must not contain NUL"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_values_that_cannot_be_run(serving: Serve, fields: dict[str, Any], message: str) -> None:
    server = await serving()
    answer = await server.try_exec(**fields)
    assert answer.fault == (400, "invalid_request")
    assert answer.json["message"] == message


@checks(10)
@pytest_twisted.ensureDeferred
async def test_the_longest_argument(serving: Serve) -> None:
    server = await serving()
    result = await server.exec("sh", "-c", "echo ${#1}", "sh", "a" * 131_071)
    assert result["stdout"] == "131071\n"
    # Each is fine, and all of them together are too much for the kernel.
    answer = await server.try_exec(argv=["true", *["a" * 131_071] * 100])
    assert answer.fault == (503, "exec_failed")
    assert answer.json["message"] == "could not start true: Argument list too long"


@checks(6, 7, 8)
@pytest_twisted.ensureDeferred
async def test_starts_that_fail(serving: Serve, home: Home) -> None:
    home.make("plain", b"#!/bin/sh\n", 0o644)
    home.make("nothing", b"echo hi\n", 0o755)
    home.make("lost", b"#!/no/such/interpreter\n", 0o755)
    closed = home.directory("closed", 0o000)
    server = await serving()
    for fields, message in [
        ({"argv": ["no-such-program"]}, "could not start no-such-program: No such file or directory"),
        ({"argv": ["./plain"]}, "could not start ./plain: Permission denied"),
        ({"argv": ["./nothing"]}, "could not start ./nothing: Exec format error"),
        ({"argv": ["./lost"]}, "could not start ./lost: No such file or directory"),
        ({"argv": ["/"]}, "could not start /: Permission denied"),
        ({"argv": ["true"], "cwd": "none"}, f"could not enter {home.home}/none: No such file or directory"),
        ({"argv": ["true"], "cwd": "plain"}, f"could not enter {home.home}/plain: Not a directory"),
        ({"argv": ["true"], "cwd": "closed"}, f"could not enter {home.home}/closed: Permission denied"),
    ]:
        answer = await server.try_exec(**fields)
        assert answer.fault == (503, "exec_failed"), fields
        assert answer.json["message"] == message
    closed.chmod(0o755)


@checks(9)
@pytest_twisted.ensureDeferred
async def test_the_working_directory(serving: Serve, home: Home) -> None:
    home.directory("sub")
    home.make("sub/here", b"#!/bin/sh\npwd\n", 0o755)
    server = await serving()
    assert (await server.exec("pwd"))["stdout"] == f"{home.home}\n"
    assert (await server.exec("pwd", cwd="sub"))["stdout"] == f"{home.home}/sub\n"
    assert (await server.exec("pwd", cwd="/"))["stdout"] == "/\n"
    # A program with a slash in its name is found from there.
    assert (await server.exec("./here", cwd="sub"))["stdout"] == f"{home.home}/sub\n"


@checks(12)
@pytest_twisted.ensureDeferred
async def test_death_by_signal(serving: Serve) -> None:
    server = await serving()
    for name, number, shown in [("KILL", 9, "KILL"), ("SEGV", 11, "SEGV"), ("RTMIN+3", 37, "37")]:
        result = await server.sh(f"kill -{number} $$")
        assert (result["exit_code"], result["signal"], result["timed_out"]) == (None, shown, False), name


@checks(14, 15)
@pytest.mark.parametrize(
    "fields", [{"argv": ["sleep", "30"]}, {"command": "trap '' TERM INT; while :; do sleep 0.1; done"}]
)
@pytest_twisted.ensureDeferred
async def test_a_timeout_kills_at_once(serving: Serve, fields: dict[str, Any]) -> None:
    server = await serving()
    result = await server.exec(**fields, timeout_secs=1)
    assert (result["exit_code"], result["signal"], result["timed_out"]) == (None, "KILL", True)
    assert 990 <= result["duration_ms"] < 5000


@checks(16)
@pytest_twisted.ensureDeferred
async def test_a_timeout_takes_the_whole_group(serving: Serve) -> None:
    server = await serving()
    result = await server.sh("sleep 300 & echo $!; wait", timeout_secs=1)
    assert result["timed_out"]
    pid = int(result["stdout"])
    await until(lambda: not alive(pid), "the end of the child")


@checks(17)
@pytest_twisted.ensureDeferred
async def test_a_child_in_the_background_does_not_hold_up_the_answer(serving: Serve, home: Home) -> None:
    server = await serving()
    answer = await server.try_exec(command="sleep 300 & echo $! > pid; echo hi")
    assert answer.seconds < 2
    assert answer.json["stdout"] == "hi\n"
    pid = int((home.home / "pid").read_text())
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


@checks(18)
@pytest_twisted.ensureDeferred
async def test_a_child_that_goes_on_writing_meets_no_broken_pipe(serving: Serve, home: Home) -> None:
    server = await serving()
    loop = "while sleep 0.02; do echo x && echo x >> ticks; done"
    result = await server.sh(f"({loop}) & echo $! > pid; echo hi")
    assert result["stdout"].replace("x\n", "") == "hi\n"
    ticks = home.home / "ticks"
    before = ticks.stat().st_size if ticks.exists() else 0
    await until(lambda: ticks.exists() and ticks.stat().st_size > before + 100, "fifty more writes")
    os.kill(int((home.home / "pid").read_text()), signal.SIGKILL)


@checks(20, 22)
@pytest_twisted.ensureDeferred
async def test_the_cap_of_a_stream(serving: Serve) -> None:
    server = await serving()
    whole = await server.sh("head -c 1048576 /dev/zero | tr '\\0' a; echo e >&2")
    assert (len(whole["stdout"]), whole["stdout_truncated"]) == (MIB, False)
    more = await server.sh("head -c 1048577 /dev/zero | tr '\\0' a; echo e >&2")
    assert (len(more["stdout"]), more["stdout_truncated"]) == (MIB, True)
    assert (more["stderr"], more["stderr_truncated"]) == ("e\n", False)
    other = await server.sh("head -c 1048577 /dev/zero | tr '\\0' b >&2")
    assert (len(other["stderr"]), other["stderr_truncated"], other["stdout_truncated"]) == (MIB, True, False)
    cut = await server.sh("head -c 1048575 /dev/zero | tr '\\0' a; printf '\\342\\202\\254'")
    assert cut["stdout_truncated"]
    assert cut["stdout"] == "a" * 1_048_575


def rss() -> int:
    """Resident bytes of this process, which is the daemon too."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@checks(21)
@pytest_twisted.ensureDeferred
async def test_a_hundred_mebibytes_are_dropped_and_cost_nothing(serving: Serve) -> None:
    server = await serving()
    await server.exec("true")
    before = rss()
    running = Deferred.fromCoroutine(server.sh("head -c 104857600 /dev/zero"))
    most, answered = 0, 0
    while not running.called:
        assert (await server.get("/processes")).status == 200
        answered += 1
        most = max(most, rss())
    result = await running
    assert (result["exit_code"], result["stdout_truncated"]) == (0, True)
    assert answered > 0
    assert most - before < 32 * MIB


@checks(23)
@pytest_twisted.ensureDeferred
async def test_bytes_that_are_no_text(serving: Serve) -> None:
    server = await serving()
    for written, shown in [
        (r"a\377b\342\202", "a\ufffdb\ufffd"),
        (r"\355\240\200", "\ufffd\ufffd\ufffd"),
        (r"a\0b", "a\0b"),
        (r"\357\273\277x\r\n", "\ufeffx\r\n"),
    ]:
        result = await server.exec("printf", written)
        assert result["stdout"] == shown
        assert not result["stdout_truncated"]


@checks(24, 25)
@pytest_twisted.ensureDeferred
async def test_stdin_larger_than_any_pipe(serving: Serve) -> None:
    server = await serving()
    result = await server.sh("cat | head -c 1000000 | wc -c", stdin="x" * 4 * MIB)
    assert result["stdout"].strip() == "1000000"
    result = await server.sh("exit 0", stdin="x" * 4 * MIB)
    assert result["exit_code"] == 0
    # Both directions at once.
    result = await server.exec("cat", stdin="é" * (MIB // 2))
    assert result["stdout"] == "é" * (MIB // 2)


@checks(27, 28)
@pytest_twisted.ensureDeferred
async def test_what_a_child_starts_with(serving: Serve, home: Home) -> None:
    server = await serving()
    status = (await server.exec("cat", "/proc/self/status"))["stdout"]
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert signals_of(fields["SigIgn"]) == 0
    assert signals_of(fields["SigBlk"]) == 0
    assert fields["Uid"].split() == [str(home.uid)] * 4
    assert fields["Gid"].split() == [str(home.gid)] * 4
    if os.geteuid() == 0:
        assert fields["Groups"].split() == ["61235", "61236"]
        assert int(fields["CapPrm"], 16) == int(fields["CapEff"], 16) == int(fields["CapInh"], 16) == 0
        assert fields["NoNewPrivs"] == "0"
    assert (await server.exec("sh", "-c", "umask"))["stdout"] == "0022\n"
    # ps: its own session and group, and no terminal.
    stat = (await server.exec("cat", "/proc/self/stat"))["stdout"].rpartition(") ")[2].split()
    assert stat[2] == stat[3]
    assert stat[4] == "0"
    result = await server.sh("yes | head -1")
    assert (result["stdout"], result["stderr"]) == ("y\n", "")
    opened = (await server.exec("ls", "/proc/self/fd"))["stdout"].split()
    assert opened == ["0", "1", "2", "3"]  # 3 is the listing itself
    variables = (await server.exec("/usr/bin/env"))["stdout"]
    assert "AGENTD" not in variables
    assert KEY not in variables


@checks(29)
@pytest_twisted.ensureDeferred
async def test_a_caller_that_leaves_does_not_take_its_command_along(serving: Serve, home: Home) -> None:
    server = await serving()
    connection = await server.connect()
    body = b'{"command":"echo > started; sleep 0.5; echo > done"}'
    connection.send(
        b"POST /v1/environments/local/exec HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (KEY.encode(), len(body), body)
    )
    await until((home.home / "started").exists, "the start")
    connection.close()
    await until(lambda: server.site.state.in_flight == 0, "the end of the request")
    assert not (home.home / "done").exists()
    await until((home.home / "done").exists, "the end of the command")


@checks(30)
@pytest_twisted.ensureDeferred
async def test_parallel_commands_do_not_mix(serving: Serve) -> None:
    server = await serving()

    async def one(number: int) -> None:
        loop = "for i in 1 2 3 4 5; do echo $0; echo $0 >&2; done"
        result = await server.exec("sh", "-c", loop, f"n{number}")
        assert result["stdout"] == result["stderr"] == f"n{number}\n" * 5

    running = [Deferred.fromCoroutine(one(number)) for number in range(50)]
    for success, failure in await DeferredList(running, consumeErrors=True):
        assert success, failure
    assert the_reactor().running


@pytest_twisted.ensureDeferred
async def test_a_child_is_not_protected_from_lack_of_memory(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon's own protection is not inherited; what is not protection is left as it is."""
    server = await serving()
    read = oom_score.read
    pid = await server.spawn(["sleep", "100"])
    number = (await server.look(pid))["os_pid"]
    written: list[tuple[int, int]] = []
    monkeypatch.setattr(oom_score, "write", lambda pid, value: written.append((pid, value)))
    for own, expected in [(300, []), (0, []), (-500, [0])]:
        monkeypatch.setattr(oom_score, "read", lambda pid=None, own=own: own)
        written.clear()
        shown = await server.look(await server.spawn(["sleep", "100"]))
        assert written == [(shown["os_pid"], value) for value in expected]
    monkeypatch.undo()
    oom_score.write(number, 300)
    assert read(number) == oom_score.read(number) == 300
    oom_score.write(2**30, 300)  # nobody
    assert oom_score.read(2**30) == 0

"""`shell::exec` over an engine: real commands, every code, every promise of reference B1."""

import os
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted

from tests.process.support import soon, until
from tests.procs import alive
from tests.worker.conftest import Working
from tests.worker.engine import Failed, TestEngine
from tests.worker.support import UNJAILED, Clock

SANDBOX = {"kind": "sandbox", "sandbox_id": "7f2c0c2e-1111-4222-8333-444455556666"}


@pytest_twisted.ensureDeferred
async def test_a_command_gives_its_output_and_exit_code(working: Working) -> None:
    worker = await working()
    result = await worker.sh("echo out; echo err >&2; exit 3")
    assert result | {"duration_ms": 0} == {
        "exit_code": 3,
        "stdout": "out\n",
        "stderr": "err\n",
        "timed_out": False,
        "stdout_truncated": False,
        "stderr_truncated": False,
        "duration_ms": 0,
    }
    slow = await worker.sh("sleep 0.1")
    assert slow["duration_ms"] >= 100


@pytest_twisted.ensureDeferred
async def test_args_are_taken_as_they_are_and_a_line_is_split_without_a_shell(working: Working) -> None:
    worker = await working()

    async def words(**fields: Any) -> list[str]:
        return (await worker.call("shell::exec", fields))["stdout"].split("\n")[:-1]  # type: ignore[no-any-return]

    assert await words(command="printf", args=["%s\n", "a b", "$HOME", "*"]) == ["a b", "$HOME", "*"]
    assert await words(command="printf '%s\\n' 'a b' \"c\\\"d\" e\\ f $HOME * ;") == [
        "a b",
        'c"d',
        "e f",
        "$HOME",
        "*",
        ";",
    ]
    assert await words(command="printf '%s\\n' one", args=None) == ["one"]
    # With args, even none, the command is one word.
    assert (await worker.fails("shell::exec", {"command": "echo hi", "args": []})).code == "S216"


@pytest.mark.parametrize(
    ("request_data", "said"),
    [
        ({}, "command"),
        ("ls", "must be an object"),
        (None, None),
        ({"command": ["ls", "-l"]}, "'command' must be a string (got array)"),
        ({"command": ["ls", "-l"]}, "'args'"),
        ({"command": 7}, "'command' must be a string (got number)"),
        ({"command": None}, "got null"),
        ({"command": True}, "got boolean"),
        ({"command": "ls", "args": "-l"}, "'args' must be an array of strings"),
        ({"command": "ls", "args": ["a", 1]}, "'args[1]' must be a string"),
        ({"command": "ls", "cwd": 1}, "'cwd' must be a string"),
        ({"command": "ls", "stdin": {}}, "'stdin' must be a string (got object)"),
        ({"command": "ls", "env": []}, "'env' must be an object"),
        ({"command": "ls", "env": {"A": 1}}, "'env.A' must be a string"),
        ({"command": "ls", "target": "host"}, "'target' must be an object"),
        ({"command": "ls", "target": {"kind": "vm"}}, "'target.kind'"),
        ({"command": "ls", "target": {"kind": "sandbox"}}, "sandbox_id"),
        ({"command": "ls", "target": {"kind": "sandbox", "sandbox_id": "x"}}, "UUID"),
        ({"command": "echo 'x"}, "parse command"),
        ({"command": 'echo "x'}, "parse command"),
        ({"command": ""}, "empty command"),
        ({"command": "  # nothing"}, "empty command"),
    ],
)
@pytest.mark.parametrize("function", ["shell::exec", "shell::exec_bg"])
@pytest_twisted.ensureDeferred
async def test_what_does_not_fit_is_a_plain_failure_that_names_it(
    working: Working, function: str, request_data: Any, said: str | None
) -> None:
    worker = await working()
    failed = await worker.fails(function, request_data)
    assert failed.code == "invocation_failed"
    assert failed.message.startswith(("serialization error: ", "handler error: "))
    assert said is None or said in failed.message


@pytest_twisted.ensureDeferred
async def test_unknown_keys_are_tolerated(working: Working, tmp_path: Path) -> None:
    worker = await working()
    result = await worker.exec("pwd", fs_scope={"root": "/nowhere", "boundary": "workspace"}, more=[1])
    assert result["stdout"] == os.getcwd() + "\n"


@pytest.mark.parametrize("timeout", [-1, 1.5, "5", True, None])
@pytest_twisted.ensureDeferred
async def test_a_timeout_that_is_no_whole_number_counts_as_left_out(working: Working, timeout: Any) -> None:
    worker = await working({**UNJAILED, "default_timeout_ms": 150})
    result = await worker.exec("sleep", "20", timeout_ms=timeout)
    assert result["timed_out"]
    assert result["exit_code"] is None


@pytest_twisted.ensureDeferred
async def test_the_deadline_is_the_callers_within_the_cap_and_takes_the_group(
    working: Working, tmp_path: Path
) -> None:
    worker = await working({**UNJAILED, "max_timeout_ms": 2000})
    marker = tmp_path / "pid"
    result = await worker.sh(f"echo before; sleep 50 & echo $! > {marker}; wait", timeout_ms=60_000)
    assert result["timed_out"]
    assert result["exit_code"] is None
    assert result["stdout"] == "before\n"
    pid = int(marker.read_text())
    await until(lambda: not alive(pid), "the end of the grandchild")
    at_once = await worker.exec("sleep", "20", timeout_ms=0)
    assert at_once["timed_out"]
    assert at_once["duration_ms"] < 5000


@pytest_twisted.ensureDeferred
async def test_a_death_by_signal_has_no_exit_code(working: Working) -> None:
    worker = await working()
    result = await worker.sh("kill -9 $$")
    assert result["exit_code"] is None
    assert not result["timed_out"]


@pytest_twisted.ensureDeferred
async def test_each_child_leads_a_group_of_its_own(working: Working) -> None:
    worker = await working()
    result = await worker.sh("ps -o pgid= -p $$; echo $$")
    group, pid = result["stdout"].split()
    assert group == pid
    assert int(group) != os.getpgrp()


@pytest_twisted.ensureDeferred
async def test_output_is_cut_at_the_byte_and_the_rest_is_read(working: Working) -> None:
    worker = await working({**UNJAILED, "max_output_bytes": 1000})
    exact = await worker.sh("head -c 1000 /dev/zero | tr '\\0' x")
    assert exact["stdout"] == "x" * 1000
    assert not exact["stdout_truncated"]
    more = await worker.sh("head -c 1001 /dev/zero | tr '\\0' x; head -c 5000000 /dev/zero | tr '\\0' e >&2")
    assert (more["exit_code"], more["stdout_truncated"], more["stderr_truncated"]) == (0, True, True)
    assert (more["stdout"], more["stderr"]) == ("x" * 1000, "e" * 1000)


@pytest_twisted.ensureDeferred
async def test_output_that_is_not_utf8_is_repaired(working: Working) -> None:
    worker = await working({**UNJAILED, "max_output_bytes": 4})
    assert (await worker.sh("printf 'a\\377b'"))["stdout"] == "a\ufffdb"
    cut = await worker.sh("printf 'abc\\303\\244'")
    assert (cut["stdout"], cut["stdout_truncated"]) == ("abc\ufffd", True)


@pytest_twisted.ensureDeferred
async def test_large_output_arrives_whole(working: Working) -> None:
    worker = await working()
    result = await worker.sh("head -c 1000000 /dev/zero | tr '\\0' y")
    assert result["stdout"] == "y" * 1_000_000


@pytest_twisted.ensureDeferred
async def test_stdin_is_written_and_closed(working: Working) -> None:
    worker = await working()
    assert (await worker.exec("cat", stdin="päckchen"))["stdout"] == "päckchen"
    assert (await worker.exec("cat", stdin=""))["stdout"] == ""
    assert (await worker.exec("cat"))["stdout"] == ""
    # One that does not read is none the worse for it.
    assert (await worker.exec("true", stdin="x" * 1_000_000))["exit_code"] == 0


@pytest_twisted.ensureDeferred
async def test_what_cannot_be_started_is_s216(working: Working, tmp_path: Path) -> None:
    worker = await working()
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for command, args in [
        ("/nowhere/program", []),
        ("no-such-program-here", []),
        (str(plain), []),
        ("echo", ["a\0b"]),
        ("", []),
    ]:
        failed = await worker.fails("shell::exec", {"command": command, "args": args})
        assert failed.code == "S216"
        assert "spawn" in failed.message
        plainly = await worker.fails("shell::exec_bg", {"command": command, "args": args})
        assert plainly.code == "invocation_failed"
        assert "S216: spawn" in plainly.message


@pytest_twisted.ensureDeferred
async def test_the_denylist_is_searched_in_the_words(working: Working, engine: TestEngine) -> None:
    worker = await working({**UNJAILED, "denylist_patterns": [r"rm\s+-rf\s+/", r"^bad\b"]})
    engine.provided["sandbox::exec"] = lambda data: {}
    for target in ({}, {"target": SANDBOX}):
        for function in ("shell::exec", "shell::exec_bg"):
            failed = await worker.fails(function, {"command": "sudo rm  -rf /x", **target})
            assert failed.code == "invocation_failed"
            assert "denylist" in failed.message
            assert r"rm\s+-rf\s+/" in failed.message
    assert (await worker.fails("shell::exec", {"command": "bad", "args": ["x"]})).code == "invocation_failed"
    assert (await worker.exec("echo", "bad"))["exit_code"] == 0


@pytest_twisted.ensureDeferred
async def test_a_directory_is_judged_by_the_jail(working: Working, tmp_path: Path) -> None:
    inside, outside, denied = (tmp_path / name for name in ("inside", "outside", "denied"))
    for each in (inside, outside, inside / "sub", inside / "denied"):
        each.mkdir()
    (inside / "file").write_text("")
    (inside / "way-out").symlink_to(outside)
    worker = await working(
        {
            "fs": {"host_roots": [str(inside)], "denylist_paths": [str(inside / "denied")]},
            "env": {"inherit": True},
            "working_dir": str(outside),
        }
    )
    assert (await worker.exec("pwd"))["stdout"].strip() == str(outside)
    for given in ("sub", str(inside / "sub"), "./sub/../sub"):
        assert (await worker.exec("pwd", cwd=given))["stdout"].strip() == str(inside / "sub")
    codes = {
        "absent": "S211",
        "file": "S210",
        "": "S210",
        "..": "S215",
        "/": "S215",
        str(outside): "S215",
        "way-out": "S215",
        "denied": "S215",
        "a\0b": "S210",
        "x" * 4096: "S216",
    }
    for given, code in codes.items():
        failed = await worker.fails("shell::exec", {"command": "pwd", "cwd": given})
        assert failed.code == code, (given, failed)
        plainly = await worker.fails("shell::exec_bg", {"command": "pwd", "cwd": given})
        assert plainly.code == "invocation_failed"
        assert f"{code}: " in plainly.message
    assert denied.name == "denied"


@pytest_twisted.ensureDeferred
async def test_without_a_jail_a_directory_must_be_absolute(working: Working) -> None:
    worker = await working()
    assert (await worker.exec("pwd", cwd="/"))["stdout"] == "/\n"
    assert (await worker.fails("shell::exec", {"command": "pwd", "cwd": "tmp"})).code == "S210"


REFUSED = [
    "PATH",
    "IFS",
    "HOME",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "LD_PROFILE",
    "LD_DEBUG",
    "LD_CONFIG",
    "LD_ORIGIN_PATH",
    "LD_",
    "DYLD_INSERT_LIBRARIES",
    "DYLD_LIBRARY_PATH",
    "DYLD_FRAMEWORK_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "DYLD_FALLBACK_FRAMEWORK_PATH",
    "DYLD_ANYTHING",
    "LD_ANYTHING",
    "GCONV_PATH",
    "GETCONF_DIR",
    "HOSTALIASES",
    "NIS_PATH",
    "MALLOC_TRACE",
    "RES_OPTIONS",
    "LOCALDOMAIN",
    "BASH_ENV",
    "ENV",
    "PYTHONSTARTUP",
    "PERL5OPT",
    "RUBYOPT",
    "NODE_OPTIONS",
]


@pytest_twisted.ensureDeferred
async def test_variables_that_choose_what_else_runs_are_refused(working: Working) -> None:
    worker = await working({**UNJAILED, "env": {"inherit": False, "allow": ["PATH", "NODE_OPTIONS"]}})
    for name in (*REFUSED, "", "A=B", "A\0"):
        for function in ("shell::exec", "shell::exec_bg"):
            failed = await worker.fails(function, {"command": "env", "env": {"FINE": "1", name: "x"}})
            assert "S210" in (failed.code if function == "shell::exec" else failed.message), (name, failed)
            assert not name.isidentifier() or name in failed.message
    fine = await worker.exec("env", env={"path": "1", "XLD_": "2", "Home": "3"})
    assert {"path=1", "XLD_=2", "Home=3"} <= set(fine["stdout"].split("\n"))


@pytest_twisted.ensureDeferred
async def test_the_environment_is_inherited_or_chosen_by_name(working: Working, engine: TestEngine) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": "/h", "LANG": "C", "OTHER": "o", "III_TOKEN": "secret"}

    async def seen(seed: Any, **env: str) -> set[str]:
        worker = await working({**UNJAILED, **seed}, environ=environ, name=f"shell-{len(names)}")
        names.append("")
        found = set((await worker.exec("env", env=env))["stdout"].split("\n")[:-1])
        await worker.worker.stop()
        engine.values.clear()
        return found

    names: list[str] = []
    inherited = await seen({"env": {"inherit": True}}, OTHER="mine", NEW="n")
    assert inherited == {f"PATH={environ['PATH']}", "HOME=/h", "LANG=C", "OTHER=mine", "NEW=n"}
    chosen = await seen({"env": {"allow": ["PATH", "LANG", "ABSENT"]}})
    assert chosen == {f"PATH={environ['PATH']}", "LANG=C"}


@pytest_twisted.ensureDeferred
async def test_a_grandchild_that_keeps_the_pipes_does_not_keep_the_caller(
    working: Working, tmp_path: Path
) -> None:
    marker = tmp_path / "pid"
    worker = await working(
        {**UNJAILED, "max_timeout_ms": 10_000_000, "default_timeout_ms": 10_000_000},
        clock=Clock(20),
    )
    result = await worker.sh(f"echo early; sleep 60 & echo $! > {marker}")
    assert (result["exit_code"], result["stdout"], result["stdout_truncated"]) == (0, "early\n", True)
    pid = int(marker.read_text())
    assert alive(pid)
    os.kill(pid, 9)


@pytest_twisted.ensureDeferred
async def test_calls_run_beside_one_another(working: Working, tmp_path: Path) -> None:
    worker = await working()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = worker.engine.call("shell::exec", {"command": f"sh -c 'read line < {gate}; echo $line'"})
    assert (await worker.exec("echo", "quick"))["stdout"] == "quick\n"
    assert not slow.called
    with open(gate, "w") as file:
        file.write("slow\n")
    assert (await soon(slow))["stdout"] == "slow\n"


# -- sandboxes ---------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_a_sandbox_gets_the_command_and_answers(working: Working, engine: TestEngine) -> None:
    worker = await working()
    asked: list[Any] = []

    def run(data: Any) -> Any:
        asked.append(data)
        return {
            "stdout": "in\n",
            "stderr": "",
            "exit_code": 2,
            "timed_out": False,
            "duration_ms": 7,
            "more": 1,
        }

    engine.provided["sandbox::exec"] = run
    result = await worker.call("shell::exec", {"command": "echo 'a b'", "target": SANDBOX, "timeout_ms": 50})
    assert (result["stdout"], result["exit_code"], result["duration_ms"]) == ("in\n", 2, 7)
    assert asked == [{"sandbox_id": SANDBOX["sandbox_id"], "cmd": "echo", "args": ["a b"], "timeout_ms": 50}]
    engine.provided["sandbox::exec"] = lambda data: {"stdout": 3}
    assert (await worker.fails("shell::exec", {"command": "x", "target": SANDBOX})).code == "S216"


@pytest.mark.parametrize("field", [{"cwd": "/"}, {"env": {}}, {"stdin": ""}])
@pytest_twisted.ensureDeferred
async def test_a_sandbox_takes_no_directory_variables_or_stdin(working: Working, field: Any) -> None:
    worker = await working()
    failed = await worker.fails("shell::exec", {"command": "x", "target": SANDBOX, **field})
    assert failed.code == "S210"
    assert next(iter(field)) in failed.message
    plainly = await worker.fails("shell::exec_bg", {"command": "x", "target": SANDBOX, **field})
    assert plainly.code == "invocation_failed"
    assert "S210" in plainly.message


@pytest_twisted.ensureDeferred
async def test_sandboxes_can_be_switched_off(working: Working) -> None:
    worker = await working({**UNJAILED, "sandbox": {"enabled": False}})
    assert (await worker.fails("shell::exec", {"command": "x", "target": SANDBOX})).code == "S210"
    plainly = await worker.fails("shell::exec_bg", {"command": "x", "target": SANDBOX})
    assert "S210" in plainly.message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, "S216"),
        (Failed("S001", "no such sandbox"), "S001"),
        (Failed("S102", "no resources"), "S102"),
        (Failed("S200", "it failed"), "S200"),
        (Failed("S300", "no /dev/kvm"), "S300"),
        (Failed("S400", "too many"), "S400"),
        (Failed("S999", "?"), "S216"),
        (Failed("S2100", "?"), "S216"),
        (Failed("invocation_failed", 'handler error: {"code":"S002","message":"gone"}'), "S002"),
        (Failed("invocation_failed", "handler error: {not json}"), "S216"),
        (Failed("invocation_failed", 'handler error: {"code":7}'), "S216"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_sandboxs_failures_keep_the_codes_that_callers_know(
    working: Working, engine: TestEngine, error: Failed | None, code: str
) -> None:
    worker = await working()
    if error is not None:

        def run(data: Any) -> Any:
            raise error

        engine.provided["sandbox::exec"] = run
    failed = await worker.fails("shell::exec", {"command": "x", "target": SANDBOX})
    assert failed.code == code

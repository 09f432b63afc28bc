"""Being another user on one thread: what follows the effective ids, and the way back."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentd.linux import credentials, effective
from agentd.linux.effective import acting_as, may_act_as

OWNER, GROUP, SHARED = 61001, 61002, 61003
SETTING = "/proc/sys/kernel/core_pattern"


def elsewhere(work: Callable[[], Any]) -> Any:
    """`work` on a thread of its own."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(work).result(30)


def may_write(path: str) -> bool:
    """Whether it could be opened; nothing is written."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except PermissionError:
        return False
    return True


@pytest.mark.root
def test_the_kernels_settings_ask_for_the_effective_id() -> None:
    """Why file system ids alone are not enough where a caller chooses the path."""

    def by_file_system_id() -> bool:
        with credentials.as_user(OWNER, GROUP, []):
            return may_write(SETTING)

    def by_effective_id() -> bool:
        with acting_as(OWNER, GROUP, []):
            return may_write(SETTING)

    if not may_write(SETTING):
        pytest.skip("this machine's settings are closed even to root")
    assert elsewhere(by_file_system_id)
    assert not elsewhere(by_effective_id)


@pytest.mark.root
def test_what_a_thread_is_inside_and_afterwards() -> None:
    def work() -> tuple[Any, ...]:
        before = (os.getresuid(), os.getresgid(), credentials.current(), credentials.effective_capabilities())
        with acting_as(OWNER, GROUP, [SHARED]):
            inside = (
                os.getresuid(),
                os.getresgid(),
                credentials.current(),
                credentials.effective_capabilities(),
            )
            status = Path(f"/proc/self/task/{_thread()}/status").read_text()
        after = (os.getresuid(), os.getresgid(), credentials.current(), credentials.effective_capabilities())
        return before, inside, after, status

    before, inside, after, status = elsewhere(work)
    assert inside[0] == (0, OWNER, 0)
    assert inside[1] == (before[1][0], GROUP, before[1][2])
    assert inside[2] == credentials.FileSystemCredentials(OWNER, GROUP, frozenset({SHARED}))
    assert inside[3] == 0
    assert f"Uid:\t0\t{OWNER}\t0\t{OWNER}" in status
    assert after == before
    assert os.geteuid() == 0  # the others never changed


def _thread() -> int:
    return threading.get_native_id()


@pytest.mark.root
def test_rights_come_back_after_an_error_and_a_refusal_changes_nothing() -> None:
    def work() -> Any:
        with pytest.raises(LookupError), acting_as(OWNER, GROUP, []):
            raise LookupError
        for bad in ((credentials.NO_ID, 1, []), (1, credentials.NO_ID, []), (1, 1, [credentials.NO_ID])):
            with pytest.raises(OSError, match="no user or group"), acting_as(*bad):
                raise AssertionError
        return credentials.current().uid

    assert elsewhere(work) == 0


@pytest.mark.root
def test_the_user_may_not_signal_the_thread_that_acts_as_them() -> None:
    """Real and saved ids stay root's: kill(2) looks at those."""
    inside, done = threading.Event(), threading.Event()
    found: list[int] = []

    def work() -> None:
        with acting_as(OWNER, GROUP, []):
            found.append(threading.get_native_id())
            inside.set()
            done.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(30)
    script = "import os, signal, sys; os.kill(int(sys.argv[1]), 0)"
    result = subprocess.run(
        ["/usr/bin/env", "python3", "-c", script, str(found[0])],
        user=OWNER,
        group=GROUP,
        extra_groups=[],
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        check=False,
    )
    done.set()
    thread.join(30)
    assert result.returncode != 0
    assert "PermissionError" in result.stderr


def test_acting_as_oneself_needs_no_rights() -> None:
    mine = credentials.current()

    def work() -> int:
        with (
            acting_as(mine.uid, mine.gid, mine.groups),
            acting_as(mine.uid, mine.gid, {*mine.groups, mine.gid}),
        ):
            return credentials.current().uid

    assert elsewhere(work) == mine.uid
    assert may_act_as(mine.uid, mine.gid, mine.groups)
    assert may_act_as(mine.uid + 1, mine.gid, ()) == (os.geteuid() == 0)


@pytest.mark.root
def test_one_who_is_not_root_cannot_become_another() -> None:
    code = (
        "from agentd.linux import credentials, effective\n"
        "try:\n"
        f"    with effective.acting_as({OWNER}, {GROUP}, []): print('became')\n"
        "except PermissionError: print('refused')\n"
        f"print(effective.may_act_as({OWNER}, {GROUP}, []), credentials.current().uid)\n"
    )
    drop = (
        "import os; os.setgroups([]); os.setresgid(61009, 61009, 61009); os.setresuid(61008, 61008, 61008)\n"
    )
    # Imported before the rights go: the interpreter may live where only root can read.
    run = subprocess.run(
        [sys.executable, "-c", f"import agentd.linux.effective\n{drop}{code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(effective.__file__).parents[2],
    )
    assert run.stdout.split() == ["refused", "False", "61008"], run

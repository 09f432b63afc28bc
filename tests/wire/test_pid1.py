"""The daemon as process 1 of a PID namespace, amid orphans; and what it hands down to its children as any process.

Started with ``unshare``; what is looked at from outside is in /proc of this machine, where the daemon has another
number.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import frozen

from tests.conftest import RunningDaemon, start_daemon
from tests.process.support import signals_of
from tests.wire.conftest import Connect
from tests.wire.support import DEADLINE, Raw, as_json, connect, request

UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
EXECS = 100


@frozen
class Namespace:
    """A daemon that is process 1 in it."""

    daemon: RunningDaemon
    pid: int
    """Its number out here."""

    def children(self) -> dict[int, str]:
        """Its children and their states, zombies included (proc(5))."""
        found = {}
        for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[int(pid)] = stat.rpartition(")")[2].split()[0]
        return found

    def inside(self) -> int:
        """How many processes there are in it."""
        namespace = os.readlink(f"/proc/{self.pid}/ns/pid")
        count = 0
        for name in os.listdir("/proc"):
            try:
                count += name.isdigit() and os.readlink(f"/proc/{name}/ns/pid") == namespace
            except OSError:
                pass
        return count

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ended(self) -> int:
        """Its exit status, once it has one."""
        return self.daemon.process.wait(DEADLINE)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """One for the tests that leave it running."""
    found = begin(tmp_path_factory.mktemp("pid1"))
    yield found
    found.daemon.process.kill()  # with it goes the whole namespace
    found.ended()


def begin(directory: Path) -> Namespace:
    daemon = start_daemon(directory, wrap=UNSHARE)
    daemon.bootstrap()
    [pid] = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    found = Namespace(daemon, int(pid))
    [listening] = [entry for entry in daemon.log if entry.get("event") == "listening"]
    assert listening["pid"] == 1
    return found


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    """One for a test that ends it."""
    found = begin(tmp_path)
    yield found
    found.daemon.process.kill()
    found.ended()


def start(daemon: RunningDaemon, exec_id: str, script: str, wait: int = 30) -> bytes:
    body = {"exec_id": exec_id, "command": [script], "shell": True}
    return as_json("POST", "/v1/exec/start", body, f"Prefer: wait={wait}", token=daemon.token)


def ask(connection: Raw, what: bytes) -> dict[str, object]:
    """One request's JSON answer."""
    reply = connection.send(what).reply()
    assert reply.status == 200, reply.body
    found: dict[str, object] = json.loads(reply.body)
    return found


def eventually(look: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not look():
        assert time.monotonic() < end, what
        time.sleep(0.01)


QUIET = ">/dev/null 2>&1 </dev/null"
ORPHANS = (
    # A daemon in the classic way: fork, new session, fork, and the parents exit.
    f"(setsid sh -c '(sleep 0.0{{n}}; exit 3) &' {QUIET} &)",
    # One that stays in the exec's group, and one that dies by a signal.
    f"(sh -c 'sh -c \"exit {{n}}\" & exit 5' {QUIET} &); (sh -c 'kill -KILL $$' {QUIET} &)",
    # A chain of three.
    f"(sh -c '(sh -c \"(sleep 0.0{{n}}) & exit 1\") & exit 2' {QUIET} &)",
)


@pytest.mark.root
def test_no_exec_loses_its_status_and_no_orphan_stays_a_zombie(shared: Namespace) -> None:
    daemon = shared.daemon
    chance = random.Random(41)
    connections = [connect(daemon) for _ in range(10)]
    try:
        for round_number in range(EXECS // len(connections)):
            expected = []
            for number, connection in enumerate(connections):
                by_signal = chance.random() < 0.2
                code = chance.choice([signal.SIGKILL, signal.SIGTERM]) if by_signal else chance.randrange(256)
                end = f"kill -{int(code)} $$" if by_signal else f"exit {code}"
                orphan = chance.choice(ORPHANS).format(n=chance.randrange(1, 9))
                expected.append((None, int(code)) if by_signal else (code, None))
                connection.send(start(daemon, f"e-{round_number}-{number}", f"{orphan}; {end}"))
            for (code, number), connection in zip(expected, connections, strict=True):
                outcome = json.loads(connection.reply().body)
                assert (outcome["phase"], outcome["exit_code"], outcome["signal"]) == ("exited", code, number)
                assert outcome["usage"] is not None
    finally:
        for connection in connections:
            connection.close()
    eventually(lambda: shared.children() == {}, "every orphan is reaped")
    assert shared.inside() == 1


@pytest.mark.root
def test_orphans_are_its_children_while_they_live(shared: Namespace, raw: Connect) -> None:
    """The test above would pass if they had gone elsewhere."""
    connection = raw(shared.daemon)
    ask(connection, start(shared.daemon, "orphan", f"setsid sh -c 'sleep 60 & exit 0' {QUIET}"))
    eventually(lambda: list(shared.children().values()) == ["S"], "the orphan is here")
    [orphan] = shared.children()
    os.kill(orphan, signal.SIGKILL)
    eventually(lambda: shared.children() == {}, "it is reaped")


@pytest.mark.root
def test_kill_timeout_and_reap_work_the_same(shared: Namespace, raw: Connect) -> None:
    daemon, connection = shared.daemon, raw(shared.daemon)
    ask(connection, start(daemon, "killed", "sleep 60 & sleep 60", wait=0))
    assert ask(connection, request("POST", "/v1/exec/killed/kill", token=daemon.token))["killed"] is True
    found = ask(connection, request("GET", "/v1/exec/killed", "Prefer: wait=20", token=daemon.token))
    assert (found["signal"], found["cause"]) == (signal.SIGTERM, "killed")
    body = {"exec_id": "late", "command": ["sleep 60 & wait"], "shell": True, "timeout_sec": 0.2}
    found = ask(connection, as_json("POST", "/v1/exec/start", body, "Prefer: wait=20", token=daemon.token))
    assert (found["timed_out"], found["cause"]) == (True, "timeout")
    body = {"exec_id": "reap", "command": ["sleep 60 &"], "shell": True, "reap_group_on_exit": True}
    found = ask(connection, as_json("POST", "/v1/exec/start", body, "Prefer: wait=20", token=daemon.token))
    assert (found["exit_code"], found["writers_may_be_alive"]) == (0, False)
    eventually(lambda: shared.children() == {}, "nobody is left")


@pytest.mark.root
def test_procs_shows_the_numbers_of_its_own_namespace(shared: Namespace, raw: Connect) -> None:
    daemon, connection = shared.daemon, raw(shared.daemon)
    ask(connection, start(daemon, "shown", "sleep 60 & echo $$; wait", wait=0))
    procs = ask(connection, request("GET", "/v1/procs", token=daemon.token))["procs"]
    assert isinstance(procs, list)
    [shown] = [each for each in procs if each["exec_id"] == "shown"]
    assert shown["pgid"] in shown["pids"]
    assert ask(connection, request("POST", "/v1/exec/shown/kill", token=daemon.token))["killed"] is True
    found = ask(connection, request("GET", "/v1/exec/shown", "Prefer: wait=20", token=daemon.token))
    assert found["stdout"] == f"{shown['pgid']}\n"


@pytest.mark.root
def test_a_hang_up_means_nothing_to_it(shared: Namespace, raw: Connect) -> None:
    shared.signal(signal.SIGHUP)
    connection = raw(shared.daemon)
    assert ask(connection, start(shared.daemon, "after-hup", "exit 3"))["exit_code"] == 3


@pytest.mark.root
def test_term_lets_it_leave_in_order(namespace: Namespace, raw: Connect) -> None:
    """Requests in flight are answered, commands are ended, the status is 0."""
    daemon, held = namespace.daemon, raw(namespace.daemon)
    ask(raw(daemon), start(daemon, "left", "trap 'exit 0' TERM; while :; do sleep 0.05; done", wait=0))
    held.send(start(daemon, "held", "sleep 0.5; exit 6"))
    eventually(lambda: len(namespace.children()) == 2, "both run")
    namespace.signal(signal.SIGTERM)
    assert json.loads(held.reply().body)["exit_code"] == 6
    assert namespace.ended() == 0
    eventually(lambda: "stopped" in [entry.get("event") for entry in daemon.log], "it says that it stopped")


# -- what any daemon hands down --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param((), id="plainly"),
        pytest.param(("nohup",), id="under nohup"),
        pytest.param(
            ("sh", "-c", 'trap "" INT QUIT USR1; exec "$@"', "sh"), id="in the background of a shell"
        ),
    ],
)
def test_children_ignore_and_block_nothing(
    make_daemon: Callable[..., RunningDaemon], raw: Connect, wrap: tuple[str, ...]
) -> None:
    """However it was started, and though it does not mind a hang-up itself."""
    daemon = make_daemon(wrap=wrap, program=("-m", "agentd"))
    daemon.bootstrap()
    daemon.process.send_signal(signal.SIGHUP)
    found = ask(raw(daemon), start(daemon, "signals", "grep -E 'Sig(Blk|Ign)' /proc/self/status"))
    masks = dict(line.split(":\t") for line in found["stdout"].splitlines())
    assert {name: signals_of(mask) for name, mask in masks.items()} == {"SigBlk": 0, "SigIgn": 0}
    daemon.process.send_signal(signal.SIGHUP)
    assert ask(raw(daemon), start(daemon, "again", "exit 2"))["exit_code"] == 2

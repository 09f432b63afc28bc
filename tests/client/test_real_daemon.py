"""The client against a real daemon: commands, streams, files and trees as they are used."""

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import deferLater

from agentd.client import errors
from agentd.client.client import Client
from agentd.client.messages import ExitEvent
from agentd.client.sse import Gap, Output
from tests.client.conftest import Connect
from tests.client.support import FAST, until
from tests.conftest import DaemonFactory, RunningDaemon


@pytest.fixture
def agent(connect: Connect, daemon: RunningDaemon) -> Client:
    return connect(daemon.url, daemon.token)


async def output_of(handle: Any, offset: int = 0) -> tuple[dict[str, bytes], list[Gap], ExitEvent]:
    data = {"stdout": b"", "stderr": b""}
    gaps: list[Gap] = []
    async with handle.follow(offset, FAST) as events:
        async for event in events:
            if isinstance(event, Output):
                data[event.stream] += event.data
            elif isinstance(event, Gap):
                gaps.append(event)
            else:
                return data, gaps, event
    raise AssertionError("no exit event")


# -- the machine -------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_health_schema_and_procs(agent: Client) -> None:
    health = await agent.health()
    assert health.bootstrapped
    assert health.hooks[0].hook == "run"
    assert (await agent.schema())["protocol_version"] == "1"
    assert (await agent.schema(openapi=True))["openapi"].startswith("3.1")
    handle = await agent.start(["sleep", "60"])
    (group,) = [group for group in await agent.procs() if group.exec_id == handle.exec_id]
    assert group.pids == (group.pgid,)
    assert not group.child_exited
    await handle.kill()


@pytest_twisted.ensureDeferred
async def test_bootstrap_is_one_shot_and_its_replay_is_none(
    connect: Connect, make_daemon: DaemonFactory
) -> None:
    running = make_daemon()
    first, second = connect(running.url), connect(running.url)
    with pytest.raises(errors.Unavailable):
        await connect(running.url, "any").procs()
    await first.bootstrap("the-token", {"LAUNCHED": "yes"})
    await second.bootstrap("the-token", {"LAUNCHED": "no"})
    with pytest.raises(errors.BootstrapConflict):
        await second.bootstrap("another")
    assert (await second.run(["printenv", "LAUNCHED"])).stdout == "yes\n"
    with pytest.raises(errors.CredentialFault):
        await connect(running.url, "wrong").procs()


# -- commands ----------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_run_in_one_round_trip_and_an_ack(agent: Client) -> None:
    outcome = await agent.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (3, "out\n", "err\n")
    assert (outcome.phase, outcome.cause) == ("acked", "exit")
    assert outcome.usage is not None
    assert outcome.usage.max_rss_bytes > 0


@pytest_twisted.ensureDeferred
async def test_every_option_of_a_start(agent: Client, tmp_path: Path) -> None:
    script = ["pwd", 'echo "$A"', "id -u"]
    outcome = await agent.run(
        script, shell=True, cwd=str(tmp_path), env={"A": "b c", "PATH": os.environ["PATH"]}, user=os.getuid()
    )
    assert outcome.stdout == f"{tmp_path}\nb c\n{os.getuid()}\n"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"user": "no-such-user"}, errors.UnknownUser),
        ({"group": "no-such-group"}, errors.UnknownGroup),
        ({"shell": "no-such-shell"}, errors.UnknownShell),
        ({"timeout": -1}, errors.MalformedRequest),
        ({"cwd": "/no/such/place"}, errors.SpawnFailed),
    ],
)
@pytest_twisted.ensureDeferred
async def test_starts_that_are_refused(agent: Client, options: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await agent.start(["true"], exec_id="refused", **options)
    with pytest.raises(errors.UnknownExec):
        await agent.exec("refused").poll()


@pytest_twisted.ensureDeferred
async def test_a_start_repeated_runs_once(agent: Client, tmp_path: Path) -> None:
    for _ in range(3):
        handle = await agent.start([f"echo x >> {tmp_path}/log"], shell=True, exec_id=f"once-{tmp_path.name}")
    await handle.wait()
    assert (tmp_path / "log").read_text() == "x\n"


@pytest_twisted.ensureDeferred
async def test_wait_ack_and_what_is_left(agent: Client) -> None:
    handle = await agent.start(["sleep", "0.3"])
    with pytest.raises(errors.StillRunning):
        await handle.ack()
    with pytest.raises(errors.WaitTimedOut):
        await handle.wait(0.05)
    assert (await handle.wait(20)).succeeded
    assert (await handle.ack()).phase == "acked"
    with pytest.raises(errors.AlreadyAcked):
        await agent.exec(handle.exec_id).ack()
    with pytest.raises(errors.OutputReleased):
        await agent.exec(handle.exec_id).wait()


@pytest_twisted.ensureDeferred
async def test_a_kill_takes_the_whole_tree_and_may_be_repeated(agent: Client) -> None:
    handle = await agent.start(["sleep 998 & sleep 999 & wait"], shell=True)
    assert await handle.kill()
    (group,) = [group for group in await agent.procs() if group.exec_id == handle.exec_id]
    assert group.pids == ()
    outcome = await handle.wait()
    assert (outcome.exit_code, outcome.signal, outcome.cause) == (None, 15, "killed")
    assert await handle.kill() in (True, False)  # zombies that nobody reaps still take signals (contract c.9)
    alone = await agent.start(["sleep", "999"])
    assert [await alone.kill(), (await alone.wait()).signal, await alone.kill()] == [True, 15, False]


@pytest_twisted.ensureDeferred
async def test_a_timeout_is_no_success(agent: Client) -> None:
    outcome = await agent.run(["trap 'exit 0' TERM; echo begun; sleep 60 & wait"], shell=True, timeout=0.5)
    assert (outcome.exit_code, outcome.timed_out, outcome.succeeded) == (0, True, False)
    assert (outcome.stdout, outcome.cause) == ("begun\n", "timeout")


@pytest_twisted.ensureDeferred
async def test_a_hundred_at_once(agent: Client) -> None:
    runs = [Deferred.fromCoroutine(agent.run([f"echo {n}; exit {n % 50}"], shell=True)) for n in range(100)]
    results = await DeferredList(runs)
    for n, (ok, outcome) in enumerate(results):
        assert ok
        assert (outcome.exit_code, outcome.stdout) == (n % 50, f"{n}\n")


# -- streams -----------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_binary_output_arrives_as_it_is_and_its_digest_with_it(agent: Client) -> None:
    handle = await agent.start(["head -c 300000 /dev/urandom; printf abc >&2"], shell=True, digest=True)
    data, gaps, end = await output_of(handle)
    assert (len(data["stdout"]), data["stderr"], gaps) == (300_000, b"abc", [])
    assert end.bytes_total == end.offset == 300_003
    again, _, _ = await output_of(handle)
    assert again == data
    assert len(end.sha256 or "") == 64


@pytest_twisted.ensureDeferred
async def test_one_streams_digest(agent: Client) -> None:
    handle = await agent.start(["head", "-c", "100000", "/dev/urandom"], digest=True)
    data, _, end = await output_of(handle)
    assert hashlib.sha256(data["stdout"]).hexdigest() == end.sha256


@pytest_twisted.ensureDeferred
async def test_attaching_late_tells_what_is_gone(agent: Client) -> None:
    handle = await agent.start(["head", "-c", "3000000", "/dev/zero"])
    await handle.wait()
    data, gaps, end = await output_of(handle)
    (gap,) = gaps
    assert gap.start == 0
    assert gap.end + len(data["stdout"]) == end.offset == 3_000_000
    tail, gaps, _ = await output_of(handle, 2_999_000)
    assert (len(tail["stdout"]), gaps) == (1000, [])


@pytest_twisted.ensureDeferred
async def test_a_follower_sees_output_before_the_exit(agent: Client) -> None:
    handle = await agent.start(["cat"], stdin=True)
    async with handle.follow() as events:
        await handle.write(b"first")
        assert await anext(events) == Output(0, "stdout", b"first")
        await handle.close_stdin()
        assert isinstance(await anext(events), ExitEvent)


@pytest_twisted.ensureDeferred
async def test_the_two_streams_apart(agent: Client) -> None:
    handle = await agent.start(["echo one; echo two >&2; echo three"], shell=True)
    async with handle.stdout() as stdout, handle.stderr() as stderr:
        assert b"".join([data async for data in stdout]) == b"one\nthree\n"
        assert b"".join([data async for data in stderr]) == b"two\n"


@pytest_twisted.ensureDeferred
async def test_a_daemon_that_dies_is_not_taken_for_an_exit(
    connect: Connect, make_daemon: DaemonFactory
) -> None:
    running = make_daemon()
    running.bootstrap()
    agent = connect(running.url, running.token)
    handle = await agent.start(["echo begun; sleep 60"], shell=True)
    async with handle.follow(backoff=FAST) as events:
        assert isinstance(await anext(events), Output)
        running.process.kill()
        running.process.wait()
        with pytest.raises(errors.StreamLost) as lost:
            await anext(events)
    assert lost.value.cursor == 6
    with pytest.raises(errors.Unreachable):
        await handle.wait()


# -- standard input ----------------------------------------------------------------------------------------


async def pieces(data: bytes, size: int = 50_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest_twisted.ensureDeferred
async def test_feeding_a_child_that_sleeps_first(agent: Client) -> None:
    """More than a pipe holds, for longer than a write may wait (a second, in this daemon)."""
    data = os.urandom(400_000)
    handle = await agent.start(["sleep 2.5; sha256sum"], shell=True, stdin=True)
    assert await handle.feed(pieces(data)) == len(data)
    assert hashlib.sha256(data).hexdigest() in ((await handle.wait()).stdout or "")


@pytest_twisted.ensureDeferred
async def test_a_child_that_has_enough(agent: Client) -> None:
    handle = await agent.start(["head", "-c", "1"], stdin=True)
    with pytest.raises(errors.StdinClosed):
        await handle.feed(pieces(bytes(1_000_000)))
    assert (await handle.wait()).succeeded


@pytest_twisted.ensureDeferred
async def test_writes_that_are_refused(agent: Client) -> None:
    without = await agent.start(["sleep", "60"])
    with pytest.raises(errors.StdinNotRequested):
        await without.write(b"x")
    await without.kill()
    handle = await agent.start(["cat"], stdin=True)
    with pytest.raises(errors.TooLarge):
        await handle.write(bytes(1024 * 1024 + 1))
    await handle.close_stdin()
    with pytest.raises(errors.StdinClosed):
        await handle.close_stdin()


# -- files and trees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 18_432, 18_433, 5_000_000])
@pytest_twisted.ensureDeferred
async def test_a_file_there_and_back(agent: Client, tmp_path: Path, size: int) -> None:
    (tmp_path / "here").write_bytes(os.urandom(size))
    (tmp_path / "here").chmod(0o750)
    there = tmp_path / "below" / "ünï ☃ 'x'"
    stored = await agent.files.put(tmp_path / "here", str(there))
    assert (stored.size, stored.verified, stored.how) == (size, True, "atomic")
    assert there.stat().st_mode & 0o7777 == 0o750
    got = await agent.files.get(str(there), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "here").read_bytes()
    assert got.sha256 == stored.sha256 == await agent.sha256(str(there))


@pytest_twisted.ensureDeferred
async def test_a_large_upload_that_is_refused_hears_why(
    connect: Connect, make_daemon: DaemonFactory, tmp_path: Path
) -> None:
    """Large enough not to be drained, small enough for the sockets: beyond that the status may lose the race."""
    running = make_daemon(env={"AGENTD_MAX_BODY_BYTES": "100000"})
    running.bootstrap()
    wrong, right = connect(running.url, "wrong"), connect(running.url, running.token)
    with pytest.raises(errors.CredentialFault):
        await wrong.files.write(str(tmp_path / "f"), pieces(bytes(1_000_000)))
    with pytest.raises(errors.TooLarge):
        await right.files.write(str(tmp_path / "f"), pieces(bytes(1_000_000)), length=1_000_000)
    assert not (tmp_path / "f").exists()


@pytest_twisted.ensureDeferred
async def test_lines(agent: Client, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\nd")

    async def lines(start: int | None, end: int | None) -> bytes:
        async with await agent.files.lines(str(tmp_path / "f"), start, end) as found:
            return b"".join([data async for data in found])

    assert [await lines(2, 3), await lines(4, 99), await lines(9, None)] == [b"b\nc\n", b"d", b""]
    with pytest.raises(errors.MalformedRequest):
        await lines(3, 2)


@pytest_twisted.ensureDeferred
async def test_file_refusals(agent: Client, tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound):
        await agent.files.read(str(tmp_path / "missing"))
    with pytest.raises(errors.MalformedRequest):
        await agent.files.read(str(tmp_path))
    assert await agent.sha256(str(tmp_path / "missing")) is None
    with pytest.raises(errors.MalformedRequest):
        await agent.tar.push(tmp_path, "relative")
    with pytest.raises(errors.NotFound):
        await agent.tar.pull(str(tmp_path / "missing"), tmp_path / "x")


def listing(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
    return found


@pytest_twisted.ensureDeferred
async def test_a_tree_there_and_back(agent: Client, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "big").write_bytes(os.urandom(2_000_000))
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("deep/er/big")
    (source / "empty").mkdir()
    (source / ("n" * 200)).write_text("long")
    pushed = await agent.tar.push(source, str(tmp_path / "there"))
    pulled = await agent.tar.pull(str(tmp_path / "there"), tmp_path / "back")
    assert pushed.members == 7
    assert pulled.members in (7, 8)  # with or without the root
    assert listing(tmp_path / "back") == listing(tmp_path / "there") == listing(source)


@pytest_twisted.ensureDeferred
async def test_a_refused_member_is_named(agent: Client, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "out").symlink_to("/etc/passwd")
    with pytest.raises(errors.MalformedRequest, match="out"):
        await agent.tar.push(tmp_path / "source", str(tmp_path / "there"))


# -- what is left ------------------------------------------------------------------------------------------


async def followed(stream: Any) -> None:
    async with stream:
        await anext(stream)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest_twisted.ensureDeferred
async def test_cancelling_anything_leaves_no_connection(agent: Client, tmp_path: Path) -> None:
    handle = await agent.start(["sleep", "60"])
    await agent.close()
    before = descriptors()
    begin: list[Callable[[], Any]] = [
        handle.wait,
        lambda: output_of(handle),
        lambda: followed(handle.stdout()),
        lambda: agent.files.write(str(tmp_path / "f"), pieces(bytes(10_000_000), 1000)),
        lambda: agent.run(["sleep", "1"]),
        agent.health,
    ]
    for turn, each in enumerate(begin * 6):
        pending = Deferred.fromCoroutine(each())
        pending.addErrback(lambda _: None)
        await deferLater(reactor, turn * 0.0005, lambda: None)  # each a little further on its way
        pending.cancel()
    await agent.close()
    await until(lambda: descriptors() <= before)
    await handle.kill()

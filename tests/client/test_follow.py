"""Following output: reconnects at the cursor, gaps and repeats made good, and never more held than one read."""

from typing import Any

import pytest
import pytest_twisted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall

from agentd.client import errors
from agentd.client.follow import Follow, exec_path
from agentd.client.messages import ExitEvent
from agentd.client.retry import NO_RETRY, Backoff
from agentd.client.sse import Event, Gap, Output
from tests.client.conftest import Serve
from tests.client.support import (
    FAST,
    Cut,
    Hang,
    Reply,
    Send,
    answer,
    chunk,
    event,
    exited,
    output,
    stream,
    until,
)


async def collect(follow: Follow) -> list[Event]:
    return [found async for found in follow]


def offsets(script: Any) -> list[str]:
    return [request.query for request in script.requests]


@pytest_twisted.ensureDeferred
async def test_a_cut_stream_goes_on_where_it_was(serve: Serve) -> None:
    script, client = serve(
        stream(output(0, b"abc"), cut=True),
        stream(output(3, b"de", "stderr"), cut=True),
        stream(output(5, b"f"), exited(6, exit_code=4)),
    )
    found = await collect(client.exec("e").follow(backoff=FAST))
    assert found == [
        Output(0, "stdout", b"abc"),
        Output(3, "stderr", b"de"),
        Output(5, "stdout", b"f"),
        ExitEvent(exit_code=4, offset=6),
    ]
    assert offsets(script) == ["offset=0", "offset=3", "offset=5"]


@pytest_twisted.ensureDeferred
async def test_a_body_that_ends_properly_but_without_an_exit_is_a_cut(serve: Serve) -> None:
    script, client = serve(stream(output(0, b"a")), stream(output(1, b"b"), exited(2)))
    assert len(await collect(client.exec("e").follow(backoff=FAST))) == 3
    assert offsets(script) == ["offset=0", "offset=1"]


@pytest_twisted.ensureDeferred
async def test_half_an_event_is_asked_for_again(serve: Serve) -> None:
    frame = output(1, b"bcd")
    _, client = serve(stream(output(0, b"a"), frame[:20], cut=True), stream(frame, exited(4)))
    assert [
        e.data for e in await collect(client.exec("e").follow(backoff=FAST)) if isinstance(e, Output)
    ] == [
        b"a",
        b"bcd",
    ]


@pytest_twisted.ensureDeferred
async def test_passing_faults_in_between_are_waited_out(serve: Serve) -> None:
    _, client = serve(
        answer(503), [Cut()], stream(output(0, b"a"), cut=True), answer(502), answer(500), stream(exited(1))
    )
    assert await collect(client.exec("e").follow(backoff=FAST)) == [
        Output(0, "stdout", b"a"),
        ExitEvent(exit_code=0, offset=1),
    ]


@pytest_twisted.ensureDeferred
async def test_progress_starts_the_ladder_anew(serve: Serve) -> None:
    replies: list[Reply] = [stream(output(n, b"x"), cut=True) for n in range(10)]
    _, client = serve(*replies, stream(exited(10)))
    follow = client.exec("e").follow(backoff=Backoff((0.0, 0.0)))
    assert len(await collect(follow)) == 11


@pytest_twisted.ensureDeferred
async def test_without_progress_it_gives_up_and_says_where(serve: Serve) -> None:
    script, client = serve(stream(output(0, b"abc"), cut=True), *[stream(b": \n\n", cut=True)] * 3)
    with pytest.raises(errors.StreamLost, match="offset 3") as lost:
        await collect(client.exec("e").follow(backoff=FAST))
    assert lost.value.cursor == 3
    assert len(script.requests) == 4


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, errors.CredentialFault), (404, errors.NotFound), (400, errors.MalformedRequest)],
)
@pytest_twisted.ensureDeferred
async def test_a_refusal_ends_it_at_once(serve: Serve, status: int, kind: type[Exception]) -> None:
    script, client = serve(stream(output(0, b"a"), cut=True), answer(status))
    with pytest.raises(kind):
        await collect(client.exec("e").follow(backoff=FAST))
    assert len(script.requests) == 2


@pytest_twisted.ensureDeferred
async def test_gaps_are_reported_announced_or_not(serve: Serve) -> None:
    _, client = serve(
        stream(
            event("gap", **{"from": 0, "to": 5}),
            output(5, b"ab"),
            output(10, b"c"),  # nobody said where 7 to 10 went
            event("gap", **{"from": 11, "to": 20}),
            exited(25),
        )
    )
    follow = client.exec("e").follow()
    assert await collect(follow) == [
        Gap(0, 5),
        Output(5, "stdout", b"ab"),
        Gap(7, 10),
        Output(10, "stdout", b"c"),
        Gap(11, 20),
        Gap(20, 25),
        ExitEvent(exit_code=0, offset=25),
    ]
    assert follow.lost == 5 + 3 + 9 + 5


@pytest_twisted.ensureDeferred
async def test_what_comes_twice_is_delivered_once(serve: Serve) -> None:
    _, client = serve(
        stream(
            output(0, b"abcdef"),
            output(0, b"abc"),
            output(2, b"cdefgh"),
            event("gap", **{"from": 1, "to": 4}),
            exited(8),
        )
    )
    found = await collect(client.exec("e").follow())
    assert found[:2] == [Output(0, "stdout", b"abcdef"), Output(6, "stdout", b"gh")]
    assert isinstance(found[2], ExitEvent)


@pytest_twisted.ensureDeferred
async def test_beginning_past_the_end_gives_only_the_exit(serve: Serve) -> None:
    script, client = serve(stream(exited(6)))
    assert await collect(client.exec("e").follow(100)) == [ExitEvent(exit_code=0, offset=6)]
    assert offsets(script) == ["offset=100"]


def test_a_negative_offset_is_no_offset(serve: Serve) -> None:
    _, client = serve()
    with pytest.raises(ValueError, match="offset"):
        client.exec("e").follow(-1)


@pytest_twisted.ensureDeferred
async def test_broken_base64_and_an_endless_event_are_fatal(serve: Serve) -> None:
    bad = b'event: output\ndata: {"offset":1,"stream":"stdout","output":"*"}\n\n'
    script, client = serve(stream(output(0, b"a") + bad), stream(b"x" * (4 * 1024 * 1024 + 1)))
    follow = client.exec("e").follow(backoff=FAST)
    assert await anext(follow) == Output(0, "stdout", b"a")
    with pytest.raises(errors.ProtocolFault, match="base64"):
        await anext(follow)
    follow.close()
    with pytest.raises(errors.ProtocolFault, match="4194304"):
        await collect(client.exec("e").follow(backoff=FAST))
    assert len(script.requests) == 2


@pytest_twisted.ensureDeferred
async def test_silence_is_a_cut_and_a_comment_is_not_silence(serve: Serve) -> None:
    head = Send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    script, client = serve([head, Hang()], stream(output(0, b"a"), exited(1)), idle=0.3)
    pending = Deferred.fromCoroutine(collect(client.exec("e").follow(backoff=FAST)))
    await until(lambda: script.connections)
    ticks = LoopingCall(lambda: script.connections[0].transport.write(chunk(b": \n\n")))
    ticks.start(0.1)
    began = reactor.seconds()
    await until(lambda: reactor.seconds() - began > 0.7)
    assert len(script.requests) == 1
    ticks.stop()
    assert len(await pending) == 2
    assert len(script.requests) == 2


@pytest_twisted.ensureDeferred
async def test_a_reader_that_does_not_read_stops_the_sender(serve: Serve) -> None:
    frames = b"".join(chunk(output(n * 16384, bytes(16384))) for n in range(2000))
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    script, client = serve([Send(head), Send(frames), Send(chunk(exited(2000 * 16384)) + b"0\r\n\r\n")])
    follow = client.exec("e").follow()
    first = await anext(follow)
    assert isinstance(first, Output)
    sender = script.connections[0].transport

    def left() -> int:
        return len(sender.dataBuffer) - sender.offset + sum(map(len, sender._tempDataBuffer))

    seen = [left()]

    def settled() -> bool:
        seen.append(left())
        return len(seen) > 40 and len(set(seen[-20:])) == 1

    await until(settled)
    assert left() > 20_000_000
    rest = await collect(follow)
    assert first.end + sum(len(e.data) for e in rest if isinstance(e, Output)) == 2000 * 16384
    assert follow.lost == 0


@pytest_twisted.ensureDeferred
async def test_closing_lets_the_connection_go(serve: Serve) -> None:
    script, client = serve([*stream(output(0, b"a"))[:2], Hang()])
    async with client.exec("e").follow() as follow:
        await anext(follow)
    await until(lambda: script.lost == 1)
    with pytest.raises(StopAsyncIteration):
        await anext(follow)


@pytest_twisted.ensureDeferred
async def test_cancelling_a_read_does_not_reconnect(serve: Serve) -> None:
    script, client = serve([*stream()[:1], Hang()])
    follow = client.exec("e").follow(backoff=FAST)
    pending = Deferred.fromCoroutine(anext(follow))
    await until(lambda: script.requests)
    pending.cancel()
    with pytest.raises(CancelledError):
        await pending
    follow.close()
    await until(lambda: script.lost == 1)
    assert len(script.requests) == 1


@pytest_twisted.ensureDeferred
async def test_the_two_streams_apart(serve: Serve) -> None:
    mixed = stream(
        output(0, b"out"),
        output(3, b"err", "stderr"),
        event("gap", **{"from": 6, "to": 8}),
        output(8, b"OUT"),
        exited(11),
    )
    _, client = serve(mixed, mixed)
    gaps: list[Gap] = []
    handle = client.exec("e")
    async with handle.stdout(on_gap=gaps.append) as stdout:
        assert [data async for data in stdout] == [b"out", b"OUT"]
    assert (gaps, stdout.lost) == ([Gap(6, 8)], 2)
    assert b"".join([data async for data in handle.stderr()]) == b"err"


@pytest.mark.parametrize(
    ("exec_id", "path"),
    [
        ("e", "/v1/exec/e"),
        ("a/b", "/v1/exec/a%2Fb"),
        ("..", "/v1/exec/%2E%2E"),
        ("ä ?#%", "/v1/exec/%C3%A4%20%3F%23%25"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_an_id_is_one_segment_whatever_is_in_it(serve: Serve, exec_id: str, path: str) -> None:
    assert exec_path(exec_id) == path
    script, client = serve(answer(404, {"error": "unknown_exec", "detail": exec_id}))
    with pytest.raises(errors.UnknownExec):
        await client.exec(exec_id).poll()
    assert script.requests[0].target == path


TOTAL = 300
DATA = bytes(n % 251 for n in range(TOTAL))


@st.composite
def hostile_script(draw: st.DrawFn) -> list[tuple[int, bool, int]]:
    """Connections as (start relative to the cursor, whether a gap comes first, how many bytes before the cut)."""
    return draw(
        st.lists(st.tuples(st.integers(-20, 20), st.booleans(), st.integers(0, 120)), min_size=1, max_size=6)
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(connections=hostile_script(), start=st.integers(0, TOTAL), size=st.integers(1, 60))
@pytest_twisted.ensureDeferred
async def test_what_is_delivered_and_what_is_lost_tile_the_offsets(
    serve: Serve, connections: list[tuple[int, bool, int]], start: int, size: int
) -> None:
    def reply(shift: int, gap: bool, amount: int) -> Any:
        def play(request: Any) -> list[Any]:
            asked = int(request.query.removeprefix("offset="))
            at = min(max(asked + shift, 0), TOTAL)
            frames = [event("gap", **{"from": min(asked, at), "to": at})] if gap else []
            end = min(at + amount, TOTAL)
            frames += [output(n, DATA[n : min(n + size, end)]) for n in range(at, end, size)]
            return stream(*frames, cut=True)

        return play

    def last(request: Any) -> list[Any]:
        asked = int(request.query.removeprefix("offset="))
        frames = [output(n, DATA[n : n + size]) for n in range(min(asked, TOTAL), TOTAL, size)]
        return stream(*frames, exited(TOTAL))

    _, client = serve(*(reply(*each) for each in connections), last)
    cursor = start
    async for found in client.exec("e").follow(start, Backoff((0.0,) * 10)):
        if isinstance(found, Output):
            assert found.offset == cursor
            assert found.data == DATA[cursor : found.end]
            cursor = found.end
        elif isinstance(found, Gap):
            assert found.start == cursor < found.end
            cursor = found.end
    assert cursor == TOTAL


@pytest_twisted.ensureDeferred
async def test_no_retry_reports_the_first_cut(serve: Serve) -> None:
    _, client = serve(stream(cut=True))
    with pytest.raises(errors.StreamLost):
        await collect(client.exec("e").follow(backoff=NO_RETRY))

"""The event parser: any line ends, any cuts, bounded, and honest about what it cannot read."""

import base64
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.client.errors import ProtocolFault
from agentd.client.messages import ExitEvent, Usage
from agentd.client.sse import MAX_EVENT_BYTES, Event, EventParser, Gap, Output
from tests.client.support import event, exited, output

BODY = (
    b": keep-alive\n\n"
    + output(0, b"abc")
    + b"id: 3\n"
    + output(3, b"\xff\x00", "stderr")
    + event("gap", **{"from": 5, "to": 9})
    + event("from-the-future", a=1)
    + exited(9, exit_code=3)
)
EVENTS = [
    Output(0, "stdout", b"abc"),
    Output(3, "stderr", b"\xff\x00"),
    Gap(5, 9),
    ExitEvent(exit_code=3, offset=9),
]


def parse(*pieces: bytes) -> list[Event]:
    parser = EventParser()
    return [found for piece in pieces for found in parser.feed(piece)]


@settings(deadline=None)
@given(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 400), max_size=12))
def test_any_line_end_in_any_pieces(end: bytes, cuts: list[int]) -> None:
    body = BODY.replace(b"\n", end)
    edges = sorted({0, len(body), *(min(cut, len(body)) for cut in cuts)})
    assert parse(*(body[a:b] for a, b in pairwise(edges))) == EVENTS


@settings(deadline=None)
@given(st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_byte_by_byte(end: bytes) -> None:
    body = BODY.replace(b"\n", end)
    assert parse(*(body[i : i + 1] for i in range(len(body)))) == EVENTS


@settings(deadline=None)
@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_garbage_never_does_more_than_end_in_a_protocol_fault(data: bytes, cuts: list[int]) -> None:
    parser = EventParser(limit=64)
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    try:
        for a, b in pairwise(edges):
            parser.feed(data[a:b])
    except ProtocolFault:
        pass


def test_a_byte_order_mark_is_skipped() -> None:
    assert parse(b"\xef\xbb\xbf" + output(0, b"x")) == [Output(0, "stdout", b"x")]


def test_data_on_several_lines_is_joined() -> None:
    data = json.dumps({"from": 1, "to": 2})
    first, second = data.split(", ")
    assert parse(f"event: gap\ndata: {first},\ndata:{second}\n\n".encode()) == [Gap(1, 2)]


def test_an_event_without_its_blank_line_is_not_one() -> None:
    assert parse(output(0, b"abc")[:-1]) == []


@pytest.mark.parametrize(
    "frame",
    [
        b"event: output\ndata: not json\n\n",
        b"event: output\ndata: {}\n\n",
        b'event: output\ndata: {"offset":-1,"stream":"stdout","output":""}\n\n',
        b'event: output\ndata: {"offset":0,"stream":"stdlog","output":""}\n\n',
        b'event: gap\ndata: {"from":1}\n\n',
        b'event: exit\ndata: {"offset":"9"}\n\n',
        b"event: exit\ndata: \xff\n\n",
        b"event: output\n\n",
        b"data: {}\n\n",
        b"retry: 5\n\n",
        b":\n\n",
        b"\n\n\n",
    ],
)
def test_what_cannot_be_decoded_is_dropped(frame: bytes) -> None:
    assert parse(frame + output(7, b"x")) == [Output(7, "stdout", b"x")]


@pytest.mark.parametrize("text", ["a", "ab==c", "YWJj\\n", "YW Jj", "YWJ*", "YWJj=", "=="])
def test_broken_base64_is_fatal_after_what_came_before(text: str) -> None:
    parser = EventParser()
    bad = f'event: output\ndata: {{"offset":1,"stream":"stdout","output":"{text}"}}\n\n'.encode()
    assert parser.feed(output(0, b"x") + bad) == [Output(0, "stdout", b"x")]
    with pytest.raises(ProtocolFault, match="offset 1"):
        parser.feed(b"")


def test_an_exit_of_an_older_and_of_a_newer_daemon() -> None:
    old = event("exit", exit_code=None, signal=9, truncated=True, writers_may_be_alive=False, offset=4)
    new = exited(4, sha256="ab", bytes_total=4, cause="exit", usage={"user_seconds": 1.5, "more": 1}, more=1)
    assert parse(old) == [ExitEvent(signal=9, truncated=True, offset=4)]
    (found,) = parse(new)
    assert isinstance(found, ExitEvent)
    assert (found.sha256, found.bytes_total, found.cause) == ("ab", 4, "exit")
    assert found.usage == Usage(user_seconds=1.5)


def test_four_mebibytes_without_an_end_are_allowed_and_one_more_is_not() -> None:
    parser = EventParser()
    block = b"x" * (MAX_EVENT_BYTES // 64)
    for _ in range(64):
        assert parser.feed(block) == []
    with pytest.raises(ProtocolFault, match=str(MAX_EVENT_BYTES)):
        parser.feed(b"x")


def test_a_whole_event_over_the_limit_is_refused_too() -> None:
    data = base64.b64encode(bytes(100)).decode()
    with pytest.raises(ProtocolFault):
        EventParser(limit=64).feed(f"event: output\ndata: {data}\n\n".encode())


def test_many_events_may_pass_though_each_is_bounded() -> None:
    parser = EventParser(limit=200)
    assert len(parser.feed(output(0, b"x") * 1000)) == 1000

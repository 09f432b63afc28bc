"""Every byte that a stream or a tunnel carries is accounted for, and a missing one is noticed."""

import base64
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ends import FRAME_BYTES, FrameCounter, frame
from bench.sse import EventParser, Ledger

EXPECTED = b"".join(b"%015d\n" % number for number in range(20))
CUTS = st.lists(st.integers(0, 2**16), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` cut at `cuts`, wherever these fall in it."""
    marks = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(marks)]


def output(offset: int, data: bytes) -> tuple[bytes, object]:
    """An output event."""
    return b"output", {"offset": offset, "stream": "stdout", "output": base64.b64encode(data).decode()}


def gap(begin: int, end: int) -> tuple[bytes, object]:
    """A gap event."""
    return b"gap", {"from": begin, "to": end}


def ended(offset: int = len(EXPECTED), code: int = 0) -> tuple[bytes, object]:
    """An exit event."""
    return b"exit", {"exit_code": code, "offset": offset}


def entered(*events: tuple[bytes, object]) -> Ledger:
    """The account of `events`."""
    ledger = Ledger(EXPECTED)
    for name, event in events:
        ledger.enter(name, event)
    return ledger


@given(CUTS, st.data())
def test_bytes_and_gaps_that_tile_the_output_balance(cuts: list[int], draw: st.DataObject) -> None:
    """However it is cut, and whichever pieces are left out with notice."""
    events = []
    at = missed = 0
    for piece in pieces(EXPECTED, cuts):
        if draw.draw(st.booleans()):
            events.append(output(at, piece))
        else:
            events.append(gap(at, at + len(piece)))
            missed += len(piece)
        at += len(piece)
    ledger = entered(*events, ended())
    assert ledger.balanced
    assert (ledger.missed, ledger.delivered) == (missed, len(EXPECTED) - missed)


WHOLE = output(0, EXPECTED)
BROKEN = {
    "no exit": [WHOLE],
    "another exit": [WHOLE, ended(code=1)],
    "exit before the end": [output(0, EXPECTED[:-1]), ended(len(EXPECTED) - 1)],
    "exit elsewhere": [WHOLE, ended(len(EXPECTED) - 1)],
    "a byte left out": [output(0, EXPECTED[:7]), output(8, EXPECTED[8:]), ended()],
    "a byte twice": [output(0, EXPECTED[:8]), output(7, EXPECTED[7:]), ended()],
    "a byte changed": [output(0, EXPECTED[:-1] + b"!"), ended()],
    "a gap too early": [output(0, EXPECTED[:8]), gap(7, 16), output(16, EXPECTED[16:]), ended()],
    "a gap too late": [output(0, EXPECTED[:8]), gap(9, 16), output(16, EXPECTED[16:]), ended()],
    "more than there is": [WHOLE, output(len(EXPECTED), b"x"), ended(len(EXPECTED) + 1)],
    "the other stream": [
        (b"output", {"offset": 0, "stream": "stderr", "output": base64.b64encode(EXPECTED).decode()}),
        ended(),
    ],
}


@pytest.mark.parametrize("events", BROKEN.values(), ids=BROKEN)
def test_what_does_not_tile_the_output_does_not_balance(events: list[tuple[bytes, object]]) -> None:
    """Each way in which a stream could be wrong."""
    assert not entered(*events).balanced


@given(CUTS, st.integers(1, 400))
def test_events_do_not_depend_on_how_they_arrive(cuts: list[int], chunk: int) -> None:
    """Any chunks, any reads; comments are dropped, the last chunk ends it."""
    text = b': keep-alive\n\nevent: output\ndata: {"offset":0}\nid: 3\n\n:\n\nevent: exit\ndata: {"offset":3}\n\n'
    body = b"".join(
        b"%x\r\n%s\r\n" % (len(part), part)
        for part in (text[at : at + chunk] for at in range(0, len(text), chunk))
    )
    parser = EventParser()
    found = []
    for piece in pieces(body + b"0\r\n\r\n", cuts):
        found += parser.feed(piece)
    assert found == [(b"output", {"offset": 0}), (b"exit", {"offset": 3})]
    assert parser.ended


@given(CUTS)
def test_payload_is_counted_however_frames_arrive(cuts: list[int]) -> None:
    """All three lengths of a head, control frames between; the close frame is seen."""
    payloads = [b"", b"x" * 125, b"y" * 126, b"z" * FRAME_BYTES, b"67108864\n"]
    ping = bytes((0x89, 2)) + b"hi"
    stream = ping.join(server_frame(payload) for payload in payloads) + bytes((0x88, 2, 3, 0xE8))
    counter = FrameCounter()
    for piece in pieces(stream, cuts):
        assert not counter.closed
        counter.feed(memoryview(piece))
    assert counter.payload == sum(map(len, payloads))
    assert counter.closed


def server_frame(payload: bytes) -> bytes:
    """The frame that a server would send: that of the client, unmasked."""
    made = frame(payload)
    head = made[: len(made) - len(payload) - 4]
    return bytes((head[0], head[1] & 0x7F)) + head[2:] + payload


def test_the_far_ends_answer_is_read_from_the_last_frame() -> None:
    """The number, without what follows it in the same read."""
    counter = FrameCounter()
    counter.feed(memoryview(server_frame(b"67108864\n") + bytes((0x88, 2, 3, 0xE8))))
    assert int(counter.last) == 67108864


def test_a_frame_is_masked_with_zeros() -> None:
    """RFC 6455 5.2: FIN and binary, the mask bit, the length, the key, the payload."""
    assert frame(b"down 1\n") == b"\x82\x87\0\0\0\0down 1\n"
    assert frame(bytes(126))[:8] == b"\x82\xfe\x00\x7e\0\0\0\0"
    assert frame(bytes(1 << 16))[:14] == b"\x82\xff\0\0\0\0\0\x01\0\0\0\0\0\0"


def test_the_account_is_json_all_the_way() -> None:
    """A ledger takes the events of a parser."""
    name, event = output(0, EXPECTED)
    block = b"event: %s\ndata: %s\n\n" % (name, json.dumps(event).encode())
    parser = EventParser()
    ledger = Ledger(EXPECTED)
    for found_name, found in parser.feed(b"%x\r\n%s\r\n" % (len(block), block)):
        ledger.enter(found_name, found)
    assert ledger.delivered == len(EXPECTED)

"""Writing to a child's stdin through a socket (contract a.5)."""

import base64
import json
import time
from itertools import combinations
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred, gatherResults

from tests.conftest import RunningDaemon
from tests.wire.conftest import Connect
from tests.wire.support import Api, Reply, as_json, output

CAP = 1024 * 1024
"""`max_stdin_write_bytes` as it is by default."""


async def write(api: Api, exec_id: str, body: Any) -> Reply:
    """A stdin request of any shape."""
    return await api.post(f"/v1/exec/{exec_id}/stdin", json=body)


STEPS: list[tuple[int, str, dict[str, Any] | None]] = [
    (400, "malformed_request", {"data_b64": 5}),
    (404, "unknown_exec", None),
    (409, "stdin_not_requested", None),
    (400, "malformed_request", {"signal": "kill"}),
    (400, "malformed_request", {"data_b64": "%%%"}),
    (413, "stdin_write_too_large", {"data_b64": base64.b64encode(bytes(CAP + 1)).decode()}),
    (410, "stdin_closed", None),
]
"""Checks in the order of the contract, with what makes a request fail each; None where the exec does."""


@pytest.mark.parametrize("pair", list(combinations(range(len(STEPS)), 2)))
@pytest_twisted.ensureDeferred
async def test_the_first_fault_answers(api: Api, pair: tuple[int, int]) -> None:
    """Of any two that can come together."""
    first, second = pair
    if {first, second} <= {1, 2, 6}:
        return  # an exec is unknown, or has no stdin, or a closed one
    exec_id = "nobody"
    if 2 in pair:
        exec_id = await api.start("true")
    elif 1 not in pair:
        exec_id = await api.start(["cat"], stdin=True)
        if 6 in pair:
            assert (await api.stdin(exec_id, signal="eof")).status == 200
    body = {**(STEPS[second][2] or {}), **(STEPS[first][2] or {})}
    status, slug, _ = STEPS[first]
    if {"data_b64"} == set(STEPS[first][2] or {}) == set(STEPS[second][2] or {}):
        return  # one field cannot be wrong in two ways
    assert (await write(api, exec_id, body)).key == (status, slug)
    if 1 not in pair and 2 not in pair:
        await api.post(f"/v1/exec/{exec_id}/kill")


@pytest_twisted.ensureDeferred
async def test_data_then_end(api: Api) -> None:
    """In one request or in several; ``{}`` is legal; the sizes are decoded bytes."""
    exec_id = await api.start(["cat"], stdin=True)
    for body, written, eof in (
        ({}, 0, False),
        ({"data_b64": None, "signal": None}, 0, False),
        ({"data_b64": "YWJj"}, 3, False),
        ({"data_b64": ""}, 0, False),
        ({"data_b64": "AP8K", "signal": "eof", "unknown": 1}, 3, True),
    ):
        reply = await write(api, exec_id, body)
        assert reply.json == {"exec_id": exec_id, "written": written, "eof": eof}
    for body in ({}, {"signal": "eof"}, {"data_b64": "YQ=="}):
        assert (await write(api, exec_id, body)).key == (410, "stdin_closed")
    found = await api.stream(exec_id)
    assert output(found) == b"abc\0\xff\n"


NOT_BASE64 = [
    *("YQ", "YQ=", "Y", "YW=J", "====", "YQ==YQ=="),
    *("YWJj\n", "YW Jj", " YWJj", "YWJj ", "-_-_", "YWJjé"),
    *("YWJj=", "YWJj====", "YR=="),
]


@pytest.mark.parametrize("data_b64", NOT_BASE64)
@pytest_twisted.ensureDeferred
async def test_base64_is_strict(api: Api, data_b64: str) -> None:
    """Standard alphabet, padded, nothing in between; and nothing of it is written."""
    exec_id = await api.start(["cat"], stdin=True)
    assert (await write(api, exec_id, {"data_b64": data_b64})).key == (400, "malformed_request")
    await api.stdin(exec_id, signal="eof")
    assert (await api.wait(exec_id))["stdout"] == ""


@pytest_twisted.ensureDeferred
async def test_the_largest_write(api: Api) -> None:
    """Exactly the cap."""
    exec_id = await api.start("wc -c", stdin=True)
    reply = await api.stdin(exec_id, bytes(CAP), "eof")
    assert reply.json["written"] == CAP
    assert (await api.wait(exec_id))["stdout"].strip() == str(CAP)


@pytest_twisted.ensureDeferred
async def test_a_write_nobody_reads_times_out_and_may_be_repeated(api: Api) -> None:
    """408: the pipe stays open, with it an end of file that came along (contract a.5); `written` is how far it came."""
    exec_id = await api.start("read go < /dev/null; sleep 2.5; exec wc -c", stdin=True)
    began = time.monotonic()
    timed_out = await api.stdin(exec_id, bytes(CAP), "eof")
    assert timed_out.key == (408, "stdin_write_timeout")
    assert time.monotonic() - began >= 0.9
    taken = timed_out.json["written"]
    assert 0 < taken < CAP
    while (reply := await api.stdin(exec_id, b"more", "eof")).status == 408:
        taken += reply.json["written"]
    assert reply.key == (200, "")
    assert int((await api.wait(exec_id))["stdout"]) == taken + 4


@pytest_twisted.ensureDeferred
async def test_writes_of_one_exec_do_not_mix(api: Api) -> None:
    """The second waits for the first, however large."""
    exec_id = await api.start("tr -d '\\n' | fold -w 100000 | cut -c 1-1,100000-100000", stdin=True)
    letters = [bytes([code]) for code in b"abcdefgh"]
    await gatherResults([Deferred.fromCoroutine(api.stdin(exec_id, letter * 100_000)) for letter in letters])
    await api.stdin(exec_id, signal="eof")
    lines = (await api.wait(exec_id))["stdout"].split()
    assert sorted(lines) == [letter.decode() * 2 for letter in letters]


@pytest_twisted.ensureDeferred
async def test_a_child_that_closes_its_end_is_410(api: Api) -> None:
    """EPIPE; and the same once the result is published."""
    exec_id = await api.start("exec <&-; echo closed; read x < /dev/null; sleep 300", stdin=True)
    await api.first_output(exec_id)
    broken = await api.stdin(exec_id, b"x")
    assert (*broken.key, broken.json["written"]) == (410, "stdin_closed", 0)
    assert (await api.stdin(exec_id, signal="eof")).key == (410, "stdin_closed")
    await api.post(f"/v1/exec/{exec_id}/kill")
    ended = await api.start("true", stdin=True)
    await api.wait(ended)
    assert (await api.stdin(ended, b"x")).key == (410, "stdin_closed")
    assert (await write(api, ended, {})).key == (410, "stdin_closed")


@pytest_twisted.ensureDeferred
async def test_a_caller_that_leaves_mid_write_does_not_take_half_of_it_along(
    api: Api, daemon: RunningDaemon, raw: Connect
) -> None:
    """What was accepted is written."""
    exec_id = await api.start("read go < /dev/null; sleep 0.5; exec wc -c", stdin=True)
    body = {"data_b64": base64.b64encode(bytes(300_000)).decode()}
    gone = raw(daemon)
    gone.send(as_json("POST", f"/v1/exec/{exec_id}/stdin", body, token=daemon.token))
    await api.poll(exec_id)
    gone.close()
    assert (await api.stdin(exec_id, signal="eof")).status == 200
    assert int((await api.wait(exec_id))["stdout"]) == 300_000


@pytest_twisted.ensureDeferred
async def test_the_wire_cap_leaves_room_for_base64(api: Api) -> None:
    """A write of the cap is a third larger on the wire; what is larger still is refused with its slug."""
    exec_id = await api.start(["cat"], stdin=True)
    for size in (CAP + 1, 3 * CAP):
        reply = await api.stdin(exec_id, bytes(size))
        assert reply.key == (413, "stdin_write_too_large")
    await api.post(f"/v1/exec/{exec_id}/kill")


def test_a_refusal_keeps_the_connection(daemon: RunningDaemon, raw: Connect) -> None:
    """One connection for all of it."""
    connection = raw(daemon)
    for body, status in (({"signal": "x"}, 404), ({"data_b64": 5}, 400), ([], 400)):
        message = as_json("POST", "/v1/exec/nobody/stdin", body, token=daemon.token)
        reply = connection.send(message).reply()
        assert reply.status == status
        assert json.loads(reply.body)["error"]

"""The tiling law over a real socket: for any reader of any exec, bytes and gaps are ``[offset, total)``, exactly.

The children's output is known: of one stream, byte n is determined by n; of two, each stream is the pieces that the
script writes to it. Readers attach anywhere, hang up anywhere and come back at their cursor, read slowly or not at
all for a while; what they got is put together and compared with what was written.

Bodies are asked for with HTTP/1.0, where the end of the connection is the end of the body, and no chunk framing is
in the way of cutting it anywhere.
"""

import base64
import hashlib
import json
import random
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from attrs import define, field

from tests.conftest import RunningDaemon, start_daemon
from tests.wire.support import DEADLINE, as_json, connect, new_id, request

SMALL_WINDOW = 64 * 1024

# Blocks of eight bytes that count up. The pause comes every so many bytes, so that readers meet it alive.
COUNTER = """
import os, struct, sys, time
total, burst, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
for at in range(0, total, burst):
    data = b"".join(struct.pack(">Q", n) for n in range(at // 8, min(total, at + burst) // 8))
    while data:
        data = data[os.write(1, data):]
    time.sleep(pause)
"""

# Pieces of random sizes to random streams; the same seed gives the same pieces.
PIECES = """
import random
def pieces(seed, count):
    chance = random.Random(seed)
    for number in range(count):
        size = chance.choice([1, 2, 7, 100, 4096, 20000])
        yield chance.choice([1, 2]), chance.randbytes(size), chance.random() < 0.1
"""
TWO_STREAMS = (
    PIECES
    + """
import os, sys, time
for stream, data, rest in pieces(int(sys.argv[1]), int(sys.argv[2])):
    while data:
        data = data[os.write(stream, data):]
    if rest: time.sleep(0.002)
"""
)


def counted(total: int) -> bytes:
    """What `COUNTER` writes."""
    return b"".join(struct.pack(">Q", number) for number in range(total // 8))


def written(seed: int, count: int) -> dict[str, bytes]:
    """What `TWO_STREAMS` writes to each stream."""
    scope: dict[str, object] = {}
    exec(PIECES, scope)  # noqa: S102  the same code as the child's
    found = {"stdout": b"", "stderr": b""}
    for stream, data, _ in scope["pieces"](seed, count):  # type: ignore[operator]
        found["stdout" if stream == 1 else "stderr"] += data
    return found


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that keeps little, and takes followers to the present soon."""
    running = start_daemon(
        tmp_path_factory.mktemp("narrow"),
        env={"AGENTD_STREAM_BUFFER_BYTES": str(SMALL_WINDOW), "AGENTD_STREAM_CHANNEL_CAPACITY": "2"},
    )
    running.bootstrap()
    yield running
    running.stop()


def start(daemon: RunningDaemon, source: str, *args: object) -> str:
    """Start a Python program; its id."""
    exec_id = new_id()
    body = {"exec_id": exec_id, "command": [sys.executable, "-I", "-S", "-c", source, *map(str, args)]}
    connection = connect(daemon)
    reply = connection.send(as_json("POST", "/v1/exec/start", body, token=daemon.token)).reply()
    connection.close()
    assert reply.status == 200, reply.body
    return exec_id


def finish(daemon: RunningDaemon, exec_id: str) -> None:
    """Wait for its end."""
    connection = connect(daemon)
    reply = connection.send(
        request("GET", f"/v1/exec/{exec_id}", "Prefer: wait=60", token=daemon.token)
    ).reply()
    connection.close()
    assert reply.json["phase"] == "exited"


@define
class Reader:
    """A reader that may hang up and come back, and what it has got so far."""

    daemon: RunningDaemon
    exec_id: str
    cursor: int
    buffer: int | None = None
    """Bytes of its socket's receive buffer; a small one makes it slow to take."""
    items: list[tuple[str, int, bytes, int]] = field(factory=list)
    """Kind, offset, bytes, end."""
    total: int | None = None
    """What the exit event said."""
    line: socket.socket | None = None
    _body: bytes = b""
    _headers: bool = False

    def attach(self) -> None:
        """Connect and ask for what comes at the cursor."""
        self.line = socket.socket()
        if self.buffer is not None:
            self.line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
        self.line.settimeout(DEADLINE)
        self.line.connect((self.daemon.host, self.daemon.port))
        self.line.sendall(
            f"GET /v1/exec/{self.exec_id}/stream?offset={self.cursor} HTTP/1.0\r\n"
            f"Authorization: Bearer {self.daemon.token}\r\n\r\n".encode()
        )
        self._body, self._headers, self.total = b"", False, None

    def hang_up(self, reset: bool = False) -> None:
        """Leave, in order or not. What came of an unfinished event is worth nothing."""
        if self.line is not None:
            if reset:
                self.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.line.close()
            self.line = None

    def receive(self, most: int = 65536) -> bool:
        """One read; False at the end of the body."""
        assert self.line is not None
        data = self.line.recv(most)
        self._body += data
        if not self._headers and b"\r\n\r\n" in self._body:
            head, _, self._body = self._body.partition(b"\r\n\r\n")
            assert b" 200 " in head.split(b"\r\n")[0]
            self._headers = True
        if self._headers:
            *blocks, self._body = self._body.split(b"\n\n")
            for block in blocks:
                self._take(block)
        return bool(data)

    def read_to_the_end(self) -> "Reader":
        while self.receive():
            pass
        assert self._body == b"", "the body ended inside an event"
        assert self.total is not None, "the body ended without an exit event"
        return self

    def _take(self, block: bytes) -> None:
        assert self.total is None, "nothing comes after the exit"
        if block == b":":
            return
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
        data = json.loads(fields[b"data"])
        if fields[b"event"] == b"exit":
            self.total = data["offset"]
            assert data["bytes_total"] == self.total
        else:
            if fields[b"event"] == b"gap":
                start, end, stream, content = data["from"], data["to"], "gap", b""
            else:
                content = base64.b64decode(data["output"], validate=True)
                start, stream = data["offset"], data["stream"]
                end = start + len(content)
                assert 0 < len(content) <= 16384
            assert start == self.cursor < end, "neither a hole nor an overlap"
            assert int(fields[b"id"]) == end
            self.items.append((stream, start, content, end))
            self.cursor = end

    @property
    def lost(self) -> int:
        return sum(end - start for kind, start, _, end in self.items if kind == "gap")

    def check(self, begin: int, whole: bytes) -> None:
        """Everything from `begin` on is there, or owned up to, and is what was written to the one stream."""
        assert self.total == len(whole)
        assert self.cursor == max(begin, len(whole))
        at = begin
        for kind, start, content, end in self.items:
            assert start == at
            if kind != "gap":
                assert kind == "stdout"
                assert content == whole[start:end]
            at = end


Readers = Callable[..., Reader]


@pytest.fixture
def new_reader() -> Iterator[Readers]:
    """Makes readers, all of which hang up at the end of the test."""
    made: list[Reader] = []

    def make(daemon: RunningDaemon, exec_id: str, offset: int = 0, **options: int) -> Reader:
        made.append(Reader(daemon, exec_id, offset, **options))
        return made[-1]

    yield make
    for reader in made:
        reader.hang_up()


def test_wherever_a_reader_attaches_it_gets_the_rest(daemon: RunningDaemon, new_reader: Readers) -> None:
    whole = counted(600_000)
    exec_id = start(daemon, COUNTER, len(whole), 20_000, 0.002)
    chance = random.Random(7)
    offsets = [0, 1, len(whole) - 1, len(whole), len(whole) + 5, 10**18]
    offsets += [chance.randrange(len(whole)) for _ in range(10)]
    alive = [new_reader(daemon, exec_id, offset) for offset in offsets]
    for reader in alive:
        reader.attach()
    finish(daemon, exec_id)
    finished = [new_reader(daemon, exec_id, offset) for offset in offsets]
    for reader in finished:
        reader.attach()
    for offset, reader in zip(offsets * 2, alive + finished, strict=True):
        reader.read_to_the_end().check(offset, whole)
        assert reader.lost == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_readers_that_hang_up_and_come_back_lose_nothing(
    daemon: RunningDaemon, seed: int, new_reader: Readers
) -> None:
    whole = counted(800_000)
    exec_id = start(daemon, COUNTER, len(whole), 8000, 0.001)
    chance = random.Random(seed)
    readers = [new_reader(daemon, exec_id, 0) for _ in range(8)]
    waiting = list(readers)
    while waiting:
        reader = chance.choice(waiting)
        if reader.line is None:
            reader.attach()
        for _ in range(chance.randrange(1, 6)):
            if not reader.receive(chance.choice([100, 5000, 65536])):
                waiting.remove(reader)
                reader.hang_up()
                break
        else:
            if chance.random() < 0.3:
                reader.hang_up(reset=chance.random() < 0.5)
    for reader in readers:
        reader.check(0, whole)
        assert reader.lost == 0


def test_slow_readers_get_gaps_that_are_true_and_slow_nobody(
    narrow: RunningDaemon, new_reader: Readers
) -> None:
    """Some do not read at all for a while, with little room in their sockets; one reads as fast as it can."""
    whole = counted(6_000_000)
    exec_id = start(narrow, COUNTER, len(whole), 60_000, 0.004)
    slow = [new_reader(narrow, exec_id, 0, buffer=4096) for _ in range(6)]
    fast = new_reader(narrow, exec_id, 0)
    for reader in [*slow, fast]:
        reader.attach()
    for reader in slow:
        reader.receive(1000)
    fast.read_to_the_end().check(0, whole)  # the child ran to its end though six readers stood still
    for reader in slow:
        reader.read_to_the_end().check(0, whole)
        assert reader.lost > 0
        assert len(whole) - reader.lost >= SMALL_WINDOW


def test_a_reader_that_comes_late_is_told_what_it_missed(narrow: RunningDaemon, new_reader: Readers) -> None:
    whole = counted(1_000_000)
    exec_id = start(narrow, COUNTER, len(whole), 50_000, 0)
    finish(narrow, exec_id)
    kept = len(whole) - SMALL_WINDOW
    for offset in [0, 1, kept - 1, kept, kept + 1, kept + 12_345, len(whole)]:
        reader = new_reader(narrow, exec_id, offset)
        reader.attach()
        reader.read_to_the_end().check(offset, whole)
        assert reader.lost == max(0, kept - offset)
        assert [kind for kind, *_ in reader.items].count("gap") == (offset < kept)


@pytest.mark.parametrize("seed", [11, 12])
def test_two_streams_share_one_space_and_each_is_whole(
    daemon: RunningDaemon, seed: int, new_reader: Readers
) -> None:
    expected = written(seed, 120)
    assert sum(map(len, expected.values())) < 1 << 20  # all of it is kept
    exec_id = start(daemon, TWO_STREAMS, seed, 120)
    chance = random.Random(seed)
    alive = [new_reader(daemon, exec_id, 0) for _ in range(3)]
    for reader in alive:
        reader.attach()
    finish(daemon, exec_id)
    total = sum(map(len, expected.values()))
    late = [new_reader(daemon, exec_id, chance.randrange(total)) for _ in range(5)]
    for reader in late:
        reader.attach()
    space = bytearray(total)
    owner: dict[int, str] = {}
    for reader in alive:
        reader.read_to_the_end()
        assert (reader.total, reader.cursor, reader.lost) == (total, total, 0)
        for stream in expected:
            assert b"".join(data for kind, _, data, _ in reader.items if kind == stream) == expected[stream]
    for kind, start_, data, end in alive[0].items:
        space[start_:end] = data
        owner |= dict.fromkeys(range(start_, end), kind)
    for reader in [*alive[1:], *late]:
        if reader in late:
            reader.read_to_the_end()
        for kind, start_, data, end in reader.items:
            assert data == space[start_:end]
            assert {owner[at] for at in range(start_, end)} == {kind}


def test_a_hundred_readers_at_once(daemon: RunningDaemon, new_reader: Readers) -> None:
    """Each gets every byte, at the same time, from a child that is still writing."""
    whole = counted(400_000)
    exec_id = start(daemon, COUNTER, len(whole), 4000, 0.001)
    bodies: dict[int, list[bytes]] = {}
    with selectors.DefaultSelector() as selector:
        readers = [new_reader(daemon, exec_id, 0) for _ in range(100)]
        for number, reader in enumerate(readers):
            reader.attach()
            assert reader.line is not None
            selector.register(reader.line, selectors.EVENT_READ, number)
            bodies[number] = []
        end = time.monotonic() + DEADLINE * 3
        open_ones = len(readers)
        while open_ones:
            assert time.monotonic() < end
            for key, _ in selector.select(1.0):
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(1 << 20)
                bodies[key.data].append(data)
                if not data:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    open_ones -= 1
    # Parsed once for each way that it was cut into events.
    checked: dict[bytes, bool] = {}
    for parts in bodies.values():
        _, _, body = b"".join(parts).partition(b"\r\n\r\n")
        key = hashlib.sha256(body).digest()
        if key not in checked:
            reader = new_reader(daemon, exec_id, 0)
            for block in body.split(b"\n\n")[:-1]:
                reader._take(block)
            reader.check(0, whole)
            assert reader.lost == 0
            checked[key] = True
    assert len(bodies) == 100


def test_what_a_stream_gives_is_what_a_poll_gives(daemon: RunningDaemon, new_reader: Readers) -> None:
    """The head and the ring are two copies of the same bytes."""
    exec_id = start(daemon, "print('é' * 50_000)")
    finish(daemon, exec_id)
    reader = new_reader(daemon, exec_id, 0)
    reader.attach()
    reader.read_to_the_end()
    connection = connect(daemon)
    polled = connection.send(request("GET", f"/v1/exec/{exec_id}", token=daemon.token)).reply().json
    connection.close()
    assert b"".join(data for _, _, data, _ in reader.items).decode() == polled["stdout"]

"""A tunnel in a schedule: bytes of a WebSocket in pieces, a dial, a guest who talks and ends, a caller who is slow.

What must hold in every order: either side is given the beginning of what the other has said, in order; all of it, when
it then reads an end in good order that the other has made; nothing comes after a close frame; and a caller who leaves,
or a guest who breaks, leaves nothing behind.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from attrs import define, field

from checker.replay.network import Connection, Dial, Timers
from checker.replay.websocket import BINARY, CLOSE, HANDSHAKE, close, close_code, frame, frames
from checker.replay.wire import bearer, request

PORT: Final = 80
FINISHED: Final = 1000


@define(eq=False)
class TunnelPlay:
    """One plain tunnel and whoever is at its ends."""

    connect: Callable[[], Connection]
    clock: Timers
    token: bytes = field(repr=False)
    says: tuple[bytes, ...]
    """Messages of the caller, after which it closes."""
    cuts: tuple[int, ...]
    """Where what it sends after the upgrade is cut into pieces."""
    guest: tuple[bytes, ...]
    """What the guest says before it ends."""
    leaves: bool = False
    """Whether the caller may leave at any time."""
    breaks: bool = False
    """Whether the guest's connection breaks at its end."""
    connection: Connection | None = field(init=False, default=None)
    gone: bool = field(init=False, default=False)
    paused: bool = field(init=False, default=False)
    resumed: bool = field(init=False, default=False)
    wrong: list[str] = field(init=False, factory=list)
    caller_first: bool = field(init=False, default=False)
    """Whether the caller had closed when the guest ended."""
    _pieces: list[bytes] = field(init=False)
    _acts: list[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Cut everything up."""
        authorization = bearer(self.token)
        head = request("GET", f"/v1/tcp?port={PORT}", authorization=authorization, headers=HANDSHAKE)
        data = b"".join(frame(BINARY, message) for message in self.says) + close(FINISHED)
        places = [0, *self.cuts, len(data)]
        pieces = [data[begin:end] for begin, end in pairwise(places)]
        # The first piece comes with the end of the upgrade, and so before that is answered.
        self._pieces = [head[:40], head[40:] + pieces[0], *pieces[1:]]
        self._acts = ["accepts", *(f"says {data.decode()}" for data in self.guest)]
        self._acts.append("breaks" if self.breaks else "ends")

    @property
    def dial(self) -> Dial | None:
        """The daemon's connection to the guest."""
        return self.clock.dials[0] if self.clock.dials else None

    def enabled(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What can happen next."""
        connection, dial = self.connection, self.dial
        if self._pieces and not self.gone and (connection is None or connection.reading):
            yield f"the caller sends {len(self._pieces[0])} bytes", self._send
        if dial is not None and self._acts and not dial.over:
            accepts = dial.transport is None
            if accepts or (dial.open and dial.transport is not None and dial.transport.reading):
                yield f"the guest {self._acts[0]}", self._act
        if connection is not None and not self.gone and not connection.closed:
            if not self.paused:
                yield "the caller stops reading", self._pause
            elif not self.resumed:
                yield "the caller reads on", self._resume
            if self.leaves:
                yield "the caller leaves", self._leave

    def _send(self) -> None:
        if self.connection is None:
            self.connection = self.connect()
        self.connection.send(self._pieces.pop(0))

    def _act(self) -> None:
        act = self._acts.pop(0)
        dial = self.dial
        assert dial is not None
        if not self._acts:
            self.caller_first = not self._pieces
        if act == "accepts":
            if self.gone:
                self.wrong.append("the guest is dialled for a caller who has left")
            dial.accept()
        elif act == "ends":
            dial.end()
        elif act == "breaks":
            dial.fail()
        else:
            dial.send(act.removeprefix("says ").encode())

    def _pause(self) -> None:
        assert self.connection is not None
        self.paused = True
        self.connection.pause()

    def _resume(self) -> None:
        assert self.connection is not None
        self.resumed = True
        self.connection.resume()

    def _leave(self) -> None:
        assert self.connection is not None
        self.gone = True
        self.connection.leave()

    def complaints(self) -> Iterator[str]:
        """What is wrong when it is over, a line each."""
        yield from self.wrong
        received = b"" if self.connection is None else self.connection.received
        head, found, rest = received.partition(b"\r\n\r\n")
        if found and not head.startswith(b"HTTP/1.1 101 "):
            yield "the upgrade was refused"
            return
        told, _ = frames(rest)
        codes = [close_code(payload) for opcode, payload in told if opcode == CLOSE]
        heard = b"".join(payload for opcode, payload in told if opcode == BINARY)
        if codes and (len(codes) > 1 or told[-1][0] != CLOSE):
            yield "something comes after a close frame"
        said = b"".join(self.guest)
        if not said.startswith(heard):
            yield f"the caller was given {heard!r}, and the guest said {said!r}"
        ended = not self._acts and not self.breaks
        if codes == [FINISHED] and ended and self._pieces and heard != said:
            yield f"the guest ended, and the caller was told so after {heard!r} of {said!r}"
        if self.breaks and not self._acts and self._pieces and codes == [FINISHED]:
            yield "the guest broke, and the caller was told of an end"
        yield from self._at_guest()

    def _at_guest(self) -> Iterator[str]:
        dial = self.dial
        if dial is None or dial.transport is None:
            return
        wanted, got = b"".join(self.says), bytes(dial.transport.sent)
        if not wanted.startswith(got):
            yield f"the guest was given {got!r}, and the caller said {wanted!r}"
        closed_first = not self._pieces and (self.caller_first or bool(self._acts))
        if closed_first and not self.gone and got != wanted:
            yield f"the caller closed, and the guest had {got!r} of {wanted!r}"
        if dial.transport.late:
            yield "the guest was sent something after the end"

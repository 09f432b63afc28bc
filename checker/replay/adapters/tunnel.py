"""A tunnel's two ends and who is between them, done to a daemon in memory: contract f.

The daemon's end is the daemon's own. The client's end is the model's, with real seals: what the model says it sends is
sealed with the keys of one handshake, and what it reads is opened with them, so that what the model takes for granted
of them is tried too (a message opens at its own place alone; only the pinned keys shake hands). Between the two are two
queues of real frames, to which the attacker does what it does to the model's.

The daemon's sealed messages are looked into when it sends them, by a twin of the client's end: the attacker may keep
them from the client.
"""

import base64
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from agentd.rules.tunnel import Action, CloseCode, CloseFrame, Do, Stage, Tunnel
from agentd.tunnel import noise
from agentd.tunnel.websocket import PROTOCOL_ERROR, VIOLATIONS
from checker.model import Event, Model
from checker.models.tunnel_ends import daemon_does, opens
from checker.models.tunnel_terms import ENDED, GUEST, PORT, Far, Frame, Frames, Near, Party
from checker.replay.adapter import HOOKS, compared, run_payload
from checker.replay.adapters.tunnel_path import ATTACKS, STRANGER, OnPath, Sent
from checker.replay.adapters.tunnel_seals import SEED, End, Socket
from checker.replay.network import Dial
from checker.replay.websocket import BINARY, CLOSE, HANDSHAKE, close, close_code, frame
from checker.replay.wire import NoAnswer
from checker.result import Step

Values = Mapping[str, Hashable]

TOKEN: Final = b"host"
CALLER: Final = bytes(range(32, 64))
"""The secret of the caller whom the launch names."""
IDENTITY: Final = {
    "identity_seed": base64.b64encode(SEED).decode(),
    "identity_host_public_key": base64.b64encode(noise.public_key(CALLER)).decode(),
}

WORDS: Final = {
    "no frame": VIOLATIONS[PROTOCOL_ERROR],
    "not the pinned caller": "it is not the pinned caller's",
}
"""What a close frame says in the model, and in the daemon."""

AT_CLIENT: Final = frozenset({"near_reads", "local_says", "local_ends", "local_fails"})
UP: Final = ("far", "up", "guest")
DOWN: Final = ("near", "down", "local")


class Tunnelled(OnPath):
    """The adapter of ``tunnel``."""

    subject: Any
    socket: Socket
    client: End
    twin: End
    dials: int
    """Connections that the daemon has been told to ask for."""

    @classmethod
    def sees(cls, event: Event) -> Sequence[str]:
        """An end sees itself, what comes to it, and who is behind it; and the attacker what is on its way."""
        if event.kind in ATTACKS:
            return (str(event.args["way"]),)
        return DOWN if event.kind in AT_CLIENT or event.writes == ("down",) else UP

    @classmethod
    def replays(cls, model: Model) -> bool:
        """All but those of a daemon that is older than this one."""
        far = _initial(model)["far"]
        return not (isinstance(far, Far) and far.older)

    def begin(self, model: Model) -> None:
        """Where the model begins: with no tunnel, or with one that is relayed."""
        self.up, self.down, self.dials = [], [], 0
        self.names_of = [component.name for component in model.components]
        far, near = (_initial(model)[end] for end in ("far", "near"))
        if isinstance(far, Far) and isinstance(near, Near):
            self._relayed(far, near)

    def _relayed(self, far: Far, near: Near) -> None:
        self._opened(far.tunnel.verified, True, far.tunnel.port, CALLER)
        if far.tunnel.verified:
            self._deliver(frame(BINARY, self.client.greet(near.client.offers)))
            reply = self.socket.news()
            if len(reply) != 1 or reply[0] is None:
                raise NoAnswer("the handshake was not answered")
            if self.client.read(reply[0][1]) is None:
                raise NoAnswer("the handshake was answered, and not by the pinned daemon")
            self.twin = self.client.twin()
        dial = self._dial()
        if dial is None:
            raise NoAnswer("the guest is not connected to")
        dial.accept()
        self.dials = 1

    def _opened(self, verified: bool, seeded: bool, port: int, secret: bytes) -> None:
        """Launch the daemon, and ask it for a tunnel."""
        payload = run_payload(TOKEN, **(IDENTITY if seeded else {}))
        if self.subject.ask("POST", f"{HOOKS}/run", value=payload).status != 200:
            raise NoAnswer("the daemon was not launched")
        target = f"/v1/tcp?port={port}{'&identity=true' if verified else ''}"
        connection = self.subject.begin("GET", target, token=TOKEN, headers=HANDSHAKE).connection
        head, found, _ = connection.received.partition(b"\r\n\r\n")
        if not found or not head.startswith(b"HTTP/1.1 101 "):
            raise NoAnswer("there was no upgrade")
        self.client = End(secret)
        self.verified = verified
        self.socket = Socket(connection, len(head) + len(found))

    def _before(self, step: Step) -> dict[str, Hashable]:
        return dict(zip(self.names_of, step.before, strict=True))

    def _dial(self) -> Dial | None:
        dials = self.subject.memory.clock.dials
        return dials[-1] if dials else None

    def _deliver(self, data: bytes | None) -> None:
        if data is None:
            self.socket.connection.leave()
        elif not self.socket.connection.closed:
            self.socket.connection.send(data)
        self.subject.memory.clock.settle()

    # -- the daemon's end -----------------------------------------------------------------------------------

    def on_open(self, step: Step, values: Values) -> Iterator[str]:
        """A launch, with an identity or without, and the upgrade."""
        args = step.event.args
        verified, port = bool(args["verified"]), int(str(args["port"]))
        self._opened(verified, bool(args["seeded"]), port, STRANGER if args["stranger"] else CALLER)
        yield from self._daemon_did(step, values, Far(Tunnel(port, verified)))
        yield from self._client_did(step, values)

    def on_far_reads(self, step: Step, values: Values) -> Iterator[str]:
        """The next frame arrives at the daemon, and if that is the end of the tunnel, what is behind it too."""
        self._deliver(self.up.pop(0))
        yield from self._daemon_did(step, values)
        if values["up"] == ENDED:
            yield from self._for_nothing()

    def _for_nothing(self) -> Iterator[str]:
        """What is on its way to an end of the daemon's that is over, which must say nothing any more."""
        while self.up:
            self._deliver(self.up.pop(0))
        if self.socket.news() not in ([], [None]):
            yield "the daemon's end was over, and sends something"

    def on_reads_no_more(self, step: Step, values: Values) -> Iterator[str]:
        """The rest arrives at an end that is over."""
        if "up" in step.event.writes:
            yield from self._for_nothing()
        else:
            self.down.clear()

    def on_stopping(self, step: Step, values: Values) -> Iterator[str]:
        """The daemon stops what it has to stop itself."""
        for stop in self.subject.memory.daemon.at_stop:
            stop()
        self.subject.memory.clock.settle()
        yield from self._daemon_did(step, values)

    def on_dialled(self, step: Step, values: Values) -> Iterator[str]:
        """The guest's port accepts."""
        yield from self._guest(step, values, Dial.accept)

    def on_dial_fails(self, step: Step, values: Values) -> Iterator[str]:
        """Nothing listens there."""
        yield from self._guest(step, values, Dial.refuse)

    def on_guest_says(self, step: Step, values: Values) -> Iterator[str]:
        """The guest sends a byte."""
        said = cast("Party", self._before(step)["guest"]).said
        yield from self._guest(step, values, lambda dial: dial.send(GUEST[said : said + 1]))

    def on_guest_ends(self, step: Step, values: Values) -> Iterator[str]:
        """The guest sends its last."""
        yield from self._guest(step, values, Dial.end)

    def on_guest_fails(self, step: Step, values: Values) -> Iterator[str]:
        """The guest's connection breaks."""
        yield from self._guest(step, values, Dial.fail)

    def on_guest_refuses(self, step: Step, values: Values) -> Iterator[str]:
        """It breaks while the guest takes no more."""
        yield from self._guest(step, values, lambda dial: dial.fail(behind=True))

    def _guest(self, step: Step, values: Values, does: Any) -> Iterator[str]:
        dial = self._dial()
        if dial is None:
            yield "the guest is not connected to"
            return
        does(dial)
        self.subject.memory.clock.settle()
        yield from self._daemon_did(step, values)

    def _daemon_did(self, step: Step, values: Values, far: Far | None = None) -> Iterator[str]:
        """What the daemon has sent and asked for on this step; `far` is its end before, unless the step says."""
        doings = cast("tuple[Action, ...]", step.response)
        far = far or cast("Far", self._before(step)["far"])
        after = cast("Far", values["far"])
        _, expected, _ = daemon_does(far, (), None, (after.tunnel, doings))
        reasons = iter([action.reason for action in doings if isinstance(action, CloseFrame)])
        found = self.socket.news()
        told = [self._shown(one) for one in found]
        yield from compared("what the daemon sends", [_told(one, reasons) for one in expected], told)
        self.dials += Do.DIAL in doings
        asked = [(dial.host, dial.port) for dial in self.subject.memory.clock.dials]
        yield from compared("connections that the daemon asks for", [("127.0.0.1", PORT)] * self.dials, asked)
        if values["down"] != ENDED:
            self.down += found

    def _shown(self, one: Sent | None) -> str:
        """A frame of the daemon's, for a person to read and for comparison."""
        if one is None:
            return "the end of the connection"
        opcode, payload = one
        if opcode == CLOSE:
            return f"close {close_code(payload)} {payload[2:].decode()}"
        if opcode != BINARY:
            return f"a frame of kind {opcode}"
        data = self.twin.read(payload) if self.verified else payload
        return "what does not open" if data is None else f"message {data.hex()}"

    # -- the client's end -----------------------------------------------------------------------------------

    def on_near_reads(self, step: Step, values: Values) -> Iterator[str]:
        """The client reads a frame, which says what the model says, or does not open."""
        before = self._before(step)
        expected = _read(cast("Near", before["near"]), cast("Frames", before["down"])[0])
        one = self.down.pop(0)
        if one is None:
            found: str | bytes | None = "lost"
        elif one[0] == CLOSE:
            found = f"close {close_code(one[1])}"
        else:
            found = self.client.read(one[1]) if self.verified else one[1]
        yield from compared("what the client reads", expected, found)
        if values["down"] == ENDED:
            self.down.clear()
        yield from self._client_did(step, values)

    def on_local_says(self, step: Step, values: Values) -> Iterator[str]:
        """Something on the local side, of which the daemon hears by what the client sends."""
        yield from self._client_did(step, values)

    on_local_ends = on_local_fails = on_local_says

    def _client_did(self, step: Step, values: Values) -> Iterator[str]:
        """Send what the model's client has sent."""
        after = cast("Frames", values["up"])
        if after == ENDED:
            return
        for one in after[len(cast("Frames", self._before(step)["up"])) :]:
            self.up.append(self._made(one))
        yield from compared("frames on their way to the daemon", len(after), len(self.up))

    def _made(self, one: Frame) -> bytes | None:
        """A frame of the client's."""
        if one.kind == "lost":
            return None
        if one.kind == "close":
            return close(one.code or CloseCode.FINISHED)
        if one.kind == "hello":
            greeting = self.client.greet(bool(one.data))
            self.twin = self.client.twin()
            return frame(BINARY, greeting)
        return frame(BINARY, self.client.seal(one.data) if one.kind == "sealed" else one.data)

    # -- the state ------------------------------------------------------------------------------------------

    def state(self, values: Values) -> Iterator[str]:
        """The daemon's end, and what the guest has had of it."""
        far, guest = values["far"], values["guest"]
        if not isinstance(far, Far):
            return
        yield from compared("the daemon's end", far.tunnel, self.socket.relay._tunnel)
        if far.tunnel.stage is not Stage.OVER:
            # Frames wait outside while the dial is under way.
            reads = far.tunnel.stage is not Stage.DIALING
            yield from compared("the daemon reads from the caller", reads, self.socket.connection.reading)
        dial = self._dial()
        if isinstance(guest, Party):
            transport = None if dial is None else dial.transport
            if transport is None:
                yield "the guest is not connected to"
                return
            saw = "reset" if transport.aborted else "eof" if transport.closed else ""
            yield from compared(
                "what the guest has had", (guest.got, guest.saw), (bytes(transport.sent), saw)
            )
        elif dial is not None:
            yield from compared("the guest is waited for", far.tunnel.stage is Stage.DIALING, not dial.over)

    def finish(self) -> Iterator[str]:
        """A guest that goes on when its tunnel is over says that for nothing; and then nothing is kept."""
        dial, socket = self._dial(), getattr(self, "socket", None)
        if socket is not None and dial is not None and dial.open and socket.relay.stage is Stage.OVER:
            dial.send(b"late")
            dial.end()
            self.subject.memory.clock.settle()
            if socket.news() not in ([], [None]):
                yield "something of the guest's that came too late is passed on"
        yield from super().finish()
        if socket is not None and len(socket.relay._over.__self__):
            yield "a tunnel that is kept"


def _initial(model: Model) -> dict[str, Hashable]:
    """The components, as they begin."""
    return {component.name: component.initial for component in model.components}


def _told(one: Frame, reasons: Iterator[str]) -> str:
    """The same of a frame of the model's."""
    if one.kind == "lost":
        return "the end of the connection"
    if one.kind == "close":
        reason = next(reasons)
        for ours, theirs in WORDS.items():
            reason = reason.replace(ours, theirs)
        return f"close {one.code} {reason}"
    return f"message {one.data.hex()}"


def _read(near: Near, one: Frame) -> str | bytes | None:
    """What the client takes a frame for."""
    if one.kind == "lost":
        return "lost"
    if one.kind == "close":
        return f"close {one.code}"
    if not near.client.verified:
        return one.data
    if near.client.stage is Stage.HANDSHAKE:
        return one.data if (one.kind, one.key) == ("reply", "host") else None
    return one.data if opens(one, near.opened) else None

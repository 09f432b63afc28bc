"""A tunnel's two ends and who is between them, done to a daemon in memory: contract f.

The daemon's end is the daemon's own. The client's end (`tunnel_client`) is in one variant the model's, with real seals:
what the model says it sends is sealed with the keys of one handshake, and what it reads is opened with them, so that
what the model takes for granted of them is tried too (a message opens at its own place alone; only the pinned keys
shake hands). In the other it is the client library's own. Between the two are two queues of real frames
(`tunnel_path`), to which the attacker does what it does to the model's.
"""

import base64
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

from agentd.client.tunnel import Verify
from agentd.rules.tunnel import Action, CloseFrame, Do, Stage, Tunnel
from agentd.tunnel import noise
from agentd.tunnel.websocket import PROTOCOL_ERROR, VIOLATIONS
from checker.model import Event, Model
from checker.models.tunnel_ends import daemon_does
from checker.models.tunnel_terms import ENDED, GUEST, Far, Frame, Near, Party
from checker.replay.adapter import HOOKS, compared, run_payload
from checker.replay.adapters.tunnel_client import AT_CLIENT, AtClient
from checker.replay.adapters.tunnel_library import Library
from checker.replay.adapters.tunnel_path import ATTACKS, STRANGER, Sent
from checker.replay.adapters.tunnel_seals import SEED, End, Socket
from checker.replay.network import Dial
from checker.replay.websocket import BINARY, CLOSE, HANDSHAKE, close_code, frame, served
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

BY_HAND, LIBRARY = "the client's end by hand", "the client library"
UP: Final = ("far", "up", "guest")
DOWN: Final = ("near", "down", "local")


class Tunnelled(AtClient):
    """The adapter of ``tunnel``."""

    variants: ClassVar[tuple[str, ...]] = (BY_HAND, LIBRARY)
    subject: Any
    socket: Socket
    dials: int
    """Connections that the daemon has been told to ask for."""

    @classmethod
    def sees(cls, event: Event) -> Sequence[str]:
        """An end sees itself, what comes to it, and who is behind it; and the attacker what is on its way."""
        if event.kind in ATTACKS:
            return (str(event.args["way"]),)
        return DOWN if event.kind in AT_CLIENT or event.writes == ("down",) else UP

    @classmethod
    def ways(cls, model: Model) -> Sequence[str]:
        """Not those of a daemon that is older than this one; and the library always promises an end of stream."""
        far, near = (_initial(model)[end] for end in ("far", "near"))
        if isinstance(far, Far) and far.older:
            return ()
        return (BY_HAND,) if isinstance(near, Near) and not near.client.offers else cls.variants

    @classmethod
    def wants(cls, event: Event, variant: str) -> bool:
        """Each end in the variant in which it is somebody's: the daemon's in the one, the library's in the other."""
        at_client = event.kind in AT_CLIENT or event.writes == ("down",)
        return event.kind == "open" or at_client is (variant == LIBRARY)

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
            if self.library is not None:
                (greeting,) = self.library.sent()
            else:
                greeting = frame(BINARY, self.client.greet(near.client.offers))
            self._deliver(greeting)
            reply = self.socket.news()
            if len(reply) != 1 or reply[0] is None:
                raise NoAnswer("the handshake was not answered")
            if self.library is not None:
                self.library.hear(served(*reply[0]))
            elif self.client.read(reply[0][1]) is None:
                raise NoAnswer("the handshake was answered, and not by the pinned daemon")
            else:
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
        self.verified = verified
        if self.variant == LIBRARY:
            keys = Verify(secret, noise.public_key(SEED)) if verified else None
            self.library = Library(port, TOKEN, keys)
            connection = self.subject.memory.connect()
            connection.send(self.library.upgrade())
            self.subject.memory.clock.settle()
        else:
            self.client = End(secret)
            target = f"/v1/tcp?port={port}{'&identity=true' if verified else ''}"
            connection = self.subject.begin("GET", target, token=TOKEN, headers=HANDSHAKE).connection
        head, found, _ = connection.received.partition(b"\r\n\r\n")
        if not found or not head.startswith(b"HTTP/1.1 101 "):
            raise NoAnswer("there was no upgrade")
        self.socket = Socket(connection, len(head) + len(found))
        if self.library is not None:
            self.library.hear(head + found)

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
        said = cast("Party", self.before(step)["guest"]).said
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
        far = far or cast("Far", self.before(step)["far"])
        after = cast("Far", values["far"])
        _, expected, _ = daemon_does(far, (), None, (after.tunnel, doings))
        reasons = iter([action.reason for action in doings if isinstance(action, CloseFrame)])
        found = self.socket.news()
        told = [self._shown(one) for one in found]
        yield from compared("what the daemon sends", [self._told(one, reasons) for one in expected], told)
        self.dials += Do.DIAL in doings
        asked = [(dial.host, dial.port) for dial in self.subject.memory.clock.dials]
        wanted = [("127.0.0.1", after.tunnel.port)] * self.dials
        yield from compared("connections that the daemon asks for", wanted, asked)
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
        if self._closed_to_us:
            return "a sealed message"
        data = self.twin.read(payload) if self.verified else payload
        return "what does not open" if data is None else f"message {data.hex()}"

    def _told(self, one: Frame, reasons: Iterator[str]) -> str:
        """The same of a frame of the model's."""
        if one.kind == "lost":
            return "the end of the connection"
        if one.kind == "close":
            reason = next(reasons)
            for ours, theirs in WORDS.items():
                reason = reason.replace(ours, theirs)
            return f"close {one.code} {reason}"
        return "a sealed message" if self._closed_to_us else f"message {one.data.hex()}"

    @property
    def _closed_to_us(self) -> bool:
        """Whether the keys are the library's alone."""
        return self.verified and self.library is not None

    # -- the state ------------------------------------------------------------------------------------------

    def state(self, values: Values) -> Iterator[str]:
        """The daemon's end, and what the guest has had of it."""
        far, guest = values["far"], values["guest"]
        if not isinstance(far, Far):
            return
        yield from compared("the daemon's end", far.tunnel, self.socket.relay._tunnel)
        if self.library is not None:
            yield from self.library.differences(cast("Near", values["near"]), cast("Party", values["local"]))
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
        if self.library is not None:
            yield from self.library.close()
        if socket is not None and len(socket.relay._over.__self__):
            yield "a tunnel that is kept"


def _initial(model: Model) -> dict[str, Hashable]:
    """The components, as they begin."""
    return {component.name: component.initial for component in model.components}

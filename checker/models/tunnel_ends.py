"""What stands for the two programs at the ends of a tunnel: they do what the rules say, and read what comes."""

from attrs import evolve

from agentd.rules import tunnel
from agentd.rules.tunnel import (
    ClientStep,
    CloseCode,
    CloseFrame,
    Deliver,
    Do,
    Stage,
    Step,
    Transmit,
)
from checker.model import Event
from checker.models.tunnel_terms import (
    ENDED,
    Effect,
    Far,
    Frame,
    Frames,
    Near,
    Party,
)


def seal(session: bool, sent: int, data: bytes) -> tuple[Frame, int]:
    """A message with these bytes, and the number of the next one."""
    return (Frame("sealed", sent, data), sent + 1) if session else (Frame("plain", 0, data), sent)


def _sent(frames: Frames, frame: Frame) -> Frames:
    """A direction with one more frame, unless nobody reads it any more."""
    return frames if frames == ENDED else (*frames, frame)


def opens(frame: Frame, opened: int) -> bool:
    """Whether a sealed message opens where `opened` have been opened before."""
    return frame.kind == "sealed" and frame.number == opened


def daemon_does(far: Far, down: Frames, guest: Party | None, step: Step) -> tuple[Far, Frames, Party | None]:
    """Carry out what the daemon's end has to do; a guest of None is not connected."""
    then, doings = step
    far = evolve(far, tunnel=then)
    for action in doings:
        if isinstance(action, (Transmit, CloseFrame)) or action in (Do.TRANSMIT_END, Do.REPLY, Do.DROP):
            if far.closed or (far.older and action is Do.TRANSMIT_END):
                continue
            if isinstance(action, CloseFrame):
                far, frame = evolve(far, closed=True), Frame("close", code=int(action.code))
            elif action is Do.DROP:
                far, frame = evolve(far, closed=True), Frame("lost")
            elif action is Do.REPLY:
                frame = Frame("reply", data=tunnel.flags(not far.older), key="host")
            else:
                data = action.data if isinstance(action, Transmit) else b""
                frame, sent = seal(then.verified, far.sent, data)
                far = evolve(far, sent=sent)
            down = _sent(down, frame)
        elif guest is not None and not guest.saw:
            if isinstance(action, Deliver):
                guest = evolve(guest, got=guest.got + action.data)
            elif action is Do.SHUT:
                guest = evolve(guest, saw="eof")
            elif action is Do.RESET:
                guest = evolve(guest, saw="reset")
    if then.stage is Stage.OVER:
        # The connection goes with the last frame; and nothing more is sealed or opened, so that one value does
        # for all that could be told apart by the counts.
        down = down if far.closed else _sent(down, Frame("lost"))
        far = evolve(far, sent=0, opened=0, closed=True)
    return far, down, guest


def client_does(near: Near, up: Frames, local: Party, step: ClientStep) -> tuple[Near, Frames, Party]:
    """Carry out what the client's end has to do."""
    then, doings = step
    near = evolve(near, client=then)
    for action in doings:
        if isinstance(action, (Transmit, CloseFrame)) or action in (Do.TRANSMIT_END, Do.GREET, Do.DROP):
            if near.closed:
                continue
            if isinstance(action, CloseFrame):
                near, frame = evolve(near, closed=True), Frame("close", code=int(action.code))
            elif action is Do.DROP:
                near, frame = evolve(near, closed=True), Frame("lost")
            elif action is Do.GREET:
                frame = Frame("hello", data=tunnel.flags(then.offers), key="caller")
            else:
                data = action.data if isinstance(action, Transmit) else b""
                frame, sent = seal(then.verified, near.sent, data)
                near = evolve(near, sent=sent)
            up = _sent(up, frame)
        elif not local.saw:
            if isinstance(action, Deliver):
                local = evolve(local, got=local.got + action.data)
            elif action is Do.SHUT:
                local = evolve(local, saw="eof")
            elif action is Do.RESET:
                local = evolve(local, saw="reset")
    if then.stage is Stage.OVER:
        up = up if near.closed else _sent(up, Frame("lost"))
        near = evolve(near, sent=0, opened=0, closed=True)
    return near, up, local


def daemon_reads(far: Far, frame: Frame) -> tuple[Far, Step]:
    """What the daemon's end makes of a frame."""
    now = far.tunnel
    if frame.kind == "lost":
        return far, tunnel.caller_lost(now)
    if frame.kind == "close":
        return far, tunnel.caller_closed(now)
    if frame.kind == "violation":
        return far, tunnel.caller_violated(now, CloseCode.PROTOCOL_ERROR, "no frame")
    if now.stage is Stage.HANDSHAKE:
        if frame.kind == "hello" and frame.key == "caller":
            return evolve(far, greeted=frame.key), tunnel.shaken(now, tunnel.offered(frame.data))
        return far, tunnel.handshake_refused(now, "not the pinned caller")
    if not now.verified:
        return far, tunnel.caller_sent(now, frame.data)
    if not opens(frame, far.opened):
        return far, tunnel.caller_broke(now)
    far = evolve(
        far, opened=far.opened + 1, heard=far.heard or (now.stage is Stage.RELAYING and not frame.data)
    )
    return far, tunnel.caller_sent(now, frame.data)


def client_reads(near: Near, frame: Frame) -> tuple[Near, ClientStep]:
    """What the client's end makes of a frame."""
    now = near.client
    if frame.kind in ("lost", "close"):
        return near, tunnel.client_closed(now, frame.code)
    if now.stage is Stage.HANDSHAKE:
        if frame.kind == "reply" and frame.key == "host":
            return evolve(near, greeted=frame.key), tunnel.client_shaken(now, tunnel.offered(frame.data))
        return near, tunnel.client_broke(now)
    if not now.verified:
        return near, tunnel.client_received(now, frame.data)
    if not opens(frame, near.opened):
        return near, tunnel.client_broke(now)
    near = evolve(near, opened=near.opened + 1, heard=near.heard or not frame.data)
    return near, tunnel.client_received(now, frame.data)


def reads_no_more(end: str, way: str, name: str) -> Event:
    """An end that is over leaves what still comes."""

    def effect(here: Far | Near, frames: Frames) -> Effect:
        return (ENDED,), None

    def guard(here: Far | Near | None, frames: Frames) -> bool:
        if here is None or frames == ENDED:
            return False
        return (here.tunnel if isinstance(here, Far) else here.client).stage is Stage.OVER

    return Event(f"the {name} reads no more", "reads_no_more", name, (end, way), (way,), effect, guard)


def says(party: Party) -> Party:
    """One byte more was sent."""
    return evolve(party, said=party.said + 1)


def ends(party: Party) -> Party:
    """The last was sent."""
    return evolve(party, ended=True)


def same(party: Party) -> Party:
    """Nothing was sent."""
    return party

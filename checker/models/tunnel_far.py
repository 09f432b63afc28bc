"""What happens at the daemon's end of a tunnel."""

from collections.abc import Callable
from typing import Final

from attrs import evolve

from agentd.rules import tunnel
from agentd.rules.tunnel import (
    Stage,
    Step,
    Tunnel,
)
from checker.model import Event
from checker.models.tunnel_ends import daemon_does, daemon_reads, ends, reads_no_more, same, says
from checker.models.tunnel_terms import (
    CALLER,
    ENDED,
    GUEST,
    Effect,
    Far,
    Frames,
    Party,
)

LateFar = tuple[str, Callable[[Tunnel], Step], Callable[[Far], bool]]
UP: Final = ("far", "up", "down", "guest")
"""What the daemon's end is about: itself, what it reads, where it writes, and the guest."""


def _on_far(
    kind: str, name: str, actor: str, rule: Callable[[Tunnel], Step], guard: Callable[[Far], bool]
) -> Event:
    """Something that happens to the daemon's end, apart from what it reads."""

    def effect(far: Far, down: Frames, guest: Party | None) -> Effect:
        step = rule(far.tunnel)
        return daemon_does(far, down, guest, step), step[1]

    def may(far: Far | None) -> bool:
        return far is not None and guard(far)

    places = ("far", "down", "guest")
    return Event(name, kind, actor, places, places, effect, may, when=("far",))


def _daemon_reads() -> Event:
    def effect(far: Far, up: Frames, down: Frames, guest: Party | None) -> Effect:
        far, step = daemon_reads(far, up[0])
        far, down, guest = daemon_does(far, down, guest, step)
        return (far, ENDED if far.tunnel.stage is Stage.OVER else up[1:], down, guest), step[1]

    def guard(far: Far | None, up: Frames) -> bool:
        if far is None or not up or far.tunnel.stage is Stage.OVER:
            return False
        # During the dial frames wait outside, a close frame too; only the end of the connection is noticed.
        return far.tunnel.stage is not Stage.DIALING or up[0].kind == "lost"

    return Event("the daemon reads a frame", "far_reads", "daemon", UP, UP, effect, guard, when=("far", "up"))


def _dialled() -> Event:
    def effect(far: Far, guest: None) -> Effect:
        then, doings = tunnel.dialled(far.tunnel)
        return (evolve(far, tunnel=then), Party()), doings

    def guard(far: Far | None) -> bool:
        return far is not None and far.tunnel.stage is Stage.DIALING

    places = ("far", "guest")
    return Event("the guest's port accepts", "dialled", "guest", places, places, effect, guard, when=("far",))


def _guest(
    kind: str,
    name: str,
    rule: Callable[[Tunnel, Party], Step],
    change: Callable[[Party], Party],
    most: int = len(GUEST),
) -> Event:
    """Something the guest does, while it is connected."""

    def effect(far: Far, down: Frames, guest: Party) -> Effect:
        step = rule(far.tunnel, guest)
        return daemon_does(far, down, change(guest), step), step[1]

    def guard(far: Far | None, guest: Party | None) -> bool:
        if far is None or far.tunnel.stage is not Stage.RELAYING or guest is None:
            return False
        return kind != "guest_says" or guest.said < most

    places = ("far", "down", "guest")
    return Event(name, kind, "guest", places, places, effect, guard, when=("far", "guest"))


def _late_far(name: str, rule: Callable[[Tunnel], Step], guard: Callable[[Far], bool]) -> Event:
    """What must do nothing is done nothing with: only what is left of the daemon's end is kept."""

    def effect(far: Far) -> Effect:
        then, doings = rule(far.tunnel)
        return (evolve(far, tunnel=then),), doings

    def may(far: Far | None) -> bool:
        return far is not None and guard(far)

    return Event(name, "late", "daemon", ("far",), ("far",), effect, may)


def _at(*stages: Stage) -> Callable[[Far], bool]:
    return lambda far: far.tunnel.stage in stages


def _beyond(*stages: Stage) -> Callable[[Far], bool]:
    return lambda far: far.tunnel.stage not in stages


OPEN: Final = (Stage.HANDSHAKE, Stage.DIALING, Stage.RELAYING)


def _late() -> tuple[LateFar, ...]:
    """What means nothing to the daemon's end, and where: it comes all the same."""
    return (
        ("useless keys", tunnel.unbuildable, _beyond(Stage.HANDSHAKE)),
        ("a handshake", lambda t: tunnel.shaken(t, True), _beyond(Stage.HANDSHAKE)),
        ("no handshake", lambda t: tunnel.handshake_refused(t, "late"), _beyond(Stage.HANDSHAKE)),
        ("a connection", tunnel.dialled, _beyond(Stage.DIALING)),
        ("a failed dial", lambda t: tunnel.dial_failed(t, "late"), _beyond(Stage.DIALING)),
        ("a message", lambda t: tunnel.caller_sent(t, CALLER), _beyond(Stage.RELAYING)),
        ("an empty message", lambda t: tunnel.caller_sent(t, b""), _beyond(Stage.RELAYING)),
        ("a broken message", tunnel.caller_broke, _beyond(Stage.RELAYING)),
        ("a violation", lambda t: tunnel.caller_violated(t, 1002, "late"), _beyond(*OPEN)),
        ("a close frame", tunnel.caller_closed, _beyond(*OPEN)),
        ("a lost connection", tunnel.caller_lost, _beyond(*OPEN)),
        ("a byte of the guest", lambda t: tunnel.guest_sent(t, GUEST), _beyond(Stage.RELAYING)),
        ("no byte of the guest", lambda t: tunnel.guest_sent(t, b""), _at(*Stage)),
        ("the guest's end", tunnel.guest_ended, _beyond(Stage.RELAYING)),
        ("the guest's failure", tunnel.guest_failed, _beyond(Stage.RELAYING)),
        ("the guest's refusal", tunnel.guest_refused, _beyond(Stage.RELAYING)),
        ("the daemon's stop", tunnel.stopping, _beyond(*OPEN)),
    )


def _late_plain() -> tuple[LateFar, ...]:
    """The same of a tunnel without seals."""
    return (
        (
            "a broken message of a plain tunnel",
            tunnel.caller_broke,
            lambda far: not far.tunnel.verified,
        ),
        (
            "an empty message of a plain tunnel",
            lambda t: tunnel.caller_sent(t, b""),
            lambda far: not far.tunnel.verified,
        ),
    )


def _unbuildable() -> Event:
    return _on_far(
        "unbuildable",
        "the keys of the launch make no responder",
        "daemon",
        tunnel.unbuildable,
        _at(Stage.HANDSHAKE),
    )


def dial_events() -> tuple[Event, ...]:
    return (
        _dialled(),
        _unbuildable(),
        _on_far(
            "dial_fails",
            "nothing listens on the guest's port",
            "guest",
            lambda t: tunnel.dial_failed(t, "has no listener"),
            _at(Stage.DIALING),
        ),
    )


def far_events(sealed: bool, most: int) -> tuple[Event, ...]:
    return (
        _daemon_reads(),
        reads_no_more("far", "up", "daemon"),
        _on_far("stopping", "the daemon stops", "daemon", tunnel.stopping, _at(*OPEN)),
        *(
            _late_far(f"{name} comes to the daemon for nothing", rule, guard)
            for name, rule, guard in (_late() if sealed else (*_late(), *_late_plain()))
        ),
        _guest(
            "guest_says",
            "the guest sends a byte",
            lambda t, guest: tunnel.guest_sent(t, GUEST[guest.said : guest.said + 1]),
            says,
            most,
        ),
        _guest("guest_ends", "the guest sends its last", lambda t, guest: tunnel.guest_ended(t), ends),
        _guest("guest_fails", "the guest's connection fails", lambda t, g: tunnel.guest_failed(t), same),
        _guest("guest_refuses", "the guest takes no more", lambda t, g: tunnel.guest_refused(t), same),
    )

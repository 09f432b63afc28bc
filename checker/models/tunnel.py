"""A tunnel's two ends with somebody on the path between them: contract f and j.4, over `rules.tunnel`.

The daemon's end and the client's run the rules; what they do is done to two queues of frames and to the two TCP
connections beside them. The attacker on the path drops, replays, swaps and forges frames, forges a close, and
hangs up, as often as its budget allows. What it cannot do is seal: a sealed message opens only at its own place
in its direction, and a handshake message proves the key of whoever made it.

``handshake`` is about everything up to the dial, ``relay`` and ``plain`` about the bytes afterwards, ``path_attacker``
has all of it with two bytes one way and a budget of two. In ``offers_in_clear`` the attacker can also take away the
promise of an end of stream, which the handshake protects; there it wins. So it does in the configurations that are
named for a defence that is off.
"""

from collections.abc import Hashable

from attrs import evolve

from agentd.rules import tunnel
from agentd.rules.tunnel import (
    Tunnel,
)
from checker.model import Component, Event, Model
from checker.models import Config
from checker.models.tunnel_attacks import attacks, impostor, rude
from checker.models.tunnel_ends import client_does, daemon_does, reads_no_more
from checker.models.tunnel_far import dial_events, far_events
from checker.models.tunnel_near import near_events
from checker.models.tunnel_properties import STRIPPED, properties
from checker.models.tunnel_terms import (
    CALLER,
    GUEST,
    PORT,
    Effect,
    Far,
    Frames,
    Near,
    Party,
    Setting,
)


def _greets(verified: bool, offers: bool) -> tunnel.ClientStep:
    """A client that promises an end does so by default."""
    return tunnel.client_opened(verified=verified, **({} if offers else {"offers": False}))


def _opens(verified: bool, seeded: bool, port: int, stranger: bool, offers: bool) -> Event:
    """A caller opens a tunnel; a stranger has the token, and a key of its own."""

    def effect(far: None, near: None, up: Frames, down: Frames) -> Effect:
        step = tunnel.opened(port, verified=verified, seeded=seeded)
        end, down, _ = daemon_does(Far(Tunnel(port, verified)), down, None, step)
        client = _greets(verified, offers)
        here, up, _ = client_does(Near(client[0]), up, Party(), client)
        if stranger:
            up = tuple(evolve(frame, key="stranger") for frame in up)
        return (end, here, up, down), step[1]

    words = "a stranger" if stranger else "the caller"
    words += f" opens a {'verified' if verified else 'plain'} tunnel to port {port}"
    words += "" if seeded else ", without keys in the VM"
    places = ("far", "near", "up", "down")
    args: dict[str, Hashable] = {"verified": verified, "seeded": seeded, "port": port, "stranger": stranger}
    return Event(
        words, "open", "caller", places, places, effect, lambda far: far is None, args, when=("far",)
    )


PROMISES = (b"", b"\x00", b"\x01", b"\x02", b"\x03", b"\xfe\x01")
"""Handshake payloads, of which those with bit 0 of the first byte promise an end."""
REASONS = ("short", "x" * 123, "x" * 124, "\u00e9" * 62)
"""Reasons of close frames."""


def _words() -> tuple[Event, ...]:
    """What handshake payloads and close frames say, before there is a tunnel."""

    def promise(payload: bytes) -> Event:
        return Event(
            f"a handshake carries {payload.hex() or 'nothing'}",
            "promise",
            "caller",
            (),
            (),
            lambda: ((), tunnel.offered(payload)),
            None,
            {"payload": payload},
        )

    def reason(text: str) -> Event:
        return Event(
            f"a reason of {len(text.encode())} bytes in {len(text)} characters is given",
            "reason",
            "daemon",
            (),
            (),
            lambda: ((), tunnel.fit(text)),
            None,
            {"text": text},
        )

    return (*map(promise, PROMISES), *map(reason, REASONS))


def _openings(everything: bool) -> tuple[Event, ...]:
    if not everything:
        return (_opens(True, True, PORT, False, True),)
    return (
        *(
            _opens(verified, seeded, port, False, True)
            for verified in (True, False)
            for seeded in (True, False)
            for port in (PORT, 0)
        ),
        _opens(True, True, PORT, True, True),
    )


def _relaying(verified: bool, offers: bool, older: bool) -> tuple[Far, Near]:
    """The two ends once the guest is connected, by way of the rules."""
    state, _ = tunnel.opened(PORT, verified=verified, seeded=True)
    client, _ = _greets(verified, offers)
    if verified:
        state, _ = tunnel.shaken(state, tunnel.offered(tunnel.flags(offers)))
        client, _ = tunnel.client_shaken(client, tunnel.offered(tunnel.flags(not older)))
    state, _ = tunnel.dialled(state)
    key = ("caller", "host") if verified else ("", "")
    return Far(state, greeted=key[0], older=older), Near(client, greeted=key[1])


def build(
    config: str,
    *,
    relaying: bool,
    verified: bool = True,
    offers: bool = True,
    older: bool = False,
    hostile: bool = True,
    budget: int = 1,
    most: int = 1,
    clear: bool = False,
    everything: bool = False,
) -> Model:
    """The model from the upgrade on, or from the relay on; `clear` puts the promises where they can be seen."""
    far, near = _relaying(verified, offers, older) if relaying else (None, None)
    events = [
        *far_events(verified and not everything, most),
        *near_events(),
        *(attacks(clear, up=offers, down=most > 1 or not older) if hostile else rude()),
    ]
    if not relaying:
        events += [*_openings(everything), *dial_events(), impostor()]
        events.append(reads_no_more("near", "down", "client"))
    if everything:
        events += _words()
    return Model(
        "tunnel",
        config,
        (
            Component("far", far, meaning="the daemon's end"),
            Component("near", near, meaning="the client's end"),
            Component("up", (), "way", meaning="frames on their way to the daemon"),
            Component("down", (), "way", meaning="frames on their way to the client"),
            Component("guest", Party() if relaying else None, meaning="the connection in the guest"),
            Component("local", Party(), meaning="the connection beside the client"),
            Component("budget", budget, meaning="what the attacker may still do"),
        ),
        tuple(events),
        properties(Setting(relaying, verified, offers, not older, hostile, everything)),
        violates=STRIPPED if clear else frozenset(),
        bounds={"guest bytes": most, "caller bytes": len(CALLER), "attacks": budget},
        meaning="the two ends of a tunnel, and an attacker on the path between them",
    )


DEFENCES: dict[str, tuple[bool, str, str, *tuple[str, ...]]] = {
    "callers_key_unproven": (
        False,
        "a refused handshake is answered",
        "AGENTD-17 the handshake completes only with the pinned key",
    ),
    "daemons_key_unproven": (
        False,
        "any handshake will do for the client",
        "BIND-21 no local byte goes to or comes from an end without the pinned key",
    ),
    "dial_before_handshake": (
        False,
        "a verified tunnel dials at once",
        "AGENTD-18 a verified tunnel dials only after its handshake",
        "the keys of the launch make no responder",
    ),
    "daemon_skips_broken_messages": (
        True,
        "a broken message is skipped",
        "a message that does not open drops the tunnel",
    ),
    "client_skips_broken_messages": (
        True,
        "a broken message to the client is skipped",
        "a message that does not open breaks the client's end",
    ),
    "close_before_end_of_stream": (
        True,
        "the end of stream comes after the close",
        "AGENTD-19 the daemon's close after the guest's end follows its end of stream",
        "the attacker swaps two messages on the way to the client",
    ),
    "daemon_needs_no_end": (
        True,
        "a broken promise is an end of file",
        "AGENTD-20 the guest reads an end of file only after all of a caller that promised an end",
    ),
    "client_needs_no_end": (
        True,
        "the client takes any close for whole",
        "BIND-23 the client takes a stream for whole only with every byte",
    ),
}
"""A defence that is off: whether it is about the relay, the fault that takes it away, what falls with it, and events
that then never happen."""


def _off(name: str) -> Model:
    from checker.models.without import without

    relaying, fault, falls, *never = DEFENCES[name]
    model = build(name, relaying=relaying, everything=not relaying, hostile=relaying)
    return without(model, fault, (falls,), tuple(never))


CONFIGS = {
    "relay": Config(lambda name: build(name, relaying=True)),
    "handshake": Config(lambda name: build(name, relaying=False, everything=True, hostile=False)),
    "plain": Config(lambda name: build(name, relaying=True, verified=False, hostile=False)),
    "older_caller": Config(lambda name: build(name, relaying=True, offers=False, hostile=False)),
    "older_daemon": Config(lambda name: build(name, relaying=True, older=True, hostile=False)),
    "older_caller_attacked": Config(lambda name: build(name, relaying=True, offers=False), default=False),
    "older_daemon_attacked": Config(lambda name: build(name, relaying=True, older=True), default=False),
    "path_attacker": Config(
        lambda name: build(name, relaying=False, budget=2, most=len(GUEST)), default=False
    ),
    "offers_in_clear": Config(lambda name: build(name, relaying=False, clear=True), default=False),
    **{name: Config(_off, default=False) for name in DEFENCES},
}

"""What happens at the client's end of a tunnel."""

from collections.abc import Callable
from typing import Final

from attrs import evolve

from agentd.rules import tunnel
from agentd.rules.tunnel import (
    Client,
    ClientStep,
    CloseCode,
    Stage,
)
from checker.model import Event
from checker.models.tunnel_ends import client_does, client_reads, ends, says
from checker.models.tunnel_terms import (
    CALLER,
    ENDED,
    GUEST,
    Effect,
    Frames,
    Near,
    Party,
)

LateNear = tuple[str, Callable[[Client], ClientStep], Callable[[Client], bool]]
DOWN: Final = ("near", "down", "up", "local")


def _client_reads() -> Event:
    def effect(near: Near, down: Frames, up: Frames, local: Party) -> Effect:
        near, step = client_reads(near, down[0])
        near, up, local = client_does(near, up, local, step)
        return (near, ENDED if near.client.stage is Stage.OVER else down[1:], up, local), step[1]

    def guard(near: Near | None, down: Frames) -> bool:
        return near is not None and bool(down) and near.client.stage is not Stage.OVER

    return Event(
        "the client reads a frame", "near_reads", "client", DOWN, DOWN, effect, guard, when=("near", "down")
    )


def _on_near(
    kind: str,
    name: str,
    rule: Callable[[Client], ClientStep],
    guard: Callable[[Client, Party], bool],
    change: Callable[[Party], Party] = lambda local: local,
) -> Event:
    def effect(near: Near, up: Frames, local: Party) -> Effect:
        step = rule(near.client)
        return client_does(near, up, change(local) if step[1] else local, step), step[1]

    def may(near: Near | None, local: Party) -> bool:
        return near is not None and guard(near.client, local)

    places = ("near", "up", "local")
    return Event(name, kind, "local", places, places, effect, may, when=("near", "local"))


def _late_near(name: str, rule: Callable[[Client], ClientStep], guard: Callable[[Client], bool]) -> Event:
    def effect(near: Near) -> Effect:
        then, doings = rule(near.client)
        return (evolve(near, client=then),), doings

    def may(near: Near | None) -> bool:
        return near is not None and guard(near.client)

    return Event(name, "late_near", "client", ("near",), ("near",), effect, may)


def _talks(client: Client, local: Party) -> bool:
    return client.stage is not Stage.OVER and not client.left and not local.ended


def _speaks(client: Client, local: Party) -> bool:
    return _talks(client, local) and local.said < len(CALLER)


def _mute(client: Client) -> bool:
    return client.stage is not Stage.RELAYING or client.left


def _done(client: Client) -> bool:
    return client.stage is Stage.OVER or client.left


def _gone(client: Client) -> bool:
    return client.stage is Stage.OVER


def _late_at_client() -> tuple[LateNear, ...]:
    """The same at the client's end."""
    return (
        ("a handshake", lambda c: tunnel.client_shaken(c, True), lambda c: c.stage is not Stage.HANDSHAKE),
        ("a broken message", tunnel.client_broke, lambda c: _gone(c) or not c.verified),
        ("a message", lambda c: tunnel.client_received(c, GUEST), lambda c: c.stage is not Stage.RELAYING),
        (
            "an empty message",
            lambda c: tunnel.client_received(c, b""),
            lambda c: c.stage is not Stage.RELAYING or not c.verified,
        ),
        ("a local byte", lambda c: tunnel.local_sent(c, CALLER), _mute),
        ("no local byte", lambda c: tunnel.local_sent(c, b""), lambda c: True),
        ("the local end", tunnel.local_ended, _done),
        ("the local failure", tunnel.local_failed, _done),
        ("a close frame", lambda c: tunnel.client_closed(c, CloseCode.FINISHED), _gone),
    )


def near_events() -> tuple[Event, ...]:
    return (
        _client_reads(),
        _on_near(
            "local_says",
            "the local side sends a byte",
            lambda c: tunnel.local_sent(c, CALLER),
            _speaks,
            says,
        ),
        _on_near("local_ends", "the local side sends its last", tunnel.local_ended, _talks, ends),
        _on_near("local_fails", "the local side breaks", tunnel.local_failed, _talks),
        *(
            _late_near(f"{name} comes to the client for nothing", rule, guard)
            for name, rule, guard in _late_at_client()
        ),
    )

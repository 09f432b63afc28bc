"""The attacker on a tunnel's path: what it can do to a direction without the keys."""

from collections.abc import Callable

from attrs import evolve

from agentd.rules.tunnel import CloseCode
from checker.model import Event
from checker.models.tunnel_terms import Effect, Frame, Frames

CLOSE = Frame("close", code=int(CloseCode.FINISHED))

Change = Callable[[Frames], Frames]
Offered = Callable[[Frames], bool]


def _message(frames: Frames) -> bool:
    """Whether a message comes next, and not the end of the direction."""
    return bool(frames) and frames[0].kind not in ("close", "lost", "ended")


def _open(frames: Frames) -> bool:
    """Whether nothing has ended the direction."""
    return not any(frame.kind in ("lost", "ended") for frame in frames)


def _attack(way: str, kind: str, words: str, change: Change, offered: Offered) -> Event:
    def effect(frames: Frames, budget: int) -> Effect:
        return (change(frames), budget - 1), None

    def guard(frames: Frames, budget: int) -> bool:
        return budget > 0 and offered(frames)

    places = (way, "budget")
    name = f"the attacker {words} on the way {'to the daemon' if way == 'up' else 'to the client'}"
    return Event(name, kind, "attacker", places, places, effect, guard, {"way": way})


def rude() -> tuple[Event, ...]:
    """What happens without an attacker too: bytes that are no frame, a close at any time, a lost connection."""
    return (
        _attack("up", "violate", "sends what is no frame", lambda f: (Frame("violation"), *f), _open),
        _attack("up", "forge_close", "forges a close frame", lambda f: (CLOSE, *f), _open),
        _attack("down", "hang_up", "hangs up", lambda f: (Frame("lost"),), _open),
    )


def impostor() -> Event:
    """Somebody else than the daemon answers a handshake, with a key of its own."""
    answer = Frame("reply", key="impostor")

    def offered(frames: Frames) -> bool:
        return not frames

    return _attack("down", "impostor", "answers for the daemon", lambda f: (answer,), offered)


def attacks(clear: bool, *, up: bool, down: bool) -> tuple[Event, ...]:
    """Every attack. `clear`: promises can be seen; `up`, `down`: there are two messages that can be swapped."""
    found = list(rude())
    for way, pairs in (("up", up), ("down", down)):
        found += [
            _attack(way, "drop", "drops a message", lambda frames: frames[1:], _message),
            _attack(way, "replay", "replays a message", lambda f: (f[0], f[0], *f[1:]), _message),
            _attack(way, "forge", "forges a message", lambda f: (Frame("forged"), *f), _open),
        ]
        if pairs:
            found.append(_attack(way, "swap", "swaps two messages", lambda f: (f[1], f[0], *f[2:]), _pair))
        if clear:
            found.append(_attack(way, "strip", "takes the promise away", _stripped, _promising))
    found.append(_attack("up", "hang_up", "hangs up", lambda f: (Frame("lost"),), _open))
    found.append(_attack("down", "forge_close", "forges a close frame", lambda f: (CLOSE, *f), _open))
    return tuple(found)


def _pair(frames: Frames) -> bool:
    return _message(frames) and _message(frames[1:])


def _promising(frames: Frames) -> bool:
    return bool(frames) and frames[0].kind in ("hello", "reply") and bool(frames[0].data)


def _stripped(frames: Frames) -> Frames:
    return (evolve(frames[0], data=b""), *frames[1:])

"""What must hold of a tunnel up to the dial (contract f.1 to f.3, AGENTD-17, AGENTD-18)."""

from agentd.rules.tunnel import CloseCode, Do, Stage
from checker.model import Edge
from checker.models.tunnel_terms import (
    Setting,
    actions,
    codes,
    far_after,
    head,
    stage,
)
from checker.properties import EdgePredicate, OnEdge, Property, SometimesOnEdge

FAR = frozenset({"far_reads", "stopping", "guest_says", "guest_ends", "guest_fails", "guest_refuses", "late"})


PROMISING = (b"\x01", b"\x03")
REASONS = {"short": "short", "x" * 123: "x" * 123, "x" * 124: "x" * 123, "\u00e9" * 62: "\u00e9" * 61}
"""A reason, and what of it is sent."""


def _edge(
    name: str, kinds: set[str], holds: EdgePredicate, witness: str, faults: tuple[str, ...], meaning: str
) -> OnEdge:
    return OnEdge(
        name=name, kinds=frozenset(kinds), holds=holds, witness=witness, faults=faults, meaning=meaning
    )


def _some(name: str, kind: str, holds: EdgePredicate = lambda e: True) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, kinds=frozenset({kind}), holds=holds)


def _over(edge: Edge) -> bool:
    return far_after(edge).tunnel.stage is Stage.OVER


def _opened(edge: Edge) -> bool:
    """Whether an upgrade leads where it must."""
    args = edge.event.args
    if args["verified"]:
        return edge.response == () if args["seeded"] else codes(edge) == [CloseCode.NO_IDENTITY]
    return codes(edge) == [CloseCode.BAD_PORT] if args["port"] == 0 else edge.response == (Do.DIAL,)


def _pinned(edge: Edge) -> bool:
    """Whether a handshake that is read proves the pinned key."""
    frame = head(edge, "up")
    return frame.kind == "hello" and frame.key == "caller"


def _shaken(edge: Edge) -> bool:
    """Whether the pinned caller is answered, and then dialled for."""
    far = far_after(edge)
    promised = far.tunnel.caller_offered == bool(head(edge, "up").data)
    if far.tunnel.port:
        return edge.response == (Do.REPLY, Do.DIAL) and promised
    return actions(edge)[:1] == (Do.REPLY,) and codes(edge) == [CloseCode.BAD_PORT]


def _refused(edge: Edge) -> bool:
    lost = head(edge, "up").kind == "lost"
    return _over(edge) and codes(edge) == ([] if lost else [CloseCode.HANDSHAKE])


def _shakes(edge: Edge) -> bool:
    return stage(edge) is Stage.HANDSHAKE


def opening_properties(setting: Setting) -> list[Property]:
    found: list[Property] = [
        _edge(
            "AGENTD-17 the handshake completes only with the pinned key",
            {"far_reads"},
            lambda e: Do.REPLY not in actions(e) or _pinned(e),
            "a handshake is refused",
            ("a refused handshake is answered",),
            "Which only the launching host has (f.2).",
        ),
        _edge(
            "AGENTD-18 a verified tunnel dials only after its handshake",
            {"open", *FAR},
            lambda e: (
                Do.DIAL not in actions(e)
                or not far_after(e).tunnel.verified
                or far_after(e).greeted == "caller"
            ),
            "a handshake is refused",
            ("a verified tunnel dials at once", "a refused handshake is answered"),
            "Nothing reaches the guest for a caller without the key (f.3).",
        ),
        _edge(
            "the pinned caller is answered and dialled for",
            {"far_reads"},
            lambda e: not _shakes(e) or not _pinned(e) or _shaken(e),
            "a caller is dialled for",
            ("the second handshake message is forgotten", "the caller's promise is forgotten"),
            "And its promise of an end of stream is kept in mind (f.2).",
        ),
        _edge(
            "a handshake that is refused says so",
            {"far_reads"},
            lambda e: not _shakes(e) or _pinned(e) or _refused(e),
            "a handshake is refused",
            ("a refused handshake is answered", "a caller who leaves early is waited for"),
            "4403, unless there is nobody left to be told (f.1).",
        ),
        _edge(
            "a dial that fails says so",
            {"dial_fails"},
            lambda e: _over(e) and codes(e) == [CloseCode.NOTHING_THERE],
            "a dial fails",
            ("a failed dial is a failed relay",),
            "4502 (f.1).",
        ),
        _edge(
            "keys that are of no use say so",
            {"unbuildable"},
            lambda e: _over(e) and codes(e) == [CloseCode.RELAY_FAILED],
            "the keys are of no use",
            ("useless keys are ignored",),
            "4500 (f.1).",
        ),
        _edge(
            "a guest that accepts is relayed",
            {"dialled"},
            lambda e: far_after(e).tunnel.stage is Stage.RELAYING and _quiet(e),
            "a guest accepts",
            ("a connection is not relayed",),
            "From then on (f.4).",
        ),
        _some("a caller is dialled for", "far_reads", lambda e: Do.DIAL in actions(e)),
        _some("a handshake is refused", "far_reads", lambda e: codes(e) == [CloseCode.HANDSHAKE]),
        _some("a dial fails", "dial_fails"),
        _some("the keys are of no use", "unbuildable"),
        _some("a guest accepts", "dialled"),
    ]
    if setting.everything:
        found += [
            _edge(
                "what an upgrade leads to",
                {"open"},
                _opened,
                "a tunnel to no port is refused",
                (
                    "a VM without keys shakes hands",
                    "port 0 is dialled",
                    "a plain tunnel needs keys",
                    "a verified tunnel dials at once",
                ),
                "No keys, no port, a handshake, a dial: the first that applies (f.1).",
            ),
            _edge(
                "bit 0 of a handshake payload promises an end",
                {"promise"},
                lambda e: e.response is (e.event.args["payload"] in PROMISING),
                "a handshake promises nothing it knows",
                ("any payload is a promise", "only a bare bit is a promise"),
                "Unknown bits and bytes mean nothing (f.2).",
            ),
            _edge(
                "a reason fits its close frame",
                {"reason"},
                lambda e: e.response == REASONS[str(e.event.args["text"])],
                "a reason is cut",
                ("a reason is cut within a character", "a reason is cut short"),
                "At most 123 bytes, cut between two characters (f.1, RFC 6455 5.5).",
            ),
            _some(
                "a handshake promises nothing it knows",
                "promise",
                lambda e: e.event.args["payload"] == b"\x02",
            ),
            _some("a reason is cut", "reason", lambda e: e.response != e.event.args["text"]),
            _some("a tunnel to no port is refused", "open", lambda e: codes(e) == [CloseCode.BAD_PORT]),
        ]
    return found


def _quiet(edge: Edge) -> bool:
    """Whether nothing is done."""
    return edge.response == ()

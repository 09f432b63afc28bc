"""What must hold of a tunnel at the client's end (contract f, BIND-21 to BIND-24)."""

from agentd.rules.tunnel import CloseCode, CloseFrame, Do, Stage, Verdict
from checker.model import Edge
from checker.models.tunnel_terms import GUEST, Setting, actions, head, near_after, near_before
from checker.properties import Always, EdgePredicate, OnEdge, Property, SometimesOnEdge

FINISHED = CloseFrame(CloseCode.FINISHED, "")
WHOLE = (Verdict.CLOSED, Verdict.CLOSED_UNPROVEN, Verdict.LEFT)
CUT = (Verdict.TRUNCATED, Verdict.REFUSED, Verdict.BROKEN)


def _edge(
    name: str, kinds: set[str], holds: EdgePredicate, witness: str, faults: tuple[str, ...], meaning: str
) -> OnEdge:
    return OnEdge(
        name=name, kinds=frozenset(kinds), holds=holds, witness=witness, faults=faults, meaning=meaning
    )


def _some(name: str, kind: str, holds: EdgePredicate = lambda e: True) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, kinds=frozenset({kind}), holds=holds)


def client_properties(setting: Setting) -> list[Property]:
    """Every property that can be asked in this setting."""
    found = [*_verdicts(setting), *_local(setting)]
    found += _verified(setting) if setting.verified else []
    found += [] if setting.relaying else _greeting()
    return found


def _stage(edge: Edge) -> Stage:
    return near_before(edge).client.stage


def _judgement(edge: Edge) -> Verdict:
    """What the end of the WebSocket means."""
    client, code = near_before(edge).client, head(edge, "down").code
    if code not in (None, CloseCode.FINISHED):
        return Verdict.REFUSED
    if client.left:
        return Verdict.LEFT
    if client.stage is Stage.HANDSHAKE:
        return Verdict.BROKEN
    if client.verified:
        return Verdict.TRUNCATED if client.daemon_offered else Verdict.CLOSED_UNPROVEN
    return Verdict.TRUNCATED if code is None else Verdict.CLOSED_UNPROVEN


def _closes(edge: Edge) -> bool:
    return head(edge, "down").kind in ("close", "lost") and _stage(edge) is not Stage.OVER


def _closed(edge: Edge) -> bool:
    verdict = _judgement(edge)
    return near_after(edge).client.verdict is verdict and edge.response == (
        Do.SHUT if verdict in WHOLE else Do.RESET,
    )


def _verdicts(setting: Setting) -> list[Property]:
    cut = "a cut stream is unproven" if setting.daemon_offers and setting.verified else "a refusal is whole"
    found: list[Property] = [
        Always(
            name="BIND-23 the client takes a stream for whole only with every byte",
            reads=("near", "guest", "local"),
            holds=lambda near, guest, local: (
                near is None
                or near.client.verdict is not Verdict.CLOSED
                or (guest is not None and guest.ended and local.got == GUEST[: guest.said])
            ),
            witness="a tunnel is closed",
            faults=("the client takes any close for whole",),
            meaning="The end of stream comes only after every byte before it (f.5).",
        ),
        _edge(
            "what the end of a tunnel means",
            {"near_reads"},
            lambda e: not _closes(e) or _closed(e),
            "a tunnel is closed",
            ("a refusal is whole", "the client takes any close for whole", cut),
            "Refused, left, broken, truncated, or closed and unproven: the first that applies (f.5).",
        ),
        Always(
            name="a client has a verdict when it is over, and not before",
            reads=("near",),
            holds=lambda near: (
                near is None or (near.client.verdict is None) == (near.client.stage is not Stage.OVER)
            ),
            witness="a tunnel is closed",
            faults=("the verdict is forgotten",),
            meaning="Set once (f.5).",
        ),
        Always(
            name="the local side reads an end of file only of what may be whole",
            reads=("near", "local"),
            holds=lambda near, local: (
                not local.saw or near.client.verdict in (WHOLE if local.saw == "eof" else CUT)
            ),
            witness="a tunnel is closed",
            faults=("a cut stream ends in good order",),
            meaning="And is reset otherwise (f.5).",
        ),
        _edge(
            "what comes for nothing does nothing at the client",
            {"late_near"},
            lambda e: e.response == () and near_before(e) == near_after(e),
            "something comes to the client for nothing",
            ("the local end is told twice", "a second close frame is judged"),
            "All functions are total (f).",
        ),
        _some("a tunnel is closed", "near_reads", _closes),
        _some("something comes to the client for nothing", "late_near", lambda e: _stage(e) is Stage.OVER),
    ]
    if setting.verified and setting.daemon_offers:
        found += [
            Always(
                name="BIND-23 nothing unproven comes from a daemon that promises an end",
                reads=("near",),
                holds=lambda near: (
                    near is None
                    or near.client.verdict is not Verdict.CLOSED_UNPROVEN
                    or not near.client.verified
                ),
                witness="a cut stream is truncated",
                faults=("a cut stream is unproven",),
                meaning="What it does not end is cut (f.5).",
            ),
            _some(
                "a cut stream is truncated",
                "near_reads",
                lambda e: near_after(e).client.verdict is Verdict.TRUNCATED,
            ),
        ]
    return found


def _ends_here(edge: Edge) -> bool:
    """Whether the local end is passed on as it must be."""
    client = near_before(edge).client
    if client.stage is Stage.HANDSHAKE:
        return edge.response == (Do.SHUT, Do.DROP) and near_after(edge).client.verdict is Verdict.LEFT
    end = (Do.TRANSMIT_END,) if client.verified and client.offers else ()
    return edge.response == (*end, FINISHED) and near_after(edge).client.left


def _fails_here(edge: Edge) -> bool:
    after = near_after(edge).client
    if _stage(edge) is Stage.HANDSHAKE:
        return edge.response == (Do.DROP,) and after.verdict is Verdict.LEFT
    return edge.response == (FINISHED,) and after.left


def _local(setting: Setting) -> list[Property]:
    return [
        _edge(
            "the local end is passed on",
            {"local_ends"},
            _ends_here,
            "the local side ends",
            ("a client goes without its end",)
            if setting.verified and setting.offers
            else ("a client promises nothing and sends an end",),
            "By an end of stream if one was promised, and by a close frame (f.5).",
        ),
        _edge(
            "a local failure is passed on as one",
            {"local_fails"},
            _fails_here,
            "the local side breaks",
            ("a broken local side is an end",),
            "Without an end of stream, so that nothing is taken for whole (f.5).",
        ),
        _edge(
            "what the local side says is sent on",
            {"local_says"},
            lambda e: len(actions(e)) == (1 if _stage(e) is Stage.RELAYING else 0),
            "the local side speaks",
            ("the local side is not heard",),
            "Every byte of it (f.4).",
        ),
        _some("the local side ends", "local_ends"),
        _some("the local side breaks", "local_fails"),
        _some("the local side speaks", "local_says", lambda e: bool(actions(e))),
    ]


def _sealed_end(edge: Edge) -> bool:
    near, frame = near_before(edge), head(edge, "down")
    if near.client.stage is not Stage.RELAYING or not near.client.verified:
        return False
    return frame.kind == "sealed" and frame.number == near.opened and not frame.data


def _does_not_open(edge: Edge) -> bool:
    near, frame = near_before(edge), head(edge, "down")
    if near.client.stage is not Stage.RELAYING or not near.client.verified:
        return False
    return frame.kind not in ("close", "lost") and not (
        frame.kind == "sealed" and frame.number == near.opened
    )


def _verified(setting: Setting) -> list[Property]:
    found: list[Property] = []
    if setting.daemon_offers:
        found += [
            _edge(
                "the daemon's end of stream closes the client in good order",
                {"near_reads"},
                lambda e: (
                    not _sealed_end(e)
                    or (e.response == (Do.SHUT, FINISHED) and near_after(e).client.verdict is Verdict.CLOSED)
                ),
                "a download is whole",
                ("the daemon's end means nothing",),
                "Every byte is here (f.5).",
            ),
            _some("a download is whole", "near_reads", _sealed_end),
        ]
    if setting.hostile:
        found += [
            _edge(
                "a message that does not open breaks the client's end",
                {"near_reads"},
                lambda e: (
                    not _does_not_open(e)
                    or (e.response == (Do.RESET, Do.DROP) and near_after(e).client.verdict is Verdict.BROKEN)
                ),
                "a message to the client does not open",
                ("a broken message to the client is skipped",),
                "Forged, replayed or out of order (f.3).",
            ),
            _some("a message to the client does not open", "near_reads", _does_not_open),
        ]
    return found


def _greets(edge: Edge) -> bool:
    return _stage(edge) is Stage.HANDSHAKE and not _closes(edge)


def _greeted(edge: Edge) -> bool:
    frame, after = head(edge, "down"), near_after(edge).client
    if frame.kind == "reply" and frame.key == "host":
        return edge.response == () and after.daemon_offered == bool(frame.data)
    return edge.response == (Do.RESET, Do.DROP) and after.verdict is Verdict.BROKEN


def _greeting() -> list[Property]:
    return [
        Always(
            name="BIND-21 no local byte goes to or comes from an end without the pinned key",
            reads=("near", "local"),
            holds=lambda near, local: (
                near is None
                or not near.client.verified
                or near.greeted == "host"
                or (not near.sent and not local.got)
            ),
            witness="the daemon proves itself",
            faults=("the local side is read before the handshake",),
            meaning="The local connection is read once the daemon has proved itself (f.2).",
        ),
        _edge(
            "only the pinned daemon gets past the handshake",
            {"near_reads"},
            lambda e: not _greets(e) or _greeted(e),
            "the daemon proves itself",
            ("any handshake will do for the client", "the daemon's promise is forgotten"),
            "Anything else breaks the client's end (f.2).",
        ),
        _some("the daemon proves itself", "near_reads", lambda e: _greets(e) and e.response == ()),
    ]

"""What must hold of a tunnel (contract f and j.4, with the names of its requirements)."""

from agentd.rules.tunnel import CloseCode, CloseFrame, Deliver, Do, Stage, Transmit
from checker.model import Edge
from checker.models.tunnel_client import client_properties
from checker.models.tunnel_opening import opening_properties
from checker.models.tunnel_terms import (
    CALLER,
    GUEST,
    Far,
    Party,
    Setting,
    actions,
    codes,
    far_after,
    far_before,
    head,
    stage,
)
from checker.properties import Always, EdgePredicate, Fair, LeadsTo, OnEdge, Property, SometimesOnEdge

STRIPPED = frozenset(
    {
        "AGENTD-20 the guest reads an end of file only after all of a caller that promised an end",
        "BIND-23 nothing unproven comes from a daemon that promises an end",
    }
)
"""What falls when the attacker can take the promise of an end of stream away."""

FINISHED = CloseFrame(CloseCode.FINISHED, "")


def properties(setting: Setting) -> tuple[Property, ...]:
    """Every property that can be asked in this setting."""
    found = [*_ends(setting), *_bytes(), *_progress(setting), *client_properties(setting)]
    found += _verified(setting) if setting.verified else []
    found += [] if setting.relaying else opening_properties(setting)
    return tuple(found)


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


# --- How it ends -------------------------------------------------------------------------------------------


def _relays(edge: Edge) -> bool:
    return stage(edge) is Stage.RELAYING


def _abandoned(edge: Edge) -> Do:
    """What becomes of the guest when its caller goes without an end."""
    far = far_before(edge)
    return Do.RESET if far is not None and far.tunnel.caller_offered else Do.SHUT


def _leaves(edge: Edge) -> bool:
    """Whether the caller goes, and not by an end of stream."""
    return stage(edge) in (Stage.DIALING, Stage.RELAYING) and head(edge, "up").kind in ("close", "lost")


def _left_alone(edge: Edge) -> bool:
    done = [action for action in actions(edge) if action in (Do.SHUT, Do.RESET)]
    return done == [_abandoned(edge)] and _over(edge)


def _violates(edge: Edge) -> bool:
    return head(edge, "up").kind == "violation"


def _violated(edge: Edge) -> bool:
    if stage(edge) is Stage.HANDSHAKE:
        return _over(edge) and codes(edge) == [CloseCode.HANDSHAKE]
    if far_after(edge).tunnel.verified:
        return edge.response == (_abandoned(edge), Do.DROP) and _over(edge)
    return actions(edge)[:1] == (Do.SHUT,) and codes(edge) == [CloseCode.PROTOCOL_ERROR] and _over(edge)


def _ends(setting: Setting) -> list[Property]:
    wrong = ("a broken promise is an end of file",) if setting.offers and setting.verified else ()
    wrong = wrong or ("everybody's end is a reset",)
    end = (Do.TRANSMIT_END, Do.SHUT, FINISHED) if setting.verified else (Do.SHUT, FINISHED)
    return [
        _edge(
            "AGENTD-19 the daemon's close after the guest's end follows its end of stream",
            {"guest_ends"},
            lambda e: (
                _is_end(e, end)
                if not setting.everything
                else _is_end(
                    e,
                    (Do.TRANSMIT_END, Do.SHUT, FINISHED)
                    if far_after(e).tunnel.verified
                    else (Do.SHUT, FINISHED),
                )
            ),
            "the guest ends",
            (
                ("the guest's end is not sent on", "the end of stream comes after the close")
                if setting.verified
                else ("the guest's end leaves it open",)
            ),
            "In a plain tunnel there is none (f.5).",
        ),
        _edge(
            "a guest that fails is told as a failure",
            {"guest_fails"},
            lambda e: _over(e) and codes(e) == [CloseCode.RELAY_FAILED] and len(actions(e)) == 1,
            "the guest fails",
            ("a failed guest is an end",),
            "4500, and no end of stream: what it sent is not all (f.5).",
        ),
        _edge(
            "a guest that takes no more ends the tunnel without an end of stream",
            {"guest_refuses"},
            lambda e: _over(e) and e.response == (FINISHED,),
            "the guest takes no more",
            ("a guest that refuses sends an end",),
            "Its own bytes may be lost with it (f.5).",
        ),
        _edge(
            "a caller who goes without an end cuts its stream",
            {"far_reads"},
            lambda e: not _leaves(e) or _left_alone(e),
            "a caller goes without an end",
            wrong,
            "The guest is reset if an end was promised, and reads an end of file if none was (f.5).",
        ),
        _edge(
            "a daemon that stops says so",
            {"stopping"},
            lambda e: _left_alone(e) and codes(e) == [CloseCode.STOPPING],
            "the daemon stops during the relay",
            ("a stop is silent", "a stop ends in good order", *wrong),
            "1001, and the guest is left as by a caller who goes (f.5).",
        ),
        _edge(
            "bytes that are no frame end the tunnel",
            {"far_reads"},
            lambda e: not _violates(e) or _violated(e),
            "bytes come that are no frame",
            ("a violation is ignored", "a violation is answered politely")
            if setting.verified
            else ("a violation is ignored",),
            "With RFC 6455's code, a refused handshake, or as what does not open (f.1).",
        ),
        _some("bytes come that are no frame", "far_reads", lambda e: _violates(e) and _relays(e)),
        _edge(
            "what comes for nothing does nothing at the daemon",
            {"late"},
            lambda e: e.response == () and far_before(e) == far_after(e),
            "something comes for nothing",
            ("a late byte is delivered", "a second stop is told", "the guest's end comes twice"),
            "All functions are total (f).",
        ),
        _some("the guest ends", "guest_ends"),
        _some("the guest fails", "guest_fails"),
        _some("the guest takes no more", "guest_refuses"),
        _some("a caller goes without an end", "far_reads", _leaves),
        _some("the daemon stops during the relay", "stopping", _relays),
        _some("something comes for nothing", "late", lambda e: stage(e) is Stage.OVER),
    ]


def _is_end(edge: Edge, end: tuple[object, ...]) -> bool:
    """Whether exactly this is done, and the tunnel is over."""
    return edge.response == end and _over(edge)


def _sealed(edge: Edge, data: bool) -> bool:
    """Whether a message is read that opens, with data in it or none."""
    far, frame = far_before(edge), head(edge, "up")
    if not _relays(edge) or far is None or not far.tunnel.verified:
        return False
    return frame.kind == "sealed" and frame.number == far.opened and bool(frame.data) is data


def _does_not_open(edge: Edge) -> bool:
    far, frame = far_before(edge), head(edge, "up")
    if not _relays(edge) or far is None or not far.tunnel.verified:
        return False
    return frame.kind not in ("close", "lost", "violation") and not (
        frame.kind == "sealed" and frame.number == far.opened
    )


def _verified(setting: Setting) -> list[Property]:
    found: list[Property] = []
    if setting.offers:
        found += [
            _edge(
                "the caller's end of stream ends the tunnel in good order",
                {"far_reads"},
                lambda e: not _sealed(e, False) or e.response == (Do.SHUT, FINISHED),
                "a whole upload ends in an end of file",
                ("the caller's end means nothing", "the caller's end resets"),
                "Everything is written, then the guest reads the end of file (f.5).",
            ),
            Always(
                name="the guest sees a reset only when the caller's stream was cut",
                reads=("far", "guest"),
                holds=lambda far, guest: (
                    guest is None
                    or guest.saw != "reset"
                    or (far.tunnel.caller_offered and not far.heard and not guest.ended)
                ),
                witness="a cut upload resets the guest",
                faults=("the caller's end resets", "the guest's end resets"),
                meaning="Not when the end came through, and not when it ended the tunnel itself (f.5).",
            ),
            _some(
                "a whole upload ends in an end of file",
                "far_reads",
                lambda e: _sealed(e, False) and _guest_after(e).got == CALLER,
            ),
            _some(
                "a cut upload resets the guest",
                "far_reads",
                lambda e: Do.RESET in actions(e) and _guest_after(e).saw == "reset",
            ),
        ]
        if setting.daemon_offers:
            found.append(
                Always(
                    name="AGENTD-20 the guest reads an end of file only after all of a caller that promised an end",
                    reads=("far", "guest", "local"),
                    holds=_whole if setting.relaying or setting.everything else _whole_offered,
                    witness="a whole upload ends in an end of file",
                    faults=("a broken promise is an end of file",),
                    meaning="Unless it ended the tunnel itself; then it waits for no more (f.5, j.4).",
                )
            )
    if setting.hostile:
        found += [
            _edge(
                "a message that does not open drops the tunnel",
                {"far_reads"},
                lambda e: not _does_not_open(e) or e.response == (_abandoned(e), Do.DROP),
                "a message does not open",
                ("a broken message is skipped", "a broken message is answered politely"),
                "Forged, replayed or out of order: nothing more can be believed (f.3).",
            ),
            _some("a message does not open", "far_reads", _does_not_open),
        ]
    return found


def _guest_after(edge: Edge) -> Party:
    """The guest's connection afterwards."""
    guest = edge.after["guest"]
    return guest if isinstance(guest, Party) else Party()


def _whole(far: Far | None, guest: Party | None, local: Party) -> bool:
    if far is None or guest is None or guest.saw != "eof" or guest.ended:
        return True
    return not far.tunnel.caller_offered or (local.ended and guest.got == CALLER[: local.said])


def _whole_offered(far: Far | None, guest: Party | None, local: Party) -> bool:
    """The same where every caller has promised, whether the daemon knows of it or not."""
    if far is None or guest is None or guest.saw != "eof" or guest.ended:
        return True
    return local.ended and guest.got == CALLER[: local.said]


# --- Bytes and progress ------------------------------------------------------------------------------------


def _delivers(edge: Edge) -> bool:
    far, frame = far_before(edge), head(edge, "up")
    if far is None or not _relays(edge):
        return True
    fits = _sealed(edge, True) if far.tunnel.verified else frame.kind == "plain" and bool(frame.data)
    return not fits or edge.response == (Deliver(frame.data),)


def _bytes() -> list[Property]:
    return [
        Always(
            name="AGENTD-21 the guest reads the caller's bytes in order and once",
            reads=("guest", "local"),
            holds=lambda guest, local: guest is None or CALLER[: local.said].startswith(guest.got),
            witness="the guest reads a byte",
            faults=("bytes come to the guest twice",),
            meaning="Whatever is dropped, replayed, swapped or forged on the way (f.3).",
        ),
        Always(
            name="BIND-24 the client writes the guest's bytes in order and once",
            reads=("guest", "local"),
            holds=lambda guest, local: (
                not local.got or (guest is not None and GUEST[: guest.said].startswith(local.got))
            ),
            witness="the client writes a byte",
            faults=("bytes come to the client twice",),
            meaning="The same at the other end (f.3).",
        ),
        _edge(
            "what opens is delivered",
            {"far_reads"},
            _delivers,
            "the guest reads a byte",
            ("the caller's bytes are swallowed", "bytes come to the guest twice"),
            "Every byte of it (f.4).",
        ),
        _edge(
            "what the guest says is sent on",
            {"guest_says"},
            lambda e: e.response == (Transmit(GUEST[_said(e) : _said(e) + 1]),),
            "the client writes a byte",
            ("the guest's bytes are swallowed",),
            "Every byte of it (f.4).",
        ),
        _some("the guest reads a byte", "far_reads", lambda e: bool(actions(e)) and _is_delivery(e)),
        _some("the client writes a byte", "near_reads", _is_delivery),
    ]


def _said(edge: Edge) -> int:
    guest = edge.before["guest"]
    return guest.said if isinstance(guest, Party) else 0


def _is_delivery(edge: Edge) -> bool:
    return any(isinstance(action, Deliver) for action in actions(edge))


def _progress(setting: Setting) -> list[Property]:
    found: list[Property] = [
        LeadsTo(
            name="a tunnel that is over at the daemon is over at the client",
            reads=("far", "near"),
            when=lambda far, near: far is not None and far.tunnel.stage is Stage.OVER,
            then=lambda far, near: near is not None and near.client.stage is Stage.OVER,
            fair=(Fair(frozenset({"near_reads"})),),
            witness="the guest ends",
            faults=("the daemon's close is not noticed",),
            meaning="Every end of the one reaches the other (f.5).",
        )
    ]
    if setting.hostile or not setting.relaying:
        found.append(
            LeadsTo(
                name="a tunnel that is over at the client is over at the daemon",
                reads=("far", "near"),
                when=lambda far, near: near is not None and near.client.stage is Stage.OVER,
                then=lambda far, near: far is not None and far.tunnel.stage is Stage.OVER,
                fair=(Fair(frozenset({"far_reads", "dialled", "dial_fails"})),),
                witness="the local side ends",
                faults=("a lost caller is not noticed",),
                meaning="And nothing keeps the guest's connection (f.5).",
            )
        )
    return found

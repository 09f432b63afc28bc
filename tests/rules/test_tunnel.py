"""The tunnel's decisions: every row of the contract, and what holds in every state after any events."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules import tunnel as rules
from agentd.rules.tunnel import (
    Client,
    ClientStep,
    CloseCode,
    CloseFrame,
    Deliver,
    Do,
    Stage,
    Step,
    Transmit,
    Tunnel,
    Verdict,
)

FINISHED = CloseFrame(1000, "")
HANDSHAKE = rules.opened(80, verified=True, seeded=True)[0]
PLAIN_DIALING = rules.opened(80, verified=False, seeded=False)[0]
PLAIN = rules.dialled(PLAIN_DIALING)[0]
PROMISED = rules.dialled(rules.shaken(HANDSHAKE, True)[0])[0]
UNPROMISED = rules.dialled(rules.shaken(HANDSHAKE, False)[0])[0]

EVENTS: dict[str, Callable[[Tunnel], Step]] = {
    "unbuildable": rules.unbuildable,
    "shaken, promising": lambda t: rules.shaken(t, True),
    "shaken, not promising": lambda t: rules.shaken(t, False),
    "handshake refused": lambda t: rules.handshake_refused(t, "why"),
    "dialled": rules.dialled,
    "dial failed": lambda t: rules.dial_failed(t, "has no listener"),
    "caller sent": lambda t: rules.caller_sent(t, b"c"),
    "caller sent nothing": lambda t: rules.caller_sent(t, b""),
    "caller broke": rules.caller_broke,
    "caller violated": lambda t: rules.caller_violated(t, 1002, "why"),
    "caller closed": rules.caller_closed,
    "caller lost": rules.caller_lost,
    "guest sent": lambda t: rules.guest_sent(t, b"g"),
    "guest ended": rules.guest_ended,
    "guest failed": rules.guest_failed,
    "guest refused": rules.guest_refused,
    "stopping": rules.stopping,
}
STATES = [
    Tunnel(port, verified, stage, promised)
    for port, verified, stage, promised in itertools.product((0, 80), (False, True), Stage, (False, True))
    if verified or (not promised and stage is not Stage.HANDSHAKE)
]

CLIENT_EVENTS: dict[str, Callable[[Client], ClientStep]] = {
    "shaken, promising": lambda c: rules.client_shaken(c, True),
    "shaken, not promising": lambda c: rules.client_shaken(c, False),
    "broke": rules.client_broke,
    "received": lambda c: rules.client_received(c, b"g"),
    "received nothing": lambda c: rules.client_received(c, b""),
    "local sent": lambda c: rules.local_sent(c, b"c"),
    "local ended": rules.local_ended,
    "local failed": rules.local_failed,
    "closed 1000": lambda c: rules.client_closed(c, 1000),
    "closed 4502": lambda c: rules.client_closed(c, 4502),
    "closed without a code": lambda c: rules.client_closed(c, None),
}


def texts(actions: tuple[Any, ...]) -> list[Any]:
    return [action.value if isinstance(action, Do) else action for action in actions]


# -- the order of checks ---------------------------------------------------------------------------------


def test_plain_dials_at_once() -> None:
    tunnel, actions = rules.opened(80, verified=False, seeded=True)
    assert (tunnel.stage, actions) == (Stage.DIALING, (Do.DIAL,))


def test_no_seed_comes_first() -> None:
    """4401 before anything else, a port 0 included."""
    for port in (0, 80):
        tunnel, (action,) = rules.opened(port, verified=True, seeded=False)
        assert tunnel.stage is Stage.OVER
        assert isinstance(action, CloseFrame)
        assert action.code == 4401
        assert "launched without" in action.reason


def test_port_0_comes_after_the_handshake() -> None:
    tunnel, (action,) = rules.opened(0, verified=False, seeded=False)
    assert tunnel.stage is Stage.OVER
    assert isinstance(action, CloseFrame)
    assert action.code == 4400
    assert "port 0" in action.reason

    tunnel, actions = rules.opened(0, verified=True, seeded=True)
    assert (tunnel.stage, actions) == (Stage.HANDSHAKE, ())
    tunnel, (reply, close) = rules.shaken(tunnel, True)
    assert tunnel.stage is Stage.OVER
    assert reply is Do.REPLY
    assert isinstance(close, CloseFrame)
    assert close.code == 4400


def test_the_handshake_comes_before_the_dial() -> None:
    assert rules.opened(80, verified=True, seeded=True) == (HANDSHAKE, ())
    tunnel, actions = rules.shaken(HANDSHAKE, True)
    assert (tunnel.stage, tunnel.caller_offered, actions) == (Stage.DIALING, True, (Do.REPLY, Do.DIAL))
    assert rules.shaken(HANDSHAKE, False)[0].caller_offered is False


@pytest.mark.parametrize(
    ("step", "code", "says"),
    [
        (rules.handshake_refused(HANDSHAKE, "none came within 10 s"), 4403, "none came within 10 s"),
        (rules.caller_closed(HANDSHAKE), 4403, "left"),
        (rules.caller_violated(HANDSHAKE, 1002, "not frames"), 4403, "not frames"),
        (rules.unbuildable(HANDSHAKE), 4500, "identity"),
        (rules.dial_failed(PLAIN_DIALING, "has no listener"), 4502, "port 80 has no listener"),
        (rules.guest_failed(PLAIN), 4500, "port 80"),
        (rules.guest_failed(PROMISED), 4500, "port 80"),
        (rules.guest_refused(PLAIN), 1000, ""),
        (rules.guest_refused(PROMISED), 1000, ""),
    ],
)
def test_ends_with_a_close_frame_alone(step: Step, code: int, says: str) -> None:
    """Nothing but a close frame: no end of stream (contract f.2), no connection to close."""
    tunnel, (action,) = step
    assert tunnel.stage is Stage.OVER
    assert isinstance(action, CloseFrame)
    assert action.code == code
    assert says in action.reason
    assert bool(action.reason) is (code != 1000)


def test_a_caller_lost_in_the_handshake_leaves_nothing() -> None:
    assert texts(rules.caller_lost(HANDSHAKE)[1]) == []


# -- relaying and its ends -------------------------------------------------------------------------------


@pytest.mark.parametrize("tunnel", [PLAIN, PROMISED, UNPROMISED])
def test_relays(tunnel: Tunnel) -> None:
    assert rules.caller_sent(tunnel, b"up") == (tunnel, (Deliver(b"up"),))
    assert rules.guest_sent(tunnel, b"down") == (tunnel, (Transmit(b"down"),))


def test_an_empty_frame_is_nothing_or_the_end() -> None:
    assert rules.caller_sent(PLAIN, b"") == (PLAIN, ())
    for tunnel in (PROMISED, UNPROMISED):
        over, actions = rules.caller_sent(tunnel, b"")
        assert (over.stage, actions) == (Stage.OVER, (Do.SHUT, FINISHED))


@pytest.mark.parametrize(
    ("tunnel", "event", "actions"),
    [
        (PLAIN, "guest ended", ["shut", FINISHED]),
        (PROMISED, "guest ended", ["transmit_end", "shut", FINISHED]),
        (UNPROMISED, "guest ended", ["transmit_end", "shut", FINISHED]),
        (PLAIN, "caller closed", ["shut", FINISHED]),
        (PROMISED, "caller closed", ["reset", FINISHED]),
        (UNPROMISED, "caller closed", ["shut", FINISHED]),
        (PLAIN, "caller lost", ["shut"]),
        (PROMISED, "caller lost", ["reset"]),
        (UNPROMISED, "caller lost", ["shut"]),
        (PLAIN, "caller violated", ["shut", CloseFrame(1002, "why")]),
        (PROMISED, "caller violated", ["reset", "drop"]),
        (UNPROMISED, "caller violated", ["shut", "drop"]),
        (PROMISED, "caller broke", ["reset", "drop"]),
        (UNPROMISED, "caller broke", ["shut", "drop"]),
        (PLAIN, "stopping", ["shut", CloseFrame(1001, "the daemon is stopping")]),
        (PROMISED, "stopping", ["reset", CloseFrame(1001, "the daemon is stopping")]),
        (UNPROMISED, "stopping", ["shut", CloseFrame(1001, "the daemon is stopping")]),
        (PLAIN_DIALING, "caller closed", ["shut", FINISHED]),
        (PLAIN_DIALING, "caller lost", ["shut"]),
    ],
)
def test_ends(tunnel: Tunnel, event: str, actions: list[Any]) -> None:
    over, done = EVENTS[event](tunnel)
    assert over.stage is Stage.OVER
    assert texts(done) == actions


# -- laws of the daemon's end ----------------------------------------------------------------------------


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("tunnel", STATES, ids=str)
def test_every_event_in_every_state(tunnel: Tunnel, event: str) -> None:
    after, actions = EVENTS[event](tunnel)
    order = list(Stage)
    assert order.index(after.stage) >= order.index(tunnel.stage), "a tunnel never goes back"
    assert (after.port, after.verified) == (tunnel.port, tunnel.verified)
    assert Do.GREET not in actions
    if tunnel.stage is Stage.OVER:
        assert (after, actions) == (tunnel, ())
    if after.stage is not Stage.OVER:
        assert not any(isinstance(action, CloseFrame) or action is Do.DROP for action in actions)
    if Do.DIAL in actions:
        assert after.stage is Stage.DIALING
        assert tunnel.stage is Stage.HANDSHAKE, "AGENTD-18"
    for action in actions:
        if isinstance(action, Deliver | Transmit):
            assert tunnel.stage is after.stage is Stage.RELAYING
        if isinstance(action, CloseFrame):
            assert action is actions[-1], "nothing follows a close frame"
            assert len(action.reason.encode()) <= 123
            assert action.code in set(CloseCode)


@given(
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 80]),
    st.lists(st.sampled_from(sorted(EVENTS)), max_size=12),
)
def test_any_history(verified: bool, seeded: bool, port: int, events: list[str]) -> None:
    """AGENTD-18, 19, 20: over every history, dial after handshake, end before close, reset for a broken promise."""
    tunnel, actions = rules.opened(port, verified=verified, seeded=seeded)
    done = list(actions)
    happened: list[str] = []
    for event in events:
        tunnel, actions = EVENTS[event](tunnel)
        if actions:
            happened.append(event)
        done += actions
    assert sum(action is Do.DIAL for action in done) <= 1
    assert sum(isinstance(action, CloseFrame) or action is Do.DROP for action in done) <= 1
    assert sum(action in (Do.SHUT, Do.RESET) for action in done) <= 1
    if Do.DIAL in done and verified:
        assert done.index(Do.REPLY) < done.index(Do.DIAL)
    if "guest ended" in happened and verified:
        assert done[-3:] == [Do.TRANSMIT_END, Do.SHUT, FINISHED]
    if Do.SHUT in done and "shaken, promising" in happened:
        assert "caller sent nothing" in happened or "guest ended" in happened
    if Do.RESET in done:
        assert "shaken, promising" in happened
        assert "caller sent nothing" not in happened


# -- the client's end ------------------------------------------------------------------------------------


def client(verified: bool = True, promised: bool = True, offers: bool = True) -> Client:
    opened, _ = rules.client_opened(verified=verified, offers=offers)
    return rules.client_shaken(opened, promised)[0]


def test_client_opens() -> None:
    opened, actions = rules.client_opened(verified=True)
    assert (opened.stage, actions) == (Stage.HANDSHAKE, (Do.GREET,))
    opened, actions = rules.client_opened(verified=False)
    assert (opened.stage, actions) == (Stage.RELAYING, ())


def test_no_local_byte_before_the_key_is_proved() -> None:
    """BIND-21."""
    opened, _ = rules.client_opened(verified=True)
    assert rules.local_sent(opened, b"secret") == (opened, ())
    assert rules.client_received(opened, b"forged") == (opened, ())


def test_client_relays() -> None:
    for end in (client(), client(verified=False), client(promised=False)):
        assert rules.local_sent(end, b"up") == (end, (Transmit(b"up"),))
        assert rules.client_received(end, b"down") == (end, (Deliver(b"down"),))
    assert rules.client_received(client(verified=False), b"") == (client(verified=False), ())


@pytest.mark.parametrize(
    ("end", "event", "verdict", "actions"),
    [
        (client(), "received nothing", Verdict.CLOSED, ["shut", FINISHED]),
        (client(promised=False), "received nothing", Verdict.CLOSED, ["shut", FINISHED]),
        (client(), "closed 1000", Verdict.TRUNCATED, ["reset"]),
        (client(), "closed without a code", Verdict.TRUNCATED, ["reset"]),
        (client(), "closed 4502", Verdict.REFUSED, ["reset"]),
        (client(promised=False), "closed 1000", Verdict.CLOSED_UNPROVEN, ["shut"]),
        (client(promised=False), "closed without a code", Verdict.CLOSED_UNPROVEN, ["shut"]),
        (client(promised=False), "closed 4502", Verdict.REFUSED, ["reset"]),
        (client(verified=False), "closed 1000", Verdict.CLOSED_UNPROVEN, ["shut"]),
        (client(verified=False), "closed without a code", Verdict.TRUNCATED, ["reset"]),
        (client(verified=False), "closed 4502", Verdict.REFUSED, ["reset"]),
        (client(), "broke", Verdict.BROKEN, ["reset", "drop"]),
        (rules.client_opened(verified=True)[0], "broke", Verdict.BROKEN, ["reset", "drop"]),
        (rules.client_opened(verified=True)[0], "closed 1000", Verdict.BROKEN, ["reset"]),
        (rules.client_opened(verified=True)[0], "closed without a code", Verdict.BROKEN, ["reset"]),
        (rules.client_opened(verified=True)[0], "closed 4502", Verdict.REFUSED, ["reset"]),
        (rules.client_opened(verified=True)[0], "local ended", Verdict.LEFT, ["shut", "drop"]),
        (rules.client_opened(verified=True)[0], "local failed", Verdict.LEFT, ["drop"]),
        (rules.local_ended(client())[0], "closed 1000", Verdict.LEFT, ["shut"]),
        (rules.local_ended(client())[0], "received nothing", Verdict.CLOSED, ["shut", FINISHED]),
        (rules.local_ended(client())[0], "closed 4502", Verdict.REFUSED, ["reset"]),
        (rules.local_failed(client())[0], "closed 1000", Verdict.LEFT, ["shut"]),
    ],
)
def test_verdicts(end: Client, event: str, verdict: Verdict, actions: list[Any]) -> None:
    over, done = CLIENT_EVENTS[event](end)
    assert (over.stage, over.verdict) == (Stage.OVER, verdict)
    assert texts(done) == actions


def test_client_leaves() -> None:
    """A promised end goes before the close frame, which an older daemon needs; a broken upload sends none."""
    assert texts(rules.local_ended(client())[1]) == ["transmit_end", FINISHED]
    assert texts(rules.local_ended(client(offers=False))[1]) == [FINISHED]
    assert texts(rules.local_ended(client(verified=False))[1]) == [FINISHED]
    assert texts(rules.local_failed(client())[1]) == [FINISHED]
    left, _ = rules.local_ended(client())
    assert rules.local_sent(left, b"late") == (left, ())
    assert rules.local_ended(left) == rules.local_failed(left) == (left, ())
    assert rules.client_received(left, b"still wanted") == (left, (Deliver(b"still wanted"),))


@given(st.booleans(), st.booleans(), st.lists(st.sampled_from(sorted(CLIENT_EVENTS)), max_size=12))
def test_any_client_history(verified: bool, offers: bool, events: list[str]) -> None:
    """BIND-23: whatever happens, Closed needs the end of stream, and ClosedUnproven a daemon that promised none."""
    end, actions = rules.client_opened(verified=verified, offers=offers)
    done = list(actions)
    happened: list[str] = []
    for event in events:
        before = end
        end, actions = CLIENT_EVENTS[event](end)
        done += actions
        if (end, actions) != (before, ()):
            happened.append(event)
        if before.stage is Stage.OVER:
            assert (end, actions) == (before, ())
    assert (end.verdict is None) is (end.stage is not Stage.OVER)
    if end.verdict is Verdict.CLOSED:
        assert verified
        assert happened[-1] == "received nothing"
    if end.verdict is Verdict.CLOSED_UNPROVEN:
        assert not end.daemon_offered
        assert not verified or "shaken, not promising" in happened
    if end.verdict is Verdict.LEFT:
        assert "local ended" in happened or "local failed" in happened
    if Do.TRANSMIT_END in done:
        assert verified
        assert offers
        assert "local failed" not in happened[: happened.index("local ended")]
    assert sum(action in (Do.SHUT, Do.RESET) for action in done) <= 1


# -- the wire --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "promises"),
    [(b"", False), (b"\x00", False), (b"\x01", True), (b"\xff", True), (b"\xfe", False), (b"\x01more", True)],
)
def test_flags(payload: bytes, promises: bool) -> None:
    """Contract f.2: an empty payload is an older peer; unknown bits and bytes mean nothing."""
    assert rules.offered(payload) is promises
    assert rules.flags(True) == b"\x01"
    assert rules.flags(False) == b""


@given(st.text(max_size=200))
def test_reasons_fit(reason: str) -> None:
    fitted = rules.fit(reason)
    assert len(fitted.encode()) <= 123
    assert reason.startswith(fitted)
    assert fitted == reason or len(fitted.encode()) > 119, "cut no earlier than a character's edge"

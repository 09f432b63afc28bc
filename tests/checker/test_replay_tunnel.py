"""Replay of tunnels: that the daemon does what the model says, and that one made wrong is found out."""

from collections.abc import Callable, Mapping

import pytest

from agentd.client import tunnel
from agentd.client.websocket import Socket
from agentd.rules import tunnel as rules
from agentd.rules.tunnel import Do, Stage
from agentd.tunnel import guest, noise
from agentd.tunnel.guest import Guest
from agentd.tunnel.relay import Relay
from agentd.tunnel.websocket import PeerSocket
from checker import models
from checker.cli import main
from checker.replay import edges
from checker.replay.adapters import adapter
from checker.replay.adapters.tunnel import BY_HAND, LIBRARY
from checker.replay.adapters.tunnel_path import STRANGER
from checker.replay.adapters.tunnel_seals import SEED
from checker.replay.tours import Graph, explore, graph
from tests.checker.replaying import MOST, first_divergence

Plant = Callable[[pytest.MonkeyPatch], None]


def test_both_ends_do_what_the_model_says() -> None:
    by_hand, library = edges.replay(["tunnel:plain"], edges.Extent(MOST), jobs=1)
    for found in (by_hand, library):
        assert found.divergences == ()
        assert found.complete
        assert found.steps >= found.edges > 0
    assert (by_hand.variant, library.variant) == (BY_HAND, LIBRARY)


def test_the_library_always_promises_an_end() -> None:
    assert adapter("tunnel").ways(models.load("tunnel:older_caller")) == (BY_HAND,)


@pytest.mark.parametrize("variant", [BY_HAND, LIBRARY])
def test_what_nobody_can_see_is_done_once(variant: str) -> None:
    """Every event of an end is replayed with whatever that end can see: itself, what comes, and who is behind it."""
    kind = adapter("tunnel")
    model = models.load("tunnel:plain")
    names = [component.name for component in model.components]
    whole, runs = edges.plan(model, variant, MOST)
    every = graph(explore(model, [kind.can(event, True, variant) for event in model.events], MOST))

    def look(of: Graph, node: int, number: int) -> tuple[object, ...]:
        event = model.events[of.ways[node][number].event]
        values = dict(zip(names, of.values[node], strict=True))
        return event.name, *(values[name] for name in kind.sees(event) or ())

    wanted = {
        look(every, node, number)
        for node, ways in enumerate(every.ways)
        for number, way in enumerate(ways)
        if kind.wants(model.events[way.event], variant)
    }
    done = {look(whole, node, number) for run in runs for node, number in run}
    assert done >= wanted
    assert len(wanted) == whole.edges < every.edges / 3


def test_a_daemon_of_another_version_is_not_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert "tunnel:older_daemon" not in edges.replayable()
    assert main(["replay", "tunnel:older_daemon"]) == 2
    told = capsys.readouterr().err
    assert told == "checker: tunnel:older_daemon is about a daemon of another version than this\n"


def test_a_defence_that_is_off_in_the_model_is_on_in_the_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "tunnel:daemon_needs_no_end", "--jobs", "1"]) == 5
    assert "the model has (b'', 'eof'), the daemon (b'', 'reset')" in capsys.readouterr().out


# --- Daemons made wrong -------------------------------------------------------------------------------------


def _instead(patch: pytest.MonkeyPatch, doing: Do, does: Callable[[Relay], None]) -> None:
    doings: Mapping[Do, Callable[[Relay], None]] = {**Relay._DOINGS, doing: does}
    patch.setattr(Relay, "_DOINGS", doings)


def _dials_at_once(patch: pytest.MonkeyPatch) -> None:
    right = Relay._await_handshake

    def await_handshake(self: Relay) -> None:
        right(self)
        self._dial()

    patch.setattr(Relay, "_await_handshake", await_handshake)


def _trusts_a_stranger(patch: pytest.MonkeyPatch) -> None:
    stranger = noise.public_key(STRANGER)
    patch.setattr(noise, "responder", lambda seed, host: noise.Handshake(False, SEED, stranger, b"", None))


def _half_an_upload_is_whole(patch: pytest.MonkeyPatch) -> None:
    _instead(patch, Do.RESET, Relay._shut)


def _ends_without_an_end(patch: pytest.MonkeyPatch) -> None:
    _instead(patch, Do.TRANSMIT_END, lambda relay: None)


def _talks_in_clear(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relay, "_transmit", lambda self, data: self.sendMessage(data, True))


def _skips_what_does_not_open(patch: pytest.MonkeyPatch) -> None:
    right = Relay._refuse

    def refuse(self: Relay, why: str) -> None:
        if self.stage is not Stage.RELAYING:
            right(self, why)

    patch.setattr(Relay, "_refuse", refuse)


def _opens_twice(patch: pytest.MonkeyPatch) -> None:
    """A replayed message opens again."""
    right = Relay._reply

    def reply(self: Relay) -> None:
        right(self)
        assert self._session is not None
        cipher, seen = self._session._receiving, dict[bytes, bytes]()

        class Forgetful:
            def open(self, message: bytes) -> bytes:
                if message not in seen:
                    seen[message] = cipher.open(message)
                return seen[message]

        patch.setattr(self._session, "_receiving", Forgetful())

    _instead(patch, Do.REPLY, reply)


def _listens_while_it_dials(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PeerSocket, "hold", lambda self: None)


def _stays_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PeerSocket, "release", lambda self: None)


def _dials_somewhere_else(patch: pytest.MonkeyPatch) -> None:
    right = guest.dial
    patch.setattr(guest, "dial", lambda owner, port, *rest: right(owner, port + 1, *rest))


def _keeps_the_guest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guest, "shut", lambda self: None)


def _a_failure_is_an_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Relay, "guest_failed", lambda self, writing: self._carry_out(rules.guest_ended(self._tunnel))
    )


def _a_refusal_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    right = Relay.guest_failed
    patch.setattr(Relay, "guest_failed", lambda self, writing: right(self, False))


def _hears_a_guest_that_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guest, "dataReceived", lambda self, data: self._owner._transmit(data))


def _stops_without_a_word(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relay, "stop", PeerSocket.hang_up)


def _goes_on_dialling(patch: pytest.MonkeyPatch) -> None:
    def shut(self: Relay) -> None:
        if self._dialing is None and self._guest is not None:
            self._guest.shut()

    _instead(patch, Do.SHUT, shut)


def _is_never_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relay, "_check_over", lambda self: None)


def _waits_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """Timers of a tunnel outlive it."""
    patch.setattr(PeerSocket, "expect_nothing", lambda self: None)


def _takes_a_cut_for_an_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tunnel.Tunnel, "_over", lambda self: b"")


def _goes_without_an_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tunnel.Tunnel, "end", lambda self: self._socket.say_close(1000, ""))


def _breaks_in_good_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tunnel.Tunnel, "fail", tunnel.Tunnel.end)


def _trusts_anybody(patch: pytest.MonkeyPatch) -> None:
    right = tunnel.Tunnel.shaken

    def shaken(self: tunnel.Tunnel, handshake: noise.Handshake, reply: bytes) -> None:
        state = self._state
        try:
            right(self, handshake, reply)
        except tunnel.TunnelRefused:
            self._state, _ = rules.client_shaken(state, True)

    patch.setattr(tunnel.Tunnel, "shaken", shaken)


def _stays_on_a_broken_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Socket, "abort", lambda self: None)


def _hears_no_reasons(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tunnel.Tunnel, "_closed", lambda self: self._take(rules.client_closed(self._state, None)))


WRONG_LIBRARY: tuple[tuple[Plant, str, str, int], ...] = (
    (_takes_a_cut_for_an_end, "tunnel:relay", "near_reads", 2),
    (_goes_without_an_end, "tunnel:relay", "local_ends", 1),
    (_breaks_in_good_order, "tunnel:relay", "local_fails", 1),
    (_trusts_anybody, "tunnel:handshake", "near_reads", 3),
    (_stays_on_a_broken_line, "tunnel:relay", "near_reads", 2),
    (_hears_no_reasons, "tunnel:relay", "near_reads", 2),
)


@pytest.mark.parametrize(
    ("plant", "key", "kind", "most"),
    WRONG_LIBRARY,
    ids=[plant.__name__.strip("_") for plant, *_ in WRONG_LIBRARY],
)
def test_a_client_made_wrong_is_found_out(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, key: str, kind: str, most: int
) -> None:
    plant(monkeypatch)
    found = first_divergence(key, LIBRARY)
    assert found is not None
    names = [step.event.name for step in found.trace.steps]
    assert len(names) <= most, (names, found.differences)
    assert found.trace.steps[-1].event.kind == kind


WRONG: tuple[tuple[Plant, str, str, int], ...] = (
    (_dials_at_once, "tunnel:handshake", "open", 1),
    (_trusts_a_stranger, "tunnel:handshake", "far_reads", 2),
    (_half_an_upload_is_whole, "tunnel:relay", "stopping", 1),
    (_ends_without_an_end, "tunnel:relay", "guest_ends", 1),
    (_talks_in_clear, "tunnel:relay", "guest_says", 1),
    (_skips_what_does_not_open, "tunnel:relay", "far_reads", 2),
    (_opens_twice, "tunnel:relay", "far_reads", 4),
    (_listens_while_it_dials, "tunnel:handshake", "open", 1),
    (_stays_held, "tunnel:handshake", "dialled", 2),
    (_dials_somewhere_else, "tunnel:handshake", "open", 1),
    (_keeps_the_guest, "tunnel:plain", "stopping", 1),
    (_a_failure_is_an_end, "tunnel:plain", "guest_fails", 1),
    (_a_refusal_is_a_failure, "tunnel:plain", "guest_refuses", 1),
    (_hears_a_guest_that_is_gone, "tunnel:plain", "stopping", 1),
    (_stops_without_a_word, "tunnel:plain", "stopping", 1),
    (_goes_on_dialling, "tunnel:handshake", "stopping", 2),
    (_is_never_over, "tunnel:plain", "", 0),
    (_waits_for_nothing, "tunnel:plain", "stopping", 1),
)


@pytest.mark.parametrize(
    ("plant", "key", "kind", "most"), WRONG, ids=[plant.__name__.strip("_") for plant, *_ in WRONG]
)
def test_a_daemon_made_wrong_is_found_out(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, key: str, kind: str, most: int
) -> None:
    plant(monkeypatch)
    found = first_divergence(key, BY_HAND)
    assert found is not None
    assert found.differences
    names = [step.event.name for step in found.trace.steps]
    assert found.shortest
    assert len(names) <= most, (names, found.differences)
    assert [step.event.kind for step in found.trace.steps][-1:] == ([kind] if kind else [])

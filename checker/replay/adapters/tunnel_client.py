"""The client's end of a tunnel in replay: the model's, with real seals, or the client library's."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, cast

from agentd.rules.tunnel import Action, CloseCode, Stage
from checker.models.tunnel_ends import client_does, opens
from checker.models.tunnel_terms import CALLER, ENDED, Frame, Frames, Near, Party
from checker.replay.adapter import compared
from checker.replay.adapters.tunnel_library import Library, sent_as, shown
from checker.replay.adapters.tunnel_path import IMPOSTOR, OnPath
from checker.replay.adapters.tunnel_seals import End
from checker.replay.websocket import BINARY, CLOSE, close, close_code, frame
from checker.result import Step

Values = Mapping[str, Hashable]

AT_CLIENT: Final = frozenset({"near_reads", "local_says", "local_ends", "local_fails"})
"""Events of this end."""


class AtClient(OnPath):
    """What happens at the client's end, and what it sends."""

    verified: bool = False
    client: End
    twin: End
    """Opens what the daemon sends when it does, for the attacker may keep it from the client."""
    library: Library | None = None
    """The library's end, in place of the model's."""
    names_of: list[str]
    """The components of the model."""

    def before(self, step: Step) -> dict[str, Hashable]:
        """The components before a step."""
        return dict(zip(self.names_of, step.before, strict=True))

    def on_near_reads(self, step: Step, values: Values) -> Iterator[str]:
        """The client reads a frame, which says what the model says, or does not open."""
        before = self.before(step)
        expected = _read(cast("Near", before["near"]), cast("Frames", before["down"])[0])
        one = self.down.pop(0)
        if one == (BINARY, IMPOSTOR) and not self.verified:
            one = BINARY, b""  # in clear there are no keys that it could want to pass for
        if self.library is not None:
            self.library.read(one)
            if values["down"] == ENDED:
                self.down.clear()
            yield from self._library_did(step, values)
            return
        if one is None:
            found: str | bytes | None = "lost"
        elif one[0] == CLOSE:
            found = f"close {close_code(one[1])}"
        else:
            found = self.client.read(one[1]) if self.verified else one[1]
        yield from compared("what the client reads", expected, found)
        if values["down"] == ENDED:
            self.down.clear()
        yield from self._client_did(step, values)

    def on_local_says(self, step: Step, values: Values) -> Iterator[str]:
        """The local side sends a byte, which the library's client does not take before there is a tunnel."""
        if self.library is not None and self.library.tunnel is not None:
            self.library.says(CALLER)
        yield from self._client_did(step, values)

    def on_local_ends(self, step: Step, values: Values) -> Iterator[str]:
        """It sends its last."""
        if self.library is not None:
            self.library.ends(broken=False)
        yield from self._client_did(step, values)

    def on_local_fails(self, step: Step, values: Values) -> Iterator[str]:
        """It breaks."""
        if self.library is not None:
            self.library.ends(broken=True)
        yield from self._client_did(step, values)

    def _client_did(self, step: Step, values: Values) -> Iterator[str]:
        """Send what the model's client has sent."""
        if self.library is not None:
            yield from self._library_did(step, values)
            return
        after = cast("Frames", values["up"])
        if after == ENDED:
            return
        for one in after[len(cast("Frames", self.before(step)["up"])) :]:
            self.up.append(self._made(one))
        yield from compared("frames on their way to the daemon", len(after), len(self.up))

    def _made(self, one: Frame) -> bytes | None:
        """A frame of the client's."""
        if one.kind == "lost":
            return None
        if one.kind == "close":
            return close(one.code or CloseCode.FINISHED)
        if one.kind == "hello":
            greeting = self.client.greet(bool(one.data))
            self.twin = self.client.twin()
            return frame(BINARY, greeting)
        return frame(BINARY, self.client.seal(one.data) if one.kind == "sealed" else one.data)

    def _library_did(self, step: Step, values: Values) -> Iterator[str]:
        """What the library's client has sent on this step."""
        assert self.library is not None
        before, after = self.before(step), cast("Near", values["near"])
        if step.event.kind == "open":
            expected = cast("Frames", values["up"])[len(cast("Frames", before["up"])) :]
        else:
            then = after.client, cast("tuple[Action, ...]", step.response)
            _, expected, _ = client_does(cast("Near", before["near"]), (), Party(), then)
        closed = isinstance(before["near"], Near) and before["near"].closed
        found = sent_as(expected, closed, self.library.sent())
        told = [shown(one) for one in found]
        yield from compared("what the client sends", [_sent(one) for one in expected], told)
        if values["up"] != ENDED:
            self.up += found


def _sent(one: Frame) -> str:
    """A frame of the model's client."""
    return f"close {one.code}" if one.kind == "close" else "end" if one.kind == "lost" else "message"


def _read(near: Near, one: Frame) -> str | bytes | None:
    """What the client takes a frame for."""
    if one.kind == "lost":
        return "lost"
    if one.kind == "close":
        return f"close {one.code}"
    if not near.client.verified:
        return one.data
    if near.client.stage is Stage.HANDSHAKE:
        return one.data if (one.kind, one.key) == ("reply", "host") else None
    return one.data if opens(one, near.opened) else None

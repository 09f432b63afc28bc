"""What is on its way between the ends of a tunnel, and what an attacker there does to it: two queues of real frames."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

from agentd.rules.tunnel import CloseCode
from agentd.tunnel import noise
from checker.replay.adapter import Adapter
from checker.replay.websocket import BINARY, CLOSE, close, frame
from checker.result import Step

Values = Mapping[str, Hashable]

STRANGER: Final = bytes(range(64, 96))
"""Somebody's secret, whom neither end knows."""
FORGED: Final = bytes(64)
"""Long enough for a message of either kind."""
IMPOSTOR: Final = noise.public_key(STRANGER) + bytes(17)
"""An answer to a handshake as somebody makes it who cannot read that."""
VIOLATION: Final = b"\x83\x80" + bytes(4)
"""A frame of a kind that there is not (RFC 6455 5.2)."""
ATTACKS: Final = frozenset(
    {"drop", "replay", "swap", "forge", "impostor", "forge_close", "violate", "hang_up"}
)
Sent = tuple[int, bytes]
"""A frame of the daemon's: its opcode and payload."""


class OnPath(Adapter):
    """The two directions, and the attacker's events."""

    up: list[bytes | None]
    """Bytes on their way to the daemon, None for the end of the connection."""
    down: list[Sent | None]
    """The same on their way to the client."""

    def _way(self, step: Step) -> list[Any]:
        return self.up if step.event.args["way"] == "up" else self.down

    def on_drop(self, step: Step, values: Values) -> Iterator[str]:
        """The next frame does not arrive."""
        del self._way(step)[0]
        return iter(())

    def on_replay(self, step: Step, values: Values) -> Iterator[str]:
        """It arrives twice."""
        way = self._way(step)
        way.insert(0, way[0])
        return iter(())

    def on_swap(self, step: Step, values: Values) -> Iterator[str]:
        """It arrives after the one behind it."""
        way = self._way(step)
        way[0], way[1] = way[1], way[0]
        return iter(())

    def on_forge(self, step: Step, values: Values) -> Iterator[str]:
        """A message that nobody sealed comes before it."""
        self._insert(step, frame(BINARY, FORGED), (BINARY, FORGED))
        return iter(())

    def on_impostor(self, step: Step, values: Values) -> Iterator[str]:
        """Somebody else answers the handshake."""
        self._insert(step, b"", (BINARY, IMPOSTOR))
        return iter(())

    def on_forge_close(self, step: Step, values: Values) -> Iterator[str]:
        """A close frame that nobody sent comes before it."""
        data = int(CloseCode.FINISHED).to_bytes(2)
        self._insert(step, close(CloseCode.FINISHED), (CLOSE, data))
        return iter(())

    def on_violate(self, step: Step, values: Values) -> Iterator[str]:
        """What is no frame comes before it."""
        self._insert(step, VIOLATION, (0, b""))
        return iter(())

    def _insert(self, step: Step, up: bytes, down: Sent) -> None:
        self._way(step).insert(0, up if step.event.args["way"] == "up" else down)

    def on_hang_up(self, step: Step, values: Values) -> Iterator[str]:
        """The connection ends there, with all that was on its way."""
        self._way(step)[:] = [None]
        return iter(())

"""One producer of bytes, seen from the transport that they are written to."""

from collections.abc import Callable

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer


@implementer(IPushProducer)
class Valve:
    """Passes a transport's wish for less, or for more, on to two functions."""

    def __init__(self, shut: Callable[[], None], opened: Callable[[], None]) -> None:
        self.pauseProducing = shut
        self.resumeProducing = opened

    def stopProducing(self) -> None:
        """The connection is going; its protocol hears of it by `connectionLost`."""

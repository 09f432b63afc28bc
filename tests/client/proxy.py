"""An endpoint proxy on loopback that enforces what a platform's does, and the control plane that mints for it.

Every request needs a token that was minted for the port it names: else 403. A port where nothing listens is 502.
A WebSocket names both in its offered subprotocols, and whatever is wrong with it drops the connection without a
word, which a client sees as 1006. One request a connection, so that each one is judged.
"""

from typing import Any

from twisted.internet import protocol, reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint


class ControlPlane:
    """Mints tokens and remembers what each is for."""

    def __init__(self) -> None:
        self.asked: list[frozenset[int]] = []
        self.scopes: dict[str, frozenset[int]] = {}
        self.hold: Deferred[None] | None = None
        self.fault: Exception | None = None

    async def mint(self, ports: frozenset[int]) -> dict[str, str]:
        """The minter that a client is given."""
        self.asked.append(ports)
        token = f"proxytoken{len(self.asked)}"
        if self.hold is not None:
            await self.hold
        if self.fault is not None:
            raise self.fault
        self.scopes[token] = ports
        return {"x-AWS-proxy-auth": token, "X-Extra": "kept"}

    def allows(self, token: str | None, port: int) -> bool:
        """Whether the token opens the port."""
        return token is not None and port in self.scopes.get(token, ())


class Proxy:
    """The proxy.

    Args:
        control: who minted the tokens.
        ports: the VM's ports, and where they really are.
    """

    def __init__(self, control: ControlPlane, ports: dict[int, int]) -> None:
        self.control = control
        self.ports = ports
        self.heads: list[str] = []
        self.open: list[Any] = []
        self._listening: Any = None

    def listen(self) -> str:
        factory = protocol.Factory.forProtocol(lambda: _Front(self))
        factory.noisy = False
        self._listening = reactor.listenTCP(0, factory, interface="127.0.0.1")
        return f"http://127.0.0.1:{self._listening.getHost().port}"

    async def close(self) -> None:
        await maybeDeferred(self._listening.stopListening)
        for transport in self.open:
            transport.abortConnection()


class _Front(protocol.Protocol):
    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.buffer = b""
        self.back: Any = None
        self.judged = False

    def connectionMade(self) -> None:
        self.proxy.open.append(self.transport)

    def dataReceived(self, data: bytes) -> None:
        if self.back is not None:
            self.back.write(data)
            return
        self.buffer += data
        if not self.judged and b"\r\n\r\n" in self.buffer:
            self.judged = True
            self._judge()

    def _judge(self) -> None:
        head = self.buffer.partition(b"\r\n\r\n")[0].decode("latin-1")
        self.proxy.heads.append(head)
        request, *lines = head.split("\r\n")
        fields = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        if fields.get("upgrade", "").lower() == "websocket":
            self._judge_websocket(fields)
            return
        port = int(fields.get("x-aws-proxy-port", "0"))
        if not self.proxy.control.allows(fields.get("x-aws-proxy-auth"), port):
            self._refuse(403, b"Access to port denied")
        else:
            self._connect(port, request, lines)

    def _judge_websocket(self, fields: dict[str, str]) -> None:
        offered = [name.strip() for name in fields.get("sec-websocket-protocol", "").split(",")]
        token = next((n.partition("authentication.")[2] for n in offered if ".authentication." in n), None)
        port = next((int(n.rpartition(".")[2]) for n in offered if n.startswith("lambda-microvms.port.")), 0)
        if offered[0] != "lambda-microvms" or not self.proxy.control.allows(token, port):
            self.transport.abortConnection()
            return
        self._connect(port, None, [])

    def _connect(self, port: int, request: str | None, lines: list[str]) -> None:
        actual = self.proxy.ports.get(port)
        if actual is None:
            if request is None:
                self.transport.abortConnection()
            else:
                self._refuse(502, b"nothing listens")
            return
        data = self.buffer
        if request is not None:
            kept = [line for line in lines if not line.lower().startswith(("connection:", "x-aws-proxy"))]
            head = "\r\n".join([request, *kept, "Connection: close", "", ""])
            data = head.encode("latin-1") + data.partition(b"\r\n\r\n")[2]
        self.transport.pauseProducing()
        factory = protocol.Factory.forProtocol(lambda: _Back(self, data))
        factory.noisy = False
        TCP4ClientEndpoint(reactor, "127.0.0.1", actual).connect(factory).addErrback(
            lambda _: self.transport.abortConnection()
        )

    def _refuse(self, status: int, body: bytes) -> None:
        self.transport.write(
            b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)
        )
        self.transport.loseConnection()

    def connectionLost(self, reason: Any = None) -> None:
        if self.back is not None:
            self.back.loseConnection()


class _Back(protocol.Protocol):
    def __init__(self, front: _Front, data: bytes) -> None:
        self.front = front
        self.data = data

    def connectionMade(self) -> None:
        self.front.proxy.open.append(self.transport)
        self.front.back = self.transport
        self.transport.write(self.data)
        self.front.transport.resumeProducing()

    def dataReceived(self, data: bytes) -> None:
        self.front.transport.write(data)

    def connectionLost(self, reason: Any = None) -> None:
        self.front.transport.loseConnection()

"""`forward`: a local port that leads to one inside the VM, one WebSocket for each connection.

A connection's two directions are two loops of reading and writing that wait for each other's buffers, so the slow
end of a connection holds back the fast one and memory stays flat. WebSocket knows no half-close: when the local
end has sent its last byte, what the service still answers is taken until `LINGER_SECONDS` of quiet, and then both
directions end. A tunnel that was cut resets the local connection: half an answer is not to be taken for all of it.
"""

from typing import TYPE_CHECKING, Any

import click
from twisted.internet import error, protocol
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from agentd.cli import exits
from agentd.cli.machine import key_bytes
from agentd.cli.options import common, forward_spec
from agentd.cli.session import Session

if TYPE_CHECKING:
    from agentd.client.client import Client
    from agentd.client.tunnel import Tunnel, Verify

LINGER_SECONDS = 2.0
"""How long the service may stay quiet after the local end has closed its side."""


@implementer(IHalfCloseableProtocol)
class Local(protocol.Protocol):
    """One accepted connection, as something to await."""

    transport: Any

    def __init__(self, forwarder: "Forwarder") -> None:
        from agentd.client.flow import Inbox, Outlet

        self._forwarder = forwarder
        self.inbox = Inbox()
        self.outlet = Outlet()
        self.lost = False

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        self.transport.registerProducer(self.outlet, True)
        self.inbox.attach(self.transport)
        self._forwarder.accepted(self)

    def dataReceived(self, data: bytes) -> None:
        self.inbox.put(data)

    def readConnectionLost(self) -> None:
        self.inbox.end()

    def writeConnectionLost(self) -> None:
        self.outlet.stop(ConnectionError("the local end reads no more"))

    def connectionLost(self, reason: Any = protocol.connectionDone) -> None:
        self.lost = True
        self.inbox.end(ConnectionError("the local end is gone"))
        self.outlet.stop(ConnectionError("the local end is gone"))

    def finish(self) -> None:
        """Close in order: everything written is delivered first."""
        self.transport.unregisterProducer()
        self.transport.loseConnection()

    def reset(self) -> None:
        """Close so that the other side can tell."""
        self.transport.abortConnection()


class Forwarder:
    """Joins accepted connections to tunnels.

    Args:
        session: for notes.
        client: opens the tunnels.
        port: the port in the VM.
        verify: the keys of verified tunnels, or None.
    """

    def __init__(self, session: Session, client: "Client", port: int, verify: "Verify | None") -> None:
        self._session = session
        self._client = client
        self._port = port
        self._verify = verify
        self._running: set[Deferred[None]] = set()

    def accepted(self, local: Local) -> None:
        """Serve a new connection until it ends."""
        serving = Deferred.fromCoroutine(self._serve(local))
        self._running.add(serving)

        def ended(result: Any) -> None:
            self._running.discard(serving)
            if isinstance(result, Failure) and result.value is not None:
                self._note(result.value)

        serving.addBoth(ended)

    def stop(self) -> None:
        """End all connections."""
        for serving in list(self._running):
            serving.cancel()

    async def _serve(self, local: Local) -> None:
        from agentd.client.errors import AgentError

        try:
            tunnel = await self._client.tunnel.open(self._port, verify=self._verify)
        except (AgentError, CancelledError) as fault:
            local.reset()
            self._note(fault)
            return
        sending = Deferred.fromCoroutine(self._up(local, tunnel))
        try:
            await self._down(local, tunnel)
            local.finish()
        except ConnectionError:
            tunnel.fail()
        except (AgentError, CancelledError) as fault:
            local.reset()
            self._note(fault)
        finally:
            sending.cancel()
            await tunnel.close()

    async def _up(self, local: Local, tunnel: "Tunnel") -> None:
        """Local bytes into the tunnel; at their end, wait for quiet and end the tunnel."""
        from agentd.client.errors import AgentError

        try:
            while data := await local.inbox.get():
                await tunnel.send(data)
            await tunnel.quiet(LINGER_SECONDS)
            tunnel.end()
        except ConnectionError:
            tunnel.fail()
        except (AgentError, CancelledError):
            pass

    async def _down(self, local: Local, tunnel: "Tunnel") -> None:
        """The tunnel's bytes to the local end."""
        while data := await tunnel.receive():
            local.transport.write(data)
            await local.outlet.ready()

    def _note(self, fault: BaseException) -> None:
        if not isinstance(fault, CancelledError):
            self._session.note(f"port {self._port}: {exits.explain(fault)}")


@click.command()
@click.argument("ports", metavar="[ADDRESS:]LOCAL:REMOTE")
@click.option(
    "--verify",
    metavar="BASE64",
    help="Verify the VM: the public half of its identity. Needs --key-file.",
)
@click.option(
    "--key-file",
    type=click.File("rb"),
    help="A file with this end's own secret key, 32 bytes or base64 of them.",
)
@common
@click.pass_obj
def forward(session: Session, ports: str, verify: str | None, key_file: Any) -> int:
    """Forward connections on a local port to a port inside the VM, until interrupted.

    LOCAL 0 is any free port; the one in use is printed.
    """
    address, local, remote = forward_spec(ports)
    if (verify is None) != (key_file is None):
        raise click.UsageError("--verify and --key-file go together")

    async def serve(client: "Client") -> int:
        from agentd.client.errors import LocalFault
        from agentd.client.tunnel import Verify

        pinned = None
        if verify is not None:
            pinned = Verify(key_bytes(key_file.read()), key_bytes(verify.encode()))
        forwarder = Forwarder(session, client, remote, pinned)
        factory = protocol.Factory.forProtocol(lambda: Local(forwarder))
        factory.noisy = False
        try:
            port = session.reactor().listenTCP(local, factory, interface=address)
        except error.CannotListenError as fault:
            raise LocalFault(str(fault)) from None
        here = port.getHost()
        session.show(
            {"event": "listening", "address": here.host, "port": here.port, "remote": remote},
            lambda: print(f"{here.host}:{here.port} -> vm:{remote}", flush=True),
        )
        try:
            return await Deferred[int]()
        finally:
            forwarder.stop()
            await port.stopListening()

    return session.run(serve)

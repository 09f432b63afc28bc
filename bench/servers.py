"""The servers that floors are measured against: what Twisted does when nothing is built on it.

    python servers.py web PORT BODY_BYTES        one twisted.web resource, a small JSON answer, no access log
    python servers.py relay PORT TARGET_PORT     a TCP relay with back-pressure both ways
    python servers.py pour PORT                  a TCP service that sends, or takes, a number of bytes

Run as a program of its own, by the interpreter of the daemon it is compared with; so it imports nothing of this
package, and of Twisted only what it is a floor for.
"""

import socket
import sys
from collections.abc import Callable
from mmap import mmap
from typing import Any

POUR_BYTES = 1 << 18


def web(port: int, body_bytes: int) -> None:
    """Answer every GET with a JSON string of `body_bytes` bytes."""
    from twisted.internet import reactor as chosen
    from twisted.web.resource import Resource
    from twisted.web.server import Site

    reactor: Any = chosen
    body = b'"' + b"x" * (body_bytes - 2) + b'"'

    class Bare(Resource):
        isLeaf = True

        def render_GET(self, request: Any) -> bytes:
            request.setHeader(b"content-type", b"application/json")
            request.setHeader(b"content-length", b"%d" % len(body))
            return body

    resource: Any = Bare
    site: Any = Site(resource())
    site.log = lambda request: None
    reactor.listenTCP(port, site, interface="127.0.0.1")
    reactor.run()


def relay(port: int, target_port: int) -> None:
    """Connect every caller to `target_port`."""
    from twisted.internet import reactor as chosen
    from twisted.protocols.portforward import ProxyFactory

    reactor: Any = chosen
    factory: Any = ProxyFactory("127.0.0.1", target_port)
    factory.noisy = False
    reactor.listenTCP(port, factory, interface="127.0.0.1")
    reactor.run()


def pour(port: int) -> None:
    """Serve one caller after another: ``down N`` gets N bytes, ``up N`` is answered with what arrived of N."""
    block = bytes(POUR_BYTES)
    room = mmap(-1, POUR_BYTES)
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            caller, _ = listening.accept()
            with caller:
                line = b""
                while not line.endswith(b"\n") and (byte := caller.recv(1)):
                    line += byte
                if not line:
                    continue
                direction, count = line.split()
                left = int(count)
                if direction == b"down":
                    while left:
                        left -= caller.send(block[:left] if left < POUR_BYTES else block)
                else:
                    while left and (received := caller.recv_into(room)):
                        left -= received
                    caller.sendall(b"%d\n" % (int(count) - left))


if __name__ == "__main__":
    kinds: dict[str, Callable[..., None]] = {"web": web, "relay": relay, "pour": pour}
    kinds[sys.argv[1]](*map(int, sys.argv[2:]))

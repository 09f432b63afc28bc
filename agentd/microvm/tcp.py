"""``GET /v1/tcp``: the last HTTP answer of a tunnel; everything after the 101 is a close code (contract a.9, f)."""

from typing import Final

from agentd._version import VERSION
from agentd.config import Config
from agentd.http.messages import HANDED_OVER, Answer
from agentd.http.query import Malformed, flag, unsigned
from agentd.http.reading import malformed, read_query
from agentd.http.request import VERSION_HEADER, AgentRequest
from agentd.microvm.context import Daemon
from agentd.tunnel import mount
from agentd.tunnel.limits import TunnelLimits
from agentd.tunnel.mount import Tunnels, UpgradeRefused

MAX_PORT: Final = 65535


def tunnel_limits(config: Config) -> TunnelLimits:
    """The limits of a tunnel that have knobs."""
    return TunnelLimits(
        dial_timeout=config.tunnel_dial_timeout_secs,
        handshake_timeout=config.tunnel_handshake_timeout_secs,
    )


class TunnelRoute:
    """The handler."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._limits = tunnel_limits(daemon.config)
        self._tunnels = Tunnels()
        daemon.at_stop.append(self._tunnels.stop)

    async def tcp(self, request: AgentRequest) -> Answer:
        """``GET /v1/tcp``. The query is judged before the upgrade headers; port 0 is a close code, not a 400."""
        query = read_query(request)
        try:
            if "port" not in query:
                raise Malformed("port is missing")
            port = unsigned(query["port"], "port", MAX_PORT)
            identity = flag(query["identity"], "identity") if "identity" in query else False
            mount.check_upgrade(request)
        except (Malformed, UpgradeRefused) as reason:
            raise malformed(str(reason)) from None
        if request.gone:
            return HANDED_OVER
        mount.upgrade(
            request,
            port=port,
            identity=identity,
            keys=self._daemon.guest.tunnel_identity,
            limits=self._limits,
            reactor=self._daemon.clock,
            headers=((VERSION_HEADER, VERSION.encode()),),
            tunnels=self._tunnels,
        )
        # A tunnel is no request in flight: a stopping daemon closes it instead of waiting for it.
        request.detach()
        return HANDED_OVER

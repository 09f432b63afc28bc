"""The way in: one `Client` for one daemon.

    client = Client("http://127.0.0.1:9000", token, reactor=reactor)
    outcome = await client.run(["make", "-j2"], cwd="/src")

Everything is a coroutine; `Deferred.fromCoroutine` turns one into a Deferred where that is wanted. The reactor
and, if wished, the HTTP client are given; nothing is global.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from agentd.client.credentials import Lifetimes
from agentd.client.errors import AnswerError, BootstrapConflict, SpawnFailed, TransportFault
from agentd.client.execs import Exec, start_body, wait_applied
from agentd.client.files import Files
from agentd.client.messages import Health, PollResponse, ProcGroup, ProcsResponse
from agentd.client.payload import run_envelope, run_payload
from agentd.client.proxy import Diagnosis, HeaderMap, Minter, ProxyCredentials, Subprotocols, diagnose
from agentd.client.retry import Backoff
from agentd.client.secret import Secret, TokenProvider
from agentd.client.tar import Tar
from agentd.client.transport import HTTP, Transport, default_http
from agentd.client.tunnel import Tunnels
from agentd.rules.payload import TunnelIdentity

if TYPE_CHECKING:
    from agentd.client.environments import Environment

HOOKS = "/aws/lambda-microvms/runtime/v1"
"""Where the platform posts its hooks (contract (a))."""

DEFAULT_PORT = 9000
"""The daemon's port on the VM (contract (b))."""

START_WAIT_SECONDS = 25
"""How long `run` lets a start hold its answer."""


DIGEST_SECONDS = 600.0
"""How long the VM may take to hash a file."""


class Client:
    """Calls to the daemon in one VM.

    Args:
        url: `http://host:port` of the daemon, or `https://…` of the endpoint proxy before it.
        token: the agent token, or something to call for it before each request.
        reactor: the Twisted reactor.
        http: an HTTP client with treq's `request`; by default one of its own, with kept connections.
        minter: mints tokens for an endpoint proxy; None where there is no proxy.
        lifetimes: how long those serve.
        port: the daemon's port on the VM, which the proxy is told.
        backoff: the pauses between repetitions of an idempotent request.
        timeout: seconds until an answer must have begun.
        idle: seconds of silence after which a stream counts as dead; the daemon sends a sign of life every 15.
        poll_interval: seconds between polls of a daemon that does not hold them.
        tls: an `IPolicyForHTTPS`; None for the system's authorities.

    Raises:
        ValueError: a URL, token, lifetime or port that cannot be.
    """

    def __init__(
        self,
        url: str,
        token: str | Secret | TokenProvider | None = None,
        *,
        reactor: Any,
        http: HTTP | None = None,
        minter: Minter | None = None,
        lifetimes: Lifetimes | None = None,
        port: int = DEFAULT_PORT,
        backoff: Backoff | None = None,
        timeout: float = 30.0,
        idle: float = 60.0,
        poll_interval: float = 1.0,
        tls: Any = None,
    ) -> None:
        self._pool = None
        if http is None:
            http, self._pool = default_http(reactor, tls)
        self._proxy = (
            ProxyCredentials(minter, reactor=reactor, lifetimes=lifetimes) if minter is not None else None
        )
        self._transport = Transport(
            url,
            reactor=reactor,
            http=http,
            token=token,
            proxy=self._proxy,
            port=port,
            backoff=backoff or Backoff(),
            timeout=timeout,
            idle=idle,
        )
        self._poll_interval = poll_interval
        self.files = Files(self._transport)
        """Single files (contract e.1 to e.3)."""
        self.tar = Tar(self._transport)
        """Whole trees (contract e.5, e.6)."""
        self.tunnel = Tunnels(self._transport, tls, self.diagnose)
        """Connections to ports inside the VM (contract (f))."""

    def __repr__(self) -> str:
        return f"<Client {self._transport.base}>"

    async def close(self) -> None:
        """Let the kept connections go. No call is to be under way."""
        if self._pool is not None:
            await self._transport.pause(0)  # the last answer's connection is kept when its delivery is over
            await self._pool.closeCachedConnections()

    # The machine

    async def health(self) -> Health:
        """The daemon's state; needs no token (contract h.1)."""
        return (await self._transport.call("GET", "/v1/health", Health, auth=False))[0]

    async def schema(self, *, openapi: bool = False) -> dict[str, Any]:
        """The wire contract as a document, or as OpenAPI; needs no token (contract h.2)."""
        query = [("format", "openapi")] if openapi else []
        document, _ = await self._transport.call("GET", "/v1/schema", dict[str, Any], auth=False, query=query)
        return document

    async def procs(self) -> tuple[ProcGroup, ...]:
        """Every exec's process group and its live processes (contract a.8)."""
        return (await self._transport.call("GET", "/v1/procs", ProcsResponse))[0].procs

    async def bootstrap(
        self,
        token: str | Secret,
        env: Mapping[str, str] | None = None,
        identity: TunnelIdentity | None = None,
    ) -> None:
        """Install a token, as the platform does at launch, and use it from now on (contract g.1, g.2).

        Raises:
            RunPayloadTooLarge: over the platform's budget; nothing was sent.
            BootstrapConflict: another token is installed and stays.
            MalformedRequest: the daemon refused the payload.
        """
        secret = token if isinstance(token, Secret) else Secret(token)
        payload = run_payload(secret, env, identity)
        try:
            await self._transport.call(
                "POST",
                f"{HOOKS}/run",
                type(None),
                auth=False,
                headers={"Content-Type": "application/json"},
                body=run_envelope(payload),
            )
        except AnswerError as refusal:
            if refusal.status == 409:
                raise BootstrapConflict(refusal.status, refusal.slug, refusal.detail) from None
            raise
        self._transport.adopt(secret)

    # Commands

    async def start(
        self, command: Sequence[str], *, exec_id: str | None = None, wait: int | None = None, **options: Any
    ) -> Exec:
        """Start a command, once, however often this is repeated with the same id (contract a.2).

        Args:
            command: the words of the command; with a shell, the lines of a script.
            exec_id: its id; by default a fresh one.
            wait: seconds the daemon is asked to hold its answer for the result, saving a round trip.
            options: `shell`, `cwd`, `env`, `user`, `group`, `timeout` (seconds), `stdin`, `reap_group_on_exit`,
                `inherit_image_env` and `digest`, as in `agentd.client.execs.start_body`.

        Raises:
            SpawnFailed: the program is not there or may not be run; the id is free again.
            MalformedRequest: among them UnknownUser, UnknownGroup and UnknownShell.
        """
        name = str(uuid.uuid4()) if exec_id is None else exec_id
        headers = {"Content-Type": "application/json"}
        if wait is not None:
            headers["Prefer"] = f"wait={wait}"
        poll, answer = await self._transport.call(
            "POST",
            "/v1/exec/start",
            PollResponse,
            headers=headers,
            body=start_body(name, command, **options),
            timeout=self._transport.timeout + (wait or 0),
        )
        known = poll if wait_applied(answer) else None
        return Exec(self._transport, name, poll_interval=self._poll_interval, last=known)

    def exec(self, exec_id: str) -> Exec:
        """A handle to a command started before, here or elsewhere; asks nothing."""
        return Exec(self._transport, exec_id, poll_interval=self._poll_interval)

    async def run(self, command: Sequence[str], **options: Any) -> PollResponse:
        """Start a command, wait for its result, acknowledge it and return it.

        Args:
            command, options: as for `start`.

        Raises:
            as `start` and `Exec.wait`. A result that was read is returned even if the ack then fails to arrive.
        """
        handle = await self.start(command, wait=START_WAIT_SECONDS, **options)
        outcome = await handle.wait()
        try:
            return await handle.ack()
        except (TransportFault, AnswerError):
            return outcome

    async def sha256(self, path: str) -> bytes | None:
        """The digest of a file in the VM, taken there by its sha256sum(1); None where it cannot be had so."""
        try:
            outcome = await self.run(["sha256sum", "--", path], timeout=DIGEST_SECONDS)
        except SpawnFailed:
            return None
        found = re.match(r"\\?([0-9a-f]{64}) ", outcome.stdout or "")
        return bytes.fromhex(found[1]) if found and outcome.succeeded else None

    # The environment

    def environment(self, environment_id: str = "local") -> "Environment":
        """The environments API of the VM: commands, files and processes of its agent user."""
        from agentd.client.environments import Environment

        return Environment(self._transport, self.tunnel, environment_id)

    # The endpoint proxy

    @property
    def proxy_mint_count(self) -> int:
        """How many proxy tokens were asked for."""
        return 0 if self._proxy is None else self._proxy.mint_count

    def resumed(self) -> None:
        """Say that the VM was resumed: proxy tokens from before are not used again."""
        if self._proxy is not None:
            self._proxy.resumed()

    async def connect_headers(self, port: int) -> HeaderMap:
        """The headers for a caller's own HTTPS request to `port` on this VM; none without a proxy."""
        return HeaderMap() if self._proxy is None else await self._proxy.connect_headers(port)

    async def connect_subprotocols(self, port: int, application: str | None = None) -> Subprotocols:
        """The subprotocols for a caller's own WebSocket to `port` on this VM."""
        if self._proxy is None:
            return Subprotocols([] if application is None else [application])
        return await self._proxy.connect_subprotocols(port, application)

    async def diagnose(self, port: int) -> Diagnosis:
        """Why a WebSocket to `port` closed with 1006, by one HTTPS request to the same port."""
        try:
            answer = await self._transport.open("GET", "/", auth=False, port=port)
            answer.body.close()
            return diagnose(answer.status)
        except AnswerError as refusal:
            return diagnose(refusal.status)
        except TransportFault:
            return diagnose(None)


def as_json(value: Any) -> Any:
    """Any of the library's answers as plain JSON values."""
    return msgspec.to_builtins(value)

"""A daemon's environments face on a loopback port, in this process, with limits of the test's choosing.

Everything is real: the reactor, the children, the files, the sockets. As root the agent user is one that exists in the
test's own account files and nowhere else; as anybody else the agent user is whoever runs the tests.
"""

import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from attrs import define, evolve, field
from autobahn.twisted.websocket import WebSocketClientFactory
from twisted.internet.defer import maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from agentd import tap
from agentd.config import Config
from agentd.environments.account import Agent
from agentd.environments.context import Environment
from agentd.environments.face import environments_face
from agentd.environments.limits import Limits
from agentd.environments.routes import ROUTES
from agentd.http.router import Router
from agentd.http.site import AgentSite
from agentd.microvm.face import microvm_face
from tests.environments.wire import DEADLINE, Answer, Client, Connection, FastClock, the_reactor, until

KEY = "the-key-of-the-tests"


UID, GID, EXTRA = 61234, 61235, 61236


ROOT = os.geteuid() == 0


@define
class Home:
    """A place with an agent user's home and account files that know them."""

    place: Path
    home: Path
    uid: int
    gid: int

    @property
    def passwd(self) -> Path:
        return self.place / "passwd"

    @property
    def group(self) -> Path:
        return self.place / "group"

    def make(self, name: str, content: bytes = b"", mode: int = 0o644, owner: int | None = None) -> Path:
        """A file in the home; the agent user's unless `owner` says otherwise."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        if ROOT:
            os.chown(path, self.uid if owner is None else owner, self.gid if owner is None else owner)
            for parent in path.relative_to(self.home).parents:
                if str(parent) != ".":
                    os.chown(self.home / parent, self.uid, self.gid)
        return path

    def directory(self, name: str, mode: int = 0o755, owner: int | None = None) -> Path:
        """A directory in the home."""
        path = self.home / name
        path.mkdir(parents=True)
        path.chmod(mode)
        if ROOT:
            os.chown(path, self.uid if owner is None else owner, self.gid if owner is None else owner)
        return path

    def link(self, name: str, target: str) -> Path:
        """A symbolic link in the home."""
        path = self.home / name
        path.symlink_to(target)
        if ROOT:
            os.lchown(path, self.uid, self.gid)
        return path


def make_home(place: Path) -> Home:
    """The agent user of a test, with everything on the way to the home open to them."""
    place.chmod(0o755)
    home = place / "home"
    home.mkdir(mode=0o755)
    uid, gid = (UID, GID) if ROOT else (os.geteuid(), os.getegid())
    found = Home(place, home, uid, gid)
    found.passwd.write_text(
        f"root:x:0:0:root:/root:/bin/bash\nagent:x:{uid}:{gid}:the agent:{home}:/bin/bash\n"
    )
    groups = [f"agent:x:{gid}:", *(f"g{number}:x:{number}:agent" for number in _groups(gid))]
    found.group.write_text("\n".join(groups) + "\n")
    if ROOT:
        os.chown(home, uid, gid)
    return found


def _groups(gid: int) -> list[int]:
    return [EXTRA] if ROOT else [number for number in os.getgroups() if number != gid]


def public_place() -> Path:
    """A directory that every user can reach."""
    path = Path(tempfile.mkdtemp(prefix="agentd-env-"))
    path.chmod(0o755)
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o001, "the temporary directory is closed to others"
    return path


@define(eq=False)
class Server:
    """The face, listening."""

    home: Home
    limits: Limits
    environment: Environment
    site: AgentSite
    daemon: Any
    port: Any
    pool: ThreadPool
    clients: list[Any] = field(factory=list)

    @property
    def number(self) -> int:
        return int(self.port.getHost().port)

    async def connect(self) -> Connection:
        """A raw connection."""
        endpoint = TCP4ClientEndpoint(the_reactor(), "127.0.0.1", self.number)
        factory = Factory.forProtocol(Connection)
        factory.noisy = False
        connection: Connection = await endpoint.connect(factory)  # type: ignore[assignment]
        self.clients.append(connection)
        return connection

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: dict[str, str] | None = None,
        key: str | None = KEY,
        prefix: str = "/v1/environments/local",
    ) -> Answer:
        """One request on a connection of its own."""
        connection = await self.connect()
        fields = {"Host": "x", **({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        if body is not None and "Transfer-Encoding" not in fields:
            fields.setdefault("Content-Length", str(len(body)))
        head = f"{method} {prefix}{path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items())
        began = the_reactor().seconds()
        connection.send(head.encode() + b"\r\n" + (body or b""))
        answer = await connection.answer(method)
        connection.close()
        return evolve(answer, seconds=the_reactor().seconds() - began)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, value: Any, **options: Any) -> Answer:
        """A JSON request; bytes are sent as they are."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        return await self.ask("POST", path, body, headers=headers, **options)

    async def try_exec(self, **fields: Any) -> Answer:
        return await self.post("/exec", fields)

    async def exec(self, *argv: str, **fields: Any) -> dict[str, Any]:
        """Run a command that starts."""
        if argv:
            fields["argv"] = list(argv)
        answer = await self.try_exec(**fields)
        assert answer.status == 200, answer
        result: dict[str, Any] = answer.json
        assert (result["exit_code"] is None) != (result["signal"] is None)
        return result

    async def sh(self, command: str, **fields: Any) -> dict[str, Any]:
        """Run a command line."""
        return await self.exec(command=command, **fields)

    async def spawn(self, command: str | list[str], **fields: Any) -> str:
        """Start a process; its id."""
        given = {"command": command} if isinstance(command, str) else {"argv": command}
        answer = await self.post("/processes", {**given, **fields})
        assert answer.status == 201, answer
        return str(answer.json["pid"])

    async def look(self, pid: str) -> dict[str, Any]:
        answer = await self.get(f"/processes/{pid}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json
        assert found["running"] == (found["exit"] is None) == (found["exited_at"] is None)
        return found

    async def output(self, pid: str, since: int = 0, wait: int = 0) -> dict[str, Any]:
        answer = await self.get(f"/processes/{pid}/output?since={since}&wait_secs={wait}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json
        assert found["exited"] == (found["exit"] is not None)
        assert all(chunk["data"] for chunk in found["chunks"])
        return found

    async def everything(self, pid: str, since: int = 0) -> list[dict[str, Any]]:
        """All chunks until the exit, by the plain loop."""
        chunks: list[dict[str, Any]] = []
        while True:
            page = await self.output(pid, since, 30)
            chunks += page["chunks"]
            since = page["next"]
            if page["exited"]:
                return chunks

    async def exited(self, pid: str) -> dict[str, Any]:
        """The process once it has exited."""
        await self.everything(pid, (await self.look(pid))["output_end"])
        return await self.look(pid)

    async def signal(self, pid: str, name: Any) -> Answer:
        return await self.post(f"/processes/{pid}/signal", {"signal": name})

    async def delete(self, pid: str) -> int:
        return (await self.ask("DELETE", f"/processes/{pid}")).status

    async def attach(self, pid: str, since: int | None = None, client: Client | None = None) -> Client:
        """An attached client."""
        query = "" if since is None else f"?since={since}"
        url = f"ws://127.0.0.1:{self.number}/v1/environments/local/processes/{pid}/attach{query}"
        factory = WebSocketClientFactory(
            url, headers={"Authorization": f"Bearer {KEY}"}, reactor=the_reactor()
        )
        factory.noisy = False
        client = client or Client()
        factory.protocol = lambda: client  # type: ignore[assignment]
        factory.setProtocolOptions(openHandshakeTimeout=0, closeHandshakeTimeout=0, failByDrop=False)
        self.clients.append(client)
        await TCP4ClientEndpoint(the_reactor(), "127.0.0.1", self.number).connect(factory)
        await client.opened
        return client

    # files

    async def read(self, path: str, **options: Any) -> Answer:
        return await self.get("/files?" + urlencode({"path": path}), **options)

    async def put(self, path: str, body: bytes = b"", **query: str) -> Answer:
        return await self.ask("PUT", "/files?" + urlencode({"path": path, **query}), body)

    async def remove(self, path: str, **query: str) -> Answer:
        return await self.ask("DELETE", "/files?" + urlencode({"path": path, **query}))

    async def list(self, path: str) -> Answer:
        return await self.get("/files/list?" + urlencode({"path": path}))

    # its end

    def drain(self) -> None:
        """What a stopping daemon does first."""
        self.site.drain(DEADLINE)
        for begin in self.environment.at_drain:
            begin()

    async def close(self) -> None:
        """Stop everything; every process is killed."""
        for client in self.clients:
            if client.transport is not None:
                client.transport.abortConnection()
        self.drain()
        await maybeDeferred(self.port.stopListening)
        await self.site.close()
        await until(lambda: self.site.state.in_flight == 0, "the end of every request")
        await deferToThreadPool(the_reactor(), self.pool, lambda: None)
        for stop in self.daemon.at_stop:
            stop()
        self.pool.stop()


async def serve(
    home: Home, limits: Limits | None = None, *, speed: float = 1.0, key: str | None = KEY, **config: Any
) -> Server:
    """A server for the agent user of `home`. `speed` makes its clock run faster."""
    reactor = the_reactor()
    clock = reactor if speed == 1.0 else FastClock(reactor, speed)
    pool = ThreadPool(0, 4, "environments")
    pool.start()
    settings = Config(
        **{
            "passwd_file": str(home.passwd),
            "group_file": str(home.group),
            "package_env_file": str(home.place / "package.env"),
            "platform_env_file": str(home.place / "platform.env"),
            "disk_reserve_bytes": 0,
            **config,
        }
    )
    world = tap.World(
        reactor=clock,
        run_in_thread=lambda function, *args: deferToThreadPool(reactor, pool, function, *args),
        wall_clock=time.time,
        environ={},
        out_of_memory=lambda pid: False,
    )
    daemon, _, _ = tap.compose(settings, world, lambda: None)
    site: AgentSite
    environment = Environment(
        id=settings.environment_id,
        agent=Agent(settings.agent_user, daemon.accounts, world.run_in_thread, settings.environment_state),
        package_env=Path(settings.package_env_file),
        platform_env=Path(settings.platform_env_file),
        clock=clock,
        wall_clock=world.wall_clock,
        tools=daemon.tools,
        disk_reserve=settings.disk_reserve_bytes,
        lifecycle=lambda: site.state,
        limits=limits or Limits(),
    )
    faces = [microvm_face(daemon, ROUTES), environments_face(environment)]
    site = AgentSite(Router(faces, daemon.guest.authorize, settings.max_body_bytes), settings, reactor)
    if key is not None:
        daemon.guest.install_token(key.encode())
    port = reactor.listenTCP(0, site, interface="127.0.0.1", backlog=2048)
    return Server(home, environment.limits, environment, site, daemon, port, pool)

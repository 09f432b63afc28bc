"""The environments API from outside: commands, files and background processes of a VM's agent user.

    environment = client.environment()
    result = await environment.exec(["make", "-j2"], cwd="src")
    process = await environment.spawn(command="cat", stdin=True)
    async with await process.attach() as attached:
        await attached.write("hello\\n", eof=True)
        async for message in attached:
            ...

A process has an id and nothing else: `Environment.process` makes a handle from the id alone. Offsets count
bytes of both outputs together, so what is read can be gone on with anywhere: `Process.follow` does that by long
polls, across lost connections.
"""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from agentd.client.environment_messages import (
    Chunk,
    ExecResult,
    Listing,
    Page,
    Processes,
    ProcessExit,
    ProcessInfo,
    Signal,
    Stored,
)
from agentd.client.errors import TransportFault
from agentd.client.files import ANSWER_SECONDS, Download
from agentd.client.local import LocalFiles
from agentd.client.transport import Transport
from agentd.client.tunnel import Tunnels
from agentd.client.upload import BytesSource, IterableSource, Progress, Source, Upload

if TYPE_CHECKING:
    import os

    from agentd.client.attach import Attached

POLL_SECONDS = 30
"""How long a long poll waits at most (environments 7.3)."""
EXEC_SECONDS = 60
"""How long a command may run unless told otherwise (environments 3.1)."""
OVERTIME_SECONDS = 60.0
"""What the answer to a command may take beyond the command's own time."""

_JSON = {"Content-Type": "application/json"}


def command_body(
    argv: Sequence[str] | None,
    command: str | None,
    env: Mapping[str, str] | None,
    cwd: str | None,
    timeout: int | None,
    stdin: str | bool | None,
) -> bytes:
    """The body of a request that starts something; what is None is left out.

    Raises:
        ValueError: not exactly one of `argv` and `command`.
    """
    if (argv is None) == (command is None):
        raise ValueError("exactly one of argv and command is to be given")
    members: dict[str, Any] = {
        "argv": None if argv is None else list(argv),
        "command": command,
        "env": dict(env) if env else None,
        "cwd": cwd,
        "timeout_secs": timeout,
        "stdin": stdin,
    }
    return msgspec.json.encode({name: value for name, value in members.items() if value is not None})


class Environment:
    """`Client.environment`.

    Args:
        transport: requests to the daemon.
        tunnels: WebSockets to it.
        environment_id: the id the daemon was configured with.
    """

    def __init__(self, transport: Transport, tunnels: Tunnels, environment_id: str) -> None:
        self._transport = transport
        self._tunnels = tunnels
        self._local = LocalFiles(transport.reactor)
        self.path = f"/v1/environments/{quote(environment_id, safe='')}"

    # Commands

    async def exec(
        self,
        argv: Sequence[str] | None = None,
        *,
        command: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: int | None = None,
        stdin: str | None = None,
    ) -> ExecResult:
        """Run a command to its end. Sent once: a repeated one could run twice.

        Args:
            argv: the words of the command, or
            command: a line for a login shell.
            env: variables; those of the environment's own files win.
            cwd: working directory, relative to the home.
            timeout: seconds until it is killed, 1 to 600.
            stdin: what it reads; None for nothing.

        Raises:
            SpawnFailed: it could not be started.
            MalformedRequest: a value that cannot be.
        """
        body = command_body(argv, command, env, cwd, timeout, stdin)
        seconds = (EXEC_SECONDS if timeout is None else timeout) + OVERTIME_SECONDS
        result: ExecResult = await self._send("/exec", ExecResult, body, timeout=seconds)
        return result

    async def spawn(
        self,
        argv: Sequence[str] | None = None,
        *,
        command: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: int | None = None,
        stdin: bool = False,
    ) -> "Process":
        """Start a background process. Sent once.

        Args:
            stdin: it will be written to through `Process.attach`.
            the others: as for `exec`; no timeout is no limit.

        Raises:
            TooManyProcesses: every place is taken.
            SpawnFailed, MalformedRequest: as `exec`.
        """
        body = command_body(argv, command, env, cwd, timeout, stdin or None)
        info = await self._send("/processes", ProcessInfo, body)
        return self.process(info.pid)

    def process(self, pid: str) -> "Process":
        """A handle to a process started before, here or elsewhere; asks nothing."""
        return Process(self, self._transport, self._tunnels, pid)

    async def processes(self) -> list[ProcessInfo]:
        """Every process that has not been deleted, oldest first."""
        return (await self._transport.call("GET", f"{self.path}/processes", Processes))[0].processes

    async def _send(self, path: str, kind: Any, body: bytes, **request: Any) -> Any:
        answer, _ = await self._transport.call(
            "POST", self.path + path, kind, repeat=False, headers=_JSON, body=body, **request
        )
        return answer

    # Files

    async def read(self, path: str, progress: Progress | None = None) -> Download:
        """A file's bytes, as they arrive; a file that fails on the way is a `TransportFault`.

        Raises:
            NotFound, Forbidden: as they say.
            MalformedRequest: it is no regular file.
        """
        answer = await self._transport.open("GET", f"{self.path}/files", query=[("path", path)])
        return Download(answer, progress)

    async def read_bytes(self, path: str) -> bytes:
        """A whole file in memory."""
        async with await self.read(path) as download:
            return b"".join([data async for data in download])

    async def get(self, path: str, target: "str | os.PathLike[str]", progress: Progress | None = None) -> int:
        """Fetch a file into a local one, which appears whole or not at all; returns its size.

        Raises:
            LocalFault: it cannot be written.
            as `read`.
        """
        download = await self.read(path, progress)
        async with download:
            await download.into(await self._local.write(target))
        return download.received

    async def write(
        self,
        path: str,
        content: bytes | AsyncIterable[bytes],
        *,
        mkdir: bool = False,
        length: int | None = None,
        progress: Progress | None = None,
    ) -> Stored:
        """Write a file.

        Args:
            path: where; relative to the home.
            content: its bytes, or an asynchronous iterable of them.
            mkdir: make missing parents.
            length: how many bytes, where known and `content` is not bytes.
            progress: told the bytes sent so far.

        Raises:
            NotFound: a parent is missing.
            Forbidden, TooLarge, MalformedRequest: as they say.
        """
        source: Source
        if isinstance(content, bytes):
            source, length = BytesSource(content), len(content)
        else:
            source = IterableSource(content)
        return await self._put(path, source, length, mkdir, progress)

    async def put(
        self,
        source: "str | os.PathLike[str]",
        path: str,
        *,
        mkdir: bool = False,
        progress: Progress | None = None,
    ) -> Stored:
        """Send a local file.

        Raises:
            LocalFault: it cannot be read.
            as `write`.
        """
        opened = await self._local.open(source)
        try:
            return await self._put(path, opened, opened.length, mkdir, progress)
        finally:
            await opened.close()

    async def _put(
        self, path: str, source: Source, length: int | None, mkdir: bool, progress: Progress | None
    ) -> Stored:
        upload = Upload(self._transport.reactor, source, length, progress)
        query = [("path", path)] + ([("mkdir", "true")] if mkdir else [])
        try:
            answer = await self._transport.open(
                "PUT",
                f"{self.path}/files",
                query=query,
                headers={"Content-Type": "application/octet-stream"},
                body=upload,
                timeout=ANSWER_SECONDS,
            )
        except TransportFault:
            if upload.fault is not None:
                raise upload.fault from None
            raise
        finally:
            upload.stopProducing()
        return msgspec.json.decode(await answer.body.gather(1 << 20), type=Stored)

    async def list(self, path: str = ".") -> Listing:
        """One level of a directory.

        Raises:
            NotFound, Forbidden: as they say.
            MalformedRequest: it is no directory.
        """
        query = [("path", path)]
        return (await self._transport.call("GET", f"{self.path}/files/list", Listing, query=query))[0]

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or a link itself, or a directory with everything in it. Sent once.

        Raises:
            NotFound, Forbidden: as they say.
            MalformedRequest: a directory, and not `recursive`.
        """
        query = [("path", path)] + ([("recursive", "true")] if recursive else [])
        await self._transport.call(
            "DELETE", f"{self.path}/files", type(None), repeat=False, query=query, timeout=ANSWER_SECONDS
        )


class Process:
    """A handle to one background process. Not made by hand: see `Environment`."""

    def __init__(self, environment: Environment, transport: Transport, tunnels: Tunnels, pid: str) -> None:
        self.pid = pid
        self._transport = transport
        self._tunnels = tunnels
        self._path = f"{environment.path}/processes/{quote(pid, safe='')}"

    def __repr__(self) -> str:
        return f"<Process {self.pid!r}>"

    async def info(self) -> ProcessInfo:
        """The process as it is now.

        Raises:
            NotFound: it was deleted, or the daemon is another one.
        """
        return (await self._transport.call("GET", self._path, ProcessInfo))[0]

    async def output(self, since: int = 0, wait: int = 0) -> Page:
        """Output from an offset on: at once if there is any, else when it comes or after `wait` seconds."""
        page, _ = await self._transport.call(
            "GET",
            f"{self._path}/output",
            Page,
            query=[("since", str(since)), ("wait_secs", str(wait))],
            timeout=self._transport.timeout + wait,
        )
        return page

    async def follow(self, since: int = 0) -> AsyncIterator[Chunk]:
        """All output from an offset on until the exit. What was evicted shows as a gap between offsets."""
        while True:
            page = await self.output(since, POLL_SECONDS)
            for chunk in page.chunks:
                yield chunk
            if page.exited:
                return
            since = page.next

    async def wait(self) -> ProcessExit:
        """How it ended, once it has."""
        since = (await self.info()).output_end
        while True:
            page = await self.output(since, POLL_SECONDS)
            if page.exit is not None:
                return page.exit
            since = page.next

    async def signal(self, name: Signal) -> None:
        """Send a signal to its group; of one that has exited nothing happens."""
        await self._transport.call(
            "POST",
            f"{self._path}/signal",
            type(None),
            repeat=False,
            headers=_JSON,
            body=msgspec.json.encode({"signal": name}),
        )

    async def delete(self) -> None:
        """Kill it if it runs, and forget it and its output."""
        await self._transport.call("DELETE", self._path, type(None), repeat=False)

    async def attach(self, since: int = 0, timeout: float = 15.0) -> "Attached":
        """Follow its output, write its stdin and signal it, over one WebSocket.

        Args:
            since: the offset to begin at.
            timeout: seconds for the upgrade.

        Raises:
            NotFound: there is no such process.
            TunnelFailed: no WebSocket came about.
        """
        # autobahn costs more to import than all the rest.
        from agentd.client.attach import Attached, AttachSocket

        socket = AttachSocket()
        await self._tunnels.connect(socket, f"{self._path}/attach?since={since}", [], timeout)
        return Attached(socket)

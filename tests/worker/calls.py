"""The functions of files and code, called on the real reactor and a real pool, without an engine between.

Every result is encoded as the engine would be given it and checked against what is published of its function. The
channels and the engine behind sandboxes are doubles that keep what passes through them.
"""

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from agentd.files.read import Content
from agentd.worker import (
    coder_read,
    coder_search,
    coder_write,
    fs_entries,
    fs_read,
    fs_search,
    fs_write,
    workspace,
)
from agentd.worker import settings as settings_of
from agentd.worker.coder_paths import CoderPaths
from agentd.worker.errors import Coded, CoderError, FunctionError
from agentd.worker.function import Call, Function
from agentd.worker.jail import Jail
from agentd.worker.sandbox import CallFailed, Sandbox
from agentd.worker.settings import Settings
from tests.process.support import reactor, soon
from tests.worker.support import valid

FAMILIES = (
    fs_entries,
    fs_search,
    fs_write,
    fs_read,
    workspace,
    coder_read,
    coder_search,
    coder_write,
)
SERVED: dict[str, Function] = {function.id: function for family in FAMILIES for function in family.FUNCTIONS}
SECRET = "**/.env", "**/*.key", "**/secrets/**"


@define(slots=False)
class Channels:
    """Channels whose other ends are in the test: `sent` is what was read, `streams` what is to be received."""

    run_in_thread: Any
    sent: dict[str, bytes] = field(factory=dict)
    streams: dict[str, list[bytes | Exception]] = field(factory=dict)

    async def send(self, content: Content) -> dict[str, Any]:
        """Read all of it before answering: the bytes are what matters here."""
        name = f"channel-{len(self.sent)}"
        pieces = []
        try:
            while piece := await self.run_in_thread(content.next):
                pieces.append(piece)
        finally:
            content.close()
        self.sent[name] = b"".join(pieces)
        return {"channel_id": name, "access_key": "key", "direction": "read"}

    async def receive(
        self, reference: dict[str, Any], write: Callable[[bytes], Awaitable[object] | None]
    ) -> int:
        """Give what the test has put under the channel's id."""
        if reference["channel_id"] not in self.streams:
            raise Coded("S216", "no such channel")
        count = 0
        for piece in self.streams[reference["channel_id"]]:
            if isinstance(piece, Exception):
                raise piece
            waited = write(piece)
            if waited is not None:
                await waited
            count += len(piece)
        return count


@define
class SandboxEngine:
    """What is behind the sandboxes: it answers with `answer`, or raises it."""

    answer: Any = None
    asked: list[tuple[str, Any]] = field(factory=list)

    async def call(self, function_id: str, data: Any, seconds: float = 0) -> Any:
        self.asked.append((function_id, data))
        if isinstance(self.answer, CallFailed):
            raise self.answer
        return self.answer


@define(eq=False)
class Caller:
    """Calls functions under `settings`."""

    settings: Settings
    cwd: str
    run_in_thread: Any
    engine: SandboxEngine = field(factory=SandboxEngine)
    channels: Channels = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.channels = Channels(self.run_in_thread)

    @property
    def capabilities(self) -> Call:
        """What a call may use; the paths are judged anew, as after a reload."""
        return Call(
            settings=self.settings,
            jail=Jail.build(self.settings, self.cwd),
            coder=CoderPaths.build(self.settings, self.cwd),
            jobs=cast(Any, None),
            sandbox=Sandbox(self.engine),
            channels=self.channels,
            reactor=reactor,
            run_in_thread=self.run_in_thread,
        )

    async def call(self, id: str, data: Any = None, **fields: Any) -> Any:
        """A valid result, and nothing that is absent in it as null."""
        request = {**({} if data is None else data), **fields}
        request.setdefault("_caller_worker_id", "somebody")
        request.setdefault("fs_scope", {"root": "/", "boundary": "workspace"})
        request.setdefault("a key from the future", [1, {"x": None}])
        function = SERVED[id]
        running = function.run(self.capabilities, function.parse(request))
        return valid(id, json.loads(msgspec.json.encode(await soon(running))))

    async def fails(self, id: str, data: Any = None, **fields: Any) -> FunctionError:
        """How a call fails."""
        with pytest.raises(FunctionError) as failed:
            await self.call(id, data, **fields)
        assert "Traceback" not in failed.value.message
        return failed.value

    async def code(self, id: str, data: Any = None, **fields: Any) -> str:
        """The code that a call fails with: an S-code, or the C-code in a plain failure."""
        reason = await self.fails(id, data, **fields)
        if isinstance(reason, CoderError):
            assert reason.code == "invocation_failed"
            prefix, _, text = reason.message.partition("handler error: ")
            assert prefix == ""
            assert json.loads(text) == {"code": reason.coder_code, "message": reason.text}
            return reason.coder_code
        assert isinstance(reason, Coded), reason
        return reason.code

    def with_settings(self, **changes: Any) -> "Caller":
        """The same under other settings: `fs={...}`, `code={...}`, `sandbox={...}`."""
        value = {
            "fs": {"host_roots": self.settings.fs.host_roots, "allow_unjailed": True},
            "code": {"non_accessible_globs": list(SECRET)},
        }
        for key, part in changes.items():
            value[key] = {**value.get(key, {}), **part}
        return Caller(settings_of.parse(value), self.cwd, self.run_in_thread)


@contextmanager
def caller(root: Path | None, cwd: Path) -> Iterator[Caller]:
    """A caller of functions jailed to `root`, or unjailed; its pool ends with it."""
    pool = ThreadPool(0, 4, "calls")
    pool.start()

    def run_in_thread(function: Any, *args: Any, **kwargs: Any) -> "Deferred[Any]":
        return deferToThreadPool(reactor, pool, function, *args, **kwargs)

    settings = settings_of.parse(
        {
            "fs": {"host_roots": [str(root)] if root else [], "allow_unjailed": True},
            "code": {"non_accessible_globs": list(SECRET)},
        }
    )
    try:
        yield Caller(settings, str(cwd), run_in_thread)
    finally:
        pool.stop()


def make_tree(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Files below `root`, by their relative paths; one that ends in a slash is a directory."""
    for name, content in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def listing(root: Path) -> list[str]:
    """What is below `root`, for saying that nothing is left or changed."""
    return sorted(
        os.path.relpath(os.path.join(directory, name), root)
        for directory, directories, files in os.walk(root)
        for name in (*directories, *files)
    )

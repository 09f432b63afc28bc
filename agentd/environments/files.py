"""The routes of files: read, write, remove, list (environments 4, 5).

Every one of them works as the agent user from the first look at the path to the last byte (`agentd.files.acting`), so
what they may do is decided by the kernel, at the moment they do it.
"""

import base64
import errno
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, NoReturn

from msgspec import UNSET
from twisted.internet.defer import Deferred, DeferredLock

from agentd.environments import answers, paths, shapes
from agentd.environments.account import Identity
from agentd.environments.admission import admit
from agentd.environments.answers import file_error
from agentd.environments.context import Environment
from agentd.environments.reading import Query
from agentd.files.acting import Actor, PlainDestination, acting, open_regular
from agentd.files.disk import DiskGuard, Spool
from agentd.files.errors import FilesError, Kind
from agentd.files.listing import Entry, list_directory
from agentd.files.pump import Flow
from agentd.files.removal import Protected, remove
from agentd.files.send import FileRead
from agentd.files.threads import RunInThread, run_sliced, shielded
from agentd.files.write import FileSink, Written, open_sink
from agentd.http import transfer
from agentd.http.messages import OCTETS, Answer, Refused, Response, as_json
from agentd.http.request import AgentRequest, BodyTooLarge

SPOOL: Final = b"/tmp"
"""Where content waits that cannot wait beside its target."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FileRoutes:
    """The handlers."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._guard = DiskGuard(environment.disk_reserve)
        self._writing: dict[tuple[int, int], tuple[DeferredLock, int]] = {}

    def _acting(self, identity: Identity) -> RunInThread:
        actor = Actor(identity.uid, identity.gid, identity.groups)
        return acting(self._environment.tools.run_in_thread, actor)

    # -- GET ------------------------------------------------------------------------------------------------

    async def read(self, request: AgentRequest, id: str) -> Answer:
        """``GET /files``. A file that fails or shrinks on the way ends the connection, never the body (5.3)."""
        identity = await admit(self._environment, id)
        path = _system(identity, Query(request).path())
        run = self._acting(identity)
        opening = shielded(run(open_regular, path), lambda content: run(content.close))
        try:
            content = await opening
        except FilesError as error:
            _refuse("read", error)
        return await transfer.send(request, FileRead(self._environment.clock, run, content), 200, OCTETS, ())

    # -- PUT ------------------------------------------------------------------------------------------------

    async def write(self, request: AgentRequest, id: str) -> Answer:
        """``PUT /files``. All that headers, path and rights can be refused for is, before the body is asked for."""
        identity = await admit(self._environment, id)
        query = Query(request)
        path, parents = query.path(), query.flag("mkdir")
        limit = self._environment.limits.put
        if request.declared is not None and request.declared > limit:
            raise Refused(answers.too_large(limit))
        target = PlainDestination(_system(identity, path), parents, self._guard, Spool(SPOOL))

        def begin(flow: Flow) -> "Deferred[_Turn]":
            sink = open_sink(
                self._environment.clock, self._acting(identity), target, flow, None, hashed=False
            )
            return sink.addCallback(lambda opened: _Turn(opened, self, target))

        try:
            written: Written = await transfer.receive(request, begin, limit)
        except BodyTooLarge:
            raise Refused(answers.too_large(limit)) from None
        except FilesError as error:
            _refuse("write", error, parents=parents)
        return as_json(shapes.WriteFileResult(paths.shown(identity.home, path), written.size), 201)

    async def in_turn(self, key: tuple[int, int] | None, work: Callable[[], "Deferred[Any]"]) -> Any:
        """`work`, with no other for the same file at a time: two contents must never mix, even copied in place."""
        if key is None:
            return await work()
        lock, users = self._writing.get(key, (DeferredLock(), 0))
        self._writing[key] = lock, users + 1
        try:
            return await lock.run(work)
        finally:
            lock, users = self._writing.pop(key)
            if users > 1:
                self._writing[key] = lock, users - 1

    # -- DELETE ---------------------------------------------------------------------------------------------

    async def remove(self, request: AgentRequest, id: str) -> Answer:
        """``DELETE /files``: a link itself, a directory only with everything in it."""
        identity = await admit(self._environment, id)
        query = Query(request)
        path, recursive = query.path(), query.flag("recursive")
        steps = remove(_system(identity, path), recursive, (b"/", os.fsencode(identity.home)))
        try:
            await run_sliced(self._acting(identity), steps)
        except Protected:
            raise answers.invalid("this directory must stay") from None
        except OSError as error:
            raise Refused(file_error("delete", error.errno)) from None
        return Response(204)

    # -- list -----------------------------------------------------------------------------------------------

    async def list(self, request: AgentRequest, id: str) -> Answer:
        """``GET /files/list``."""
        identity = await admit(self._environment, id)
        path = Query(request).path()
        run = self._acting(identity)
        try:
            response: Response = await run(
                listing,
                _system(identity, path),
                paths.shown(identity.home, path),
                self._environment.limits.listing,
            )
        except NotADirectoryError:
            raise answers.invalid("path is not a directory") from None
        except OSError as error:
            raise Refused(file_error("list", error.errno)) from None
        return response


def _system(identity: Identity, path: str) -> bytes:
    return os.fsencode(paths.absolute(identity.home, path))


def _refuse(operation: str, error: FilesError, *, parents: bool = False) -> NoReturn:
    number = errno.ENOSPC if error.kind is Kind.NO_SPACE else error.errno
    raise Refused(file_error(operation, number, parents=parents)) from None


class _Turn:
    """A sink whose end waits for its turn at the file it replaces."""

    def __init__(self, sink: FileSink, routes: FileRoutes, target: PlainDestination) -> None:
        self._sink = sink
        self._routes = routes
        self._target = target
        self.write = sink.write
        self.abort = sink.abort

    def finish(self) -> "Deferred[Any]":
        return Deferred.fromCoroutine(self._routes.in_turn(self._target.replaces, self._sink.finish))


def listing(path: bytes, shown: str, most: int) -> Response:
    """The answer for a directory. Blocks; raises OSError."""
    found = list_directory(path, most)
    entries = [_entry(entry) for entry in found.entries]
    return as_json(shapes.DirectoryListing(shown, entries, found.truncated))


def _entry(entry: Entry) -> shapes.DirectoryEntry:
    status = entry.status
    try:
        name, encoded = entry.name.decode(), None
    except UnicodeDecodeError:
        name, encoded = entry.name.decode("utf-8", "replace"), base64.b64encode(entry.name).decode()
    return shapes.DirectoryEntry(
        name=name,
        type=entry.type,  # type: ignore[arg-type]  # one of the four, by its docstring
        size=None if status is None else status.st_size,
        mode=None if status is None else _mode(status.st_mode),
        modified_at=None if status is None else file_time(status.st_mtime_ns),
        target=UNSET if entry.target is None else entry.target.decode("utf-8", "replace"),
        name_b64=UNSET if encoded is None else encoded,
    )


@cache
def _mode(mode: int) -> str:
    """Four octal digits; there are few different ones."""
    return f"{mode & 0o7777:04o}"


def file_time(nanoseconds: int) -> datetime | None:
    """A file's time; None for one that no calendar of four digits has."""
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return None

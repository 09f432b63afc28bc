"""The file routes of protocol v1: one file or one tree, in or out, streamed both ways (contract a.10, e).

Answers are text: prose for a person, with a status that says what kind of fault it is. Paths are bytes; a query may
carry any of them percent-encoded.
"""

import os
from collections.abc import Callable
from typing import Any, Final, NoReturn

from twisted.internet.defer import Deferred

from agentd.files.disk import DiskGuard
from agentd.files.errors import FilesError, Kind, RangeUnsatisfiable
from agentd.files.pump import Flow
from agentd.files.service import Files
from agentd.http import transfer
from agentd.http.messages import OCTETS, TAR, Answer, Headers, Refused, Response, as_text
from agentd.http.query import Malformed, parse_query
from agentd.http.request import AgentRequest
from agentd.microvm.context import Daemon
from agentd.rules.lines import InvalidWindow, line_window
from agentd.rules.members import Caps
from agentd.rules.writes import InvalidDigest, InvalidMode, format_digest, parse_digest, parse_mode

WRITE_HEADER: Final = b"agentd-write"
"""How a file was put in place: ``atomic`` or ``in-place``."""
LEFT_OUT_HEADER: Final = b"agentd-tar-left-out"
"""How many entries vanished while the tree was packed."""

_STATUS = {
    Kind.BAD_REQUEST: 400,
    Kind.NOT_FOUND: 404,
    Kind.UNSATISFIABLE: 416,
    Kind.TOO_LARGE: 413,
    Kind.UNSUPPORTED: 415,
    Kind.NO_SPACE: 507,
    Kind.FAILED: 500,
}


def _refuse(error: FilesError) -> NoReturn:
    answer = as_text(_STATUS[error.kind], error.detail)
    if isinstance(error, RangeUnsatisfiable):
        size = (b"Content-Range", b"bytes */%d" % error.size)
        answer = Response(answer.status, answer.body, answer.content_type, (size,))
    raise Refused(answer) from None


def _query(request: AgentRequest) -> tuple[bytes, dict[str, str]]:
    """The path, and all the query's pairs; raises `Refused`."""
    try:
        query = parse_query(request.query)
    except Malformed as reason:
        raise Refused(as_text(400, str(reason))) from None
    if "path" not in query:
        raise Refused(as_text(400, "the path query parameter is required"))
    return os.fsencode(query["path"]), query


def _header(request: AgentRequest, name: bytes) -> str | None:
    lines = request.requestHeaders.getRawHeaders(name)
    return ", ".join(line.decode("latin-1") for line in lines) if lines else None


class FileRoutes:
    """The handlers."""

    def __init__(self, daemon: Daemon) -> None:
        config = daemon.config
        self._files = Files(
            reactor=daemon.clock,
            run_in_thread=daemon.tools.run_in_thread,
            caps=Caps(config.max_tar_members, config.max_tar_bytes),
            guard=DiskGuard(config.disk_reserve_bytes),
        )
        self._limit = config.max_body_bytes

    async def read(self, request: AgentRequest) -> Answer:
        """``GET /v1/fs/file``. A bound is judged before the file is looked at (contract e.2)."""
        path, query = _query(request)
        try:
            window = line_window(query.get("start_line"), query.get("end_line"))
        except InvalidWindow as reason:
            raise Refused(as_text(400, str(reason))) from None
        try:
            found = await self._files.read(path, window, _header(request, b"range"))
        except FilesError as error:
            _refuse(error)
        headers: Headers = ((b"Accept-Ranges", b"bytes"),)
        if found.range is None:
            return await transfer.send(request, found, 200, OCTETS, headers)
        part = b"bytes %d-%d/%d" % (
            found.range.first,
            found.range.first + found.range.length - 1,
            found.size or 0,
        )
        return await transfer.send(request, found, 206, OCTETS, (*headers, (b"Content-Range", part)))

    async def write(self, request: AgentRequest) -> Answer:
        """``PUT /v1/fs/file``. Everything that can be refused is, before a byte lands (contract e.3)."""
        path, query = _query(request)
        try:
            mode = parse_mode(query["mode"]) if "mode" in query else None
            digest = _declared_digest(request)
        except (InvalidMode, InvalidDigest) as reason:
            raise Refused(as_text(400, str(reason))) from None
        written = await self._upload(request, lambda flow: self._files.write(path, mode, digest, flow))
        headers = (
            (WRITE_HEADER, written.way.encode()),
            (b"Repr-Digest", format_digest(written.sha256).encode()),
        )
        return Response(204, headers=headers)

    async def pack(self, request: AgentRequest) -> Answer:
        """``GET /v1/fs/tar``."""
        path, _ = _query(request)
        try:
            tree = await self._files.pack(path, _header(request, b"accept-encoding"))
        except FilesError as error:
            _refuse(error)
        headers: Headers = (
            (b"Vary", b"Accept-Encoding"),
            (LEFT_OUT_HEADER, b"%d" % tree.packed.vanished),
        )
        if tree.coding != "identity":
            headers = (*headers, (b"Content-Encoding", tree.coding.encode()))
        return await transfer.send(request, tree.read, 200, TAR, headers)

    async def extract(self, request: AgentRequest) -> Answer:
        """``PUT /v1/fs/tar``."""
        path, _ = _query(request)
        encoding = _header(request, b"content-encoding")
        await self._upload(request, lambda flow: self._files.extract(path, encoding, flow))
        return Response(204)

    async def _upload(self, request: AgentRequest, begin: Callable[[Flow], "Deferred[Any]"]) -> Any:
        try:
            return await transfer.receive(request, begin, self._limit)
        except FilesError as error:
            _refuse(error)


def _declared_digest(request: AgentRequest) -> bytes | None:
    for name in (b"repr-digest", b"content-digest"):
        field = _header(request, name)
        digest = parse_digest(field) if field is not None else None
        if digest is not None:
            return digest
    return None

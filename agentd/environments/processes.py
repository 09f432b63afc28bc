"""The routes of background processes: start, list, look, delete, read, signal (environments 6, 7)."""

from typing import Final

from agentd.environments import answers, reading, shapes
from agentd.environments.account import Identity
from agentd.environments.admission import admit
from agentd.environments.answers import Slug
from agentd.environments.context import Environment
from agentd.environments.input import InputQueue
from agentd.environments.log import TextLog
from agentd.environments.poll import LongPoll
from agentd.environments.reading import Query
from agentd.environments.start import Request, check, start
from agentd.environments.table import Process, ProcessTable
from agentd.http.messages import Answer, Refused, Response, as_json
from agentd.http.request import AgentRequest
from agentd.http.shield import shielded
from agentd.process.follow import Piece
from agentd.rules import processes
from agentd.rules.processes import Verdict

LARGE_OUTPUT: Final = 256 * 1024
"""Output from which on a reply is made on a pool thread, in bytes."""
LARGE_COUNT: Final = 1024
"""Chunks from which on it is."""

NOTHING: Final = Response(204)


def beyond_end() -> Refused:
    """400: no client can know of an offset that is not there yet."""
    return answers.invalid("since is beyond the end of the output")


class ProcessRoutes:
    """The handlers."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.table = ProcessTable(environment.limits.processes)

    def find(self, pid: str) -> Process:
        """The process of that id, or `Refused` with 404."""
        process = self.table.get(pid)
        if process is None:
            raise Refused(answers.NO_RESOURCE)
        return process

    # -- start, list, look, delete -------------------------------------------------------------------------

    async def spawn(self, request: AgentRequest, id: str) -> Answer:
        """``POST /processes``. The slot is taken before the start, so that no number of requests exceeds them."""
        environment = self._environment
        limits = environment.limits
        identity = await admit(environment, id)
        asked = await reading.read_json(
            request, shapes.SpawnRequest, limits.json, environment.tools.run_in_thread
        )
        wanted = check(asked, 0, 0, limits.max_spawn_timeout)
        if not self.table.reserve():
            most = self.table.limit
            raise answers.refuse(
                429, Slug.TOO_MANY_PROCESSES, f"{most} background processes exist; delete one first"
            )
        process = await shielded(self._start(identity, wanted, asked))
        return as_json(process.shown(), 201)

    async def _start(self, identity: Identity, wanted: Request, asked: shapes.SpawnRequest) -> Process:
        limits = self._environment.limits
        stdin = bool(asked.stdin)
        log = TextLog(limits.ring)
        try:
            job, cwd = await start(self._environment, identity, wanted, stdin, log)
        except BaseException:
            self.table.release()
            raise
        process = Process(
            pid=self.table.name(),
            argv=asked.argv,
            command=asked.command,
            cwd=cwd,
            timeout=wanted.timeout,
            job=job,
            log=log,
            input=InputQueue(job, stdin, limits.input),
        )
        self.table.add(process)
        return process

    async def list(self, request: AgentRequest, id: str) -> Answer:
        """``GET /processes``."""
        await admit(self._environment, id)
        return as_json(shapes.ProcessList([process.shown() for process in self.table]))

    async def look(self, request: AgentRequest, id: str, pid: str) -> Answer:
        """``GET /processes/{pid}``."""
        await admit(self._environment, id)
        return as_json(self.find(pid).shown())

    async def delete(self, request: AgentRequest, id: str, pid: str) -> Answer:
        """``DELETE /processes/{pid}``. The record and its slot are gone when this is answered."""
        await admit(self._environment, id)
        self.table.delete(self.find(pid))
        return NOTHING

    async def signal(self, request: AgentRequest, id: str, pid: str) -> Answer:
        """``POST /processes/{pid}/signal``. Of one that has exited: the same answer, and nothing is done."""
        environment = self._environment
        await admit(environment, id)
        asked = await reading.read_json(
            request, shapes.SignalRequest, environment.limits.json, environment.tools.run_in_thread
        )
        self.find(pid).signal(asked.signal)
        return NOTHING

    # -- reading -------------------------------------------------------------------------------------------

    async def output(self, request: AgentRequest, id: str, pid: str) -> Answer:
        """``GET /processes/{pid}/output``, a long poll."""
        environment = self._environment
        limits = environment.limits
        await admit(environment, id)
        query = Query(request)
        since = query.unsigned("since")
        seconds = min(query.unsigned("wait_secs"), limits.max_wait)
        process = self.find(pid)
        poll, verdict = processes.ask(since, process.log.span, seconds > 0)
        if verdict is Verdict.BEYOND_END:
            raise beyond_end()
        if verdict is Verdict.WAIT:
            verdict = await LongPoll(process, poll, seconds, environment.clock, limits).result
        if verdict is Verdict.NOT_FOUND:
            raise Refused(answers.NO_RESOURCE)
        return await self._reply(process, since)

    async def _reply(self, process: Process, since: int) -> Response:
        limits = self._environment.limits
        pieces, end = process.log.page(since, limits.reply, limits.chunks)
        over = processes.final(end, process.log.span)
        ended = process.exit if over else None
        start = process.log.span.start

        def encode() -> Response:
            return as_json(
                shapes.ProcessOutput(
                    chunks=[chunk_of(piece) for piece in pieces],
                    next=end,
                    exited=over,
                    exit=ended,
                    output_start=start,
                )
            )

        if len(pieces) < LARGE_COUNT and sum(len(piece.data) for piece in pieces) < LARGE_OUTPUT:
            return encode()
        response: Response = await self._environment.tools.run_in_thread(encode)
        return response


def chunk_of(piece: Piece) -> shapes.OutputChunk:
    """A piece as text. It begins and ends between characters, so it decodes on its own."""
    return shapes.OutputChunk(
        shapes.STREAM_NAMES[piece.stream], piece.offset, piece.data.decode("utf-8", "replace")
    )

"""``GET /v1/schema``: the contract and the limits in force, in two notations (contract h.2).

The schema document is that of protocol v1 alone, as published. The OpenAPI document covers everything the
daemon serves.
"""

from typing import Final

import msgspec

from agentd.config import Config
from agentd.http.document import openapi_document, schema_document
from agentd.http.messages import JSON, Answer, Response
from agentd.http.reading import malformed, read_query
from agentd.http.request import AgentRequest
from agentd.http.routes import Route
from agentd.microvm.routes import HOOK_PREFIX

TITLE: Final = "microvms-agentd wire protocol"


def limits(config: Config) -> dict[str, float]:
    """The twelve limits that the document publishes; seconds are decimals."""
    return {
        "exec_ttl_secs": config.exec_ttl_secs,
        "kill_grace_secs": config.kill_grace_secs,
        "max_body_bytes": config.max_body_bytes,
        "max_drain_bytes": config.max_drain_bytes,
        "max_output_bytes": config.max_output_bytes,
        "max_stdin_write_bytes": config.max_stdin_write_bytes,
        "max_tar_bytes": config.max_tar_bytes,
        "max_tar_members": config.max_tar_members,
        "output_linger_secs": config.output_linger_secs,
        "sse_keepalive_secs": config.sse_keepalive_secs,
        "stdin_write_timeout_secs": config.stdin_write_timeout_secs,
        "stream_replay_bytes": config.stream_buffer_bytes,
    }


class SchemaRoute:
    """The handler. Documents are made once, at the first request for each."""

    def __init__(self, routes: tuple[Route, ...], config: Config, documented: tuple[Route, ...] = ()) -> None:
        self._routes = routes
        self._documented = (*routes, *documented)
        self._limits = limits(config)
        self._made: dict[str, Response] = {}

    def schema(self, request: AgentRequest) -> Answer:
        """``GET /v1/schema``, with ``format=openapi`` the same routes as OpenAPI."""
        wanted = read_query(request).get("format", "schema")
        if wanted not in ("schema", "openapi"):
            raise malformed("format must be openapi, or absent")
        response = self._made.get(wanted)
        if response is None:
            document = (
                openapi_document(self._documented, TITLE)
                if wanted == "openapi"
                else schema_document(self._routes, self._limits, HOOK_PREFIX, TITLE)
            )
            response = self._made[wanted] = Response(200, msgspec.json.encode(document), JSON)
        return response

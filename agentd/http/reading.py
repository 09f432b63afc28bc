"""Reading what a caller sent into wire shapes, with the refusals of the exec family.

The limits here exist because a JSON body is gathered in memory: an argument list that a kernel would take is
far below `Config.max_json_bytes`, whatever the cap on streamed bodies is.
"""

from typing import Any

from agentd.http.messages import TOO_LARGE, Refused, refuse
from agentd.http.query import JsonBody, Malformed, is_json, parse_query
from agentd.http.request import AgentRequest, BodyTooLarge


async def read_json(request: AgentRequest, shape: JsonBody, limit: int) -> Any:
    """The decoded body, or `Refused`: 400 ``malformed_request``, 413 for a declared length over `limit`."""
    if request.declared is not None and request.declared > limit:
        raise Refused(TOO_LARGE)
    content_type = request.requestHeaders.getRawHeaders(b"content-type")
    if not is_json(content_type[0] if content_type else None):
        raise malformed("the content type must be application/json")
    try:
        body = await request.read_body(limit)
    except BodyTooLarge:
        raise malformed(f"the body is longer than {limit} bytes") from None
    try:
        return shape.decode(body)
    except Malformed as reason:
        raise malformed(str(reason)) from None


def read_query(request: AgentRequest) -> dict[str, str]:
    """The query's pairs, or `Refused` with 400 ``malformed_request``."""
    try:
        return parse_query(request.query)
    except Malformed as reason:
        raise malformed(str(reason)) from None


def malformed(detail: str) -> Refused:
    """A 400 of the exec family."""
    return refuse(400, "malformed_request", detail)

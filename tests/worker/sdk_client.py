"""A client on the published Python SDK, in a process of its own: a JSON request a line in, an answer a line out.

The same requests as ``sdk_client.mjs`` takes: `call`, `read`, `write` and `serve`.
"""

import asyncio
import base64
import json
import sys
from typing import Any

from iii import InitOptions, InvocationError, register_worker
from iii.channels import ChannelReader
from iii.helpers import create_channel_async
from iii.iii_types import StreamChannelRef

URL = sys.argv[1]


async def answer(client: Any, request: dict[str, Any]) -> dict[str, Any]:
    async def trigger(id: str, payload: Any) -> Any:
        return await client.trigger_async({"function_id": id, "payload": payload})

    kind = request["op"]
    if kind == "call":
        return {"result": await trigger(request["id"], request["payload"])}
    if kind == "read":
        result = await trigger("shell::fs::read", request["payload"])
        content = result["content"]
        # Results are not resolved by the SDK; its reader is made of the reference.
        reader = (
            content if isinstance(content, ChannelReader) else ChannelReader(URL, StreamChannelRef(**content))
        )
        data = await reader.read_all()
        return {"result": result, "data": base64.b64encode(data).decode()}
    if kind == "write":
        channel = await create_channel_async(client)
        payload = {**request["payload"], "content": channel.reader_ref.model_dump()}
        writing = asyncio.ensure_future(trigger("shell::fs::write", payload))
        await channel.writer.write(base64.b64decode(request["data"]))
        await channel.writer._ensure_connected()
        await channel.writer.close_async()
        return {"result": await writing}
    if kind == "serve":
        client.register_function(
            request["id"],
            lambda data: {"stdout": json.dumps(data), "exit_code": 0},
            description="Says what it was given.",
            metadata={"internal": True},
            request_format={"type": "object"},
            response_format={"type": "object"},
        )
        if request.get("trigger"):
            client.register_trigger(
                {
                    "type": "configuration",
                    "function_id": request["id"],
                    "config": {"configuration_id": "shell"},
                }
            )
        return {"result": None}
    raise AssertionError(kind)


async def main() -> None:
    options = InitOptions(
        worker_name="python-client", otel={"enabled": False}, enable_metrics_reporting=False
    )
    client = register_worker(URL, options)
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                said = await answer(client, json.loads(line))
            except InvocationError as reason:
                said = {"error": {"code": reason.code, "message": reason.message}}
            print(json.dumps(said), flush=True)
    finally:
        client.shutdown()


asyncio.run(main())

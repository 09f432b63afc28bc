import pytest_twisted
from tests.client.support import *


@pytest_twisted.ensureDeferred
async def test_health(serve):
    script, c = serve(answer(200, {"version": "1", "bootstrapped": True, "new": 1}))
    h = await c.health()
    assert h.version == "1" and h.busy is False
    assert "authorization" not in script.requests[0].headers
    print(script.requests)


@pytest_twisted.ensureDeferred
async def test_follow(serve):
    script, c = serve(stream(output(0, b"abc"), cut=True), stream(b": x\n\n", output(3, b"def"), exited(6)))
    got = [e async for e in c.exec("a/b").follow()]
    print(got, script.requests)


@pytest_twisted.ensureDeferred
async def test_write(serve):
    script, c = serve(answer(204), answer(507, b"disk full"))
    print(await c.files.write("/x", b"abc"))
    import io

    try:
        await c.files.write("/x", io.BytesIO(b"abc"))
    except Exception as e:
        print(repr(e), type(e).__mro__)
    print(script.requests)

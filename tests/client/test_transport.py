"""One request: credentials on it, a deadline around it, a typed error out of it."""

import datetime
import traceback
from typing import Any

import pytest
import pytest_twisted
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from treq.testing import StringStubbingResource, StubTreq
from twisted.internet import reactor, ssl
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.web.client import BrowserLikePolicyForHTTPS

from agentd.client import errors, transport
from agentd.client.client import Client
from agentd.client.messages import Health
from agentd.client.retry import NO_RETRY
from tests.client.conftest import Connect, Serve
from tests.client.support import Cut, Hang, Script, Send, answer, until

HEALTH = {"version": "9.9", "bootstrapped": True}


@pytest_twisted.ensureDeferred
async def test_open_routes_carry_no_token_and_the_others_do(serve: Serve) -> None:
    script, client = serve(answer(200, HEALTH), answer(200, {"procs": []}), token="sesame")
    await client.health()
    await client.procs()
    assert "authorization" not in script.requests[0].headers
    assert script.requests[1].headers["authorization"] == "Bearer sesame"
    assert "accept-encoding" not in script.requests[1].headers


@pytest_twisted.ensureDeferred
async def test_an_older_daemon_lacks_fields_and_a_newer_one_has_more(serve: Serve) -> None:
    _, client = serve(
        answer(200, HEALTH),
        answer(
            200,
            HEALTH | {"execs": 3, "later": {"a": 1}, "disk": None, "hooks": [{"hook": "run", "fired_at": 1}]},
        ),
    )
    assert await client.health() == Health("9.9", True)
    newer = await client.health()
    assert (newer.execs, newer.hooks[0].hook, newer.hooks[0].handler) == (3, "run", None)


@pytest_twisted.ensureDeferred
async def test_a_passing_fault_is_tried_again_and_the_connection_is_kept(serve: Serve) -> None:
    script, client = serve(answer(503), answer(500, b"Service panicked"), answer(200, HEALTH))
    assert (await client.health()).version == "9.9"
    assert len(script.requests) == 3
    assert len(script.connections) == 1


@pytest_twisted.ensureDeferred
async def test_the_last_fault_is_reported_with_the_number_of_attempts(serve: Serve) -> None:
    _, client = serve(*[answer(503)] * 4)
    with pytest.raises(errors.Unavailable) as fault:
        await client.health()
    assert fault.value.attempts == 4


@pytest.mark.parametrize("status", [400, 401, 404, 409, 410, 413, 507])
@pytest_twisted.ensureDeferred
async def test_a_refusal_is_not_repeated(serve: Serve, status: int) -> None:
    script, client = serve(answer(status, {"error": "x", "detail": "because"}))
    with pytest.raises(errors.AnswerError, match="because"):
        await client.procs()
    assert len(script.requests) == 1


@pytest_twisted.ensureDeferred
async def test_a_redirect_is_not_followed(serve: Serve) -> None:
    elsewhere, _ = serve()
    script, client = serve(answer(307, b"", {"Location": elsewhere.url}))
    with pytest.raises(errors.AnswerError, match="307"):
        await client.procs()
    assert elsewhere.requests == []
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    "steps",
    [
        [Cut()],
        [Send(b"HTTP/1.1 200 OK\r\nContent-Le"), Cut()],
        [Send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), Cut()],
        [Send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}"), Cut()],
        [Send(b"not http at all\r\n\r\n"), Cut()],
        [Send(b"HTTP/1.1 200 OK\r\n\r\n" + b'{"procs": []}'), Cut()],
    ],
)
@pytest_twisted.ensureDeferred
async def test_an_answer_cut_anywhere_is_a_transport_fault(serve: Serve, steps: list[Any]) -> None:
    _, client = serve(steps, backoff=NO_RETRY)
    with pytest.raises(errors.TransportFault) as fault:
        await client.procs()
    assert fault.value.retryable


@pytest_twisted.ensureDeferred
async def test_nobody_there(serve: Serve) -> None:
    script, client = serve(backoff=NO_RETRY)
    await script.close()
    with pytest.raises(errors.Unreachable, match="cannot connect"):
        await client.health()


@pytest_twisted.ensureDeferred
async def test_no_answer_in_time(serve: Serve) -> None:
    script, client = serve([Hang()], backoff=NO_RETRY, timeout=0.2)
    with pytest.raises(errors.TransportFault, match=r"within 0\.2 seconds"):
        await client.health()
    await until(lambda: script.lost == 1)


@pytest_twisted.ensureDeferred
async def test_an_answer_that_stalls_in_its_body(serve: Serve) -> None:
    head = Send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    script, client = serve([head, Hang()], backoff=NO_RETRY, idle=0.2)
    with pytest.raises(errors.IdleTimeout):
        await client.health()
    await until(lambda: script.lost == 1)


@pytest_twisted.ensureDeferred
async def test_a_cancelled_request_stays_cancelled_and_is_not_repeated(serve: Serve) -> None:
    script, client = serve([Hang()])
    pending = Deferred.fromCoroutine(client.health())
    await until(lambda: script.requests)
    pending.cancel()
    with pytest.raises(CancelledError):
        await pending
    await until(lambda: script.lost == 1)
    assert len(script.requests) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"version": 1}', b"\xff\xfe", b"<html>"])
@pytest_twisted.ensureDeferred
async def test_an_answer_that_is_not_the_protocols(serve: Serve, body: bytes) -> None:
    _, client = serve(answer(200, body))
    with pytest.raises(errors.ProtocolFault, match="GET /v1/health"):
        await client.health()


@pytest_twisted.ensureDeferred
async def test_an_answer_without_end_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_ANSWER_BYTES", 1000)
    endless = Send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b" " * 5000)
    script, client = serve([endless, Hang()])
    with pytest.raises(errors.ProtocolFault, match="1000"):
        await client.health()
    await until(lambda: script.lost == 1)


@pytest_twisted.ensureDeferred
async def test_a_huge_error_page_is_not_read(serve: Serve) -> None:
    page = b"x" * 10_000_000
    _, client = serve(answer(404, page, {"Content-Type": "text/plain"}))
    with pytest.raises(errors.NotFound) as fault:
        await client.procs()
    assert len(str(fault.value)) < 3000


@pytest_twisted.ensureDeferred
async def test_an_error_page_that_echoes_the_token_does_not_leak_it(serve: Serve) -> None:
    token = "eyJhbGciOi-sesame"
    echo = {"error": token, "detail": f"Authorization: Bearer {token}"}
    _, client = serve(
        answer(403, echo), answer(400, f"bad {token}".encode(), {"Content-Type": "text/plain"}), token=token
    )
    for _ in range(2):
        with pytest.raises(errors.AnswerError) as fault:
            await client.procs()
        shown = "".join(traceback.format_exception(fault.value)) + repr(vars(fault.value)) + repr(client)
        assert "sesame" not in shown
        assert "***" in str(fault.value)


@pytest_twisted.ensureDeferred
async def test_the_token_may_come_from_a_function_or_later(serve: Serve) -> None:
    answers = iter(["one", succeed("two")])
    script, client = serve(
        answer(200, {"procs": []}), answer(200, {"procs": []}), token=lambda: next(answers)
    )
    await client.procs()
    await client.procs()
    assert [r.headers["authorization"] for r in script.requests] == ["Bearer one", "Bearer two"]


@pytest_twisted.ensureDeferred
async def test_a_token_outside_ascii_is_sent_as_utf8(serve: Serve) -> None:
    script, client = serve(answer(200, {"procs": []}), token="schlüssel")
    await client.procs()
    assert script.requests[0].headers["authorization"].encode("latin-1") == "Bearer schlüssel".encode()


@pytest.mark.parametrize(
    "url", ["", "localhost:9000", "ftp://h", "http://", "http://u:p@h", "http://h/?x=1", "http://h/#f"]
)
def test_a_url_that_cannot_be_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="the daemon's URL"):
        Client(url, reactor=reactor)


@pytest_twisted.ensureDeferred
async def test_a_prefix_in_the_url_is_kept(serve: Serve, connect: Connect) -> None:
    script, _ = serve(answer(200, HEALTH))
    await connect(f"{script.url}/vm/7/").health()
    assert script.requests[0].target == "/vm/7/v1/health"


def test_any_client_with_treqs_request_will_do() -> None:
    seen: list[Any] = []

    def respond(
        method: bytes, url: str, params: Any, headers: Any, data: bytes
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        seen.append((method, url, data))
        return 200, {b"content-type": b"application/json"}, b'{"version": "m", "bootstrapped": false}'

    client = Client("http://memory.invalid", reactor=reactor, http=StubTreq(StringStubbingResource(respond)))
    found: list[Any] = []
    Deferred.fromCoroutine(client.health()).addBoth(found.append)
    assert found == [Health("m", False)]
    assert seen == [(b"GET", "http://memory.invalid/v1/health", b"")]


@pytest_twisted.ensureDeferred
async def test_bootstrap_posts_the_envelope_and_adopts_the_token(serve: Serve) -> None:
    import json

    script, client = serve(answer(200), answer(200, {"procs": []}), token=None)
    await client.bootstrap("fresh", {"A": "1"})
    await client.procs()
    hook = script.requests[0]
    assert (hook.method, hook.path) == ("POST", "/aws/lambda-microvms/runtime/v1/run")
    assert hook.headers["content-type"] == "application/json"
    assert json.loads(hook.json["runHookPayload"]) == {"agent_token": "fresh", "env": {"A": "1"}}
    assert script.requests[1].headers["authorization"] == "Bearer fresh"


@pytest_twisted.ensureDeferred
async def test_a_bootstrap_conflict_keeps_the_token(serve: Serve) -> None:
    script, client = serve(answer(409), answer(200, {"procs": []}), token="mine")
    with pytest.raises(errors.BootstrapConflict, match="another token"):
        await client.bootstrap("other")
    await client.procs()
    assert script.requests[1].headers["authorization"] == "Bearer mine"


@pytest_twisted.ensureDeferred
async def test_schema_and_openapi(serve: Serve) -> None:
    script, client = serve(answer(200, {"routes": []}), answer(200, {"openapi": "3.1.0"}))
    assert await client.schema() == {"routes": []}
    assert await client.schema(openapi=True) == {"openapi": "3.1.0"}
    assert [r.target for r in script.requests] == ["/v1/schema", "/v1/schema?format=openapi"]


def self_signed() -> tuple[Any, Any]:
    """A certificate for localhost, as a server's context factory and as a client's policy that trusts it alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    server = ssl.PrivateCertificate.loadPEM(text + secret)
    trusted = BrowserLikePolicyForHTTPS(
        trustRoot=ssl.trustRootFromCertificates([ssl.Certificate.loadPEM(text)])
    )
    return server.options(), trusted


@pytest_twisted.ensureDeferred
async def test_https_is_verified_for_requests_and_for_tunnels(connect: Connect) -> None:
    context, trusted = self_signed()
    script = Script([answer(200, HEALTH), answer(401)])
    script.listen(context)
    url = f"https://localhost:{script.port.getHost().port}"
    doubtful, trusting = connect(url, backoff=NO_RETRY), connect(url, "t", tls=trusted, backoff=NO_RETRY)
    with pytest.raises(errors.Unreachable, match="TLS failed"):
        await doubtful.health()
    assert (await trusting.health()).version == "9.9"
    with pytest.raises(errors.CredentialFault):
        await trusting.tunnel.open(80)
    with pytest.raises(errors.TransportFault):
        await doubtful.tunnel.open(80)
    assert [request.path for request in script.requests] == ["/v1/health", "/v1/tcp"]
    await script.close()

"""Proxy credentials against a proxy that enforces them, before a real daemon."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_twisted
from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from agentd.client import errors
from agentd.client.client import Client
from agentd.client.credentials import Lifetimes
from agentd.client.proxy import Diagnosis, MintFailed, ProxyCredentials, diagnose
from agentd.client.retry import NO_RETRY
from agentd.client.tunnel import TunnelFailed
from tests.client.conftest import Connect
from tests.client.proxy import ControlPlane, Proxy
from tests.client.support import Script, answer
from tests.conftest import RunningDaemon

PORT = 9000


def done(pending: Deferred[Any]) -> list[Any]:
    found: list[Any] = []
    pending.addBoth(found.append)
    return found


@define(eq=False)
class Rig:
    """A daemon behind a proxy, and a client of both."""

    control: ControlPlane
    proxy: Proxy
    client: Client
    service: Script


@pytest_twisted.async_yield_fixture
async def rig(connect: Connect, daemon: RunningDaemon) -> AsyncIterator[Rig]:
    control = ControlPlane()
    service = Script([answer(200, b"from the service")])
    service.listen()
    proxy = Proxy(control, {PORT: daemon.port, 8080: service.port.getHost().port})
    reached = connect(proxy.listen(), daemon.token, minter=control.mint, backoff=NO_RETRY)
    yield Rig(control, proxy, reached, service)
    await proxy.close()
    await service.close()


# -- when and for what -------------------------------------------------------------------------------------


def credentials(control: ControlPlane, **options: Any) -> tuple[ProxyCredentials, Clock]:
    clock = Clock()
    return ProxyCredentials(control.mint, reactor=clock, **options), clock


def ask(found: ProxyCredentials, port: int) -> list[Any]:
    return done(Deferred.fromCoroutine(found.connect_headers(port)))


def test_headers_name_the_token_and_the_port_and_keep_the_minters_own() -> None:
    found, _ = credentials(ControlPlane())
    (headers,) = ask(found, PORT)
    assert dict(headers) == {"x-AWS-proxy-auth": "proxytoken1", "X-aws-proxy-port": "9000", "X-Extra": "kept"}


def test_subprotocols_in_order_with_an_applications_own_last() -> None:
    found, _ = credentials(ControlPlane())
    (plain,) = done(Deferred.fromCoroutine(found.connect_subprotocols(8080)))
    (own,) = done(Deferred.fromCoroutine(found.connect_subprotocols(8080, "graphql-ws")))
    three = ["lambda-microvms", "lambda-microvms.authentication.proxytoken1", "lambda-microvms.port.8080"]
    assert (plain, own) == (three, [*three, "graphql-ws"])


def test_concurrent_callers_share_one_mint() -> None:
    control = ControlPlane()
    control.hold = Deferred()
    found, _ = credentials(control)
    waiting = [ask(found, PORT) for _ in range(5)] + [ask(found, 8080)]
    assert control.asked == [frozenset({PORT})]
    control.hold.callback(None)
    control.hold = None
    assert [len(each) for each in waiting] == [1] * 6
    assert control.asked == [frozenset({PORT}), frozenset({PORT, 8080})]
    assert found.mint_count == 2
    assert waiting[0][0]["x-AWS-proxy-auth"] == "proxytoken1"
    assert waiting[5][0]["x-AWS-proxy-auth"] == "proxytoken2"


def test_a_caller_who_leaves_does_not_take_the_mint_with_it() -> None:
    control = ControlPlane()
    control.hold = Deferred()
    found, _ = credentials(control)
    first = Deferred.fromCoroutine(found.connect_headers(PORT))
    second = ask(found, PORT)
    left = done(first)
    first.cancel()
    assert left[0].check(CancelledError)
    control.hold.callback(None)
    assert len(second) == 1
    assert found.mint_count == 1


def test_renewal_after_its_time_and_never_beyond_its_life() -> None:
    control = ControlPlane()
    found, clock = credentials(control, lifetimes=Lifetimes(life=60, renewal=30))
    ask(found, PORT)
    clock.advance(29)
    ask(found, PORT)
    assert found.mint_count == 1
    clock.advance(1)
    (headers,) = ask(found, PORT)
    assert (found.mint_count, headers["x-AWS-proxy-auth"]) == (2, "proxytoken2")


def test_a_renewal_that_fails_falls_back_on_a_token_that_still_lives() -> None:
    control = ControlPlane()
    found, clock = credentials(control, lifetimes=Lifetimes(life=60, renewal=30, retry=5))
    ask(found, PORT)
    control.fault = RuntimeError("proxytoken1 was in here")
    clock.advance(31)
    (headers,) = ask(found, PORT)
    assert headers["x-AWS-proxy-auth"] == "proxytoken1"
    ask(found, PORT)
    assert found.mint_count == 2  # not asked again at once
    clock.advance(30)
    (failed,) = ask(found, PORT)
    assert failed.check(MintFailed)
    assert "proxytoken1" not in str(failed.value)
    assert not failed.value.retryable


def test_a_mint_that_hangs_is_given_up() -> None:
    control = ControlPlane()
    control.hold = Deferred()
    found, clock = credentials(control, mint_timeout=7)
    waiting = ask(found, PORT)
    clock.advance(8)
    assert waiting[0].check(MintFailed)


@pytest.mark.parametrize(
    "answered", [{}, {"Other": "x"}, {"X-aws-proxy-auth": ""}, {"X-aws-proxy-auth": "a\nb"}]
)
def test_a_header_map_without_a_usable_token_is_a_failed_mint(answered: dict[str, str]) -> None:
    async def minter(ports: frozenset[int]) -> dict[str, str]:
        return answered

    (failed,) = ask(ProxyCredentials(minter, reactor=Clock()), PORT)
    assert failed.check(MintFailed)


def test_a_resume_drops_the_cache_and_a_mint_from_before_it() -> None:
    control = ControlPlane()
    found, _ = credentials(control)
    ask(found, PORT)
    control.hold = Deferred()
    late = ask(found, 8080)
    found.resumed()
    control.hold.callback(None)
    control.hold = None
    (headers,) = late
    assert headers["x-AWS-proxy-auth"] == "proxytoken3"
    assert control.asked == [frozenset({PORT}), frozenset({PORT, 8080}), frozenset({8080})]


@pytest.mark.parametrize("port", [0, 65536, -1, True, "9000"])
def test_what_is_no_port_is_refused_before_any_mint(port: Any) -> None:
    control = ControlPlane()
    found, _ = credentials(control)
    (failed,) = ask(found, port)
    assert failed.check(ValueError)
    assert control.asked == []


def test_nothing_shows_a_token() -> None:
    found, _ = credentials(ControlPlane())
    (headers,) = ask(found, PORT)
    (offered,) = done(Deferred.fromCoroutine(found.connect_subprotocols(PORT)))
    for text in (
        repr(found),
        repr(headers),
        str(headers),
        repr(offered),
        str(offered),
        repr(list(found.secrets)),
    ):
        assert "proxytoken1" not in text


# -- through the proxy -------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_every_request_passes_the_proxy(rig: Rig) -> None:
    assert (await rig.client.health()).bootstrapped
    outcome = await rig.client.run(["echo", "through"])
    assert outcome.stdout == "through\n"
    async with (await rig.client.start(["echo", "x"])).follow() as events:
        assert [type(event).__name__ async for event in events] == ["Output", "ExitEvent"]
    assert await rig.client.files.read_bytes("/proc/self/comm")
    assert rig.control.asked == [frozenset({PORT})]
    assert rig.client.proxy_mint_count == 1


@pytest_twisted.ensureDeferred
async def test_a_workloads_port_costs_one_mint_and_keeps_the_agents(rig: Rig) -> None:
    await rig.client.health()
    headers = await rig.client.connect_headers(8080)
    assert rig.control.allows(headers["x-AWS-proxy-auth"], 8080)
    assert rig.control.allows(headers["x-AWS-proxy-auth"], PORT)
    await rig.client.health()
    await rig.client.connect_subprotocols(8080)
    assert rig.client.proxy_mint_count == 2


@pytest_twisted.ensureDeferred
async def test_after_a_resume_the_next_request_mints(rig: Rig) -> None:
    await rig.client.health()
    rig.control.scopes.clear()  # the platform forgot it too
    rig.client.resumed()
    await rig.client.health()
    assert rig.client.proxy_mint_count == 2


@pytest_twisted.ensureDeferred
async def test_a_tunnel_offers_the_subprotocols(rig: Rig) -> None:
    tunnel = await rig.client.tunnel.open(rig.service.port.getHost().port)
    await tunnel.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"from the service" in await tunnel.receive()
    await tunnel.close()
    offered = next(head for head in rig.proxy.heads if "/v1/tcp" in head)
    assert "lambda-microvms,lambda-microvms.authentication.proxytoken1,lambda-microvms.port.9000" in offered


@pytest_twisted.ensureDeferred
async def test_a_1006_for_a_wrong_scope_is_told_apart(rig: Rig) -> None:
    await rig.client.health()
    rig.control.scopes["proxytoken1"] = frozenset({8080})
    with pytest.raises(TunnelFailed, match="1006") as failed:
        await rig.client.tunnel.open(1)
    assert failed.value.diagnosis is Diagnosis.WRONG_SCOPE
    assert "proxytoken1" not in str(failed.value)


@pytest_twisted.ensureDeferred
async def test_a_1006_where_nothing_listens_is_told_apart(rig: Rig) -> None:
    await rig.client.health()
    del rig.proxy.ports[PORT]
    with pytest.raises(TunnelFailed, match="nothing listens") as failed:
        await rig.client.tunnel.open(1)
    assert failed.value.diagnosis is Diagnosis.NOTHING_LISTENS


@pytest_twisted.ensureDeferred
async def test_diagnosis_of_a_callers_own_port(rig: Rig) -> None:
    assert await rig.client.diagnose(8080) is Diagnosis.REACHABLE
    assert await rig.client.diagnose(7777) is Diagnosis.NOTHING_LISTENS
    assert await rig.client.diagnose(PORT) is Diagnosis.REACHABLE
    await rig.proxy.close()
    assert await rig.client.diagnose(8080) is Diagnosis.UNREACHABLE


def test_diagnoses() -> None:
    assert [diagnose(status) for status in (403, 502, 200, 404, None)] == [
        Diagnosis.WRONG_SCOPE,
        Diagnosis.NOTHING_LISTENS,
        Diagnosis.REACHABLE,
        Diagnosis.REACHABLE,
        Diagnosis.UNREACHABLE,
    ]


@pytest_twisted.ensureDeferred
async def test_a_failed_mint_is_the_requests_failure(rig: Rig) -> None:
    rig.control.fault = RuntimeError("down")
    with pytest.raises(MintFailed, match="RuntimeError"):
        await rig.client.health()
    assert rig.proxy.heads == []


@pytest_twisted.ensureDeferred
async def test_a_proxy_that_refuses_is_a_final_answer(rig: Rig) -> None:
    await rig.client.health()
    rig.control.scopes.clear()
    with pytest.raises(errors.AnswerError, match="403") as refused:
        await rig.client.health()
    assert not refused.value.retryable


@pytest_twisted.ensureDeferred
async def test_without_a_proxy_there_is_nothing_to_present(connect: Connect, daemon: RunningDaemon) -> None:
    plain = connect(daemon.url, daemon.token)
    assert dict(await plain.connect_headers(8080)) == {}
    assert list(await plain.connect_subprotocols(8080, "own")) == ["own"]
    assert plain.proxy_mint_count == 0
    plain.resumed()

"""Wrong versions of `agentd.rules.tunnel`."""

from attrs import evolve

from agentd.rules.tunnel import (
    Client,
    ClientStep,
    CloseCode,
    CloseFrame,
    Deliver,
    Do,
    Stage,
    Step,
    Transmit,
    Tunnel,
    Verdict,
)
from checker.faults import Function, fault

MODULE = "agentd.rules.tunnel"
FINISHED = CloseFrame(CloseCode.FINISHED, "")


def _done(step: Step, *, without: tuple[Do, ...] = (), more: tuple[Do, ...] = ()) -> Step:
    """A step without some of its actions, and with others before them."""
    then, actions = step
    return then, (*more, *(action for action in actions if action not in without))


def _instead(step: Step, one: Do, other: Do) -> Step:
    then, actions = step
    return then, tuple(other if action is one else action for action in actions)


@fault("any payload is a promise", MODULE, "offered")
def _any_payload(right: Function, payload: bytes) -> bool:
    return bool(payload)


@fault("only a bare bit is a promise", MODULE, "offered")
def _bare_bit(right: Function, payload: bytes) -> bool:
    return payload == b"\x01"


@fault("a reason is cut within a character", MODULE, "fit")
def _within(right: Function, reason: str) -> str:
    return reason.encode()[:123].decode(errors="replace")


@fault("a reason is cut short", MODULE, "fit")
def _short(right: Function, reason: str) -> str:
    return reason[:61]


# -- up to the dial -----------------------------------------------------------------------------------------------


@fault("a VM without keys shakes hands", MODULE, "opened")
def _keyless(right: Function, port: int, *, verified: bool, seeded: bool) -> Step:
    step: Step = right(port, verified=verified, seeded=True)
    return step


@fault("a plain tunnel needs keys", MODULE, "opened")
def _needs_keys(right: Function, port: int, *, verified: bool, seeded: bool) -> Step:
    step: Step = right(port, verified=verified or not seeded, seeded=seeded)
    return step


@fault("a verified tunnel dials at once", MODULE, "opened")
def _dials_at_once(right: Function, port: int, *, verified: bool, seeded: bool) -> Step:
    then, actions = right(port, verified=verified, seeded=seeded)
    if then.stage is Stage.HANDSHAKE:
        return evolve(then, stage=Stage.DIALING), (*actions, Do.DIAL)
    return then, actions


@fault("port 0 is dialled", MODULE, "_dial")
def _port_0(right: Function, tunnel: Tunnel) -> Step:
    return evolve(tunnel, stage=Stage.DIALING), (Do.DIAL,)


@fault("useless keys are ignored", MODULE, "unbuildable")
def _ignored(right: Function, tunnel: Tunnel) -> Step:
    return tunnel, ()


@fault("the second handshake message is forgotten", MODULE, "shaken")
def _unreplied(right: Function, tunnel: Tunnel, caller_offered: bool) -> Step:
    return _done(right(tunnel, caller_offered), without=(Do.REPLY,))


@fault("the caller's promise is forgotten", MODULE, "shaken")
def _unpromised(right: Function, tunnel: Tunnel, caller_offered: bool) -> Step:
    step: Step = right(tunnel, False)
    return step


@fault("a refused handshake is answered", MODULE, "handshake_refused")
def _answered(right: Function, tunnel: Tunnel, why: str) -> Step:
    if tunnel.stage is Stage.HANDSHAKE:
        return evolve(tunnel, stage=Stage.DIALING), (Do.REPLY, Do.DIAL)
    return tunnel, ()


@fault("a caller who leaves early is waited for", MODULE, "caller_closed")
def _waited_for(right: Function, tunnel: Tunnel) -> Step:
    return (tunnel, ()) if tunnel.stage is Stage.HANDSHAKE else right(tunnel)


@fault("a failed dial is a failed relay", MODULE, "dial_failed")
def _failed_relay(right: Function, tunnel: Tunnel, why: str) -> Step:
    then, actions = right(tunnel, why)
    return then, tuple(evolve(action, code=CloseCode.RELAY_FAILED) for action in actions)


@fault("a connection is not relayed", MODULE, "dialled")
def _unrelayed(right: Function, tunnel: Tunnel) -> Step:
    return tunnel, ()


# -- the relay ----------------------------------------------------------------------------------------------------


@fault("bytes come to the guest twice", MODULE, "caller_sent")
def _guest_twice(right: Function, tunnel: Tunnel, data: bytes) -> Step:
    then, actions = right(tunnel, data)
    return then, (*actions, *(action for action in actions if isinstance(action, Deliver)))


@fault("the caller's bytes are swallowed", MODULE, "caller_sent")
def _swallowed(right: Function, tunnel: Tunnel, data: bytes) -> Step:
    then, actions = right(tunnel, data)
    return then, tuple(action for action in actions if not isinstance(action, Deliver))


@fault("a late byte is delivered", MODULE, "caller_sent")
def _late_byte(right: Function, tunnel: Tunnel, data: bytes) -> Step:
    return (tunnel, (Deliver(data),)) if tunnel.stage is Stage.OVER else right(tunnel, data)


@fault("the caller's end means nothing", MODULE, "caller_sent")
def _end_nothing(right: Function, tunnel: Tunnel, data: bytes) -> Step:
    return right(tunnel, data) if data else (tunnel, ())


@fault("the caller's end resets", MODULE, "caller_sent")
def _end_resets(right: Function, tunnel: Tunnel, data: bytes) -> Step:
    return _instead(right(tunnel, data), Do.SHUT, Do.RESET)


@fault("the guest's bytes are swallowed", MODULE, "guest_sent")
def _guest_swallowed(right: Function, tunnel: Tunnel, data: bytes) -> Step:
    return tunnel, ()


@fault("a broken promise is an end of file", MODULE, "_abandon")
def _promise(right: Function, tunnel: Tunnel) -> Do:
    return Do.SHUT


@fault("everybody's end is a reset", MODULE, "_abandon")
def _all_reset(right: Function, tunnel: Tunnel) -> Do:
    return Do.RESET


@fault("a broken message is skipped", MODULE, "caller_broke")
def _skipped(right: Function, tunnel: Tunnel) -> Step:
    return tunnel, ()


@fault("a broken message is answered politely", MODULE, "caller_broke")
def _politely(right: Function, tunnel: Tunnel) -> Step:
    then, actions = right(tunnel)
    return then, tuple(FINISHED if action is Do.DROP else action for action in actions)


@fault("a violation is ignored", MODULE, "caller_violated")
def _no_violation(right: Function, tunnel: Tunnel, code: int, why: str) -> Step:
    return tunnel, ()


@fault("a violation is answered politely", MODULE, "caller_violated")
def _polite_violation(right: Function, tunnel: Tunnel, code: int, why: str) -> Step:
    then, actions = right(tunnel, code, why)
    return then, tuple(FINISHED if action is Do.DROP else action for action in actions)


@fault("a close frame is not noticed", MODULE, "caller_closed")
def _unnoticed(right: Function, tunnel: Tunnel) -> Step:
    return tunnel, ()


@fault("a lost caller is not noticed", MODULE, "caller_lost")
def _lost(right: Function, tunnel: Tunnel) -> Step:
    return tunnel, ()


@fault("the guest's end is not sent on", MODULE, "guest_ended")
def _end_not_sent(right: Function, tunnel: Tunnel) -> Step:
    return _done(right(tunnel), without=(Do.TRANSMIT_END,))


@fault("the end of stream comes after the close", MODULE, "guest_ended")
def _end_after(right: Function, tunnel: Tunnel) -> Step:
    then, actions = right(tunnel)
    return then, actions[::-1]


@fault("the guest's end leaves it open", MODULE, "guest_ended")
def _left_open(right: Function, tunnel: Tunnel) -> Step:
    return _done(right(tunnel), without=(Do.SHUT,))


@fault("the guest's end resets", MODULE, "guest_ended")
def _guest_resets(right: Function, tunnel: Tunnel) -> Step:
    return _instead(right(tunnel), Do.SHUT, Do.RESET)


@fault("the guest's end comes twice", MODULE, "guest_ended")
def _end_twice(right: Function, tunnel: Tunnel) -> Step:
    return (tunnel, (Do.SHUT,)) if tunnel.stage is Stage.OVER else right(tunnel)


@fault("a failed guest is an end", MODULE, "guest_failed")
def _failed_end(right: Function, tunnel: Tunnel) -> Step:
    then, actions = right(tunnel)
    return then, (FINISHED,) if actions else actions


@fault("a guest that refuses sends an end", MODULE, "guest_refused")
def _refuses(right: Function, tunnel: Tunnel) -> Step:
    step: Step = right(tunnel)
    return _done(step, more=(Do.TRANSMIT_END,)) if step[1] else step


@fault("a stop is silent", MODULE, "stopping")
def _silent(right: Function, tunnel: Tunnel) -> Step:
    return tunnel, ()


@fault("a stop ends in good order", MODULE, "stopping")
def _good_order(right: Function, tunnel: Tunnel) -> Step:
    then, actions = right(tunnel)
    return then, tuple(FINISHED if isinstance(action, CloseFrame) else action for action in actions)


@fault("a second stop is told", MODULE, "stopping")
def _second_stop(right: Function, tunnel: Tunnel) -> Step:
    return (tunnel, (FINISHED,)) if tunnel.stage is Stage.OVER else right(tunnel)


# -- the client's end ---------------------------------------------------------------------------------------------


@fault("any handshake will do for the client", MODULE, "client_broke")
def _any_handshake(right: Function, client: Client) -> ClientStep:
    if client.stage is Stage.HANDSHAKE:
        return evolve(client, stage=Stage.RELAYING), ()
    step: ClientStep = right(client)
    return step


@fault("a broken message to the client is skipped", MODULE, "client_broke")
def _client_skips(right: Function, client: Client) -> ClientStep:
    return (client, ()) if client.stage is Stage.RELAYING else right(client)


@fault("the daemon's promise is forgotten", MODULE, "client_shaken")
def _client_unpromised(right: Function, client: Client, daemon_offered: bool) -> ClientStep:
    step: ClientStep = right(client, False)
    return step


@fault("bytes come to the client twice", MODULE, "client_received")
def _client_twice(right: Function, client: Client, data: bytes) -> ClientStep:
    then, actions = right(client, data)
    return then, (*actions, *(action for action in actions if isinstance(action, Deliver)))


@fault("the daemon's end means nothing", MODULE, "client_received")
def _client_no_end(right: Function, client: Client, data: bytes) -> ClientStep:
    return right(client, data) if data else (client, ())


@fault("the local side is not heard", MODULE, "local_sent")
def _unheard(right: Function, client: Client, data: bytes) -> ClientStep:
    return client, ()


@fault("the local side is read before the handshake", MODULE, "local_sent")
def _read_early(right: Function, client: Client, data: bytes) -> ClientStep:
    if client.stage is Stage.HANDSHAKE and data:
        return client, (Transmit(data),)
    step: ClientStep = right(client, data)
    return step


@fault("a client goes without its end", MODULE, "local_ended")
def _endless(right: Function, client: Client) -> ClientStep:
    then, actions = right(client)
    return then, tuple(action for action in actions if action is not Do.TRANSMIT_END)


@fault("a client promises nothing and sends an end", MODULE, "local_ended")
def _unasked_end(right: Function, client: Client) -> ClientStep:
    then, actions = right(client)
    return then, (Do.TRANSMIT_END, *actions) if then.left and not client.left else actions


@fault("the local end is told twice", MODULE, "local_ended")
def _told_twice(right: Function, client: Client) -> ClientStep:
    return (client, (FINISHED,)) if client.left else right(client)


@fault("a broken local side is an end", MODULE, "local_failed")
def _broken_end(right: Function, client: Client) -> ClientStep:
    then, actions = right(client)
    return then, (Do.TRANSMIT_END, *actions) if actions else actions


@fault("a cut stream ends in good order", MODULE, "client_closed")
def _cut_in_order(right: Function, client: Client, code: int | None) -> ClientStep:
    then, actions = right(client, code)
    return then, tuple(Do.SHUT if action is Do.RESET else action for action in actions)


@fault("a second close frame is judged", MODULE, "client_closed")
def _judged_again(right: Function, client: Client, code: int | None) -> ClientStep:
    return (evolve(client, verdict=Verdict.LEFT), ()) if client.stage is Stage.OVER else right(client, code)


@fault("the daemon's close is not noticed", MODULE, "client_closed")
def _close_unnoticed(right: Function, client: Client, code: int | None) -> ClientStep:
    return client, ()


@fault("the verdict is forgotten", MODULE, "_judged")
def _forgotten(right: Function, client: Client, verdict: Verdict, *actions: Do) -> ClientStep:
    then, done = right(client, verdict, *actions)
    return evolve(then, verdict=None), done


@fault("the client takes any close for whole", MODULE, "_verdict")
def _any_close(right: Function, client: Client, code: int | None) -> Verdict:
    verdict: Verdict = right(client, code)
    return Verdict.CLOSED if verdict in (Verdict.TRUNCATED, Verdict.CLOSED_UNPROVEN) else verdict


@fault("a cut stream is unproven", MODULE, "_verdict")
def _unproven(right: Function, client: Client, code: int | None) -> Verdict:
    verdict: Verdict = right(client, code)
    return Verdict.CLOSED_UNPROVEN if verdict is Verdict.TRUNCATED else verdict


@fault("a refusal is whole", MODULE, "_verdict")
def _refusal(right: Function, client: Client, code: int | None) -> Verdict:
    verdict: Verdict = right(client, code)
    return Verdict.CLOSED_UNPROVEN if verdict is Verdict.REFUSED else verdict

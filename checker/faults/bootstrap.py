"""Wrong versions of `agentd.rules.bootstrap`."""

from attrs import evolve

from agentd.rules.bootstrap import Access, Bootstrap, RunVerdict
from checker.faults import Function, fault

MODULE = "agentd.rules.bootstrap"
Run = tuple[Bootstrap, RunVerdict]


@fault("the last run hook wins", MODULE, "run_hook")
def _last_wins(right: Function, state: Bootstrap, token: bytes) -> Run:
    return evolve(state, token=token), RunVerdict.INSTALLED


@fault("the first run hook is lost", MODULE, "run_hook")
def _lost(right: Function, state: Bootstrap, token: bytes) -> Run:
    return state, right(state, token)[1]


@fault("any run hook is a replay", MODULE, "run_hook")
def _any_replays(right: Function, state: Bootstrap, token: bytes) -> Run:
    then, verdict = right(state, token)
    return then, RunVerdict.REPLAYED if verdict is RunVerdict.CONFLICT else verdict


@fault("a replayed run hook conflicts", MODULE, "run_hook")
def _replay_conflicts(right: Function, state: Bootstrap, token: bytes) -> Run:
    then, verdict = right(state, token)
    return then, RunVerdict.CONFLICT if verdict is RunVerdict.REPLAYED else verdict


@fault("a hijack clears the token", MODULE, "run_hook")
def _clears(right: Function, state: Bootstrap, token: bytes) -> Run:
    then, verdict = right(state, token)
    return (Bootstrap() if verdict is RunVerdict.CONFLICT else then), verdict


@fault("tokens of one length are alike", MODULE, "run_hook")
def _lengths(right: Function, state: Bootstrap, token: bytes) -> Run:
    if state.token is not None and len(token) == len(state.token):
        return state, RunVerdict.REPLAYED
    run: Run = right(state, token)
    return run


@fault("any token opens", MODULE, "authorize")
def _any_token(right: Function, state: Bootstrap, presented: bytes | None) -> Access:
    return Access.UNAVAILABLE if state.token is None else Access.GRANTED


@fault("no credential opens", MODULE, "authorize")
def _no_credential(right: Function, state: Bootstrap, presented: bytes | None) -> Access:
    return Access.GRANTED if presented is None and state.token is not None else right(state, presented)


@fault("an empty token opens", MODULE, "authorize")
def _empty_token(right: Function, state: Bootstrap, presented: bytes | None) -> Access:
    return Access.GRANTED if presented == b"" and state.token is not None else right(state, presented)


@fault("the control API opens early", MODULE, "authorize")
def _early(right: Function, state: Bootstrap, presented: bytes | None) -> Access:
    return Access.GRANTED if state.token is None else right(state, presented)


@fault("bootstrap shows in the refusal", MODULE, "authorize")
def _shows(right: Function, state: Bootstrap, presented: bytes | None) -> Access:
    return Access.UNAUTHORIZED if state.token is None and presented is None else right(state, presented)


@fault("the right token is refused", MODULE, "authorize")
def _refused(right: Function, state: Bootstrap, presented: bytes | None) -> Access:
    access: Access = right(state, presented)
    return Access.UNAUTHORIZED if access is Access.GRANTED else access


@fault("a wrong token is unavailable", MODULE, "authorize")
def _unavailable(right: Function, state: Bootstrap, presented: bytes | None) -> Access:
    access: Access = right(state, presented)
    return Access.UNAVAILABLE if access is Access.UNAUTHORIZED else access


@fault("the scheme is compared with case", MODULE, "bearer_token")
def _case(right: Function, authorization: bytes | None) -> bytes | None:
    if authorization is None or not authorization.startswith(b"Bearer "):
        return None
    return authorization[7:]


@fault("any scheme is bearer", MODULE, "bearer_token")
def _any_scheme(right: Function, authorization: bytes | None) -> bytes | None:
    return None if authorization is None else authorization.partition(b" ")[2]


@fault("the token is stripped", MODULE, "bearer_token")
def _stripped(right: Function, authorization: bytes | None) -> bytes | None:
    token: bytes | None = right(authorization)
    return token if token is None else token.strip()


@fault("installed is the wrong way round", MODULE, "Bootstrap.installed")
def _installed(right: Function, state: Bootstrap) -> bool:
    return state.token is None

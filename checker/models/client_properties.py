"""What must hold of a VM's life as its client sees it (contract j.2)."""

from typing import cast

from attrs import evolve

from agentd.rules.vm_life import Life, Phase, Refusal, Verdict
from checker.model import Edge
from checker.properties import (
    Always,
    EdgePredicate,
    Fair,
    LeadsTo,
    OnEdge,
    Property,
    Sometimes,
    SometimesOnEdge,
    StatePredicate,
    response_table,
    unchanged_by,
)

REQUESTS = frozenset({"launch", "exec", "suspend", "resume", "terminate"})
WIRE = ("launches", "suspends", "resumes", "terminates", "payloads")
COMPLETIONS = frozenset({"hook", "suspended", "resumed", "terminated"})

SKIPPED = frozenset(
    {
        "STATE-5 no suspend call outside RUNNING",
        "no resume call after a terminate",
        "no resume call with the window closed",
        "no resume call unless suspended",
        "what a suspend answers",
        "what a resume answers",
    }
)
"""What falls when suspends and resumes are called for without asking."""

ENDED = (Phase.TERMINATING, Phase.TERMINATED)


def _life(edge: Edge) -> Life:
    return cast(Life, edge.before["life"])


def _then(edge: Edge) -> Life:
    return cast(Life, edge.after["life"])


def _verdict(edge: Edge) -> Verdict:
    return cast("tuple[Verdict, Refusal | None]", edge.response)[0]


def _calls(edge: Edge) -> dict[str, int]:
    """The wire calls an edge makes."""
    before, after = _life(edge).wire, _then(edge).wire
    if before == after:
        return {}
    made = {name: getattr(after, name) - getattr(before, name) for name in WIRE}
    return {name: count for name, count in made.items() if count}


def _edge(
    name: str,
    kinds: frozenset[str],
    holds: EdgePredicate,
    witness: str,
    faults: tuple[str, ...],
    meaning: str = "",
) -> OnEdge:
    return OnEdge(name=name, kinds=kinds, holds=holds, witness=witness, faults=faults, meaning=meaning)


def _always(
    name: str, holds: StatePredicate, witness: str, faults: tuple[str, ...], meaning: str = ""
) -> Always:
    return Always(name=name, reads=("life",), holds=holds, witness=witness, faults=faults, meaning=meaning)


def properties() -> tuple[Property, ...]:
    """Every property."""
    return (*_tokens(), *_calls_made(), *_answers(), *_phases(), *_progress(), *_witnesses())


def _tokens() -> tuple[Property, ...]:
    return (
        _always(
            "STATE-3 bootstrap at most once",
            lambda life: life.bootstraps == int(life.token_installed),
            "reaches RUNNING with its token",
            ("a second hook bootstraps again", "a resume bootstraps again"),
            "One run hook installs a token, and only one.",
        ),
        _edge(
            "the installed token is never replaced",
            REQUESTS | COMPLETIONS,
            lambda e: _life(e).installed_token in (None, _then(e).installed_token),
            "a full cycle completes",
            ("a second hook bootstraps again", "a suspend loses the token", "a resume loses the token"),
            "Nor lost: a suspended session keeps it across the cycle.",
        ),
        _edge(
            "the token is that of the latest launch",
            frozenset({"hook"}),
            lambda e: _verdict(e) is not Verdict.ISSUED or _then(e).installed_token == _life(e).wire.launches,
            "reaches RUNNING with its token",
            ("the token is another launch's",),
            "The hook that installs is that of the launch it belongs to.",
        ),
        _edge(
            "STATE-8 a resume completion drops the proxy token",
            frozenset({"resumed"}),
            lambda e: _verdict(e) is not Verdict.ISSUED or not _then(e).proxy_token_cached,
            "a full cycle completes",
            ("a resume keeps the proxy token",),
            "What was minted before the suspend is not used again.",
        ),
        _edge(
            "a suspend keeps the proxy token",
            frozenset({"suspend", "suspended"}),
            lambda e: _then(e).proxy_token_cached == _life(e).proxy_token_cached,
            "cached proxy token survives into SUSPENDED",
            ("a suspend drops the proxy token",),
            "It is good until the VM is resumed.",
        ),
        _edge(
            "an exec has a proxy token, minted when there is none",
            frozenset({"exec"}),
            lambda e: (
                _verdict(e) is not Verdict.ISSUED
                or (
                    _then(e).proxy_token_cached
                    and _then(e).mints == _life(e).mints + (not _life(e).proxy_token_cached)
                )
            ),
            "proxy token minted after resume",
            ("every exec mints", "no exec mints"),
            "One mint for each stretch of running.",
        ),
    )


def _calls_made() -> tuple[Property, ...]:
    return (
        _edge(
            "STATE-5 no suspend call outside RUNNING",
            frozenset({"suspend"}),
            lambda e: not _calls(e) or _life(e).phase is Phase.RUNNING,
            "suspend attempted outside RUNNING",
            ("anything can be suspended",),
        ),
        _edge(
            "no resume call after a terminate",
            frozenset({"resume"}),
            lambda e: not _calls(e) or not _life(e).was_terminated,
            "resume attempted after terminate",
            ("a terminated VM can be resumed",),
        ),
        _edge(
            "no resume call with the window closed",
            frozenset({"resume"}),
            lambda e: not _calls(e) or bool(e.event.args["window_open"]),
            "resume attempted with window closed",
            ("the window is not looked at",),
        ),
        _edge(
            "no resume call unless suspended",
            frozenset({"resume"}),
            lambda e: not _calls(e) or (_life(e).phase is Phase.SUSPENDED and not _life(e).resume_in_flight),
            "resume attempted with window closed",
            ("a running VM can be resumed", "a resume is asked for twice"),
        ),
        _edge(
            "one launch for each VM",
            frozenset({"launch"}),
            lambda e: not _calls(e) or not _life(e).image_exists,
            "reaches RUNNING with its token",
            ("a VM can be launched twice",),
            "It is what delivers the payload.",
        ),
        _always(
            "a resume re-delivers no payload",
            lambda life: life.wire.payloads == life.wire.launches,
            "a full cycle completes",
            ("a resume delivers the payload", "a launch delivers no payload"),
            "Payloads go with launches alone.",
        ),
        _edge(
            "every wire call is accounted for",
            REQUESTS,
            lambda e: (
                _calls(e)
                == (
                    {}
                    if _verdict(e) is not Verdict.ISSUED or e.event.kind == "exec"
                    else {"launches": 1, "payloads": 1}
                    if e.event.kind == "launch"
                    else {f"{e.event.kind}s": 1}
                )
            ),
            "a full cycle completes",
            ("a suspend is not counted", "a terminate is counted as a suspend", "a refused request is made"),
            "One call for each request that is issued, none for one that is refused.",
        ),
        unchanged_by(
            "a refused request changes nothing",
            REQUESTS,
            unless=lambda e: _verdict(e) is not Verdict.REFUSED,
            witness="suspend attempted outside RUNNING",
            faults=("a refused request is made",),
            meaning="Refused locally: no call, no change.",
        ),
        _always(
            "the image exists exactly when a launch was accepted",
            lambda life: life.image_exists == (life.wire.launches > 0),
            "reaches RUNNING with its token",
            ("a launch leaves no image", "a terminate removes the image"),
        ),
    )


def _issued(*phases: Phase | None) -> dict[Phase | None, Refusal | None]:
    """What a request for a running VM answers, by phase."""
    refusals: dict[Phase | None, Refusal | None] = dict.fromkeys(Phase, Refusal.NOT_RUNNING)
    refusals |= dict.fromkeys(ENDED, Refusal.TERMINATED)
    return refusals | {None: Refusal.NOT_LAUNCHED} | dict.fromkeys(phases, None)


def _answered(
    table: dict[Phase | None, Refusal | None],
) -> dict[Phase | None, tuple[Verdict, Refusal | None]]:
    return {
        phase: (Verdict.ISSUED if refusal is None else Verdict.REFUSED, refusal)
        for phase, refusal in table.items()
    }


def _resume_case(edge: Edge) -> tuple[Verdict, Refusal | None]:
    """What a resume must answer."""
    life = _life(edge)
    for refusal, applies in (
        (Refusal.TERMINATED, life.was_terminated),
        (Refusal.NOT_LAUNCHED, life.phase is None),
        (Refusal.NOT_SUSPENDED, life.phase is not Phase.SUSPENDED),
        (Refusal.RESUMING, life.resume_in_flight),
        (Refusal.WINDOW_CLOSED, not edge.event.args["window_open"]),
    ):
        if applies:
            return Verdict.REFUSED, refusal
    return Verdict.ISSUED, None


def _answers() -> tuple[Property, ...]:
    return (
        *(
            response_table(
                f"what {article} {kind} answers",
                (kind,),
                case=lambda e: _life(e).phase,
                table=_answered(_issued(Phase.RUNNING)),
                witness="suspend attempted outside RUNNING",
                faults=faults,
                meaning="In a running VM alone, and why not otherwise.",
            )
            for article, kind, faults in (
                ("an", "exec", ("anything can be run",)),
                ("a", "suspend", ("anything can be suspended",)),
            )
        ),
        _edge(
            "what a resume answers",
            frozenset({"resume"}),
            lambda e: e.response == _resume_case(e),
            "resume attempted with window closed",
            ("the window is not looked at", "a resume is asked for twice", "a running VM can be resumed"),
            "Terminated, never launched, not suspended, resuming, too late: the first that applies.",
        ),
        response_table(
            "what a launch answers",
            ("launch",),
            case=lambda e: _life(e).image_exists,
            table={
                False: (Verdict.ISSUED, None),
                True: (Verdict.REFUSED, Refusal.ALREADY_LAUNCHED),
            },
            witness="reaches RUNNING with its token",
            faults=("a VM can be launched twice",),
            meaning="Once.",
        ),
        response_table(
            "what a terminate answers",
            ("terminate",),
            case=lambda e: (_life(e).image_exists, _life(e).was_terminated),
            table={
                (False, False): (Verdict.REFUSED, Refusal.NOT_LAUNCHED),
                (True, False): (Verdict.ISSUED, None),
                (True, True): (Verdict.REFUSED, Refusal.TERMINATED),
            },
            witness="reaches TERMINATED",
            faults=("what was never launched can be terminated", "a VM can be terminated twice"),
            meaning="Whatever was launched, once.",
        ),
    )


NEXT: dict[str, dict[Phase | None, Phase]] = {
    "launch": {None: Phase.PENDING},
    "hook": {Phase.PENDING: Phase.RUNNING},
    "suspend": {Phase.RUNNING: Phase.SUSPENDING},
    "suspended": {Phase.SUSPENDING: Phase.SUSPENDED},
    "resumed": {Phase.SUSPENDED: Phase.RUNNING},
    "terminate": dict.fromkeys(
        (Phase.PENDING, Phase.RUNNING, Phase.SUSPENDING, Phase.SUSPENDED), Phase.TERMINATING
    ),
    "terminated": {Phase.TERMINATING: Phase.TERMINATED},
}


def _phases() -> tuple[Property, ...]:
    return (
        _edge(
            "phases follow each other as drawn",
            REQUESTS | COMPLETIONS,
            lambda e: (
                _then(e).phase is _life(e).phase
                or NEXT.get(e.event.kind, {}).get(_life(e).phase) is _then(e).phase
            ),
            "a full cycle completes",
            ("a launch runs at once", "a suspend is complete at once", "a late resume revives the VM"),
            "Launch, run, suspend, resume, terminate.",
        ),
        _edge(
            "STATE-11 a terminated VM never reaches RUNNING",
            REQUESTS | COMPLETIONS,
            lambda e: not _life(e).was_terminated or (_then(e).was_terminated and _then(e).phase in ENDED),
            "a resume comes after the terminate",
            ("a late resume revives the VM",),
        ),
        _edge(
            "a terminate is remembered",
            frozenset({"terminate"}),
            lambda e: (
                _verdict(e) is not Verdict.ISSUED
                or (_then(e).was_terminated and _then(e).phase is Phase.TERMINATING)
            ),
            "reaches TERMINATED",
            ("a terminate is forgotten",),
        ),
        _always(
            "a terminated VM has no proxy token",
            lambda life: life.phase is not Phase.TERMINATED or not life.proxy_token_cached,
            "reaches TERMINATED",
            ("a terminated VM keeps its proxy token",),
        ),
        _edge(
            "a completion that fits is taken in",
            COMPLETIONS,
            lambda e: (
                (_verdict(e) is Verdict.ISSUED)
                == (
                    _life(e).phase in NEXT[e.event.kind]
                    and (e.event.kind != "resumed" or _life(e).resume_in_flight)
                )
            ),
            "a resume comes after the terminate",
            ("a suspend is never complete", "a late resume revives the VM", "a hook counts in any phase"),
            "And one that does not is ignored.",
        ),
        unchanged_by(
            "a completion that is ignored changes nothing",
            COMPLETIONS,
            unless=lambda e: _verdict(e) is Verdict.ISSUED or _only_the_flag(e),
            witness="a resume comes after the terminate",
            faults=("a hook counts in any phase", "an ignored suspend suspends"),
            meaning="But that a resume is no longer under way.",
        ),
        _edge(
            "a resume is under way from its call to its completion",
            frozenset({"resume", "resumed"}),
            lambda e: (
                _then(e).resume_in_flight
                == ((_life(e).resume_in_flight or bool(_calls(e))) if e.event.kind == "resume" else False)
            ),
            "a full cycle completes",
            ("a resume is never under way", "a resume stays under way"),
        ),
    )


def _only_the_flag(edge: Edge) -> bool:
    return edge.event.kind == "resumed" and _then(edge) == evolve(_life(edge), resume_in_flight=False)


def _progress() -> tuple[Property, ...]:
    return (
        LeadsTo(
            name="what is terminated ends",
            reads=("life",),
            when=lambda life: life.was_terminated,
            then=lambda life: life.phase is Phase.TERMINATED,
            fair=(Fair(frozenset({"terminated"})),),
            witness="reaches TERMINATED",
            faults=("a terminate is never complete",),
            meaning="Once the platform says so.",
        ),
    )


def _sometimes(name: str, holds: StatePredicate) -> Sometimes:
    return Sometimes(name=name, reads=("life",), holds=holds)


def _attempt(name: str, kind: str, holds: EdgePredicate) -> SometimesOnEdge:
    return SometimesOnEdge(name=name, kinds=frozenset({kind}), holds=holds)


def _witnesses() -> tuple[Property, ...]:
    return (
        _sometimes(
            "reaches RUNNING with its token",
            lambda life: life.phase is Phase.RUNNING and life.token_installed,
        ),
        _attempt("a full cycle completes", "resumed", lambda e: _verdict(e) is Verdict.ISSUED),
        _sometimes(
            "two cycles complete", lambda life: life.wire.resumes == 2 and life.phase is Phase.RUNNING
        ),
        _sometimes("reaches TERMINATED", lambda life: life.phase is Phase.TERMINATED),
        _attempt("resume attempted after terminate", "resume", lambda e: _life(e).was_terminated),
        _attempt("resume attempted with window closed", "resume", _too_late),
        _attempt(
            "suspend attempted outside RUNNING", "suspend", lambda e: _life(e).phase is not Phase.RUNNING
        ),
        _sometimes("proxy token minted after resume", lambda life: life.mints == 2 and life.wire.resumes > 0),
        _sometimes(
            "cached proxy token survives into SUSPENDED",
            lambda life: life.phase is Phase.SUSPENDED and life.proxy_token_cached,
        ),
        _attempt(
            "a resume comes after the terminate",
            "resumed",
            lambda e: _life(e).was_terminated and _life(e).resume_in_flight,
        ),
    )


def _too_late(edge: Edge) -> bool:
    return _life(edge).phase is Phase.SUSPENDED and not edge.event.args["window_open"]

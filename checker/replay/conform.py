"""The models as a conformance kit: run against a daemon on a socket, of whoever made it.

A model's events that a caller can cause are done over HTTP, in runs that go over every edge between them; what answers
differently is reported, one run for each way in which it does, as short as it gets. Whatever is started has an id of
this run alone, is ended and acknowledged, so the daemon is left as it was found, but for the run hook's entries in its
log.
"""

import itertools
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Final

from checker import models
from checker.check import check
from checker.model import Event, ModelError
from checker.models.bootstrap_exec_terms import ATTACKER, HOST
from checker.replay.adapter import HOOKS, Adapter, Names, Subject, run_payload
from checker.replay.adapters import adapter
from checker.replay.edges import MOST_DIVERGENCES, Replayed, distinct
from checker.replay.run import Begin, Divergence, play
from checker.replay.sockets import SocketSubject
from checker.replay.spawned import spawned
from checker.replay.tours import explore, graph, tours
from checker.replay.traces import doable
from checker.replay.wire import NoAnswer

DEFAULT: Final = ("bootstrap_exec:deployment_invariant_held", "stdin:writes")
"""What a caller alone can lead a daemon through."""


def begins(kind: type[Adapter], url: str, token: bytes, deadline: float) -> Begin:
    """Begins a run against the daemon at `url`, with ids that no other run has."""
    own = secrets.token_hex(6)
    counter = itertools.count()
    # Whoever the daemon must not let in presents something of the same length.
    tokens = {HOST: token, ATTACKER: secrets.token_hex(len(token))[: len(token)].encode()}

    def begin() -> Adapter:
        subject: Subject = SocketSubject(url, token, deadline)
        return kind(subject, Names(tokens, f"conform-{own}-{next(counter)}"), kind.variants[0])

    return begin


def every_edge(
    url: str, token: bytes, keys: Sequence[str], deadline: float, most: int = 20_000
) -> Iterator[Replayed]:
    """Every edge that can be done, from a daemon that has been bootstrapped with `token`, or that this bootstraps."""
    for key in keys or DEFAULT:
        kind = _kind(key)
        model = kind.begins(models.load(key), False)
        variant = kind.variants[0]

        def can(event: Event, kind: type[Adapter] = kind, variant: str = variant) -> bool:
            return kind.can(event, False, variant)

        begin = begins(kind, url, token, deadline)
        _bootstrap(url, token, deadline)
        whole = graph(explore(model, [can(event) for event in model.events], most))
        runs = list(tours(whole))
        started, steps = perf_counter(), 0
        found: list[Divergence] = []
        for run in runs:
            diverged = play(begin, whole.trace(run))
            steps += len(run)
            if diverged is not None:
                found.append(diverged)
                if len(found) >= MOST_DIVERGENCES:
                    break
        seconds = perf_counter() - started
        short = distinct(begin, whole, found)
        yield Replayed(
            model.key,
            "",
            len(whole.values),
            whole.edges,
            len(runs),
            steps,
            seconds,
            whole.left_out,
            whole.complete,
            short,
        )


def _kind(key: str) -> type[Adapter]:
    """The adapter of a configuration. Raises ModelError when a caller alone cannot lead a daemon through it."""
    kind = adapter(key.partition(":")[0])
    if key.partition(":")[0] not in {default.partition(":")[0] for default in DEFAULT}:
        raise ModelError(f"{key} can be replayed in memory only; on a socket: {', '.join(DEFAULT)}")
    return kind


def _bootstrap(url: str, token: bytes, deadline: float) -> None:
    """Bootstrap the daemon, or find that it is. Raises ModelError when it holds another token, or does not answer."""
    subject = SocketSubject(url, token, deadline)
    try:
        answer = subject.ask("POST", f"{HOOKS}/run", value=run_payload(token))
    except NoAnswer as reason:
        raise ModelError(f"{url}: {reason}") from None
    finally:
        subject.close()
    if answer.status != 200:
        told = "it holds another token" if answer.status == 409 else f"it answers {answer.status}"
        raise ModelError(f"{url}: the run hook does not take this token: {told}")


def witnesses(keys: Sequence[str], deadline: float) -> Iterator[Replayed]:
    """The runs that show what a model can come to, each against a fresh daemon of this installation."""
    for key in keys or DEFAULT:
        kind = _kind(key)
        model = models.load(key)
        result = check(model)
        started, steps, played = perf_counter(), 0, 0
        found: list[Divergence] = []
        left_out = Counter[str]()
        for prop in result.witnessed():
            trace, left = doable(kind, result.trace(prop), False, kind.variants[0])
            left_out += left
            if not trace.steps:
                continue
            token = secrets.token_hex(16).encode()
            with spawned() as url:
                diverged = play(begins(kind, url, token, deadline), trace)
            played += 1
            steps += len(trace.steps)
            if diverged is not None:
                found.append(diverged)
        yield Replayed(
            model.key,
            "witnesses",
            result.states,
            steps,
            played,
            steps,
            perf_counter() - started,
            left_out,
            True,
            tuple(found),
        )

"""When a token for the endpoint proxy is minted, for which ports, and how long it serves.

Before a request reaches a VM it passes the platform's endpoint proxy, which wants a token of its own, scoped
when it is minted to the ports it may be used for. These are the decisions about that token, as functions on
frozen values: no clock, no token, no I/O. `agentd.client.proxy` does what they say and the checker can
enumerate them. The rules:

* a token serves a port only if it was minted for it, and until `Lifetimes.life` seconds after its mint began;
* from `Lifetimes.renewal` on it is replaced before its next use; if that mint fails it goes on serving, and the
  next attempt waits `Lifetimes.retry` seconds, so that a minter in trouble is not called for every request;
* a mint for a new port asks for every port the present token covers plus that one, so that reaching a
  workload's port never costs the access to the agent's own;
* callers that need the same mint share it; one that needs another port waits for it and asks afterwards;
* a resume forgets the token, and also the outcome of a mint that was under way: it belongs to before.
"""

from attrs import evolve, frozen

MAX_LIFE_SECONDS = 3600.0
"""The platform's ceiling for a proxy token's life."""


@frozen
class Lifetimes:
    """How long a proxy token is used, in seconds from the moment its mint began.

    Args:
        life: after this it is not used at all; at most `MAX_LIFE_SECONDS`.
        renewal: from this on a new one is minted before the next use; less than `life`.
        retry: after a failed renewal, how long the old one is used before the next attempt.
    """

    life: float = 3600.0
    renewal: float = 1800.0
    retry: float = 30.0

    def __attrs_post_init__(self) -> None:
        if not 0 < self.life <= MAX_LIFE_SECONDS:
            raise ValueError(f"a proxy token's life is more than 0 and at most {MAX_LIFE_SECONDS:g} seconds")
        if not 0 < self.renewal < self.life:
            raise ValueError("a proxy token's renewal comes after 0 seconds and before the end of its life")
        if not self.retry >= 0:
            raise ValueError("the pause after a failed renewal is 0 or more seconds")


@frozen
class Grant:
    """A token that was minted: the ports it opens and when its mint began (seconds on the caller's clock)."""

    ports: frozenset[int]
    minted_at: float


@frozen
class Mint:
    """A mint under way: what it asks for, when it began, and in which epoch."""

    ports: frozenset[int]
    began_at: float
    epoch: int


@frozen
class Cache:
    """All that the decisions depend on.

    Args:
        grant: the token in hand.
        minting: the mint under way; at most one.
        epoch: how many resumes there were.
        mints: how many mints were begun, ever.
        failed_at: when the last mint failed, if none succeeded since (seconds on the caller's clock).
    """

    grant: Grant | None = None
    minting: Mint | None = None
    epoch: int = 0
    mints: int = 0
    failed_at: float | None = None


@frozen
class Use:
    """The token in hand opens the port."""


@frozen
class Await:
    """A mint is under way: wait for its end and decide again."""

    mint: Mint


@frozen
class Ask:
    """Begin a mint for these ports."""

    ports: frozenset[int]


Decision = Use | Await | Ask


def serves(grant: Grant | None, port: int, now: float, lifetimes: Lifetimes) -> bool:
    """Whether the token in hand opens `port` at `now`, due for renewal or not."""
    return grant is not None and port in grant.ports and 0 <= now - grant.minted_at < lifetimes.life


def decide(cache: Cache, port: int, now: float, lifetimes: Lifetimes) -> Decision:
    """What a caller who wants to reach `port` at `now` does first."""
    grant = cache.grant
    if grant is not None and serves(grant, port, now, lifetimes):
        fresh = now - grant.minted_at < lifetimes.renewal
        if fresh or (cache.failed_at is not None and 0 <= now - cache.failed_at < lifetimes.retry):
            return Use()
    if cache.minting is not None:
        return Await(cache.minting)
    return Ask((grant.ports if grant is not None else frozenset()) | {port})


def begin(cache: Cache, ask: Ask, now: float) -> tuple[Cache, Mint]:
    """The mint that `ask` calls for begins at `now`."""
    mint = Mint(ask.ports, now, cache.epoch)
    return evolve(cache, minting=mint, mints=cache.mints + 1), mint


def succeed(cache: Cache, mint: Mint) -> tuple[Cache, bool]:
    """`mint` brought a token; the flag says whether it is kept (it is not after a resume)."""
    if mint.epoch != cache.epoch:
        return cache, False
    return evolve(cache, grant=Grant(mint.ports, mint.began_at), minting=None, failed_at=None), True


def fail(cache: Cache, mint: Mint, now: float) -> Cache:
    """`mint` brought nothing by `now`; the token in hand, if any, stays."""
    return cache if mint.epoch != cache.epoch else evolve(cache, minting=None, failed_at=now)


def resume(cache: Cache) -> Cache:
    """The VM was resumed: no token from before is used again, nor one whose mint began before."""
    return evolve(cache, grant=None, minting=None, epoch=cache.epoch + 1, failed_at=None)

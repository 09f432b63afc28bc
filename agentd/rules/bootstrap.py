"""One-shot bootstrap: who may use the control API, and how that is decided once.

Theory of operation
-------------------
A VM starts from an image that many VMs share, so it holds no secret. The platform posts the token to the
run hook; the *first* payload installs it, and from then on nothing can replace it:

    Closed ──run(t)──► Open(t) ──run(t)──► Open(t)      (replayed: the platform may retry its own hook)
                          └─────run(u)──► Open(t)       (conflict: 409, and nothing changes)

The hook needs no credential, so whoever posts first wins. That is sound only while nothing hostile runs in
the VM before the platform's hook arrives; the deployment must hold that, and the checker shows what happens
when it does not (contract j.1).

Tokens are bytes and stay bytes: they are never decoded, and never part of a `repr`.
"""

import hmac
from enum import Enum, unique

from attrs import evolve, field, frozen


@frozen
class Bootstrap:
    """What is installed: nothing (`token` is None), or the token of the winning run hook."""

    token: bytes | None = field(default=None, repr=False)

    @property
    def installed(self) -> bool:
        """Whether a token is installed, which is all that may be told to a caller without one."""
        return self.token is not None


@unique
class RunVerdict(Enum):
    """What a well-formed run hook did (contract g.2)."""

    INSTALLED = "installed"
    """The token was installed: 200, and the rest of the payload takes effect."""
    REPLAYED = "replayed"
    """The installed token again: 200, and the rest of the payload is ignored."""
    CONFLICT = "conflict"
    """Another token: 409, and nothing changes."""


@unique
class Access(Enum):
    """What a bearer route answers before it looks at anything else (contract i.3)."""

    GRANTED = "granted"
    UNAVAILABLE = "unavailable"
    """No token is installed: 503 whatever was presented, so that no guess can be told from another."""
    UNAUTHORIZED = "unauthorized"
    """No token, or another one, was presented: 401."""


def run_hook(state: Bootstrap, token: bytes) -> tuple[Bootstrap, RunVerdict]:
    """Decide a run hook that carried `token` (not empty; payload rules have refused that)."""
    if state.token is None:
        return evolve(state, token=token), RunVerdict.INSTALLED
    if hmac.compare_digest(state.token, token):
        return state, RunVerdict.REPLAYED
    return state, RunVerdict.CONFLICT


def authorize(state: Bootstrap, presented: bytes | None) -> Access:
    """Decide a bearer request. `presented` is None when no bearer credential came with it.

    The comparison takes the same time wherever the first difference is; the length may show.
    """
    if state.token is None:
        return Access.UNAVAILABLE
    if presented is None or not hmac.compare_digest(state.token, presented):
        return Access.UNAUTHORIZED
    return Access.GRANTED


def bearer_token(authorization: bytes | None) -> bytes | None:
    """The credential of an ``Authorization`` header, or None when it presents no bearer token.

    The scheme is compared without case (RFC 9110 11.1); the token is every byte after the first space, so
    that ``Bearer `` presents an empty token, which matches nothing.
    """
    if authorization is None:
        return None
    scheme, space, token = authorization.partition(b" ")
    if not space or scheme.lower() != b"bearer":
        return None
    return token

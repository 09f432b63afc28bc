"""Work on the workers of a Dask cluster: `checker.pool.each` for more than one machine.

Theory of operation
-------------------
Models and faults hold functions and do not travel. What travels is a function of a module and names for it to look up:
a configuration, a fault, a seed, a share of runs. So a worker must have the very same checker and rules: each piece of
work says which those are (`identity`), for workers may join at any time, and what one with others is given it refuses.

A fault is planted in the modules of a process, so a worker process does one piece of work at a time, whatever the
number of its threads: start workers with one thread each, as many as there are processors. A worker that is lost is
Dask's to replace: its work is done anew by another, and since work changes nothing, the answer is the same.
"""

import hashlib
import logging
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import agentd
from checker.model import ModelError

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Answer = TypeVar("Answer")

PATIENCE_SECS: Final = 10.0
"""How long a scheduler may take to answer, and its first worker to be there."""
ANOTHER: Final = "{}: that worker has another checker, or other rules, than this machine"
LOST: Final = "the cluster has lost the work: {}"

_one_at_a_time = threading.Lock()


@lru_cache(maxsize=1)
def identity() -> str:
    """A digest of the interpreter's version and of every source that decides what a check comes to."""
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for root in (Path(__file__).parent, Path(agentd.__file__).parent / "rules"):
        for path in sorted(root.rglob("*.py")):
            digest.update(f"\0{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def done(wanted: str, shared: bytes, work: bytes) -> Any:
    """One piece of work, on a worker.

    Raises ModelError when its checker is not the one whose `identity` is wanted, which is why what is to be done is
    unpacked here and not by the library.
    """
    if identity() != wanted:
        raise ModelError(ANOTHER.format(socket.gethostname()))
    function, item = pickle.loads(work)
    with _one_at_a_time:
        return function(pickle.loads(shared), item)


class Fleet:
    """The workers of a cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def each(
        self, function: Callable[[Shared, Item], Answer], shared: Shared, items: Sequence[Item]
    ) -> Iterator[Answer]:
        """``function(shared, item)`` for each item, in their order.

        The function is one of a module, and the rest can be pickled. Raises ModelError when workers die of it, one
        has another checker, or the cluster loses the work, as it does with its scheduler.
        """
        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        futures: list[Any] = []
        try:
            # Sent once, and passed on among the workers, not once with each item. It has a name of its own: one made
            # of its content might be just about to be forgotten, as that of an equal thing sent before.
            common = self._client.scatter(pickle.dumps(shared), broadcast=True, hash=False)
            for item in items:
                work = pickle.dumps((function, item))
                futures.append(self._client.submit(done, identity(), common, work, pure=False))
        except OSError as reason:
            raise ModelError(LOST.format(_line(reason))) from None
        try:
            for future in futures:
                yield future.result()
        except KilledWorker as reason:
            raise ModelError(f"several workers died of one piece of work: {reason}") from None
        except (CancelledError, CommClosedError) as reason:
            raise ModelError(LOST.format(_line(reason))) from None
        finally:
            with suppress(CommClosedError):
                self._client.cancel(futures)


@contextmanager
def fleet(address: str) -> Iterator[Fleet]:
    """The workers of the scheduler at `address`, ``tcp://HOST:PORT``.

    Raises ModelError when there is none, it has no workers, or one has another checker than this one.
    """
    try:
        from distributed import Client
    except ImportError as reason:
        raise ModelError(f"--scheduler needs Dask ({reason}); install agentd[checker-fleet]") from None
    # What goes wrong is said here, in a line; the library's own accounts of it are several pages.
    for name in ("distributed", "distributed.client", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _knock(address)
    try:
        client: Any = Client(address, timeout=PATIENCE_SECS, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as reason:
        raise ModelError(f"{address}: no scheduler answers: {_line(reason)}") from None
    with client:
        _agree(client, address)
        yield Fleet(client)


def _knock(address: str) -> None:
    """See whether anybody is at an address. Raises ModelError.

    The library's client would see that too, but leaves its event loop behind when nobody is there.
    """
    parts = urlsplit(address)
    try:
        if parts.scheme not in ("tcp", "tls") or not parts.hostname or not parts.port:
            raise ValueError("an address is tcp://HOST:PORT")
        socket.create_connection((parts.hostname, parts.port), PATIENCE_SECS).close()
    except (OSError, ValueError, OverflowError) as reason:
        raise ModelError(f"{address}: no scheduler answers: {_line(reason)}") from None


def _agree(client: Any, address: str) -> None:
    """Refuse workers that would not answer what this machine would."""
    try:
        client.wait_for_workers(1, timeout=PATIENCE_SECS)
    except OSError:  # which a time-out is
        raise ModelError(f"{address}: the scheduler has no workers") from None
    try:
        found: dict[str, str] = client.run(identity)
    except Exception as reason:
        raise ModelError(f"{address}: a worker cannot run the checker: {_line(reason)}") from None
    for worker, told in found.items():
        if told != identity():
            raise ModelError(ANOTHER.format(worker))


def _line(reason: BaseException) -> str:
    text = " ".join(str(reason).split())
    return text[:200] or type(reason).__name__

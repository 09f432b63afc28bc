"""What brings about the documented answers: a register, filled by the modules beside it.

The route list is the table of cases for `test_statuses`; a producer makes a real daemon give one of them.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.conftest import RunningDaemon
from tests.wire.support import Api, Raw, Reply, new_id

CAP = 200_000
"""`max_body_bytes` of the daemons, in bytes."""
STDIN_CAP = 1000
"""Their `max_stdin_write_bytes`."""
MEMBERS_CAP = 20
"""Their `max_tar_members`."""

Case = tuple[str, str, int, str]
"""Method, path, status, slug."""


class Daemons:
    """What producers work with: a bootstrapped daemon, one that is closed, one that is leaving, one without room.

    `home` is a directory of theirs and ours.
    """

    def __init__(
        self,
        open_: RunningDaemon,
        closed: RunningDaemon,
        leaving: Raw,
        leaving_token: str,
        full: RunningDaemon,
        home: Path,
    ) -> None:
        self.api = Api(open_.url, open_.token)
        self.daemon = open_
        self.closed = Api(closed.url, "any-token")
        self.leaving, self.leaving_token = leaving, leaving_token
        self.full = Api(full.url, full.token)
        self.home = home

    def new_path(self) -> Path:
        """Where nothing is yet."""
        return self.home / new_id()


Producer = Callable[[Daemons], Awaitable[Reply]]
PRODUCERS: dict[Case, Producer] = {}


def concrete(path: str) -> str:
    """A path with its parameters filled in."""
    return path.replace("{id}", "nobody")


def produces(method: str, path: str, status: int, slug: str = "") -> Callable[[Producer], Producer]:
    """Register what brings about one documented answer."""

    def register(producer: Producer) -> Producer:
        assert PRODUCERS.setdefault((method, path, status, slug), producer) is producer, "registered twice"
        return producer

    return register

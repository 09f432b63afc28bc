"""One bootstrap a boot, also when the daemon dies and an init starts it again.

The token lives in the daemon's memory alone, and a daemon that is started again is without one. By then the machine
runs a workload, which could post the run hook first and own the machine. So an init that restarts the daemon names a
file in AGENTD_PLEDGE_FILE, on a file system that does not outlive the boot. There the winning run hook leaves a salted
digest of its token, and a later daemon takes that token and no other: whoever held it posts the hook again.

The digest is kept from everybody but root, who could read the daemon's memory too. A file that is there and says
nothing is a pledge that nobody can keep: the machine stays closed.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from attrs import frozen

VARIABLE: Final = b"AGENTD_PLEDGE_FILE"
_SALT_BYTES: Final = 16
_DIGEST_BYTES: Final = 32


@frozen
class Pledge:
    """The file, and what it said when this daemon started."""

    path: Path | None = None
    """None where no init restarts the daemon: then nothing is kept and every token is fit."""
    kept: bytes | None = None
    """Salt and digest; None when there was no file."""

    @classmethod
    def of(cls, started_with: Mapping[bytes, bytes]) -> Self:
        """The pledge that the environment of this process names, as it stands."""
        name = started_with.get(VARIABLE)
        if not name:
            return cls()
        path = Path(os.fsdecode(name))
        try:
            return cls(path, path.read_bytes())
        except FileNotFoundError:
            return cls(path)
        except OSError:
            return cls(path, b"")

    def allows(self, token: bytes) -> bool:
        """Whether a daemon without a token may take this one."""
        if self.kept is None:
            return True
        salt = self.kept[:_SALT_BYTES]
        return len(self.kept) == _SALT_BYTES + _DIGEST_BYTES and hmac.compare_digest(
            self.kept, salt + _digest(salt, token)
        )

    def keep(self, token: bytes) -> None:
        """Leave the digest of the token that was taken. Blocks on the file system; raises OSError."""
        if self.path is None or self.kept is not None:
            return
        salt = os.urandom(_SALT_BYTES)
        part = self.path.with_name(f".{self.path.name}.part")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.write(salt + _digest(salt, token))
        os.replace(part, self.path)


def _digest(salt: bytes, token: bytes) -> bytes:
    return hashlib.blake2b(token, salt=salt, digest_size=_DIGEST_BYTES, person=b"agentd-pledge").digest()

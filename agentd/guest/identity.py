"""Making this VM somebody: replacing what every VM of one image or snapshot has in common (contract g.5).

Machines started from one image hold the same machine-id, host name, boot id and cached secrets, and programs take
those for unique. The winning run hook is the first moment at which this VM is known to be its own, so the
repair runs there, once, on a pool thread. Each step may fail, and none stops the next:

    machine-id         /etc/machine-id written anew
    hostname           microvm-<the first 12 digits of the id>
    boot-id            the same id, in dashes, shown in place of the kernel's boot_id
    random-seed        systemd's saved seed removed, for it would be credited as entropy again
    cached-credential  D-Bus's copy of the machine-id removed
    random-generator   the kernel's generator and this process's seeded anew (`agentd.guest.entropy`)

The first three share one fresh 128-bit id. Machines resumed from one snapshot have one random generator between
them and would all draw the same "fresh" id. What sets them apart is what each was told by its own run hook: that
is stirred into the generators before anything else, and hashed into the id as well, which holds where the kernel may
not be told to reseed. The hash cannot be turned back into what went in. Though done first, that step is told of last,
behind the five that the contract names.
"""

import errno
import hashlib
import os
import socket
import tempfile
from collections.abc import Callable
from enum import Enum, unique
from pathlib import Path
from typing import Final

from attrs import frozen

from agentd.guest.entropy import Generators
from agentd.linux import mounts

_DRAWN_BYTES: Final = 32
_ID_BYTES: Final = 16
_READ_ONLY: Final = 0o444


@unique
class Outcome(Enum):
    """What became of a step; the values are those of the wire."""

    REPAIRED = "repaired"
    NOT_APPLICABLE = "not_applicable"
    """There is nothing here to repair: the file is absent."""
    FAILED = "failed"
    """The value of the shared image is still in place."""


@frozen
class IdentityStep:
    """One step of a repair, as health reports it. `error` is prose, and only there for a failure."""

    name: str
    outcome: Outcome
    error: str | None = None


@frozen
class Machine:
    """What a repair touches. The default is this machine; a test brings its own."""

    root: Path = Path("/")
    draw: Callable[[int], bytes] = os.urandom
    reseed: Callable[[bytes], None] = Generators().reseed
    set_hostname: Callable[[str], None] = socket.sethostname
    bind: Callable[[Path, Path], None] = mounts.bind
    unbind: Callable[[Path], None] = lambda target: mounts.unmount(target, mounts.MNT_DETACH)


def degraded(steps: tuple[IdentityStep, ...]) -> bool:
    """Whether any step failed (health's ``identity_degraded``)."""
    return any(step.outcome is Outcome.FAILED for step in steps)


def repair(seed: bytes, machine: Machine = Machine()) -> tuple[IdentityStep, ...]:
    """Repair the identity of `machine`, and tell what became of each step. Never raises.

    `seed` is what no other VM was given, secret or not (the run hook's payload will do); it is used up here and
    shows nowhere. Blocks on the file system, and until the kernel's generator is ready.
    """
    generator = _step("random-generator", lambda: _reseed(machine, seed))  # the id below is apart without it
    try:
        fresh = fresh_id(seed, machine.draw)
    except (OSError, NotImplementedError) as error:
        reason = f"no entropy: {_prose(error)}"
        first = tuple(
            IdentityStep(name, Outcome.FAILED, reason) for name in ("machine-id", "hostname", "boot-id")
        )
    else:
        first = (
            _step("machine-id", lambda: _machine_id(machine, fresh)),
            _step("hostname", lambda: _hostname(machine, fresh)),
            _step("boot-id", lambda: _boot_id(machine, fresh)),
        )
    return (
        *first,
        _step("random-seed", lambda: _remove(machine.root / "var/lib/systemd/random-seed")),
        _step("cached-credential", lambda: _remove(machine.root / "var/lib/dbus/machine-id")),
        generator,
    )


def fresh_id(seed: bytes, draw: Callable[[int], bytes]) -> str:
    """A new 128-bit id as 32 lowercase hex digits, apart from every other if either `seed` or `draw` is.

    Raises what `draw` raises.
    """
    key = hashlib.blake2b(seed, person=b"agentd-id-key").digest()
    return hashlib.blake2b(
        draw(_DRAWN_BYTES), key=key, digest_size=_ID_BYTES, person=b"agentd-id"
    ).hexdigest()


def dashed(identifier: str) -> str:
    """The 32 digits in groups of 8, 4, 4, 4 and 12, as a UUID is written."""
    return "-".join(identifier[start:end] for start, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))


def _step(name: str, action: Callable[[], Outcome]) -> IdentityStep:
    try:
        return IdentityStep(name, action())
    except OSError as error:
        return IdentityStep(name, Outcome.FAILED, _prose(error))


def _prose(error: Exception) -> str:
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    return error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"


def _reseed(machine: Machine, seed: bytes) -> Outcome:
    machine.reseed(hashlib.blake2b(seed, person=b"agentd-told").digest())
    return Outcome.REPAIRED


def _machine_id(machine: Machine, fresh: str) -> Outcome:
    target = machine.root / "etc/machine-id"
    if not os.path.lexists(target):
        return Outcome.NOT_APPLICABLE
    content = f"{fresh}\n".encode()
    try:
        _replace(target, content)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EBUSY):
            raise
        # A read-only root, or a file that is a mount itself: show the new one in its place.
        _show(machine, "run/agentd-machine-id", content, target)
    return Outcome.REPAIRED


def _hostname(machine: Machine, fresh: str) -> Outcome:
    machine.set_hostname(f"microvm-{fresh[:12]}")
    return Outcome.REPAIRED


def _boot_id(machine: Machine, fresh: str) -> Outcome:
    target = machine.root / "proc/sys/kernel/random/boot_id"
    if not os.path.lexists(target):
        return Outcome.NOT_APPLICABLE
    _show(machine, "run/agentd-boot-id", f"{dashed(fresh)}\n".encode(), target)
    return Outcome.REPAIRED


def _show(machine: Machine, name: str, content: bytes, target: Path) -> None:
    """Write `content` to the file `name` and make it appear at `target`."""
    source = machine.root / name
    source.parent.mkdir(parents=True, exist_ok=True)
    _replace(source, content)
    try:
        machine.bind(source, target)
    except FileNotFoundError:
        # What is shown there is the file that has just been replaced: a daemon before this one, which an init has
        # started again, repaired too. Nothing can be mounted over a file without a name.
        machine.unbind(target)
        machine.bind(source, target)


def _replace(target: Path, content: bytes) -> None:
    """Put a new file in the place of `target`, whatever that was, so that no reader ever finds half of one."""
    fd, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), _READ_ONLY)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _remove(target: Path) -> Outcome:
    try:
        target.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return Outcome.NOT_APPLICABLE
    return Outcome.REPAIRED

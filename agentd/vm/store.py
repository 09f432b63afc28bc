"""The machines of a person: named directories with everything that is needed to find one again.

    <base>/<name>/     machine.json  token  qmp  pid  console
    <snapshot>/        snapshot.json  state  [token]

A directory is private to its owner (0700), since whoever reads the token owns the machine.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Final

import msgspec
from attrs import frozen

from agentd.vm import image
from agentd.vm.command import Forward, Settings, Shape
from agentd.vm.image import BadImage

RECORD: Final = "machine.json"
SNAPSHOT: Final = "snapshot.json"
STATE: Final = "state"
TOKEN: Final = "token"
PRIVATE: Final = 0o700


class NoMachine(ValueError):
    """No machine of that name, or there is one already."""


class _Record(msgspec.Struct):
    image: str
    digest: str
    memory_mib: int
    accelerator: str
    forwards: list[tuple[int, int]] = []


@frozen
class Store:
    """Where a person's machines are."""

    base: Path

    @classmethod
    def of_user(cls) -> "Store":
        """AGENTD_VM_DIR, else below XDG_RUNTIME_DIR, else a directory of the user's in /tmp."""
        given = os.environ.get("AGENTD_VM_DIR")
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        return cls(Path(given or (f"{runtime}/agentd-vm" if runtime else f"/tmp/agentd-vm-{os.geteuid()}")))

    def names(self) -> list[str]:
        """Of every machine there is."""
        return sorted(path.parent.name for path in self.base.glob(f"*/{RECORD}"))

    def create(self, name: str) -> Path:
        """The directory of a new machine. Raises `NoMachine` when the name is taken or is none."""
        directory = self._directory(name)
        self.base.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        owner = self.base.stat()
        if owner.st_uid != os.geteuid() or owner.st_mode & 0o077:
            raise NoMachine(f"{self.base} is not private to its owner")
        try:
            directory.mkdir(mode=PRIVATE)
        except FileExistsError:
            raise NoMachine(
                f"there is a machine {name} already; end it with: agentctl vm down {name}"
            ) from None
        return directory

    def find(self, name: str) -> Path:
        """The directory of a machine. Raises `NoMachine`."""
        directory = self._directory(name)
        if not directory.is_dir():
            raise NoMachine(f"there is no machine {name}")
        return directory

    def _directory(self, name: str) -> Path:
        if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,31}", name):
            raise NoMachine("a machine's name is up to 32 letters, digits, dots, dashes and underscores")
        return self.base / name


def write_settings(path: Path, settings: Settings) -> None:
    """Put down what a machine is, in the file `path`."""
    shape = settings.shape
    pairs = [(forward.local, forward.remote) for forward in settings.forwards]
    record = _Record(
        str(settings.image.directory), settings.image.digest, shape.memory_mib, shape.accelerator, pairs
    )
    path.write_bytes(msgspec.json.encode(record))


def read_settings(path: Path) -> Settings:
    """What `write_settings` put down. Raises `NoMachine`, and `BadImage` when the image is not the same any more."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_Record)
    except (OSError, msgspec.MsgspecError):
        raise NoMachine(f"{path} does not describe a machine") from None
    found = image.load(record.image)
    if found.digest != record.digest:
        raise BadImage(
            f"the image in {record.image} is not the one it was: build it again from the same commit"
        )
    return Settings(
        image=found,
        shape=Shape(record.memory_mib, record.accelerator),
        forwards=tuple(Forward(local, remote) for local, remote in record.forwards),
    )


def write_token(directory: Path, token: str) -> None:
    """Keep a machine's token, for its owner's eyes."""
    fd = os.open(directory / TOKEN, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w") as file:
        file.write(token)


def read_token(directory: Path) -> str | None:
    """A machine's token; None while it has none."""
    try:
        return (directory / TOKEN).read_text()
    except FileNotFoundError:
        return None


def snapshot_into(directory: Path) -> "Snapshot":
    """An empty directory for a snapshot. Raises `NoMachine` when there is something there."""
    try:
        directory.mkdir(mode=PRIVATE, parents=True)
    except FileExistsError:
        raise NoMachine(f"{directory} exists already") from None
    return Snapshot(directory.absolute())


@frozen
class Snapshot:
    """A saved machine, to be cloned."""

    directory: Path

    @property
    def state(self) -> Path:
        """The file with its state."""
        return self.directory / STATE

    def settings(self) -> Settings:
        """What a clone has to be. Raises as `read_settings`."""
        return read_settings(self.directory / SNAPSHOT)

    def describe(self, settings: Settings, token: str | None) -> None:
        """Put down what was saved; `token` is the one installed in it, if any."""
        if token is not None:
            write_token(self.directory, token)
        write_settings(self.directory / SNAPSHOT, settings)

    def remove(self) -> None:
        """Take it away."""
        shutil.rmtree(self.directory, ignore_errors=True)

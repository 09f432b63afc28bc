"""What comes from Debian: packages unpacked by mmdebstrap, and a kernel.

The variant ``extract`` unpacks packages with what they depend on and runs no package's script, so that the result is a
function of the packages: 52 MiB in 11 s, where a configured minimal system takes 30 s and 140 MiB. What those scripts
would have made is owed by `image.tree`.

Both trees are kept in a cache, under the digest of what they were asked for. A package index moves on: a cached tree
is as old as its file, and ``--refresh`` makes it anew.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from image.run import run

SUITE: Final = "bookworm"
PACKAGES: Final = (
    "base-files",
    "base-passwd",
    "bash",
    "busybox-static",
    "libc-bin",
    "libpython3.11-stdlib",
    "netbase",
    "python3.11-minimal",
    "tini",
)
"""What the image is made of. busybox stands in for sh and the usual commands; the environments API runs bash."""

KERNEL: Final = "linux-image-cloud-amd64"
"""A name that depends on the newest kernel for virtual machines: half the drivers, a quicker start."""

NOT_WANTED: Final = ("doc", "man", "locale", "info")


class Unpacked(NamedTuple):
    """A tree of unpacked packages."""

    path: Path
    versions: dict[str, str]
    """Of every package in it."""


def unpack(packages: tuple[str, ...], cache: Path, *, mirror: str | None, refresh: bool) -> Unpacked:
    """The tree of `packages` and what they depend on. Not to be changed: it belongs to the cache.

    Raises `image.run.BuildFailed`.
    """
    asked = json.dumps([SUITE, sorted(packages), mirror, NOT_WANTED, "extract"])
    home = cache / f"debian-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"

    def make(directory: Path) -> None:
        options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in NOT_WANTED]
        run(
            "mmdebstrap",
            "--quiet",
            "--mode=root",
            "--variant=extract",
            f"--include={','.join(packages)}",
            '--aptopt=APT::Install-Recommends "false"',
            '--aptopt=Acquire::Languages "none"',
            '--aptopt=APT::Sandbox::User "root"',
            f"--extract-hook=ls \"$1\"/var/cache/apt/archives/*.deb > '{directory}/archives'",
            *options,
            SUITE,
            directory / "tree",
            *([mirror] if mirror else []),
        )

    kept(home, make, refresh)
    names = (Path(line).stem for line in (home / "archives").read_text().splitlines())
    parts = (name.split("_") for name in names)
    versions = {name: version.replace("%3a", ":") for name, version, *_ in sorted(parts)}
    return Unpacked(home / "tree", versions)


def kept(home: Path, make: Callable[[Path], None], refresh: bool) -> None:
    """Let `make` fill the directory `home`, unless it is there. It appears whole or not at all."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.with_suffix(".lock")):
        if home.exists() and not refresh:
            return
        fresh = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
        try:
            make(fresh)
            shutil.rmtree(home, ignore_errors=True)
            os.replace(fresh, home)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of this name, waiting for whoever has it."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


MODULES: Final = (
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "virtio_blk",
    "overlay",
)
"""Everything that this kernel does not have built in, in the order in which it can be loaded."""


class Kernel(NamedTuple):
    """A kernel and its modules, in the order to load them in."""

    image: Path
    release: str
    package: str
    version: str
    modules: tuple[Path, ...]


def kernel(cache: Path, *, mirror: str | None, refresh: bool) -> Kernel:
    """The newest kernel of the suite. Raises `image.run.BuildFailed`."""
    unpacked = unpack((KERNEL,), cache, mirror=mirror, refresh=refresh)
    (image,) = (unpacked.path / "boot").glob("vmlinuz-*")
    release = image.name.removeprefix("vmlinuz-")
    found = {path.stem: path for path in (unpacked.path / "lib/modules" / release).rglob("*.ko")}
    package = f"linux-image-{release}"
    return Kernel(
        image=image,
        release=release,
        package=package,
        version=unpacked.versions[package],
        modules=tuple(found[name] for name in MODULES),
    )

"""A built image: the directory that `image/build` writes, by its manifest."""

from pathlib import Path
from typing import Final

import msgspec
from attrs import frozen

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1


class BadImage(ValueError):
    """A directory holds no image, or one of a format that is not known here."""


class _Boot(msgspec.Struct):
    kernel: str
    initrd: str
    root: str | None
    line: str
    memory_mib: int
    port: int


class _Manifest(msgspec.Struct):
    format: int
    digest: str
    boot: _Boot


@frozen
class Image:
    """What a machine is started from."""

    directory: Path
    digest: str
    """Stands for the kernel, the initrd, the root and the kernel's line."""
    kernel: Path
    initrd: Path
    root: Path | None
    """A file system that is only read; None when the initrd is the root."""
    line: str
    """The kernel's command line."""
    memory_mib: int
    """What a machine gets unless told otherwise."""
    port: int
    """Where the daemon listens in the guest."""


def load(directory: str | Path) -> Image:
    """The image in `directory`. Raises `BadImage`."""
    home = Path(directory).absolute()
    try:
        manifest = msgspec.json.decode((home / MANIFEST).read_bytes(), type=_Manifest)
    except OSError as reason:
        raise BadImage(f"{home} holds no image: {MANIFEST}: {reason.strerror}") from None
    except msgspec.MsgspecError as reason:
        raise BadImage(f"{home / MANIFEST}: {reason}") from None
    if manifest.format != FORMAT:
        raise BadImage(f"{home / MANIFEST}: format {manifest.format} is not known here")
    boot = manifest.boot
    kernel, initrd = home / boot.kernel, home / boot.initrd
    root = None if boot.root is None else home / boot.root
    for path in (kernel, initrd, root):
        if path is not None and not path.is_file():
            raise BadImage(f"{path} is not there")
    return Image(
        home,
        manifest.digest,
        kernel,
        initrd,
        root,
        line=boot.line,
        memory_mib=boot.memory_mib,
        port=boot.port,
    )

"""An image of three empty files."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentd.vm import image
from agentd.vm.image import Image

BOOT: dict[str, Any] = {
    "kernel": "vmlinuz",
    "initrd": "initrd.img",
    "root": "root.ext4",
    "line": "console=ttyS0 quiet",
    "memory_mib": 256,
    "port": 9000,
}


def make_image(directory: Path, digest: str = "d1", format: int = 1, **boot: Any) -> Path:
    """What `image/build` leaves, in shape."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("vmlinuz", "initrd.img", "root.ext4"):
        (directory / name).touch()
    manifest = {"format": format, "digest": digest, "boot": {**BOOT, **boot}, "python": {}}
    (directory / image.MANIFEST).write_text(json.dumps(manifest))
    return directory


@pytest.fixture
def built(tmp_path: Path) -> Image:
    """An image, loaded."""
    return image.load(make_image(tmp_path / "image"))

"""Reading a manifest: everything a machine needs, or what is wrong in a line."""

from pathlib import Path
from typing import Any

import pytest

from agentd.vm import image
from agentd.vm.image import BadImage, Image
from tests.qemu.conftest import make_image


def test_an_image_is_loaded(built: Image) -> None:
    assert built.kernel.name == "vmlinuz"
    assert built.root is not None
    assert built.root.is_absolute()
    assert (built.memory_mib, built.port, built.digest) == (256, 9000, "d1")


def test_an_image_may_have_no_root(tmp_path: Path) -> None:
    assert image.load(make_image(tmp_path / "image", root=None)).root is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 2}, "format 2"),
        ({"kernel": "gone"}, "gone is not there"),
        ({"memory_mib": "x"}, "memory_mib"),
    ],
)
def test_what_is_no_image_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadImage, match=says):
        image.load(make_image(tmp_path / "image", **change))


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match="holds no image"):
        image.load(tmp_path)

"""Acceleration is used where a kernel was seen to run with it, and nowhere else."""

from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor

from agentd.vm import accelerator, machine
from agentd.vm.accelerator import choose
from agentd.vm.command import KVM, TCG, Settings
from agentd.vm.image import Image
from agentd.vm.machine import End, MachineFailed
from agentd.vm.process import NotStarted


class Trial:
    """A machine that was started to see whether it runs."""

    def __init__(self, end: End | None) -> None:
        self.end = end
        self.killed = False

    async def ended(self, limit: float) -> End:
        """As scripted; None is a machine that hangs."""
        if self.end is None:
            raise MachineFailed(f"the machine did not end within {limit:g} s")
        return self.end

    async def kill(self) -> None:
        self.killed = True


@pytest.mark.parametrize(
    ("trial", "chosen"),
    [
        (Trial(End("guest-reset", panicked=True)), KVM),
        (Trial(End("guest-reset", panicked=False)), TCG),
        (Trial(None), TCG),
        (None, TCG),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_kernel_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, built: Image, trial: Trial | None, chosen: str
) -> None:
    started: list[Settings] = []

    async def start(_: Any, settings: Settings, directory: Path) -> Any:
        started.append(settings)
        if trial is None:
            raise NotStarted("failed to initialize kvm")
        return trial

    (tmp_path / "device").touch()
    monkeypatch.setattr(accelerator, "DEVICE", str(tmp_path / "device"))
    monkeypatch.setattr(machine, "start", start)
    assert await choose(reactor, built) == chosen
    assert [(each.shape.accelerator, each.image.root) for each in started] == [(KVM, None)]
    assert trial is None or trial.killed


@pytest_twisted.ensureDeferred
async def test_without_the_device_nothing_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, built: Image
) -> None:
    monkeypatch.setattr(accelerator, "DEVICE", str(tmp_path / "none"))
    assert await choose(reactor, built) == TCG

"""Random generators after a snapshot: what goes in, and what no refusal may leave out."""

import errno
import random
from pathlib import Path

import pytest

from agentd.guest import entropy
from agentd.guest.entropy import Generators


@pytest.fixture(autouse=True)
def same_afterwards() -> object:
    """Python's generator is everybody's."""
    state = random.getstate()
    yield
    random.setstate(state)


class Seeded:
    """Generators that keep what they were given."""

    def __init__(self, clocks: bytes = b"clocks", refuse: bool = False) -> None:
        self.kernel: list[bytes] = []
        self.process: list[bytes] = []
        self.refuse = refuse
        self.generators = Generators(lambda: clocks, self._kernel, self.process.append)

    def _kernel(self, material: bytes) -> None:
        if self.refuse:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self.kernel.append(material)


def test_everything_gets_one_material_of_what_was_told_and_the_clocks() -> None:
    made = set()
    for told, clocks in [(b"one", b"1"), (b"two", b"1"), (b"one", b"2"), (b"", b"")]:
        seeded = Seeded(clocks)
        seeded.generators.reseed(told)
        assert seeded.kernel == seeded.process
        assert len(seeded.kernel[0]) == 64
        made.add(seeded.kernel[0])
    assert len(made) == 4


def test_the_process_is_seeded_though_the_kernel_refuses() -> None:
    seeded = Seeded(refuse=True)
    with pytest.raises(PermissionError):
        seeded.generators.reseed(b"told")
    assert len(seeded.process) == 1


def test_twins_of_one_state_draw_differently_afterwards() -> None:
    state = random.getstate()
    drawn = []
    for material in (b"one", b"two"):
        random.setstate(state)
        entropy.reseed_process(material)
        drawn.append(random.getrandbits(128))
    assert drawn[0] != drawn[1]


def test_the_clocks_say_more_than_one_and_go_on(tmp_path: Path) -> None:
    rtc = tmp_path / "since_epoch"
    rtc.write_text("1700000000\n")
    first, second = entropy.clocks(rtc), entropy.clocks(rtc)
    assert first != second
    assert first.endswith(b",1700000000")
    assert entropy.clocks(tmp_path / "none").count(b",") == first.count(b",") - 1


@pytest.mark.root
def test_this_kernel_takes_it() -> None:
    Generators().reseed(b"harmless")

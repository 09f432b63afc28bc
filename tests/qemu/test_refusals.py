"""`agentctl vm` without a machine: what cannot be is said in a line."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import pytest_twisted

from tests.cli.support import Agentctl, start

Vm = Callable[..., Agentctl]


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    """`vm(word, …)`: agentctl vm, started."""
    begun: list[Agentctl] = []

    def begin(*words: str) -> Agentctl:
        run = start("vm", *words, url=None, token=None, env={"AGENTD_VM_DIR": str(tmp_path / "vms")})
        begun.append(run)
        run.process.closeStdin()
        return run

    yield begin
    for each in begun:
        each.stop()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("up", "HERE"), "holds no image"),
        (("run", "HERE", "--", "true"), "holds no image"),
        (("down", "nobody"), "there is no machine nobody"),
        (("suspend", "../nobody"), "a machine's name"),
        (("snapshot", "nobody", "there"), "there is no machine nobody"),
        (("clone", "HERE"), "does not describe a machine"),
        (("up", "HERE", "--forward", "80"), "LOCAL:REMOTE"),
        (("up", "HERE", "--memory", "1"), "--memory"),
        (("run", "HERE"), "COMMAND"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_what_cannot_be_is_said_in_a_line(
    vm: Vm, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    here = tmp_path / "empty"
    here.mkdir()
    result = await vm(*(str(here) if word == "HERE" else word for word in words)).result()
    assert (result.status, result.out) == (2, b"")
    assert says in result.line
    assert not (tmp_path / "vms").exists()


@pytest_twisted.ensureDeferred
async def test_where_there_are_no_machines_none_are_listed(vm: Vm) -> None:
    result = await vm("ls").result()
    assert (result.status, result.text) == (0, "none\n")

"""The machines of a person: names, records, tokens, snapshots."""

from pathlib import Path

import pytest

from agentd.vm import image, store
from agentd.vm.command import Forward, Settings, Shape
from agentd.vm.image import BadImage, Image
from agentd.vm.store import NoMachine, Snapshot, Store
from tests.qemu.conftest import make_image


@pytest.fixture
def settings(built: Image) -> Settings:
    return Settings(built, Shape(512), (Forward(40001, 9000),))


def test_a_machine_is_found_again(tmp_path: Path, settings: Settings) -> None:
    mine = Store(tmp_path / "vms")
    directory = mine.create("one")
    assert mine.names() == []
    store.write_settings(directory / store.RECORD, settings)
    store.write_token(directory, "secret")
    assert mine.names() == ["one"]
    assert mine.find("one") == directory
    assert store.read_settings(directory / store.RECORD) == settings
    assert store.read_token(directory) == "secret"
    for path in (mine.base, directory, directory / store.TOKEN):
        assert path.stat().st_mode & 0o077 == 0


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    mine = Store(tmp_path / "vms")
    mine.create("one")
    with pytest.raises(NoMachine, match="already"):
        mine.create("one")
    with pytest.raises(NoMachine, match="no machine two"):
        mine.find("two")


@pytest.mark.parametrize("name", ["", "..", "../one", "a/b", ".hidden", "a" * 33, "a b"])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    mine = Store(tmp_path / "vms")
    for ask in (mine.create, mine.find):
        with pytest.raises(NoMachine, match="name"):
            ask(name)


def test_a_directory_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "vms").mkdir(mode=0o755)
    (tmp_path / "vms").chmod(0o755)
    with pytest.raises(NoMachine, match="private"):
        Store(tmp_path / "vms").create("one")


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert Store.of_user().base == Path("/run/user/7/agentd-vm")
    monkeypatch.setenv("AGENTD_VM_DIR", "/elsewhere")
    assert Store.of_user().base == Path("/elsewhere")


def test_an_image_that_was_built_anew_is_not_the_same(tmp_path: Path, settings: Settings) -> None:
    store.write_settings(tmp_path / "record", settings)
    make_image(settings.image.directory, digest="d2")
    with pytest.raises(BadImage, match="not the one it was"):
        store.read_settings(tmp_path / "record")
    assert image.load(settings.image.directory).digest == "d2"


def test_a_snapshot_keeps_shape_and_token(tmp_path: Path, settings: Settings) -> None:
    taken = store.snapshot_into(tmp_path / "snapshot")
    taken.describe(settings, "secret")
    found = Snapshot(tmp_path / "snapshot")
    assert found.settings() == settings
    assert store.read_token(found.directory) == "secret"
    with pytest.raises(NoMachine, match="exists already"):
        store.snapshot_into(tmp_path / "snapshot")
    found.remove()
    assert not (tmp_path / "snapshot").exists()


def test_a_closed_snapshot_has_no_token(tmp_path: Path, settings: Settings) -> None:
    taken = store.snapshot_into(tmp_path / "snapshot")
    taken.describe(settings, None)
    assert store.read_token(taken.directory) is None


def test_what_describes_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "record").write_text("{}")
    for name in ("record", "none"):
        with pytest.raises(NoMachine, match="does not describe"):
            store.read_settings(tmp_path / name)

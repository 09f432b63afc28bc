"""QEMU's command line: closed to the outside, equal for a machine and its clones but for what must differ."""

from pathlib import Path

from attrs import evolve

from agentd.vm.command import KVM, Forward, Settings, Shape, arguments
from agentd.vm.image import Image


def settings(built: Image, **changes: object) -> Settings:
    made = Settings(built, Shape(256), (Forward(40001, 9000), Forward(40002, 80)))
    return evolve(made, **changes)  # type: ignore[arg-type]  # any of its fields


def after(words: list[str], option: str) -> list[str]:
    return [words[index + 1] for index, word in enumerate(words) if word == option]


def test_ports_are_on_loopback_and_nothing_else_gets_in_or_out(built: Image) -> None:
    (net,) = after(arguments(settings(built), Path("/m")), "-netdev")
    assert net == (
        "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:40001-:9000,hostfwd=tcp:127.0.0.1:40002-:80"
    )


def test_the_root_is_only_read(built: Image) -> None:
    (drive,) = after(arguments(settings(built), Path("/m")), "-drive")
    assert drive.endswith(",readonly=on")


def test_a_clone_has_the_words_of_its_source_and_a_state(built: Image) -> None:
    source = arguments(settings(built), Path("/m"))
    clone = arguments(settings(built), Path("/m"), Path("/states/it's mine"))
    assert clone[: len(source)] == source
    assert clone[len(source) :] == ["-incoming", "exec:cat '/states/it'\"'\"'s mine'"]


def test_commas_of_paths_are_kept(built: Image, tmp_path: Path) -> None:
    odd = evolve(built, root=Path("/a,b/root"))
    words = arguments(settings(odd), Path("/m,n"))
    assert after(words, "-drive")[0].startswith("file=/a,,b/root,")
    assert after(words, "-qmp")[0].startswith("unix:/m,,n/qmp,")


def test_shape_and_words_of_the_kernels_line(built: Image) -> None:
    words = arguments(settings(built, shape=Shape(512, KVM), words=("init=/sbin/x",)), Path("/m"))
    assert (after(words, "-m"), after(words, "-cpu"), after(words, "-accel")) == (["512"], ["host"], ["kvm"])
    assert after(words, "-append") == ["console=ttyS0 quiet init=/sbin/x"]


def test_an_image_without_a_root_has_no_drive(built: Image) -> None:
    assert "-drive" not in arguments(settings(evolve(built, root=None)), Path("/m"))

"""The jail: which paths are good, and that what was judged is what is used, whoever swaps things meanwhile."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules.jail import Verdict, below, judge, names_within, normalise, relative
from agentd.worker import reach
from agentd.worker import settings as settings_of
from agentd.worker.coder_paths import CoderPaths
from agentd.worker.errors import Coded, CoderError
from agentd.worker.jail import Jail, Unbuildable
from tests.worker.calls import make_tree


def build(cwd: Path, fs: dict[str, object], globs: tuple[str, ...] = ()) -> tuple[Jail, CoderPaths]:
    settings = settings_of.parse(
        {"fs": {"allow_unjailed": True, **fs}, "code": {"non_accessible_globs": globs}}
    )
    return Jail.build(settings, str(cwd)), CoderPaths.build(settings, str(cwd))


# -- text --------------------------------------------------------------------------------------------------------


def test_prefixes_are_components() -> None:
    assert below(b"/tmp/a", b"/tmp/a")
    assert below(b"/tmp/a/b", b"/tmp/a")
    assert not below(b"/tmp/ab", b"/tmp/a")
    assert not below(b"/tmp", b"/tmp/a")
    assert below(b"/x", b"/")
    assert relative(b"/x/y", b"/") == b"x/y"
    assert relative(b"/x", b"/x") == b""


def test_verdicts() -> None:
    roots, denied = (b"/a", b"/b"), (b"/a/no",)
    assert judge(b"/a/x", roots, denied) is Verdict.ALLOWED
    assert judge(b"/b", roots, denied) is Verdict.ALLOWED
    assert judge(b"/c", roots, denied) is Verdict.OUTSIDE
    assert judge(b"/a/no/x", roots, denied) is Verdict.DENIED
    assert judge(b"/a/none", roots, denied) is Verdict.ALLOWED
    assert judge(b"/c", (), denied) is Verdict.ALLOWED
    assert list(names_within(b"/a/b/c", (b"/a", b"/a/b", b"/z"))) == [b"b/c", b"c"]
    assert list(names_within(b"/a/b", ())) == [b"a/b"]


@given(st.lists(st.sampled_from([b"a", b"b", b"..", b".", b""]), max_size=8))
def test_normalised_paths_are_plain(parts: list[bytes]) -> None:
    path = normalise(b"/" + b"/".join(parts))
    assert normalise(path) == path
    assert path == os.path.normpath(b"/" + b"/".join(parts)).replace(b"//", b"/")


# -- building ----------------------------------------------------------------------------------------------------


def test_roots_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in ("nope", str(tmp_path / "file"), "a\0b"):
        with pytest.raises(Unbuildable, match="host_roots"):
            build(tmp_path, {"host_roots": [root]})
    with pytest.raises(Unbuildable, match="non_accessible_globs"):
        build(tmp_path, {}, ("[",))
    settings = settings_of.parse({"fs": {"allow_unjailed": True}, "code": {"default_exclude_globs": ["{"]}})
    with pytest.raises(Unbuildable, match="default_exclude_globs"):
        CoderPaths.build(settings, str(tmp_path))


def test_roots_and_denylist_are_canonical(tmp_path: Path) -> None:
    make_tree(tmp_path, {"real/x": "", "real/no/y": ""})
    (tmp_path / "alias").symlink_to("real")
    jail, coder = build(
        tmp_path, {"host_roots": ["alias", "real"], "denylist_paths": ["alias/no", "/nope/../gone"]}
    )
    real = os.fsencode(tmp_path / "real")
    assert jail.roots == coder.roots == (real,)
    assert jail.denied == (real + b"/no", b"/gone")
    with pytest.raises(Coded, match="denylist"):
        jail.resolve("no/y")
    with pytest.raises(CoderError) as hidden:
        coder.check(coder.resolve("no/y"))
    assert hidden.value.coder_code == "C211"


def test_the_coder_has_roots_of_its_own_without_a_jail(tmp_path: Path) -> None:
    jail, coder = build(tmp_path, {})
    assert jail.roots == ()
    assert coder.roots == (os.fsencode(tmp_path), b"/tmp")
    gone = tmp_path / "gone"
    gone.mkdir()
    settings = settings_of.parse({"fs": {"host_roots": [str(gone)]}})
    gone.rmdir()
    nothing = CoderPaths.build(settings, str(tmp_path))
    with pytest.raises(CoderError) as refused:
        nothing.resolve("x")
    assert refused.value.coder_code == "C210"


# -- resolving ---------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "jail"
    make_tree(root, {"a.txt": "inside", "dir/sub/": "", ".env": "", "x/secrets/k": ""})
    make_tree(tmp_path, {"jailbreak/a.txt": "outside", "second/b": ""})
    links = {
        "link": "a.txt",
        "dirlink": "dir",
        "out": "../jailbreak",
        "abs": str(tmp_path / "jailbreak"),
        "back": "../jail/dir",
        "dangling": "nope",
        "chain1": "chain2",
        "chain2": "link",
        "loop1": "loop2",
        "loop2": "loop1",
        "self": "self/x",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    return root


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".", ""),
        ("a.txt", "a.txt"),
        ("./dir//sub/", "dir/sub"),
        ("link", "a.txt"),
        ("chain1", "a.txt"),
        ("dirlink/sub/..", "dir"),
        ("back/sub", "dir/sub"),
        ("dir/sub/../../a.txt", "a.txt"),
        ("new", "new"),
        ("new/deep/er", "new/deep/er"),
        ("new/../a.txt", "a.txt"),
        ("new/../link", "a.txt"),
        ("dirlink/new", "dir/new"),
        ("new/./x/../y", "new/y"),
        ("{root}/a.txt", "a.txt"),
        ("{root}/../jail/a.txt", "a.txt"),
        ("a.txt/x", "a.txt/x"),
        ("~", "~"),
        ("$HOME", "$HOME"),
    ],
)
def test_good_paths(root: Path, path: str, expected: str) -> None:
    jail, coder = build(root.parent, {"host_roots": [str(root)]})
    given = path.format(root=root)
    wanted = os.fsencode(root / expected) if expected else os.fsencode(root)
    assert jail.resolve(given).path == wanted
    assert coder.resolve(given).path == wanted
    assert coder.resolve(given).relative == os.fsencode(expected)


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../jailbreak/a.txt",
        "../jail2",
        "out",
        "out/a.txt",
        "out/new",
        "abs/a.txt",
        "dangling",
        "dangling/x",
        "loop1",
        "loop1/x",
        "self",
        "new/../out/a.txt",
        "new/../../jailbreak/a.txt",
        "new/../dangling",
        "/etc",
        "/",
        "//etc",
        "/proc/self/root/etc",
    ],
)
def test_escapes(root: Path, path: str) -> None:
    jail, coder = build(root.parent, {"host_roots": [str(root)]})
    with pytest.raises(Coded) as refused:
        jail.resolve(path)
    assert refused.value.code == "S215"
    with pytest.raises(CoderError) as also:
        coder.resolve(path)
    assert also.value.coder_code == "C215"


@pytest.mark.parametrize(
    ("path", "code"), [("", "0"), ("a\0b", "0"), ("\ud800", "0"), ("a" * 5000, "6"), ("a/" * 9999, "6")]
)
def test_paths_that_are_none(root: Path, path: str, code: str) -> None:
    jail, coder = build(root.parent, {"host_roots": [str(root)]})
    with pytest.raises(Coded) as refused:
        jail.resolve(path)
    assert refused.value.code == f"S21{code}"
    with pytest.raises(CoderError) as also:
        coder.resolve(path)
    assert also.value.coder_code == f"C21{code}"
    assert len(also.value.text) < 1000


def test_several_roots(root: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    jail, coder = build(tmp_path, {"host_roots": [str(root), str(second)]})
    assert jail.resolve(str(second / "b")).path == os.fsencode(second / "b")
    assert jail.resolve("../second/b").path == os.fsencode(second / "b")
    assert coder.resolve(str(second / "b")).root == os.fsencode(second)
    with pytest.raises(CoderError) as refused:  # a relative path stays in the first
        coder.resolve("../second/b")
    assert refused.value.coder_code == "C215"
    with pytest.raises(Coded) as named:
        jail.resolve("/etc")
    assert str(root) in named.value.message
    assert str(second) in named.value.message


def test_protection_says_what_absence_says(root: Path) -> None:
    globs = ("**/.env", "**/secrets/**")
    jail, coder = build(root.parent, {"host_roots": [str(root)]}, globs)
    for path in (".env", "x/secrets/k", "x/secrets/none"):
        with pytest.raises(Coded) as refused:
            jail.resolve(path)
        assert refused.value.code == "S215"
        with pytest.raises(CoderError) as hidden:
            coder.check(coder.resolve(path))
        from agentd.worker.coder_paths import missing

        assert hidden.value.text == missing(path).text
        assert "not found or not accessible" in hidden.value.text
    assert jail.resolve("x/secrets").path
    unjailed, _ = build(root.parent, {}, globs)
    with pytest.raises(Coded):
        unjailed.resolve(str(root / ".env"))


def test_a_working_directory(root: Path) -> None:
    jail, _ = build(root.parent, {"host_roots": [str(root)]})
    directory = jail.directory("dirlink")
    try:
        assert os.path.samefile(directory.path, root / "dir")
        (root / "dir").rename(root / "moved")
        (root / "dir").symlink_to("/etc")
        assert os.path.samefile(directory.path, root / "moved")
    finally:
        directory.close()
        directory.close()
    for path, code in (
        ("a.txt", "S210"),
        ("nope", "S211"),
        ("dir", "S215"),
        ("a.txt/x", "S210"),
        ("", "S210"),
    ):
        with pytest.raises(Coded) as refused:
            jail.directory(path)
        assert refused.value.code == code


# -- swaps -------------------------------------------------------------------------------------------------------


@contextmanager
def swapping(place: Path, elsewhere: Path) -> Iterator[None]:
    """Keep turning the directory `place` into a link to `elsewhere` and back."""
    aside = place.with_name("aside")
    link = place.with_name("swapped")
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            place.rename(aside)
            link.symlink_to(elsewhere)
            link.rename(place)
            place.unlink()
            aside.rename(place)
            ended.wait(0.0005)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_what_was_judged_and_then_swapped_is_not_used(root: Path) -> None:
    """The swap of a check and its use, step by step: each way to use a path refuses it."""
    jail, _ = build(root.parent, {"host_roots": [str(root)]})
    make_tree(root, {"box/a.txt": "inside"})
    place = jail.resolve("box/a.txt")
    new = jail.resolve("box/new")
    (root / "box").rename(root / "aside")
    (root / "box").symlink_to(root.parent / "jailbreak")
    for path in (place.path, new.path):
        with pytest.raises(OSError, match="symbolic"):
            reach.open_path(path, reach.READ)
        with pytest.raises(OSError, match="symbolic"), reach.parent_of(path):
            pass
        with pytest.raises(OSError, match="symbolic"):
            reach.NewFile.begin(path)
        with pytest.raises(OSError, match="symbolic"):
            reach.NewFile.begin(path, parents=True)
        with pytest.raises(OSError, match="symbolic"):
            reach.status_of(path)
    assert (root.parent / "jailbreak" / "a.txt").read_text() == "outside"
    assert os.listdir(root.parent / "jailbreak") == ["a.txt"]


def test_no_swap_leads_outside(root: Path) -> None:
    """A race, many times: what is read is what is inside, and nothing is ever written outside."""
    jail, _ = build(root.parent, {"host_roots": [str(root)]})
    make_tree(root, {"box/a.txt": "inside"})
    jailbreak = root.parent / "jailbreak"
    read = written = refused = 0
    end = time.monotonic() + 30
    with swapping(root / "box", jailbreak):
        while min(read, written, refused) < 50:
            assert time.monotonic() < end, (read, written, refused)
            try:
                place = jail.resolve("box/a.txt")
                with reach.opened(place.path, reach.READ) as fd:
                    assert os.read(fd, 100) == b"inside"
                read += 1
                new = reach.NewFile.begin(jail.resolve("box/new").path)
                try:
                    new.write(b"x")
                    new.publish(0o644)
                    written += 1
                finally:
                    new.discard()
            except (OSError, Coded):
                refused += 1
    assert os.listdir(jailbreak) == ["a.txt"]
    assert (jailbreak / "a.txt").read_text() == "outside"

"""The two dialects of file name patterns: a table of cases each, and laws."""

import time
from contextlib import suppress
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.worker.globs import MAX_GLOBS_BYTES, BadGlob, globset, walk_globs

WALK = [
    # A pattern without a slash is about the file name.
    ("*.py", "a.py", True),
    ("*.py", "src/a.py", True),
    ("*.py", "a.pyc", False),
    ("*.py", ".py", True),
    ("a", "a", True),
    ("a", "b/a", True),
    ("a", "a/b", False),
    ("a", "A", False),
    ("?.c", "a.c", True),
    ("?.c", "x/a.c", True),
    ("?.c", "ab.c", False),
    ("?", "/", False),
    ("*", "a/b/c", True),
    ("*", ".hidden", True),
    ("", "a", False),
    # One with a slash is about the path from where the walk begins.
    ("src/*.py", "src/a.py", True),
    ("src/*.py", "src/x/a.py", False),
    ("src/*.py", "x/src/a.py", False),
    ("*/a.py", "src/a.py", True),
    ("*/a.py", "a.py", False),
    ("src/?", "src/a", True),
    # ``**`` alone is everything; at the beginning it means the name, then the path; elsewhere it is a star.
    ("**", "a", True),
    ("**", "a/b/c", True),
    ("**/*.rs", "a.rs", True),
    ("**/*.rs", "x/y/a.rs", True),
    ("**/src/*.rs", "src/a.rs", True),
    ("**/src/*.rs", "x/src/a.rs", False),
    ("src/**", "src/a", True),
    ("src/**", "src/a/b", False),
    ("src/**/a", "src/x/a", True),
    ("src/**/a", "src/a", False),
    ("src/**/a", "src/x/y/a", False),
    ("a**b", "axxb", True),
    # Nothing else is special.
    ("[ab]", "a", False),
    ("[ab]", "[ab]", True),
    ("{a,b}", "a", False),
    ("{a,b}", "{a,b}", True),
    ("\\*", "*", False),
    ("\\*", "\\x", True),
    ("a.c", "abc", False),
    ("a$", "a$", True),
    ("*\n*", "a\nb", True),
    ("*", "a\nb", True),
    ("é*", "éa", True),
]

GLOBSET = [
    ("a", "a", True),
    ("a", "x/a", False),
    ("a", "A", False),
    # ``*`` and ``?`` cross slashes.
    ("*.rs", "a.rs", True),
    ("*.rs", "x/y/a.rs", True),
    ("*.rs", ".rs", True),
    ("?", "a", True),
    ("a?b", "a/b", True),
    ("?", "ab", False),
    ("a*", "a", True),
    ("*", "", True),
    # Components.
    ("**", "a/b", True),
    ("**", "", True),
    ("**/a", "a", True),
    ("**/a", "x/y/a", True),
    ("**/a", "xa", False),
    ("**/a", "a/b", False),
    ("a/**", "a/b", True),
    ("a/**", "a/b/c", True),
    ("a/**", "a", False),
    ("a/**", "a/", True),
    ("a/**/b", "a/b", True),
    ("a/**/b", "a/x/y/b", True),
    ("a/**/b", "ab", False),
    ("a/**/b", "axb", False),
    ("**/x/**", "x", False),
    ("**/x/**", "x/a", True),
    ("**/x/**", "a/x/b", True),
    ("**/x/**", "a/x/b/c", True),
    ("**/x/**", "xx/b", False),
    ("**/**/a", "a", True),
    ("**/**", "a/b", True),
    ("a/**/**", "a/b", True),
    ("a**b", "axxb", True),
    ("a**b", "ax/xb", True),
    ("**a", "xa", True),
    ("**/.env", ".env", True),
    ("**/.env", "x/.env", True),
    ("**/.env", "x/.envrc", False),
    ("**/.env.*", ".env.local", True),
    # Classes.
    ("[ab]", "a", True),
    ("[ab]", "c", False),
    ("[a-c]x", "bx", True),
    ("[!a-c]", "d", True),
    ("[!a-c]", "b", False),
    ("[^a]", "a", False),
    ("[]]", "]", True),
    ("[!]]", "]", False),
    ("[!]]", "a", True),
    ("[-a]", "-", True),
    ("[a-]", "-", True),
    ("[a-]", "b", False),
    ("[.]x", ".x", True),
    ("[\\]", "\\", True),
    ("[*]", "*", True),
    ("[*]", "a", False),
    ("[é]", "é", True),
    ("[à-ü]x", "éx", True),
    # Alternatives.
    ("{a,b}", "a", True),
    ("{a,b}", "b", True),
    ("{a,b}", "c", False),
    ("*.{rs,toml}", "x/Cargo.toml", True),
    ("{a,{b,c}d}", "cd", True),
    ("{**/a,b}", "x/a", True),
    ("{a/**,b}", "a/x", True),
    ("x{,y}", "xy", True),
    ("x{,y}", "x", False),
    ("x{}", "x", True),
    ("a,b", "a,b", True),
    # Escapes, and what is not special.
    ("\\*", "*", True),
    ("\\*", "a", False),
    ("\\[a]", "[a]", True),
    ("\\{a\\}", "{a}", True),
    ("a.c", "abc", False),
    ("(a|b)", "a", False),
    ("é", "é", True),
    ("*", "a\nb", True),
]


@pytest.mark.parametrize(("pattern", "path", "expected"), WALK)
def test_walk_globs(pattern: str, path: str, expected: bool) -> None:
    assert walk_globs([pattern]).matches(path.encode()) is expected


@pytest.mark.parametrize(("pattern", "path", "expected"), GLOBSET)
def test_globset(pattern: str, path: str, expected: bool) -> None:
    assert globset([pattern]).matches(path.encode()) is expected


@pytest.mark.parametrize(
    "pattern",
    ["[", "[a", "[]", "[!", "[b-a]", "{a", "{a,{b}", "}", "a}", "\\", "a\\", "[\u0100-\uffff]", "[\ud800]"],
)
def test_globsets_that_are_none(pattern: str) -> None:
    with pytest.raises(BadGlob):
        globset(["fine", pattern])


def test_lists() -> None:
    assert not globset([])
    assert not globset([]).matches(b"")
    both = globset(["*.a", "*.b"])
    assert both.matches(b"x.b")
    assert both.patterns == ("*.a", "*.b")
    assert not walk_globs(["*.a", "x/y"]).matches(b"z/x/y")
    with pytest.raises(BadGlob, match="longer"):
        walk_globs(["a" * 1000] * (MAX_GLOBS_BYTES // 1000 + 1))
    with pytest.raises(BadGlob):
        walk_globs(["\ud800"])


def test_paths_that_are_not_utf8() -> None:
    assert globset(["**/*.key"]).matches(b"\xff/\xfe.key")
    assert walk_globs(["*.key"]).matches(b"\xff/\xfe.key")
    assert globset(["a[!b]c"]).matches(b"a\xffc")


@pytest.mark.parametrize("compiled", [walk_globs, globset])
def test_many_stars_cost_nothing(compiled: object) -> None:
    assert callable(compiled)
    globs = compiled(["*a" * 100 + "b", "**/" * 50 + "x"])
    begun = time.monotonic()
    assert not globs.matches(b"a" * 4000)
    assert time.monotonic() - begun < 1


names = st.text("ab.*", min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))
simple = st.text("ab.*?", max_size=8).filter(lambda pattern: "**" not in pattern)


@given(simple, names)
def test_on_names_both_dialects_are_the_shells(pattern: str, name: str) -> None:
    """The standard library's matcher knows the same stars and question marks, where there is no slash."""
    expected = fnmatchcase(name, pattern)
    assert walk_globs([pattern]).matches(name.encode()) is expected
    assert globset([pattern]).matches(name.encode()) is expected


paths = st.lists(names, min_size=1, max_size=4).map("/".join)


@given(paths)
def test_a_path_escaped_matches_itself_alone(path: str) -> None:
    escaped = "".join("\\" + character for character in path)
    assert globset([escaped]).matches(path.encode())
    assert not globset([escaped]).matches(path.encode() + b"x")


@given(paths, paths)
def test_double_stars_hold_at_every_depth(top: str, below: str) -> None:
    plain = below.replace("*", "a")
    for prefix in ("", f"{top}/"):
        assert globset([f"**/{plain}"]).matches(f"{prefix}{plain}".encode())
        assert globset([f"**/{plain}/**"]).matches(f"{prefix}{plain}/x/y".encode())
        assert not globset([f"**/{plain}/**"]).matches(plain.encode())


@given(st.text("ab[]{}!-,*?\\/", max_size=12), paths)
def test_any_text_is_a_pattern_or_is_refused(pattern: str, path: str) -> None:
    walk_globs([pattern]).matches(path.encode())
    with suppress(BadGlob):
        globset([pattern]).matches(path.encode())

"""The grammar of environment files, and the order of layers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules.env_file import NAME, base, layer, parse


@pytest.mark.parametrize(
    ("text", "variables", "malformed"),
    [
        (b"", {}, ()),
        (b"A=1", {"A": "1"}, ()),
        (b"A=1\nB=2\n", {"A": "1", "B": "2"}, ()),
        (b"A=1\nA=2\n", {"A": "2"}, ()),
        (b"A=\n", {"A": ""}, ()),
        (b"A=1\r\nB=2\r\n", {"A": "1", "B": "2"}, ()),
        (b"\n  \n# A=1\n  #x\n", {}, ()),
        (b"export A=1\nexport  B=2\n", {"A": "1", "B": "2"}, ()),
        (b"A='x y'\nB=\"x y\"\nC='x\"\n", {"A": "x y", "B": "x y", "C": "'x\""}, ()),
        (b"D='\nE=''\nF='a'b'\n", {"D": "'", "E": "", "F": "a'b"}, ()),
        (b"A=$HOME `x` \\n", {"A": "$HOME `x` \\n"}, ()),
        (b"A=a=b#c ", {"A": "a=b#c "}, ()),
        (b"A\n=x\n1A=x\nA B=x\nA =x\nB=ok\n", {"B": "ok"}, (1, 2, 3, 4, 5)),
        (b"A=x\0y\nB=ok", {"B": "ok"}, (1,)),
        (b"A=\xff", {"A": "\udcff"}, ()),
        (b"\xc3\x89=x", {}, (1,)),
        (b"exportA=1", {"exportA": "1"}, ()),
    ],
)
def test_lines(text: bytes, variables: dict[str, str], malformed: tuple[int, ...]) -> None:
    found = parse(text)
    assert found.variables == variables
    assert found.malformed == malformed


@given(st.binary(max_size=200))
def test_no_file_is_too_broken(text: bytes) -> None:
    """Whatever is in it; every name is one, no value holds a NUL, and the values stay out of sight."""
    found = parse(text)
    assert all(NAME.match(name) and "\0" not in value for name, value in found.variables.items())
    assert "variables" not in repr(found)


def test_layers() -> None:
    lowest = base("agent", "/home/agent")
    assert lowest["HOME"] == "/home/agent"
    found = layer(lowest, {"HOME": "r", "A": "r", "B": "r"}, {"A": "p", "C": "p"}, {"C": "", "B": "q"})
    assert {name: found[name] for name in ("HOME", "A", "B", "C")} == {
        "HOME": "r",
        "A": "p",
        "B": "q",
        "C": "",
    }

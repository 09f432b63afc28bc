"""The four layers of a child's environment (contract c.2)."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules import environ

names = st.sampled_from(["HOME", "USER", "PATH", "A", "B"])
layers = st.dictionaries(names, st.text(max_size=3))
raw = st.binary(max_size=12) | st.sampled_from([b"PATH", b"AGENTD_PORT", b"AGENTD_", b"AGENT", b"\xff"])


@given(layers, layers, layers, layers)
def test_each_key_has_its_highest_layer(
    image: dict[str, str], identity: dict[str, str], launch: dict[str, str], request: dict[str, str]
) -> None:
    found = environ.layer(image, identity, launch, request)
    for name in set(image) | set(identity) | set(launch) | set(request) | set(found):
        highest = next(layer for layer in (request, launch, identity, image) if name in layer)
        assert found[name] == highest[name]


@given(layers, layers)
def test_without_flag_and_user_it_is_exactly_launch_and_request(
    launch: dict[str, str], request: dict[str, str]
) -> None:
    image = environ.inherited({"SECRET": "of the daemon", "A": "image"}, False)
    assert environ.layer(image, {}, launch, request) == launch | request


def test_the_flag_lets_the_image_through_or_keeps_it_out() -> None:
    image = {"A": "1"}
    assert environ.inherited(image, True) == image
    assert environ.inherited(image, False) == {}


def test_layering_changes_none_of_the_layers() -> None:
    image = {"A": "image"}
    environ.layer(image, {"A": "identity"}, {}, {})["B"] = "new"
    assert image == {"A": "image"}


def test_an_empty_value_is_a_value() -> None:
    assert environ.layer({"A": "image"}, {}, {"A": ""}, {}) == {"A": ""}
    assert environ.search_path(environ.layer({"PATH": "/image"}, {}, {}, {"PATH": ""})) == ""


@given(st.dictionaries(raw, st.binary(max_size=8)))
def test_the_snapshot_is_everything_but_the_daemons_and_what_is_no_text(
    started_with: dict[bytes, bytes],
) -> None:
    found = environ.snapshot(started_with)
    assert not any(name.startswith("AGENTD_") for name in found)
    for name, value in started_with.items():
        if not name.startswith(b"AGENTD_") and _is_text(name) and _is_text(value):
            assert found[name.decode()] == value.decode()
    assert {(name.encode(), value.encode()) for name, value in found.items()} <= set(started_with.items())


def _is_text(value: bytes) -> bool:
    try:
        value.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return False
    return True


def test_the_snapshot_neither_changes_nor_follows() -> None:
    started_with = {b"A": b"1"}
    found = environ.snapshot(started_with)
    started_with[b"AGENTD_TOKEN"] = b"secret"
    started_with[b"B"] = b"2"
    assert dict(found) == {"A": "1"}
    with pytest.raises(TypeError):
        found["A"] = "2"  # type: ignore[index]  # that it has no assignment is the point


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        (b"AGENTD_PORT", True),
        (b"AGENTD_", True),
        (b"AGENTD", False),
        (b"agentd_port", False),
        (b"X_AGENTD_Y", False),
    ],
)
def test_what_belongs_to_the_daemon(name: bytes, belongs: bool) -> None:
    assert environ.belongs_to_daemon(name) is belongs


@pytest.mark.parametrize(
    ("environment", "path"), [({}, None), ({"PATH": "/bin"}, "/bin"), ({"Path": "/bin"}, None)]
)
def test_the_search_path(environment: Mapping[str, str], path: str | None) -> None:
    assert environ.search_path(environment) == path

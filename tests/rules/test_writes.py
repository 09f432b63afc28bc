"""Modes, digests, the disk reserve, and atomically or in place (contract e.3, e.4; RFC 9530)."""

import errno
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules.writes import (
    FileType,
    InvalidDigest,
    InvalidMode,
    Target,
    Way,
    disk_refuses,
    format_digest,
    may_fall_back,
    parse_digest,
    parse_mode,
    way,
)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("0644", 0o644),
        ("644", 0o644),
        ("0o644", 0o644),
        ("0O644", 0o644),
        (" 755\n", 0o755),
        ("0", 0),
        ("0000", 0),
        ("7777", 0o7777),
        ("0o7777", 0o7777),
        ("00000000644", 0o644),
        ("4755", 0o4755),
    ],
)
def test_modes(text: str, mode: int) -> None:
    assert parse_mode(text) == mode


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "0o",
        "8",
        "689",
        "rw-r--r--",
        "10000",
        "0o0o644",
        "+644",
        "-644",
        "6_44",
        "6 44",
        "0x1ff",
        "٦٤٤",
    ],
)
def test_modes_that_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidMode) as refused:
        parse_mode(text)
    assert repr(text) in str(refused.value)


def test_a_refused_mode_is_not_echoed_at_any_length() -> None:
    with pytest.raises(InvalidMode) as refused:
        parse_mode("9" * 100_000)
    assert len(str(refused.value)) < 200


@given(st.integers(0, 0o7777))
def test_every_mode_is_read_back(mode: int) -> None:
    assert parse_mode(f"{mode:o}") == parse_mode(f"0o{mode:04o}") == mode


@given(st.binary(max_size=50))
def test_a_digest_is_read_back(content: bytes) -> None:
    digest = hashlib.sha256(content).digest()
    assert parse_digest(format_digest(digest)) == digest


@pytest.mark.parametrize(
    ("field", "known"),
    [
        ("md5=:AAAA:", False),
        ("", False),
        ("sha-512=:AAAA:, sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:", True),
        ("sha-256 = :47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=: ;x=1", True),
    ],
)
def test_digest_fields(field: str, known: bool) -> None:
    assert parse_digest(field) == (hashlib.sha256(b"").digest() if known else None)


@pytest.mark.parametrize(
    "field",
    [
        "sha-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        "sha-256=:AAAA:",
        "sha-256=:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=:",
        "sha-256=::",
        "sha-256=:",
        "sha-256",
        "sha-256=a b",
    ],
)
def test_digest_fields_that_are_refused(field: str) -> None:
    with pytest.raises(InvalidDigest):
        parse_digest(field)


@pytest.mark.parametrize(
    ("available", "reserve", "refused"),
    [(99, 100, True), (100, 100, False), (0, 0, False), (-1, 0, False), (None, 100, False)],
)
def test_the_reserve(available: int | None, reserve: int, refused: bool) -> None:
    assert disk_refuses(available, reserve) is refused


def test_ways() -> None:
    assert way(Target(FileType.ABSENT)).way is Way.REPLACE
    assert way(Target(FileType.REGULAR, links=1)).way is Way.REPLACE
    assert way(Target(FileType.REGULAR, links=2)).way is Way.COPY
    assert way(Target(FileType.REGULAR, links=1, name_known=False)).way is Way.COPY
    assert way(Target(FileType.REGULAR, links=1, writable=False)).way is Way.NOT_WRITABLE
    assert way(Target(FileType.REGULAR, links=2, writable=False)).way is Way.NOT_WRITABLE
    assert way(Target(FileType.DIRECTORY)).way is Way.IS_DIRECTORY
    assert way(Target(FileType.OTHER)).way is Way.STREAM


def test_only_an_atomic_way_goes_without_a_reason() -> None:
    for type in FileType:
        for links in (0, 1, 2):
            plan = way(Target(type, links=links))
            assert bool(plan.reason) == (plan.way in (Way.COPY, Way.STREAM))


def test_what_is_a_place_and_what_is_a_failure() -> None:
    assert all(may_fall_back(error) for error in (errno.EXDEV, errno.EPERM, errno.EBUSY, errno.ENOSYS))
    assert not any(may_fall_back(error) for error in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EISDIR))

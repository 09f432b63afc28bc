"""Content codings: negotiation, and decoding in bounded pieces (RFC 9110 sections 8.4.1 and 12.5.3)."""

import gzip

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.files import codings
from agentd.files.codings import PIECE_BYTES, BadCoding, acceptable, content_coding, decoder, encoder


@pytest.mark.parametrize(
    ("field", "chosen"),
    [
        (None, "identity"),
        ("", "identity"),
        ("gzip", "gzip"),
        ("GZIP;Q=0.5", "gzip"),
        ("x-gzip", "gzip"),
        ("zstd, gzip", "zstd"),
        ("zstd;q=0.5, gzip;q=0.8", "gzip"),
        ("gzip;q=0", "identity"),
        ("gzip;q=0.000, zstd;q=0.001", "zstd"),
        ("*", "zstd"),
        ("*;q=0.5, zstd;q=0", "gzip"),
        ("gzip;q=0.5, identity", "identity"),
        ("gzip;q=0.5, identity;q=0.2", "gzip"),
        ("br, deflate", "identity"),
        ("gzip;q=2", "identity"),
        ("gzip;level=1", "identity"),
        (",, gzip ;q=1.000 ,", "gzip"),
        ("gzip\x00", "identity"),
    ],
)
def test_negotiation(field: str | None, chosen: str) -> None:
    assert acceptable(field, ("zstd", "gzip")) == chosen


def test_nothing_offered_is_identity() -> None:
    assert acceptable("gzip, zstd, *", ()) == "identity"


def test_names() -> None:
    assert content_coding(None) == content_coding("") == content_coding(" Identity ") == "identity"
    assert content_coding("x-gzip") == "gzip"
    assert content_coding("gzip, gzip") == "gzip, gzip"
    assert decoder("gzip, gzip") is None
    assert decoder("br") is None
    assert encoder("identity") is None


def decoded(coding: str, body: bytes, step: int) -> bytes:
    made = decoder(coding)
    assert made is not None
    pieces: list[bytes] = []
    for at in range(0, len(body), step):
        made.feed(body[at : at + step], pieces.append)
    made.close()
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)
    return b"".join(pieces)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), st.integers(1, 5000), st.integers(0, 40))
def test_streams_in_a_row_in_any_pieces(contents: list[bytes], step: int, padding: int) -> None:
    body = b"".join(gzip.compress(content) for content in contents) + bytes(padding)
    assert decoded("gzip", body, step) == b"".join(contents)


def test_a_large_content_comes_in_bounded_pieces() -> None:
    assert decoded("gzip", gzip.compress(bytes(10_000_000)), 1 << 20) == bytes(10_000_000)


@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES])
def test_contents_that_end_at_a_piece(size: int) -> None:
    assert decoded("gzip", gzip.compress(bytes(size)), 1 << 20) == bytes(size)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"not gzip at all",
        gzip.compress(b"content", mtime=0)[:-1],
        gzip.compress(b"content", mtime=0) + b"x",
    ],
)
def test_bodies_that_do_not_decode(body: bytes) -> None:
    with pytest.raises(BadCoding):
        decoded("gzip", body, 4)


def test_who_receives_may_stop_it() -> None:
    class Enough(Exception): ...

    def stop(_: bytes) -> None:
        raise Enough

    made = decoder("gzip")
    assert made is not None
    with pytest.raises(Enough):
        made.feed(gzip.compress(bytes(100)), stop)


def test_encoding_is_read_by_the_standard_library() -> None:
    made = encoder("gzip")
    assert made is not None
    assert gzip.decompress(made.compress(b"content " * 1000) + made.flush()) == b"content " * 1000


def zstd_of(content: bytes, window_log: int = 17) -> bytes:
    """One frame, made by the library in pieces, so that it does not say how long its content is."""
    made = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
    return made.compress(content) + made.flush()


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), st.integers(1, 5000), st.integers(0, 40))
def test_frames_in_a_row_in_any_pieces(contents: list[bytes], step: int, padding: int) -> None:
    body = b"".join(map(zstd_of, contents)) + bytes(padding)
    assert decoded("zstd", body, step) == b"".join(contents)


def test_what_is_encoded_with_zstd_is_read_by_the_library() -> None:
    assert codings.available() == ("zstd", "gzip")
    made = encoder("zstd")
    assert made is not None
    assert zstd.decompress(made.compress(b"content " * 1000) + made.flush()) == b"content " * 1000


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 10_000_000])
def test_a_large_zstd_content_comes_in_bounded_pieces(size: int) -> None:
    assert decoded("zstd", zstd_of(bytes(size)), 1 << 20) == bytes(size)


@pytest.mark.parametrize(
    "body", [b"", b"not zstd at all", zstd_of(b"content")[:-1], zstd_of(b"content") + b"x", zstd_of(b"")[:4]]
)
def test_bodies_that_are_no_zstd(body: bytes) -> None:
    with pytest.raises(BadCoding):
        decoded("zstd", body, 4)


def test_a_window_that_would_take_much_memory_is_refused() -> None:
    """8 MiB is what a receiver has to offer (RFC 9659)."""
    content = bytes(range(256)) * 65536
    assert decoded("zstd", zstd_of(content, 23), 1 << 16) == content
    with pytest.raises(BadCoding):
        decoded("zstd", zstd_of(content, 24), 1 << 16)


def test_without_a_module_zstd_is_not_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codings, "ZSTD_MODULES", ("no_such_module",))
    assert codings.available() == ("gzip",)
    assert decoder("zstd") is None
    assert encoder("zstd") is None

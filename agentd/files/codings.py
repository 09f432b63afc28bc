"""Content codings of archives: which one is spoken, and decoding and encoding piece by piece.

A decoder is the place where a small body becomes a large one, so it never makes more than a buffer of output
before handing it on, and whoever receives it may stop it by raising. gzip is always there. zstd is there when the
interpreter has a module for it (`compression.zstd` of Python 3.14, or its back-port); the guest needs none.
Sources: RFC 9110 sections 8.4.1 and 12.5.3, RFC 1952, RFC 9659 (a zstd window of at most 8 MiB).
"""

import importlib
import re
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

PIECE_BYTES = 256 * 1024
"""Most output of a decoder at once."""

IDENTITY = "identity"
GZIP = "gzip"
ZSTD = "zstd"
ZSTD_MODULES = ("compression.zstd", "backports.zstd")

_GZIP_WBITS = 31
_GZIP_LEVEL = 1  # three to four times as fast as the default level, for archives a tenth larger
_ZSTD_LEVEL = 1
_ZSTD_WINDOW_LOG = 23

Write = Callable[[bytes], object]


class BadCoding(Exception):
    """The bytes are not what their content coding says."""


class Encoder(Protocol):
    """Encodes a body that is given in pieces."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class Decoder:
    """Decodes a body that comes in pieces: one or more compressed streams in a row.

    `start` makes a decompressor with `decompress(data, limit)`, `eof` and `unused_data`; `pending` takes from it
    the input that the limit kept it from using.
    """

    def __init__(
        self, start: Callable[[], Any], pending: Callable[[Any], bytes], error: type[Exception]
    ) -> None:
        self._start = start
        self._pending = pending
        self._error = error
        self._stream: Any = None
        self._seen = False

    def feed(self, data: bytes, write: Write) -> None:
        """Decode `data`, handing on at most `PIECE_BYTES` at a time. Raises `BadCoding`, or what `write` raises."""
        while data or self._stream is not None:
            if self._stream is None:
                # Zeros behind a stream are the padding of tapes and block devices.
                data = data.lstrip(b"\0") if self._seen else data
                if not data:
                    return
                self._stream, self._seen = self._start(), True
            try:
                piece = self._stream.decompress(data, PIECE_BYTES)
            except self._error as error:
                raise BadCoding(str(error)) from error
            data = self._pending(self._stream)
            if self._stream.eof:
                data = self._stream.unused_data
                self._stream = None
            if piece:
                write(piece)
            elif not data:
                return

    def close(self) -> None:
        """Raise `BadCoding` when the body ended too early."""
        if self._stream is not None or not self._seen:
            raise BadCoding("the compressed data is cut short")


def _zstd() -> Any:
    for name in ZSTD_MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def available() -> tuple[str, ...]:
    """The codings besides identity that can be decoded and encoded here, best first."""
    return (GZIP,) if _zstd() is None else (ZSTD, GZIP)


def decoder(coding: str) -> Decoder | None:
    """A decoder for a coding of `available`, None for one that is not."""
    if coding == GZIP:
        return Decoder(
            partial(zlib.decompressobj, _GZIP_WBITS), lambda stream: bytes(stream.unconsumed_tail), zlib.error
        )
    module = _zstd() if coding == ZSTD else None
    if module is None:
        return None
    options = {module.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
    # It keeps the input that a limit stopped it from using.
    return Decoder(partial(module.ZstdDecompressor, options=options), lambda _: b"", module.ZstdError)


def encoder(coding: str) -> Encoder | None:
    """An encoder for a coding of `available`, None for one that is not."""
    if coding == GZIP:
        return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
    module = _zstd() if coding == ZSTD else None
    encoder: Encoder | None = None if module is None else module.ZstdCompressor(level=_ZSTD_LEVEL)
    return encoder


def content_coding(field_value: str | None) -> str:
    """The coding that a `Content-Encoding` field names, in lower case; `identity` when there is none."""
    name = (field_value or "").strip().lower()
    return GZIP if name == "x-gzip" else name or IDENTITY


_OFFER = re.compile(
    r"[ \t]*([!#$%&'*+.^_`|~0-9a-z-]+)[ \t]*(?:;[ \t]*q=([01](?:\.[0-9]{0,3})?)[ \t]*)?", re.I
)


def acceptable(field_value: str | None, offered: tuple[str, ...]) -> str:
    """The coding to answer with, by an `Accept-Encoding` field: the best liked of `offered`, else `identity`.

    Among equals the first offered wins; without the field, or for members that are malformed, nothing is encoded.
    """
    weights: dict[str, float] = {}
    for member in (field_value or "").split(","):
        match = _OFFER.fullmatch(member)
        if match is not None:
            weights[content_coding(match[1])] = float(match[2] or "1")
    rest = weights.get("*", 0.0)
    best = max(offered, key=lambda coding: weights.get(coding, rest), default=IDENTITY)
    weight = weights.get(best, rest)
    return best if weight > 0 and weight >= weights.get(IDENTITY, 0.0) else IDENTITY

"""Query strings and JSON bodies into the wire's own types, or a clear refusal.

A query is ``application/x-www-form-urlencoded`` (WHATWG URL 5.1): ``&`` separates, ``+`` is a space, escapes
are bytes. Values become `str` through ``surrogateescape``, so that a path of arbitrary bytes survives.
JSON is decoded straight into a `msgspec.Struct`: unknown keys are ignored, a known key given twice is refused
(contract a.0).
"""

import json
import re
from typing import Any, TypeVar, get_type_hints
from urllib.parse import unquote_to_bytes

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_UNSIGNED = re.compile(r"[0-9]{1,20}\Z", re.ASCII)
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class Malformed(ValueError):
    """The caller's text is not what the contract says; the message is for the caller and quotes no secret."""


def parse_query(raw: bytes) -> dict[str, str]:
    """The pairs of a query string.

    Raises `Malformed` when a key comes twice: which one counts would be a guess.
    """
    pairs: dict[str, str] = {}
    for part in raw.split(b"&"):
        if not part:
            continue
        key, _, value = part.partition(b"=")
        name = _decode(key)
        if name in pairs:
            raise Malformed(f"query parameter {printable(name)} is given twice")
        pairs[name] = _decode(value)
    return pairs


def _decode(raw: bytes) -> str:
    return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    """`text` for an error message: no lone surrogates, no control characters, at most 200 characters."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text[:200])
    return shown if len(text) <= 200 else shown + "…"


def unsigned(text: str, name: str, limit: int = 2**64 - 1) -> int:
    """A query value that is an unsigned integer of at most `limit`; raises `Malformed`."""
    if not _UNSIGNED.match(text) or int(text) > limit:
        raise Malformed(f"{name} must be a whole number from 0 to {limit}")
    return int(text)


def flag(text: str, name: str) -> bool:
    """A query value that is a flag: true, 1, false or 0; raises `Malformed`."""
    try:
        return _FLAGS[text]
    except KeyError:
        raise Malformed(f"{name} must be true or false") from None


class JsonBody:
    """Decodes one JSON shape. Build it once per type, at import."""

    def __init__(self, shape: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(shape)
        self._keys = [json.dumps(spec.encode_name).encode() for spec in msgspec.structs.fields(shape)]
        get_type_hints(shape)

    def decode(self, body: bytes) -> Any:
        """The decoded struct; raises `Malformed` saying where it is wrong, never quoting a value."""
        try:
            value = self._decoder.decode(body)
        except msgspec.ValidationError as reason:
            raise Malformed(str(reason)) from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise Malformed("the body is not JSON") from None
        if b"\\u" in body or any(body.count(key) > 1 for key in self._keys):
            self._refuse_duplicates(body)
        return value

    def _refuse_duplicates(self, body: bytes) -> None:
        # Only the outermost object is looked at: `object_pairs_hook` runs inner objects first.
        keys: list[str] = []

        def pairs(found: list[tuple[str, object]]) -> None:
            keys[:] = [key for key, _ in found]

        try:
            json.loads(body, object_pairs_hook=pairs)
        except (ValueError, RecursionError):
            # In a part that nobody asked for: a number of thousands of digits, bytes that are not UTF-8.
            raise Malformed("the body is not JSON") from None
        known = {json.loads(key) for key in self._keys}
        for key in keys:
            if key in known and keys.count(key) > 1:
                raise Malformed(f"the key {key} is given twice")


def is_json(content_type: bytes | None) -> bool:
    """Whether a content type is ``application/json`` or ``application/*+json`` (contract a.0)."""
    if content_type is None:
        return False
    essence = content_type.split(b";", 1)[0].strip().lower()
    if essence == b"application/json":
        return True
    return essence.startswith(b"application/") and essence.endswith(b"+json")

"""What a caller sent, read strictly: JSON bodies and queries, each fault with its status (environments 2.4, 2.5).

A body is judged in layers, so that the first thing wrong with it decides: its content type (415), its size
(413), its syntax (400), its shape (422). The syntax is judged of the whole body before its shape is looked at:
a decoder that stops at the first wrong type would never see that the rest is missing.
"""

import json
import re
from typing import Any, Final, TypeVar

import msgspec

from agentd.environments import answers
from agentd.environments.answers import Slug
from agentd.environments.shapes import MAX_INT64
from agentd.http.messages import Refused
from agentd.http.query import Malformed, parse_query, printable
from agentd.http.request import AgentRequest, BodyTooLarge
from agentd.process.groups import RunInThread

T = TypeVar("T", bound=msgspec.Struct)

MAX_DEPTH: Final = 128
LARGE_BODY: Final = 256 * 1024
"""Bytes of JSON from which on it is decoded on a pool thread."""

_WHERE = re.compile(r"(.*) - at `\$\.?(.*)`\Z", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)
_INTEGER = re.compile(r"-?[0-9]{1,25}\Z", re.ASCII)


class NotJson(ValueError):
    """The text is not JSON, or nested too deeply."""


class WrongShape(ValueError):
    """The value is not what the schema says; the text is ``field: what is wrong`` and quotes no value."""


def decode(body: bytes, shape: type[T]) -> T:
    """The value of `body`. Raises `NotJson` or `WrongShape`."""
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except msgspec.ValidationError:
        _check_syntax(body)
        raise WrongShape("body: an integer is out of range") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as reason:
        raise NotJson(str(reason).removeprefix("JSON is malformed: ")) from None
    if _depth(value) > MAX_DEPTH:
        raise NotJson("nested too deeply")
    twice = _repeated(body)
    if twice is not None:
        raise WrongShape(f"{printable(twice)}: given twice")
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as reason:
        raise WrongShape(_in_words(str(reason))) from None


def _depth(value: Any) -> int:
    """How many arrays and objects are inside one another."""
    depth = 0
    level = [value]
    while level := [item for item in level if isinstance(item, (list, dict))]:
        depth += 1
        if depth > MAX_DEPTH:
            break
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def _repeated(body: bytes) -> str | None:
    """A key that an object of `body`, which is JSON, has twice."""
    found: list[str] = []

    def pairs(items: list[tuple[str, object]]) -> None:
        keys = [key for key, _ in items]
        if len(set(keys)) < len(keys):
            found.append(next(key for key in keys if keys.count(key) > 1))

    # Numbers are not made: of thousands of digits they would cost, or fail.
    json.loads(body, object_pairs_hook=pairs, parse_int=len, parse_float=len)
    return found[0] if found else None


def _check_syntax(body: bytes) -> None:
    """For a body that the decoder gave up on before its end. Raises `NotJson`."""
    try:
        json.loads(body, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        raise NotJson("it is malformed behind an integer that is out of range") from None


def _in_words(reason: str) -> str:
    """A complaint of msgspec's as ``field: what is wrong``."""
    found = _WHERE.match(reason)
    text, field = (found[1], found[2]) if found else (reason, "")
    prefix = f"{field}." if field else ""
    if unknown := _UNKNOWN.match(text):
        return f"{prefix}{printable(unknown[1])}: unknown field"
    if missing := _MISSING.match(text):
        return f"{prefix}{missing[1]}: missing"
    if text.startswith("Invalid enum value"):
        text = "must be one of TERM, KILL, INT, HUP"
    return f"{field or 'body'}: {printable(text.replace('`', ''))}"


async def read_json(request: AgentRequest, shape: type[T], limit: int, run_in_thread: RunInThread) -> T:
    """The decoded body, or `Refused` with 415, 413, 400 or 422, looked for in this order."""
    given = request.requestHeaders.getRawHeaders(b"content-type")
    if not given or given[0].split(b";", 1)[0].strip().lower() != b"application/json":
        raise answers.refuse(415, Slug.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json")
    if request.declared is not None and request.declared > limit:
        raise Refused(answers.too_large(limit))
    try:
        body = await request.read_body(limit)
    except BodyTooLarge:
        raise Refused(answers.too_large(limit)) from None
    try:
        if len(body) < LARGE_BODY:
            return decode(body, shape)
        decoded: T = await run_in_thread(decode, body, shape)
        return decoded
    except NotJson as reason:
        raise answers.invalid(f"body is not valid JSON: {reason}") from None
    except WrongShape as reason:
        raise answers.refuse(422, Slug.INVALID_BODY, str(reason)) from None


class Query:
    """A request's query; what is asked for is checked, and nothing else. Raises `Refused` with 400."""

    def __init__(self, request: AgentRequest) -> None:
        try:
            self._pairs = parse_query(request.query)
        except Malformed as reason:
            raise answers.invalid_query(str(reason)) from None

    def _text(self, name: str) -> str | None:
        value = self._pairs.get(name)
        if value is not None:
            try:
                value.encode()
            except UnicodeEncodeError:
                # Repaired, it would name another file.
                raise answers.invalid_query(f"{name} is not UTF-8") from None
        return value

    def path(self) -> str:
        """The parameter `path`: not empty, without NUL."""
        value = self._text("path")
        if value is None:
            raise answers.invalid_query("path is missing")
        if not value:
            raise answers.invalid("path must not be empty")
        if "\0" in value:
            raise answers.invalid("path must not contain NUL")
        return value

    def flag(self, name: str) -> bool:
        """A boolean, false when absent."""
        value = self._text(name)
        if value not in (None, "true", "false"):
            raise answers.invalid_query(f"{name} must be true or false")
        return value == "true"

    def unsigned(self, name: str) -> int:
        """An integer of at most 63 bits, 0 when absent, and not negative."""
        value = self._text(name)
        if value is None:
            return 0
        if not _INTEGER.match(value) or not 0 <= int(value) <= MAX_INT64:
            raise answers.invalid_query(f"{name} must be a whole number from 0 to {MAX_INT64}")
        return int(value)

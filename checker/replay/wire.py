"""Requests and answers of HTTP/1.1 as bytes, and what an answer is expected to say."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import field, frozen

Headers = tuple[tuple[str, str], ...]

SLUG: Final = "error"
"""The field of an error body that says which error it is (contract a.0)."""


class NoAnswer(Exception):
    """A request was not answered where it should have been."""


@frozen
class Answer:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = field(repr=False)

    def fields(self) -> dict[str, Any]:
        """The members of a JSON object, or none when the body is something else."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@frozen
class Says:
    """What an answer is expected to say; whatever else it says is its own business (fields may be added, a.0)."""

    status: int
    slug: str | None = None
    """The slug of an error body."""
    fields: Mapping[str, object] = {}
    """Members of a JSON body, with their values."""
    without: frozenset[str] = frozenset()
    """Members it must not have."""
    empty: bool = False
    """Whether there must be no body."""

    def differences(self, answer: Answer) -> Iterator[str]:
        """What is not as expected, a line each."""
        if answer.status != self.status:
            yield f"status {self.status} is expected, {answer.status} came"
        if self.empty and answer.body:
            yield f"no body is expected, {len(answer.body)} bytes came"
        found = answer.fields()
        wanted = {**self.fields} if self.slug is None else {SLUG: self.slug, **self.fields}
        for name, value in wanted.items():
            if name not in found:
                yield f"{name}: {_show(value)} is expected, and it is not there"
            elif found[name] != value or isinstance(found[name], bool) is not isinstance(value, bool):
                yield f"{name}: {_show(value)} is expected, {_show(found[name])} came"
        for name in sorted(self.without & found.keys()):
            yield f"{name} is not expected, {_show(found[name])} came"


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"


def request(
    method: str,
    target: str,
    *,
    authorization: bytes | None = None,
    body: bytes | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> bytes:
    """A request of HTTP/1.1 that is complete."""
    lines = [f"{method} {target} HTTP/1.1\r\nHost: agentd\r\n".encode()]
    if authorization is not None:
        lines.append(b"Authorization: " + authorization + b"\r\n")
    lines += [f"{name}: {value}\r\n".encode() for name, value in headers]
    if body is not None:
        lines.append(b"Content-Length: %d\r\n" % len(body))
    return b"".join([*lines, b"\r\n", body or b""])


def bearer(token: bytes) -> bytes:
    """The value of the header that presents a token."""
    return b"Bearer " + token


def as_json(value: object) -> tuple[bytes, Headers]:
    """A JSON body with its header."""
    return json.dumps(value).encode(), (("Content-Type", "application/json"),)


def first_answer(data: bytes, ended: bool = False) -> tuple[Answer, bytes] | None:
    """The first complete answer in `data`, and what follows it; None when it is not complete.

    `ended` says that nothing will follow, which ends a body without a length. Raises ValueError for what is no
    HTTP.
    """
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.split(b"\r\n")
    version, _, status = first.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise ValueError(f"not HTTP: {first[:80]!r}")
    headers = {}
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    code = int(status[:3])
    if code < 200:
        return first_answer(rest, ended)
    if "content-length" in headers:
        length = int(headers["content-length"])
        if len(rest) < length:
            return None
        return Answer(code, headers, rest[:length]), rest[length:]
    if headers.get("transfer-encoding") == "chunked":
        body, end = chunks(rest)
        return None if end < 0 else (Answer(code, headers, body), rest[end:])
    if code in (204, 304):
        return Answer(code, headers, b""), rest
    return (Answer(code, headers, rest), b"") if ended else None


def events(body: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """The complete server-sent events of a stream's body: name and data (contract d)."""
    for block in body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "event" in lines:
            yield lines["event"], json.loads(lines["data"])


def chunks(data: bytes) -> tuple[bytes, int]:
    """What a chunked body has brought so far, and where in `data` it ends; -1 when it has not ended."""
    body, at = b"", 0
    while True:
        line, found, _ = data[at:].partition(b"\r\n")
        if not found:
            return body, -1
        size = int(line, 16)
        at += len(line) + 2
        if len(data) < at + size + 2:
            return body + data[at : at + size], -1
        body += data[at : at + size]
        at += size + 2
        if size == 0:
            return body, at

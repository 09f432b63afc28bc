"""Requests generated from the OpenAPI document, good and bad, against a daemon: every answer is a documented one.

What is generated is kept harmless: a command is always `true`, a path is always below a directory of the test, and
nothing is terminated.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CheckContext
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agentd.http.document import openapi_document
from agentd.microvm.routes import HOOK_PREFIX, ROUTES
from agentd.microvm.schema import TITLE
from tests.conftest import RunningDaemon, start_daemon

VERSION_HEADER = "microvms-agentd-version"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A bootstrapped daemon."""
    running = start_daemon(tmp_path_factory.mktemp("daemon"))
    running.bootstrap()
    yield running
    running.stop()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where files may be written."""
    return tmp_path


schema = schemathesis.openapi.from_dict(openapi_document(ROUTES, TITLE)).exclude(
    path=f"{HOOK_PREFIX}/terminate"
)
"""What the daemon serves of protocol v1; ``test_served.py`` checks that it does."""


@schemathesis.serializer("application/x-tar")
def tar(ctx: Any, value: Any) -> bytes:
    """No archive, mostly: bytes of whatever was generated."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def no_internal_error(ctx: CheckContext, response: Any, case: Any) -> bool | None:
    """A documented 500 says what failed; this one says that we did."""
    assert b"internal error" not in response.content, response.status_code
    assert VERSION_HEADER in response.headers
    return None


def make_harmless(case: Any, place: Path) -> None:
    """Keep shapes and faults, change what would be run or written."""
    body, query = case.body, case.query
    if isinstance(body, dict) and isinstance(body.get("command"), list):
        body["command"] = ["true" if isinstance(word, str) else word for word in body["command"]]
    if isinstance(query, dict) and isinstance(query.get("path"), str) and query["path"]:
        name = hashlib.sha256(query["path"].encode("utf-8", "replace")).hexdigest()[:1]
        query["path"] = str(place / name)


@schema.parametrize()
@settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_documented(case: Any, daemon: RunningDaemon, place: Path) -> None:
    """Its status, its media type, its shape; and never an internal error."""
    make_harmless(case, place)
    case.call_and_validate(
        base_url=daemon.url,
        headers={"Authorization": f"Bearer {daemon.token}"},
        checks=[
            no_internal_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
            response_headers_conformance,
        ],
        timeout=20,
    )

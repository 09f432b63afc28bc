"""schemathesis over the face's part of the OpenAPI document: what it says is what the daemon does."""

import json
import shutil
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi import checks as openapi_checks

from agentd.environments.routes import ROUTES
from tests.conftest import RunningDaemon, start_daemon
from tests.environments.support import make_home, public_place

load_all_checks()

OPERATIONS = [(route.method, route.path) for route in ROUTES]
VALUES_DECIDE = {
    (method, path) for method, path in OPERATIONS if path.endswith(("/exec", "/files", "/files/list"))
} | {
    ("POST", "/v1/environments/{id}/processes"),
    ("GET", "/v1/environments/{id}/processes/{pid}/attach"),
    ("GET", "/v1/environments/{id}/processes/{pid}/output"),
}
"""Where a request of the right shape may still be refused with 400: argv *or* command, a path that is a directory, a
request that is no upgrade, an offset that is not there yet."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A bootstrapped daemon with an agent user."""
    place = public_place()
    home = make_home(place)
    env = {"AGENTD_PASSWD_FILE": str(home.passwd), "AGENTD_GROUP_FILE": str(home.group)}
    running = start_daemon(tmp_path_factory.mktemp("contract"), env=env)
    running.bootstrap()
    yield running
    running.stop()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def schema(daemon: RunningDaemon) -> Any:
    """The document as the daemon serves it."""
    with urllib.request.urlopen(f"{daemon.url}/v1/schema?format=openapi", timeout=30) as answer:
        return schemathesis.openapi.from_dict(json.loads(answer.read()))


@pytest.fixture(scope="module")
def process(daemon: RunningDaemon) -> str:
    """A process for the routes that are about one."""
    request = urllib.request.Request(
        f"{daemon.url}/v1/environments/local/processes",
        data=b'{"argv":["sleep","600"]}',
        headers={"Authorization": f"Bearer {daemon.token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(json.loads(answer.read())["pid"])


@pytest.mark.root  # random requests run random commands and remove random paths: only as somebody who owns nothing
@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.name
)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_document_is_kept(
    daemon: RunningDaemon, schema: Any, process: str, method: str, path: str, mode: GenerationMode
) -> None:
    """Statuses, shapes, content types, rejections: with the key, and without it as a check of its own."""
    operation = schema[path][method]
    excluded = [not_a_server_error]  # a 503 is documented; a 500 is looked for below
    if (method, path) in VALUES_DECIDE:
        excluded.append(openapi_checks.positive_data_acceptance)
    keep = {"id": "local", "pid": process if method != "DELETE" else "none"}

    @settings(
        max_examples=12,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        # What was made to be wrong stays so: put right, it would rightly be accepted.
        if not _is_wrong(case, "PATH", "PATH_PARAMETERS"):
            for name in case.path_parameters or {}:
                case.path_parameters[name] = keep[name]
        key = {} if _is_wrong(case, "HEADER", "HEADERS") else {"Authorization": f"Bearer {daemon.token}"}
        response = case.call(base_url=daemon.url, headers=key, timeout=60)
        assert response.status_code != 500, response.text
        case.validate_response(response, excluded_checks=excluded)

    try:
        run()
    except Exception as failed:
        if type(failed).__name__ == "Unsatisfiable":
            pytest.skip("this operation has nothing that could be wrong")
        raise


def _is_wrong(case: Any, *names: str) -> bool:
    """Whether a component of these names was generated to be invalid."""
    meta = getattr(case, "meta", None)
    components = getattr(meta, "components", {}) if meta is not None else {}
    return any(
        getattr(kind, "name", "") in names and info.mode is GenerationMode.NEGATIVE
        for kind, info in components.items()
    )

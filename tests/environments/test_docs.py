"""The document that is made from the route list is up to date, and the list is whole."""

from pathlib import Path

from agentd.environments.answers import Slug
from agentd.environments.routes import ROUTES
from agentd.http.document import markdown

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/environments.md"


def test_the_route_tables_are_those_of_the_code() -> None:
    """`python -m agentd.environments.routes` made them."""
    assert DOCUMENT.read_text().endswith(markdown(ROUTES))


def test_every_slug_is_documented_and_every_documented_one_exists() -> None:
    documented = {status.slug for route in ROUTES for status in route.statuses if status.slug}
    assert documented == {slug.value for slug in Slug}


def test_the_statuses_that_every_route_can_give() -> None:
    """Environments 2.6."""
    for route in ROUTES:
        codes = {status.code for status in route.statuses}
        assert {401, 404, 405, 409, 500, 503} <= codes
        assert (415 in codes) == (422 in codes) == (route.method == "POST")
        assert (403 in codes) == ("/files" in route.path)

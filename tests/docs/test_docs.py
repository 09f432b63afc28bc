"""The documents that are made from code are up to date, and links lead somewhere."""

import re
from pathlib import Path

import pytest

from agentd import config
from agentd.http.document import markdown
from agentd.microvm.routes import ROUTES

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    REPOSITORY / "README.md",
    REPOSITORY / "CHANGELOG.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]


def test_the_configuration_table_is_that_of_the_code() -> None:
    """`python -m agentd.config` made it."""
    assert config.markdown() in (REPOSITORY / "docs/configuration.md").read_text()


def test_the_route_tables_are_those_of_the_code() -> None:
    """`python -m agentd.microvm.routes` made them."""
    assert (REPOSITORY / "docs/protocol-v1.md").read_text().endswith(markdown(ROUTES))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    """Relative links only; nothing outside this machine is asked."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_the_readme_commands_are_what_ci_runs() -> None:
    """CI runs the same tox environments in the same way."""
    commands = re.findall(r"^python3 -m venv .*$", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    assert len(commands) == 2
    script = (REPOSITORY / ".ci/run").read_text()
    for command in commands:
        for part in command.split(" && "):
            assert part in script

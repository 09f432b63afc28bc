"""What is a configuration, what is refused, and what the shipped denylist stops."""

from typing import Any

import jsonschema
import msgspec
import pytest

from agentd.worker.expressions import compile_expression
from agentd.worker.settings import SHIPPED, Settings, SettingsError, check_removed, is_ours, parse, schema

FREE = {"fs": {"allow_unjailed": True}}


def test_the_values_of_absent_keys() -> None:
    """Reference (c), column Code."""
    settings = parse(FREE)
    assert (settings.max_timeout_ms, settings.default_timeout_ms, settings.max_bg_timeout_ms) == (
        30_000,
        10_000,
        0,
    )
    assert (settings.max_output_bytes, settings.working_dir) == (1_048_576, None)
    assert not settings.env.inherit
    assert settings.env.allow == ("PATH", "HOME", "LANG", "LC_ALL", "TERM")
    assert (settings.denylist_patterns, settings.max_concurrent_jobs, settings.job_retention_secs) == (
        (),
        16,
        3600,
    )
    assert (settings.fs.host_roots, settings.fs.max_read_bytes, settings.fs.max_write_bytes) == ((), 0, 0)
    assert (settings.fs.denylist_paths, settings.fs.allow_special_bits) == ((), False)
    assert settings.sandbox.enabled
    code = settings.code
    assert code.non_accessible_globs == ()
    assert code.default_exclude_globs == tuple(
        f"**/{name}/**" for name in (".git", "node_modules", "target", "dist", ".venv", "__pycache__")
    )
    assert (code.max_read_bytes, code.max_write_bytes) == (10_485_760, 10_485_760)
    assert (code.tree_default_depth, code.tree_per_folder_limit) == (4, 50)
    assert (code.list_default_page_size, code.list_max_page_size) == (100, 1000)
    assert (code.search_default_max_matches, code.search_default_max_line_bytes) == (1000, 4096)
    assert (code.batch_read_budget_bytes, code.max_output_bytes) == (1_048_576, 131_072)
    assert code.search_response_budget_bytes == 262_144


def test_the_shipped_values() -> None:
    """Reference (c), column Shipped."""
    settings = parse(SHIPPED)
    assert (settings.max_timeout_ms, settings.default_timeout_ms) == (120_000, 30_000)
    assert settings.env.inherit
    assert not settings.jailed
    assert (settings.fs.max_read_bytes, settings.fs.max_write_bytes) == (16_777_216, 16_777_216)
    assert settings.fs.denylist_paths == ("/etc/passwd", "/etc/shadow")
    assert settings.code.non_accessible_globs == (
        "**/.env",
        "**/.env.*",
        "**/*.pem",
        "**/*.key",
        "**/secrets/**",
    )
    assert len(settings.denylist_patterns) == 7


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf /",
        "sudo rm  -rf /home",
        ":(){ :|:& };:",
        ":() { :|: & };:",
        "mkfs.ext4 /dev/sda",
        "/sbin/mkfs /dev/sda",
        "sudo mkfs /dev/sda",
        "dd if=/dev/zero of=/dev/sda",
        "shutdown -h now",
        "sudo shutdown -h now",
        "SHUTDOWN now",
        "/usr/bin/sudo /sbin/reboot",
        "env A=1 B=2 reboot",
        "env reboot",
        "nohup timeout 5 reboot",
        "timeout reboot",
        "doas reboot",
        "cat /etc/shadow",
    ],
)
def test_what_the_shipped_denylist_stops(line: str) -> None:
    assert _hit(line)


@pytest.mark.parametrize(
    "line",
    [
        "grep -rn shutdown src/",
        "echo reboot",
        "git commit -m mkfs",
        "rm -r /tmp/x",
        "rebooter",
        "echo dd if=x",
        "cat /etc/hosts",
        "timeout 5 echo reboot",
    ],
)
def test_what_it_lets_pass(line: str) -> None:
    assert not _hit(line)


def _hit(line: str) -> bool:
    return any(
        compile_expression(pattern).search(line.encode()) for pattern in parse(SHIPPED).denylist_patterns
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "must be an object"),
        ([], "must be an object"),
        ({}, "fs.host_roots is empty"),
        ({}, "fs.allow_unjailed"),
        ({"fs": {"allow_unjailed": False}}, "fs.allow_unjailed"),
        ({"fs": []}, "fs: "),
        ({"fs": {"host_roots": "/tmp"}}, "fs.host_roots: "),
        ({"fs": {"host_roots": [1]}}, "fs.host_roots[0]: "),
        ({**FREE, "max_timeout_ms": -1}, "max_timeout_ms: "),
        ({**FREE, "max_timeout_ms": 1.5}, "max_timeout_ms: "),
        ({**FREE, "max_timeout_ms": True}, "max_timeout_ms: "),
        ({**FREE, "max_timeout_ms": None}, "max_timeout_ms: "),
        ({**FREE, "max_timeout_ms": 2**64}, "max_timeout_ms"),
        ({**FREE, "code": {"tree_default_depth": 2**32}}, "code.tree_default_depth: "),
        ({**FREE, "env": {"inherit": "yes"}}, "env.inherit: "),
        ({**FREE, "env": {"alow": []}}, "env: Object contains unknown field `alow`"),
        ({**FREE, "denylist_patterns": ["ok", "("]}, "denylist_patterns: '(': "),
        ({**FREE, "denylist_patterns": ["(?=x)"]}, "denylist_patterns"),
    ],
)
def test_what_is_refused(value: Any, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse(value)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unknown_keys_are_tolerated_where_they_may_be() -> None:
    value = {**FREE, "future": 1, "sandbox": {"x": 1}, "code": {"y": 2}}
    assert parse(value) == parse(FREE)
    assert parse({"fs": {"allow_unjailed": True, "z": 3}}) == parse(FREE)


def test_removed_keys_are_all_named_with_what_to_write_instead() -> None:
    old = {
        "inherit_env": True,
        "allowed_env": [],
        "migrated_from_coder": True,
        "allowlist": [],
        "env": {"inherit_env": True, "allowed_env": []},
        "fs": {"host_root": "/tmp"},
        "code": {"base_path": "/", "base_paths": []},
    }
    with pytest.raises(SettingsError) as refused:
        parse(old)
    said = str(refused.value)
    for hint in (
        "inherit_env -> env.inherit",
        "allowed_env -> env.allow",
        "migrated_from_coder",
        "fs.host_root -> fs.host_roots",
        "code.base_path",
        "code.base_paths",
        "allowlist",
        "removed in 0.7.0",
        "removed in 0.8.0",
        "configuration::set",
    ):
        assert hint in said
    check_removed({"fs": "not an object", "env": None})
    check_removed(None)


def test_whose_a_file_is() -> None:
    assert is_ours({"fs": {}})
    assert is_ours({"allowlist": [], "x": 1})
    assert not is_ours({"workers": [], "port": 1})


def test_the_schema_describes_every_key_and_needs_no_references() -> None:
    document = schema()
    jsonschema.Draft202012Validator.check_schema(document)
    assert "$ref" not in msgspec.json.encode(document).decode()

    def described(node: dict[str, Any], names: tuple[str, ...]) -> None:
        assert set(node["properties"]) == set(names)
        for name, each in node["properties"].items():
            assert each["description"], name

    described(document, Settings.__struct_fields__)
    settings = parse(FREE)
    for name in ("env", "fs", "sandbox", "code"):
        described(document["properties"][name], getattr(settings, name).__struct_fields__)
    jsonschema.validate({**FREE, "future": 1}, document)
    for bad in ({"max_timeout_ms": "x"}, {"env": {"alow": 1}}, {"fs": {"host_roots": "x"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, document)


def test_settings_cannot_be_changed() -> None:
    settings = parse(FREE)
    with pytest.raises(AttributeError):
        settings.max_timeout_ms = 1  # type: ignore[misc]

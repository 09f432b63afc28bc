"""The worker's settings: every key of its configuration (id `shell`), what is refused, and the schema consoles see.

One declaration gives the parser, the values of absent keys and the JSON Schema. A value is either good as a whole or
refused with one text (reference (c)); which directories exist is the jail's affair. `Settings` is frozen, so that a
call keeps what it started with.

The default of a field is what counts when a present configuration lacks the key. `SHIPPED` is what is seeded when
nothing is configured at all, and is more generous.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Small = Annotated[int, Meta(ge=0, le=2**32 - 1)]


def _doc(text: str) -> Meta:
    return Meta(description=text)


class SettingsError(ValueError):
    """The configuration is not usable; the text says why and quotes no more than key names and patterns."""


class EnvSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Which variables commands get from the worker's own environment."""

    inherit: Annotated[bool, _doc("Commands get the whole environment of the worker.")] = False
    allow: Annotated[tuple[str, ...], _doc("Variables that commands get when inherit is false, by name.")] = (
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TERM",
    )


class FsSettings(Struct, frozen=True):
    """What file functions and working directories may reach."""

    host_roots: Annotated[
        tuple[str, ...],
        _doc("Directories that files must be in; relative paths start at the first. Empty: no jail."),
    ] = ()
    allow_unjailed: Annotated[bool, _doc("Must be true for host_roots to be empty.")] = False
    max_read_bytes: Annotated[Count, _doc("Largest file that fs::read sends, in bytes; 0 for any.")] = 0
    max_write_bytes: Annotated[Count, _doc("Largest content that fs::write takes, in bytes; 0 for any.")] = 0
    denylist_paths: Annotated[
        tuple[str, ...], _doc("Paths that are refused, with everything below them, jailed or not.")
    ] = ()
    allow_special_bits: Annotated[bool, _doc("Modes may set the setuid, setgid and sticky bits.")] = False


class SandboxSettings(Struct, frozen=True):
    """Calls that another worker runs in a virtual machine."""

    enabled: Annotated[bool, _doc("Calls may have a sandbox as their target.")] = True


class CodeSettings(Struct, frozen=True):
    """The coder functions."""

    non_accessible_globs: Annotated[
        tuple[str, ...], _doc("Protected files, for the coder and the file functions.")
    ] = ()
    default_exclude_globs: Annotated[
        tuple[str, ...], _doc("What tree and search leave out unless they are asked for it.")
    ] = (
        "**/.git/**",
        "**/node_modules/**",
        "**/target/**",
        "**/dist/**",
        "**/.venv/**",
        "**/__pycache__/**",
    )
    max_read_bytes: Annotated[Count, _doc("Largest file that is read, in bytes.")] = 10_485_760
    max_write_bytes: Annotated[Count, _doc("Largest file that is written, in bytes.")] = 10_485_760
    tree_default_depth: Annotated[Small, _doc("Depth of a tree when the call gives none.")] = 4
    tree_per_folder_limit: Annotated[Small, _doc("Entries that a tree shows of each directory.")] = 50
    list_default_page_size: Annotated[Small, _doc("Page size of list-folder when the call gives none.")] = 100
    list_max_page_size: Annotated[Small, _doc("Largest page size of list-folder.")] = 1000
    search_default_max_matches: Annotated[Small, _doc("Matches of a search when the call says nothing.")] = (
        1000
    )
    search_default_max_line_bytes: Annotated[
        Small, _doc("Bytes of a line that a search looks at when the call says nothing.")
    ] = 4096
    batch_read_budget_bytes: Annotated[Count, _doc("Bytes that a batch of reads returns in all.")] = 1_048_576
    max_output_bytes: Annotated[Count, _doc("Bytes that a read of a whole file returns.")] = 131_072
    search_response_budget_bytes: Annotated[Count, _doc("Bytes of matches that a search returns.")] = 262_144


class Settings(Struct, frozen=True):
    """What the shell worker allows and how far it goes."""

    max_timeout_ms: Annotated[Count, _doc("Longest run of a command in the foreground, in ms.")] = 30_000
    default_timeout_ms: Annotated[
        Count, _doc("Run of a command in the foreground when the call says nothing, in ms.")
    ] = 10_000
    max_bg_timeout_ms: Annotated[
        Count, _doc("Longest run of a background job on the host, in ms; 0 for no limit.")
    ] = 0
    max_output_bytes: Annotated[Count, _doc("Bytes of each output stream of a command that are kept.")] = (
        1_048_576
    )
    working_dir: Annotated[str | None, _doc("Where commands run that name no directory.")] = None
    env: Annotated[EnvSettings, _doc("The variables that commands get.")] = EnvSettings()
    denylist_patterns: Annotated[
        tuple[str, ...],
        _doc("Regular expressions; a command that one is found in is refused. A tripwire, no boundary."),
    ] = ()
    max_concurrent_jobs: Annotated[Count, _doc("Background jobs that may run at once.")] = 16
    job_retention_secs: Annotated[Count, _doc("How long an ended job stays known, in seconds.")] = 3600
    fs: Annotated[FsSettings, _doc("Files: the jail, the limits, what is refused.")] = FsSettings()
    sandbox: Annotated[SandboxSettings, _doc("Sandbox targets.")] = SandboxSettings()
    code: Annotated[CodeSettings, _doc("The coder functions: protection, filters, budgets.")] = CodeSettings()

    @property
    def jailed(self) -> bool:
        """Whether files are confined to roots."""
        return bool(self.fs.host_roots)


_WRAPPERS: Final = (
    r"(?:(?:\S*/)?env(?:\s+\S+=\S*)*\s+|(?:\S*/)?(?:sudo|doas|nohup)\s+|(?:\S*/)?timeout(?:\s+\S+)?\s+)*"
)
"""What people put before a command."""


def _command(name: str) -> str:
    """A pattern for a line that runs `name`, in whatever directory it is."""
    return rf"(?i)^{_WRAPPERS}(\S*/)?{name}"


SHIPPED: Final[Mapping[str, Any]] = {
    "max_timeout_ms": 120_000,
    "default_timeout_ms": 30_000,
    "max_bg_timeout_ms": 0,
    "max_output_bytes": 1_048_576,
    "working_dir": None,
    "env": {"inherit": True, "allow": list(EnvSettings().allow)},
    "denylist_patterns": [
        r"rm\s+-rf\s+/",
        r":\(\)\s*\{\s*:\|",
        _command("mkfs"),
        _command(r"dd\s+if="),
        _command(r"shutdown\b"),
        _command(r"reboot\b"),
        "/etc/shadow",
    ],
    "max_concurrent_jobs": 16,
    "job_retention_secs": 3600,
    "fs": {
        "host_roots": [],
        "allow_unjailed": True,
        "max_read_bytes": 16_777_216,
        "max_write_bytes": 16_777_216,
        "denylist_paths": ["/etc/passwd", "/etc/shadow"],
        "allow_special_bits": False,
    },
    "sandbox": {"enabled": True},
    "code": {
        **msgspec.json.decode(msgspec.json.encode(CodeSettings())),
        "non_accessible_globs": ["**/.env", "**/.env.*", "**/*.pem", "**/*.key", "**/secrets/**"],
    },
}
"""The configuration when nobody has made one."""

_REMOVED: Final = (
    ("0.7.0", ("inherit_env",), "inherit_env -> env.inherit"),
    ("0.7.0", ("env", "inherit_env"), "env.inherit_env -> env.inherit"),
    ("0.7.0", ("allowed_env",), "allowed_env -> env.allow"),
    ("0.7.0", ("env", "allowed_env"), "env.allowed_env -> env.allow"),
    ("0.7.0", ("migrated_from_coder",), "migrated_from_coder -> no longer needed"),
    ("0.7.0", ("fs", "host_root"), "fs.host_root -> fs.host_roots (a list of one)"),
    ("0.7.0", ("code", "base_path"), "code.base_path -> fs.host_roots"),
    ("0.7.0", ("code", "base_paths"), "code.base_paths -> fs.host_roots"),
    ("0.8.0", ("allowlist",), "allowlist -> no replacement; commands are refused by denylist_patterns alone"),
)
"""Keys of earlier releases: since when they are gone, where they were, and what to write instead."""


def check_removed(value: object) -> None:
    """Raises `SettingsError` if `value` has keys of earlier releases. Works on a value not yet expanded."""
    releases: dict[str, list[str]] = {}
    for release, path, hint in _REMOVED:
        if _has(value, path):
            releases.setdefault(release, []).append(hint)
    if releases:
        named = "; ".join(
            f"config keys removed in {release}: {', '.join(hints)}" for release, hints in releases.items()
        )
        raise SettingsError(f"{named}; write the new keys with configuration::set, id shell")


def is_ours(value: Mapping[str, Any]) -> bool:
    """Whether `value` has any key of this worker at its top, of this release or an earlier one."""
    keys = {*Settings.__struct_fields__, *(path[0] for _, path, _ in _REMOVED)}
    return not keys.isdisjoint(value)


def _has(value: object, path: Iterable[str]) -> bool:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True


def parse(value: object) -> Settings:
    """The settings of a configuration value, as JSON or YAML gives it. Raises `SettingsError`."""
    if not isinstance(value, Mapping):
        raise SettingsError("the configuration must be an object")
    check_removed(value)
    try:
        settings = msgspec.convert(value, Settings)
    except msgspec.ValidationError as reason:
        raise SettingsError(_plain(str(reason))) from None
    if not settings.jailed and not settings.fs.allow_unjailed:
        raise SettingsError(
            "fs.host_roots is empty: name at least one directory there, or set fs.allow_unjailed: true "
            "to do without a jail"
        )
    _check_patterns(settings.denylist_patterns)
    return settings


def _plain(text: str) -> str:
    """A decoder's message with the key as a person writes it."""
    what, _, where = text.partition(" - at `$")
    key = where.removesuffix("`").removeprefix(".")
    return f"{key}: {what}" if key else what


def _check_patterns(patterns: tuple[str, ...]) -> None:
    # google-re2 is no part of the guest's plain install: it is imported with the first pattern.
    if not patterns:
        return
    from agentd.worker.expressions import compile_expression
    from agentd.worker.patterns import BadPattern

    for pattern in patterns:
        try:
            compile_expression(pattern)
        except BadPattern as reason:
            raise SettingsError(f"denylist_patterns: {pattern!r}: {reason}") from None


def schema() -> dict[str, Any]:
    """The JSON Schema of a configuration value, with a description for every key and no references."""
    # As JSON has it: defaults are lists, not tuples.
    document = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(Settings)))
    inlined = _inline(document, document.pop("$defs"))
    assert isinstance(inlined, dict)
    return inlined


def _inline(node: object, definitions: Mapping[str, object]) -> object:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    inlined: dict[str, object] = {}
    for key, item in node.items():
        if key == "$ref":
            target = _inline(definitions[str(item).rpartition("/")[2]], definitions)
            assert isinstance(target, dict)
            inlined = {**target, **inlined}
        elif key == "anyOf" and len(item) == 1:
            target = _inline(item[0], definitions)
            assert isinstance(target, dict)
            inlined = {**target, **inlined}
        else:
            inlined[key] = _inline(item, definitions)
    return inlined

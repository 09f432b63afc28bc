"""Every knob of the daemon: name, variable, unit, default, clamp, in one frozen class.

Precedence, highest first: an option of ``twistd agentd`` / ``python -m agentd``, the ``AGENTD_*`` variable,
the default. A bad option is the caller's mistake and stops the start with one line; a bad variable may be
baked into an image that nobody can change any more, so it is warned about and the default stands
(contract b). ``docs/configuration.md`` is generated from this file by ``python -m agentd.config``.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from attrs import Attribute, field, frozen

from agentd.rules.lifecycle import TerminateMode

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

DEFAULT_PORT = 9000


class BadValue(ValueError):
    """A knob's text does not mean a value; the message says what was expected, in one line."""


def _unsigned(text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit()):
        raise BadValue("expected a whole number, zero or more")
    if len(text.lstrip("0")) > 18:
        raise BadValue("expected a whole number of at most 18 digits")
    return int(text[-18:])


def _seconds(text: str) -> float:
    return float(_unsigned(text))


def _decimal_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadValue("expected a number of seconds") from None
    if not 0 <= value < 1e9:
        raise BadValue("expected a number of seconds, zero or more")
    return value


def _port(text: str) -> int:
    value = _unsigned(text)
    if value > 65535:
        raise BadValue("expected a port, 0 to 65535")
    return value


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise BadValue("expected 1, true, yes, on, 0, false, no or off")


def _text(text: str) -> str:
    if not text:
        raise BadValue("expected a value")
    return text


def _identifier(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]{1,64}", text):
        raise BadValue("expected 1 to 64 letters, digits, _ or -")
    return text


def _choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise BadValue(f"expected one of {', '.join(words)}")
        return word

    return parse


def _terminate(text: str) -> TerminateMode:
    return TerminateMode(_choice(*(mode.value for mode in TerminateMode))(text))


@frozen
class Knob:
    """How one field of `Config` is set and described."""

    variable: str
    parse: Callable[[str], Any]
    unit: str
    doc: str


def _knob(default: Any, variable: str, parse: Callable[[str], Any], unit: str, doc: str) -> Any:
    return field(default=default, metadata={"knob": Knob(variable, parse, unit, doc)})


@frozen(kw_only=True)
class Config:
    """The whole configuration. Sizes are bytes and times are seconds unless a knob says otherwise."""

    port: int = _knob(
        DEFAULT_PORT,
        "AGENTD_PORT",
        _port,
        "port",
        "TCP port to listen on, all addresses; 0 picks a free one.",
    )
    listen: str | None = _knob(
        None,
        "AGENTD_LISTEN",
        _text,
        "endpoint",
        "Twisted endpoint to listen on instead, such as tcp:9000:interface=127.0.0.1.",
    )
    listen_backlog: int = _knob(
        1024,
        "AGENTD_LISTEN_BACKLOG",
        _unsigned,
        "connections",
        "Connections that may wait to be accepted, unless the endpoint says backlog=. A caller that finds the queue "
        "full tries again after a second or more; the kernel's net.core.somaxconn bounds it too.",
    )
    token_file: str | None = _knob(
        None,
        "AGENTD_TOKEN_FILE",
        _text,
        "path",
        "Install the token in this file at start, for use without a platform that posts the run hook.",
    )
    terminate: TerminateMode = _knob(
        TerminateMode.DRAIN,
        "AGENTD_TERMINATE",
        _terminate,
        "drain|acknowledge",
        "What the terminate hook does: drain and exit, or acknowledge only (any process in the VM can post).",
    )
    drain_timeout_secs: float = _knob(
        25.0,
        "AGENTD_DRAIN_TIMEOUT_SECS",
        _decimal_seconds,
        "seconds",
        "How long a stopping daemon waits for requests in flight.",
    )

    max_body_bytes: int = _knob(
        512 * MIB,
        "AGENTD_MAX_BODY_BYTES",
        _unsigned,
        "bytes",
        "Largest request body, counted on the wire (413).",
    )
    max_hook_body_bytes: int = _knob(
        2 * MIB, "AGENTD_MAX_HOOK_BODY_BYTES", _unsigned, "bytes", "Largest body of a lifecycle hook (400)."
    )
    max_json_bytes: int = _knob(
        16 * MIB,
        "AGENTD_MAX_JSON_BYTES",
        _unsigned,
        "bytes",
        "Largest JSON body, the only kind gathered in memory (413).",
    )
    max_drain_bytes: int = _knob(
        64 * KIB,
        "AGENTD_MAX_DRAIN_BYTES",
        _unsigned,
        "bytes",
        "How much of a refused body is read so that the connection stays usable; a longer one closes it.",
    )
    drain_secs: float = _knob(
        5.0, "AGENTD_DRAIN_SECS", _decimal_seconds, "seconds", "How long a refused body may take to arrive."
    )
    header_timeout_secs: float = _knob(
        20.0,
        "AGENTD_HEADER_TIMEOUT_SECS",
        _decimal_seconds,
        "seconds",
        "How long a request's headers may take from their first byte (408).",
    )
    idle_timeout_secs: float = _knob(
        75.0,
        "AGENTD_IDLE_TIMEOUT_SECS",
        _decimal_seconds,
        "seconds",
        "How long a connection may be silent between requests, or inside a body (408).",
    )
    max_connections: int = _knob(
        4096,
        "AGENTD_MAX_CONNECTIONS",
        _unsigned,
        "connections",
        "Most connections at once; a further one is answered 503 and closed.",
    )

    max_output_bytes: int = _knob(
        8 * MIB,
        "AGENTD_MAX_OUTPUT_BYTES",
        _unsigned,
        "bytes",
        "Output of each stream that a poll returns: the first this many bytes.",
    )
    output_linger_secs: float = _knob(
        5.0,
        "AGENTD_OUTPUT_LINGER_SECS",
        _seconds,
        "whole seconds",
        "How long after a child's exit its pipes are still read while something holds them open.",
    )
    exec_ttl_secs: float = _knob(
        900.0,
        "AGENTD_EXEC_TTL_SECS",
        _seconds,
        "whole seconds",
        "How long an acknowledged exec stays known; swept every 30 s.",
    )
    kill_grace_secs: float = _knob(
        10.0,
        "AGENTD_KILL_GRACE_SECS",
        _decimal_seconds,
        "seconds",
        "How long a process group has between SIGTERM and SIGKILL.",
    )
    stream_buffer_bytes: int = _knob(
        1 * MIB,
        "AGENTD_STREAM_BUFFER_BYTES",
        _unsigned,
        "bytes",
        "Output of each exec, both streams together, that a stream can replay: the last this many bytes.",
    )
    stream_channel_capacity: int = _knob(
        256,
        "AGENTD_STREAM_CHANNEL_CAPACITY",
        lambda text: max(1, _unsigned(text)),
        "pieces of 16 KiB",
        "How far a stream's reader may lag before it is told of a gap and taken to the present; at least 1.",
    )
    sse_keepalive_secs: float = _knob(
        15.0,
        "AGENTD_SSE_KEEPALIVE_SECS",
        lambda text: max(1.0, _seconds(text)),
        "whole seconds",
        "Silence on a stream after which a keep-alive comment is sent; at least 1.",
    )
    max_stdin_write_bytes: int = _knob(
        1 * MIB, "AGENTD_MAX_STDIN_WRITE_BYTES", _unsigned, "bytes", "Largest stdin write, decoded (413)."
    )
    stdin_write_timeout_secs: float = _knob(
        5.0,
        "AGENTD_STDIN_WRITE_TIMEOUT_SECS",
        _decimal_seconds,
        "seconds",
        "How long a stdin write waits for the child to read (408).",
    )
    max_wait_secs: float = _knob(
        60.0,
        "AGENTD_MAX_WAIT_SECS",
        _decimal_seconds,
        "seconds",
        "Longest wait that a Prefer: wait=N request header is granted; a longer one is cut to this.",
    )

    max_tar_members: int = _knob(
        100_000,
        "AGENTD_MAX_TAR_MEMBERS",
        _unsigned,
        "members",
        "Most members of an archive, either way (413).",
    )
    max_tar_bytes: int = _knob(
        8 * GIB,
        "AGENTD_MAX_TAR_BYTES",
        _unsigned,
        "bytes",
        "Most bytes of file content in an archive, either way (413).",
    )
    disk_reserve_bytes: int = _knob(
        256 * MIB,
        "AGENTD_DISK_RESERVE_BYTES",
        _unsigned,
        "bytes",
        "Free space under which a write is refused (507); 0 turns the guard off.",
    )
    tunnel_dial_timeout_secs: float = _knob(
        2.0,
        "AGENTD_TUNNEL_DIAL_TIMEOUT_SECS",
        _decimal_seconds,
        "seconds",
        "How long a tunnel waits for the guest's port (close code 4502).",
    )
    tunnel_handshake_timeout_secs: float = _knob(
        10.0,
        "AGENTD_TUNNEL_HANDSHAKE_TIMEOUT_SECS",
        _decimal_seconds,
        "seconds",
        "How long a verified tunnel waits for the caller's handshake (close code 4403).",
    )

    repair_identity: bool = _knob(
        True,
        "AGENTD_REPAIR_IDENTITY",
        _flag,
        "flag",
        "Give the VM its own machine-id, hostname, boot-id and random numbers on the winning run hook, and set its "
        "wall clock after a suspend.",
    )
    hook_handler_timeout_secs: float = _knob(
        20.0,
        "AGENTD_HOOK_HANDLER_TIMEOUT_SECS",
        lambda text: min(55.0, max(1.0, _seconds(text))),
        "whole seconds",
        "Time budget of a workload's hook handler, clamped to 1..55.",
    )
    hooks_dir: str = _knob(
        "/etc/agentd/hooks.d", "AGENTD_HOOKS_DIR", _text, "path", "Where a workload's hook handlers are."
    )
    passwd_file: str = _knob(
        "/etc/passwd", "AGENTD_PASSWD_FILE", _text, "path", "Accounts, read per request."
    )
    group_file: str = _knob("/etc/group", "AGENTD_GROUP_FILE", _text, "path", "Groups, read per request.")

    environment_id: str = _knob(
        "local",
        "AGENTD_ENVIRONMENT_ID",
        _identifier,
        "id",
        "The one environment that the environments API serves: this VM.",
    )
    agent_user: str = _knob(
        "agent",
        "AGENTD_AGENT_USER",
        _text,
        "user",
        "Who runs its commands and touches its files; without such a user that API answers 503.",
    )
    package_env_file: str = _knob(
        "/opt/agent/env",
        "AGENTD_PACKAGE_ENV_FILE",
        _text,
        "path",
        "Variables of the agent package, NAME=VALUE a line, which a request cannot replace.",
    )
    platform_env_file: str = _knob(
        "/etc/temper/agent.env",
        "AGENTD_PLATFORM_ENV_FILE",
        _text,
        "path",
        "Variables of the platform, which win over all others.",
    )
    environment_state: str = _knob(
        "ok",
        "AGENTD_ENVIRONMENT_STATE",
        _choice("ok", "failed", "limit_exceeded"),
        "ok|failed|limit_exceeded",
        "The operator's word about the environment: failed and limit_exceeded answer 409 to everything.",
    )

    worker: bool = _knob(
        False,
        "AGENTD_WORKER",
        _flag,
        "on|off",
        "Serve the functions of the iii shell worker too: to an engine, and at /v1/functions.",
    )
    iii_url: str | None = _knob(
        None,
        "III_URL",
        _text,
        "URL",
        "The engine, ws://HOST:PORT; none is ws://127.0.0.1:49134, and the word none is HTTP alone.",
    )
    worker_config: str = _knob(
        "config.yaml",
        "AGENTD_WORKER_CONFIG",
        _text,
        "path",
        "The worker's first configuration, used while the engine has none stored. It may be missing.",
    )
    worker_name: str = _knob(
        "shell",
        "III_WORKER_NAME",
        _text,
        "name",
        "What the worker is called at the engine, which takes one of a name in a namespace.",
    )
    worker_namespace: str | None = _knob(
        None,
        "III_NAMESPACE",
        _text,
        "name",
        "The namespace of its functions at the engine; none is the engine's default.",
    )
    iii_headers_file: str | None = _knob(
        None,
        "AGENTD_III_HEADERS_FILE",
        _text,
        "path",
        "Headers for every connection to the engine, Name: value a line. A token may also be in III_TOKEN.",
    )

    log_level: str = _knob(
        "info",
        "AGENTD_LOG",
        _choice("debug", "info", "warn", "error", "critical"),
        "level",
        "Least level that is logged: debug, info, warn, error or critical.",
    )
    log_format: str = _knob(
        "json", "AGENTD_LOG_FORMAT", _choice("json", "text"), "json|text", "Shape of log lines on stdout."
    )


HOOK_LOG_CAP = 64
"""Hook invocations that are kept, the first ones (contract b)."""
HANDLER_OUTPUT_BYTES = 4096
"""Bytes of each stream of a hook handler that go to the log (contract b)."""
SWEEP_SECS = 30.0
"""Seconds between sweeps of acknowledged execs (contract b)."""
PIECE_BYTES = 16384
"""Most output bytes in one stream event (contract b)."""
LINGER_BYTES = 1 * MIB
"""Bytes read and dropped after an early answer, so that the caller gets it before the connection closes."""
LINGER_SECS = 2.0
"""Seconds that this may take."""
THREADS = 4
"""Threads for file system work (contract b)."""


def knobs() -> list[tuple[str, Any, Knob]]:
    """Every knob as (field name, default, description), in the order of the class."""
    found: list[tuple[str, Any, Knob]] = []
    attribute: Attribute[Any]
    for attribute in attrs.fields(Config):
        found.append((attribute.name, attribute.default, attribute.metadata["knob"]))
    return found


def option_name(name: str) -> str:
    """The command-line spelling of a field: ``max_body_bytes`` is ``--max-body-bytes``."""
    return name.replace("_", "-")


def from_environment(
    environ: Mapping[str, str], options: Mapping[str, str | None]
) -> tuple[Config, list[str]]:
    """Build the configuration; returns it with a warning line per variable that was ignored.

    `options` maps field names to the text given on the command line, None or absent for not given.

    Raises `BadValue` naming the option when one is bad. Never quotes a value: a variable may hold a secret.
    """
    values: dict[str, Any] = {}
    warnings: list[str] = []
    for name, _default, knob in knobs():
        given = options.get(name)
        if given is not None:
            try:
                values[name] = knob.parse(given)
            except BadValue as reason:
                raise BadValue(f"--{option_name(name)}: {reason}") from None
            continue
        text = environ.get(knob.variable)
        if text is None:
            continue
        try:
            values[name] = knob.parse(text)
        except BadValue as reason:
            warnings.append(f"{knob.variable} is ignored: {reason}; the default stands")
    return Config(**values), warnings


def show(default: Any) -> str:
    """A default as a person writes it."""
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, TerminateMode):
        return default.value
    if isinstance(default, float):
        return f"{default:g}"
    return "none" if default is None else str(default)


def markdown() -> str:
    """The table of ``docs/configuration.md``."""
    rows = ["| Option | Variable | Default | Unit | Meaning |", "| --- | --- | --- | --- | --- |"]
    rows += [
        f"| `--{option_name(name)}` | `{knob.variable}` | {show(default)} | {knob.unit} | {knob.doc} |"
        for name, default, knob in knobs()
    ]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")

"""The life of the worker's configuration: seeded, fetched, reloaded, and never replaced by something worse.

The configuration worker of the engine holds the value (id `shell`); a file only seeds it. Starting is *fail closed*:
nothing is served before a value has been fetched and a policy built of it, and whatever goes wrong with that is the
end. Running is the opposite: what cannot be used is refused, and the last good policy stays (reference A9, (c)).

    absent ── seed or shipped value, validated ──► register ─┐
    stored ── schema only ────────────────────────► register ┴─► fetch ─► build ─► announce reload ─► fetch, build

A reload fetches inside its lock, so that of several that come together the newest value wins, and swaps the policy as a
whole; a call keeps the one it started with.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from msgspec import Struct
from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from agentd.files.threads import RunInThread
from agentd.worker import settings as settings_of
from agentd.worker.engine import NOT_CONNECTED
from agentd.worker.errors import BootFailed, Coded
from agentd.worker.function import Call, Function
from agentd.worker.sandbox import Caller, CallFailed
from agentd.worker.settings import SHIPPED, Settings, SettingsError

_log = Logger()

ID: Final = "shell"
CALL_SECS: Final = 5.0
PAUSES: Final = (0.25, 0.5)
"""Seconds before a call is tried a second and a third time."""
EVENT: Final = "configuration:updated"
_DEFINITE: Final = frozenset(
    {"NOT_FOUND", "SCHEMA_INVALID", "EXPAND_FAILED", "INVALID_ID", "FORBIDDEN", NOT_CONNECTED}
)
"""Answers that a repetition will not change."""


@frozen
class Policy:
    """What a call works under: settings, and what was looked up on the machine for them."""

    settings: Settings
    jail: Any
    coder: Any


class Status(Struct, frozen=True):
    """The result of `shell::config-status`."""

    last_outcome: str = "applied"
    last_error: str | None = None
    rejected_reloads: int = 0


Build = Callable[[Settings, Policy | None], Policy]
"""The policy of settings; blocks. Raises `SettingsError`. May keep parts of the policy so far."""


def load_seed(path: Path) -> Mapping[str, Any] | None:
    """The seed file's value; None when there is none, or it is somebody else's. Blocks. Raises `SettingsError`.

    A worker often starts where the engine's own ``config.yaml`` lies: a file without a single key of ours is not
    for us.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as reason:
        raise SettingsError(f"{path}: {reason.strerror}") from None
    value = _parse(path, text)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise SettingsError(f"{path}: it must hold an object")
    if not settings_of.is_ours(value):
        _log.info("{path} holds no key of the shell worker and is left alone", path=str(path))
        return None
    try:
        settings_of.parse(value)
    except SettingsError as reason:
        raise SettingsError(f"{path}: {reason}") from None
    return value


def _parse(path: Path, text: bytes) -> object:
    try:
        import yaml  # type: ignore[import-untyped]  # it has no types of its own
    except ImportError:
        raise SettingsError(f"{path}: reading it needs PyYAML: install agentd[worker]") from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as reason:
        mark = getattr(reason, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise SettingsError(f"{path}: it is not YAML{where}") from None


class Configuration:
    """The running configuration. `policy` is what calls start with; it is the seed's until one was fetched."""

    def __init__(
        self,
        engine: Caller,
        clock: Any,
        run_in_thread: RunInThread,
        build: Build,
        seed: Mapping[str, Any] | None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._build = build
        self._seed = dict(SHIPPED if seed is None else seed)
        self._lock = DeferredLock()
        self._policy: Policy | None = None
        self._fetched = False
        self.status = Status()

    @property
    def policy(self) -> Policy:
        """What a call that starts now works under."""
        if self._policy is None:
            raise RuntimeError("there is no policy yet")
        return self._policy

    @property
    def ready(self) -> bool:
        """Whether there is a policy."""
        return self._policy is not None

    async def prepare(self) -> None:
        """Build the policy of the seed, for as long as no engine has another. Raises `BootFailed`."""
        try:
            self._policy = await self._built(self._seed)
        except SettingsError as reason:
            raise BootFailed(f"the configuration is not usable: {reason}") from None

    async def boot(self, announce: Callable[[], None]) -> None:
        """Everything up to the policy in force; `announce` registers the reload with the engine in between.

        Raises `BootFailed`, and `CallFailed` with `NOT_CONNECTED` when the connection was lost: then it can be
        tried again on the next one.
        """
        try:
            await self._register_first()
            await self._apply(await self._fetch())
            announce()
            await self._locked(self._fetch_and_apply)
        except SettingsError as reason:
            raise BootFailed(f"the configuration is not usable: {reason}") from None
        except CallFailed as reason:
            if reason.code == NOT_CONNECTED:
                raise
            raise BootFailed(f"the configuration worker: {reason}") from None

    async def _register_first(self) -> None:
        try:
            stored = await self._call("configuration::get", {"id": ID, "raw": True})
        except CallFailed as reason:
            if not _absent(reason):
                raise
            await self._built(self._seed)  # one that is not usable is not sent
            await self._call("configuration::register", {**_entry(), "initial_value": self._seed})
            return
        value = stored.get("value") if isinstance(stored, Mapping) else None
        if value is None:
            raise SettingsError("the stored value is null")
        settings_of.check_removed(value)
        await self._call("configuration::register", _entry())

    async def reconnected(self) -> None:
        """An engine that was away has lost our schema, and we its events."""
        await self._call("configuration::register", _entry())
        await self.reload()

    async def reload(self) -> None:
        """Fetch and apply. A value that is not usable is refused, and only the status tells.

        Raises `CallFailed` when nothing was fetched.
        """
        await self._locked(self._fetch_and_try)

    async def _locked(self, work: Callable[[], Awaitable[None]]) -> None:
        await self._lock.acquire()
        try:
            await work()
        finally:
            self._lock.release()

    async def _fetch_and_apply(self) -> None:
        await self._apply(await self._fetch())

    async def _fetch_and_try(self) -> None:
        value = await self._fetch()
        try:
            await self._apply(value)
        except SettingsError as reason:
            self.status = Status("rejected", str(reason), self.status.rejected_reloads + 1)
            _log.error(
                "a new configuration is refused, the last one stays: {reason}",
                event="configuration_rejected",
                reason=str(reason),
            )

    async def _fetch(self) -> object:
        answer = await self._call("configuration::get", {"id": ID})
        return answer.get("value") if isinstance(answer, Mapping) else None

    async def _apply(self, value: object) -> None:
        """Put a value in force. Raises `SettingsError`."""
        policy = await self._built(value)
        before = self._policy if self._fetched else None
        if before is not None and before.settings.jailed and not policy.settings.jailed:
            _log.warn(
                "the configuration was widened: files were confined to roots, and are not any more",
                event="configuration_widened",
            )
        if before is None or before.settings != policy.settings:
            _log.info("a configuration is in force", event="configuration_applied")
        self._policy = policy
        self._fetched = True
        self.status = Status("applied", None, self.status.rejected_reloads)

    async def _built(self, value: object) -> Policy:
        settings = settings_of.parse(value)
        before = self._policy if self._fetched else None
        return await self._run_in_thread(self._build, settings, before)

    async def _call(self, function_id: str, data: Mapping[str, Any]) -> Any:
        for pause in (*PAUSES, None):
            try:
                return await self._engine.call(function_id, data, CALL_SECS)
            except CallFailed as reason:
                if pause is None or reason.code in _DEFINITE or _absent(reason):
                    raise
            waiting: Deferred[None] = Deferred()
            delayed = self._clock.callLater(pause, waiting.callback, None)
            try:
                await waiting
            finally:
                if delayed.active():
                    delayed.cancel()
        raise AssertionError("the last attempt returns or raises")


def _absent(reason: CallFailed) -> bool:
    """Whether there is no such entry. (That there is no configuration worker is another answer.)"""
    return reason.code == "NOT_FOUND" or (
        reason.code == "invocation_failed" and "NOT_FOUND" in reason.message
    )


def _entry() -> dict[str, Any]:
    return {
        "id": ID,
        "name": "Shell",
        "description": "What the shell worker allows: commands, files, limits, protected paths.",
        "schema": settings_of.schema(),
    }


TRIGGER: Final[Mapping[str, Any]] = {"configuration_id": ID, "event_types": [EVENT]}
"""The change notice that a reload is registered for."""


# -- functions -----------------------------------------------------------------------------------------------------


class Reloaded(Struct, frozen=True):
    """The result of `shell::on-config-change`."""

    ok: bool = True


def _nothing(data: object) -> None:
    """Neither looks at its arguments: anybody can call them."""


async def report(call: Call, nothing: None) -> Status:
    """`shell::config-status`."""
    return _of(call).status


async def changed(call: Call, nothing: None) -> Reloaded:
    """`shell::on-config-change`: read the store again. A refused value is no failure of the call."""
    try:
        await _of(call).reload()
    except CallFailed as reason:
        raise Coded("S216", f"the configuration could not be fetched: {reason}") from None
    return Reloaded()


def _of(call: Call) -> Configuration:
    assert call.configuration is not None
    return call.configuration


FUNCTIONS: Final = (
    Function(
        "shell::config-status", "What became of the last configuration.", _nothing, report, internal=True
    ),
    Function("shell::on-config-change", "Read the configuration again.", _nothing, changed, internal=True),
)

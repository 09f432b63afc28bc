"""What a start resolves to, done to a daemon in memory: contract a.2, c.2 to c.4.

The daemon resolves, spawns and answers in one go, so the request is made where the model resolves it, and what came of
it is compared there and in the two steps after. Accounts are in files; what can be executed is the model's set.
"""

from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from agentd.guest.accounts import AccountFiles, Identity
from agentd.process.spawn import Plan
from agentd.rules import environ
from agentd.rules.resolution import NO_ID, Malformed, UnknownGroup, UnknownShell, UnknownUser
from checker.model import Model
from checker.models.exec_start import EXECUTABLE, GROUPS, PASSWD
from checker.models.exec_start_terms import FIELDS, TOKEN, Child
from checker.replay.adapter import HOOKS, Adapter, compared, run_payload
from checker.replay.scratch import directory
from checker.replay.wire import Answer, Says
from checker.result import Step

Values = Mapping[str, Hashable]

REFUSALS: Final[dict[type, str]] = {
    UnknownUser: "unknown_user",
    UnknownGroup: "unknown_group",
    UnknownShell: "unknown_shell",
    Malformed: "malformed_request",
}
NAMES: Final = {"inherit": "inherit_image_env"}
"""Fields of the model to those of the wire, where they differ."""


@cache
def _files() -> Path:
    """The account files."""
    found = directory()
    passwd = [f"{row.name}:x:{row.uid}:{row.gid}::{row.home}:/bin/sh\n" for row in PASSWD]
    group = [f"{row.name}:x:{row.gid}:{','.join(row.members)}\n" for row in GROUPS]
    (found / "passwd").write_text("".join(passwd))
    (found / "group").write_text("".join(group))
    return found


class ExecStart(Adapter):
    """The adapter of ``exec_start``."""

    subject: Any

    def begin(self, model: Model) -> None:
        """Root, in a guest of these accounts and files."""
        files = _files()
        self.subject.memory.daemon.accounts = AccountFiles(
            files / "passwd",
            files / "group",
            EXECUTABLE.__contains__,
            lambda: Identity(0, 0, ()),
        )
        self.answer: Answer | None = None

    def on_boot(self, step: Step, values: Values) -> Iterator[str]:
        """The daemon takes the image's environment."""
        live = step.before[0]
        assert isinstance(live, tuple)
        self.subject.memory.daemon.guest.image_environ = environ.snapshot(dict(live))
        return iter(())

    def on_hook(self, step: Step, values: Values) -> Iterator[str]:
        """The run hook brings the launch environment."""
        launch = values["launch"]
        assert isinstance(launch, tuple)
        value = run_payload(TOKEN.encode(), env=dict(launch))
        answer = self.subject.ask("POST", f"{HOOKS}/run", value=value)
        yield from Says(200, empty=True).differences(answer)

    def on_choose(self, step: Step, values: Values) -> Iterator[str]:
        """The caller goes on writing the request."""
        return iter(())

    def on_resolve(self, step: Step, values: Values) -> Iterator[str]:
        """The request is made."""
        value: dict[str, object] = {"exec_id": "exec-0", "command": ["true"]}
        for name in FIELDS:
            chosen = values[name]
            value[NAMES.get(name, name)] = dict(chosen) if isinstance(chosen, tuple) else chosen
        self.answer = self.subject.ask("POST", "/v1/exec/start", token=TOKEN.encode(), value=value)
        return iter(())

    def on_spawn(self, step: Step, values: Values) -> Iterator[str]:
        """The child is who the model has, in that environment, through that shell."""
        wanted = values["child"]
        spawned = [child.plan for child in self.subject.memory.children.all]
        if not isinstance(wanted, Child) or _no_id(wanted):
            yield from compared("children", 0, len(spawned))
            return
        yield from compared("children", 1, len(spawned))
        for plan in spawned:
            yield from _child(wanted, plan)

    def on_answer(self, step: Step, values: Values) -> Iterator[str]:
        """The answer."""
        assert self.answer is not None
        child = values["child"]
        if step.response == 200:
            # That id means no user to the kernel (setuid(2)), so whoever asks for it cannot be spawned.
            no_id = isinstance(child, Child) and _no_id(child)
            says = Says(500, "spawn_failed") if no_id else Says(200, fields={"phase": "running"})
        else:
            says = Says(400, REFUSALS[type(step.response)])
        yield from says.differences(self.answer)

    def on_health(self, step: Step, values: Values) -> Iterator[str]:
        """How many variables the image has."""
        answer = self.subject.ask("GET", "/v1/health")
        yield from Says(200, fields={"image_env_keys": step.response}).differences(answer)


def _no_id(child: Child) -> bool:
    return NO_ID in (child.uid, child.gid)


def _child(wanted: Child, plan: Plan) -> Iterator[str]:
    """How a child differs. The daemon is root in no group, and says nothing where the child stays as it is."""
    who = plan.credentials
    yield from compared("uid", wanted.uid or 0, who.uid or 0)
    yield from compared("gid", wanted.gid or 0, who.gid or 0)
    gid = wanted.gid or 0
    groups = set(who.groups or ()) | {gid}
    yield from compared("groups", set(wanted.supplementary or ()) | {gid}, groups)
    argv = ("true",) if wanted.shell is None else (wanted.shell, "-c", "true")
    yield from compared("argv", argv, plan.argv)
    # Only names are told: values are a caller's.
    environment = dict(wanted.environment)
    if environment != dict(plan.env):
        names = {name for name, _ in environment.items() ^ plan.env.items()}
        yield f"these variables differ: {', '.join(sorted(names))}"

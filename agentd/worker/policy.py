"""From settings to what calls work under: the jail, and the coder's paths. Blocks; raises `SettingsError`."""

import os

from twisted.logger import Logger

from agentd.worker.coder_paths import CoderPaths
from agentd.worker.configuration import Policy
from agentd.worker.jail import Jail, Unbuildable
from agentd.worker.settings import Settings, SettingsError

_log = Logger()


def build(settings: Settings, before: Policy | None) -> Policy:
    """The policy of `settings`. When only the coder's part cannot be made, that of `before` stays (reference (c))."""
    cwd = os.getcwd()
    try:
        jail = Jail.build(settings, cwd)
    except Unbuildable as reason:
        raise SettingsError(str(reason)) from None
    try:
        coder = CoderPaths.build(settings, cwd)
    except Unbuildable as reason:
        if before is None:
            raise SettingsError(str(reason)) from None
        _log.error(
            "the coder's part of a configuration cannot be used, the last one stays: {reason}",
            event="configuration_coder_kept",
            reason=str(reason),
        )
        coder = before.coder
    return Policy(settings, jail, coder)

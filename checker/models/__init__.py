"""The models: guards, bounds, environment and properties around the functions of `agentd.rules`.

A module of a model has ``CONFIGS``, by name the configurations it can be checked in. Modules are imported when
they are asked for, so that a run that needs one model does not pay for the others.
"""

from collections.abc import Callable, Iterator
from importlib import import_module

from attrs import frozen

from checker.model import Model, ModelError

MODULES = {
    "bootstrap_exec": "checker.models.bootstrap_exec",
    "published": "checker.models.published",
    "exec_start": "checker.models.exec_start",
    "output": "checker.models.output",
    "stdin": "checker.models.stdin",
    "supervision": "checker.models.supervision",
    "hooks": "checker.models.hooks",
    "lifecycle": "checker.models.lifecycle",
    "processes": "checker.models.processes",
    "jobs": "checker.models.jobs",
    "tunnel": "checker.models.tunnel",
    "product": "checker.models.product",
    "client": "checker.models.client",
}
"""Model to its module, in the order they are checked."""


@frozen
class Config:
    """How to make one configuration of a model."""

    make: Callable[[str], Model]
    """Takes the configuration's name."""
    default: bool = True
    """Whether a check of everything includes it; large ones are left to be asked for."""


def configs(model: str) -> dict[str, Config]:
    """The configurations of a model, by name. Raises ModelError for an unknown model."""
    if model not in MODULES:
        raise ModelError(f"no model {model!r}; there are {', '.join(MODULES)}")
    found: dict[str, Config] = import_module(MODULES[model]).CONFIGS
    return found


def load(key: str) -> Model:
    """The model ``name:config``; without a configuration, its first. Raises ModelError for unknown names."""
    name, _, config = key.partition(":")
    known = configs(name)
    config = config or next(iter(known))
    if config not in known:
        raise ModelError(f"model {name!r} has no configuration {config!r}; it has {', '.join(known)}")
    return known[config].make(config)


def every(default_only: bool = True) -> Iterator[str]:
    """Every ``name:config``, or those a check of everything includes."""
    for name in MODULES:
        for config, how in configs(name).items():
            if how.default or not default_only:
                yield f"{name}:{config}"

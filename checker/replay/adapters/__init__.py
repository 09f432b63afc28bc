"""An adapter for each model that can be replayed."""

from importlib import import_module
from importlib.util import find_spec
from typing import Final

from checker.model import ModelError
from checker.replay.adapter import Adapter

ADAPTERS: Final = {
    "bootstrap_exec": ("bootstrap_exec", "BootstrapExec"),
    "exec_start": ("exec_start", "ExecStart"),
    "jobs": ("jobs", "Jobs"),
    "output": ("output", "OutputReaders"),
    "processes": ("processes", "Processes"),
    "product": ("product", "Product"),
    "stdin": ("stdin", "StdinWrites"),
    "supervision": ("supervision", "Supervised"),
    "tunnel": ("tunnel", "Tunnelled"),
    "hooks": ("hooks", "Hooks"),
    "lifecycle": ("lifecycle", "Life"),
}
"""Model to the module and class of its adapter."""


def adapter(model: str) -> type[Adapter]:
    """The adapter of a model. Raises ModelError when it has none, or this installation lacks what it needs."""
    if model not in ADAPTERS:
        raise ModelError(f"{model} cannot be replayed; these can: {', '.join(ADAPTERS)}")
    lacking = lacks(model)
    if lacking is not None:
        raise ModelError(f"{model} cannot be replayed here: install agentd[{lacking}]")
    return _load(model)


def lacks(model: str) -> str | None:
    """The extra that the adapter of a model needs and this installation has not, None if it has all."""
    needs = _load(model).needs
    return next((extra for module, extra in needs.items() if find_spec(module) is None), None)


def _load(model: str) -> type[Adapter]:
    module, name = ADAPTERS[model]
    found: type[Adapter] = getattr(import_module(f"{__name__}.{module}"), name)
    return found

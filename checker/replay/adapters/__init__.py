"""An adapter for each model that can be replayed."""

from importlib import import_module
from typing import Final

from checker.model import ModelError
from checker.replay.adapter import Adapter

ADAPTERS: Final = {
    "bootstrap_exec": ("bootstrap_exec", "BootstrapExec"),
    "exec_start": ("exec_start", "ExecStart"),
    "output": ("output", "OutputReaders"),
    "processes": ("processes", "Processes"),
    "product": ("product", "Product"),
    "stdin": ("stdin", "StdinWrites"),
    "supervision": ("supervision", "Supervised"),
    "hooks": ("hooks", "Hooks"),
    "lifecycle": ("lifecycle", "Life"),
}
"""Model to the module and class of its adapter."""


def adapter(model: str) -> type[Adapter]:
    """The adapter of a model. Raises ModelError when it has none."""
    if model not in ADAPTERS:
        raise ModelError(f"{model} cannot be replayed; these can: {', '.join(ADAPTERS)}")
    module, name = ADAPTERS[model]
    found: type[Adapter] = getattr(import_module(f"{__name__}.{module}"), name)
    return found

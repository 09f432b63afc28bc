"""Seeded faults: wrong versions of rule functions, each named for what it gets wrong.

A property that nothing can break is not worth its line. Each names faults that must break it, and
``checker mutants`` shows that they do; the faults that `checker.mutation` derives from the source of the rules
ask the opposite question, whether something a programmer might get wrong goes unnoticed.

A fault is planted by replacing the function wherever the rules or the models hold it, for the time of a
``with`` block. Whoever checks a model meanwhile must compile it afresh (`checker.table.Table`), because what
rules answered is remembered there.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from attrs import frozen

Function = Callable[..., Any]

SOURCES = (
    "bootstrap",
    "execs",
    "environ",
    "resolution",
    "output",
    "supervision",
    "hooks",
    "lifecycle",
    "stdin",
    "processes",
    "jobs",
    "tunnel",
    "vm_life",
)
"""Modules of this package that seed faults, one for each module of the rules, in the order of the matrix."""


@frozen
class Fault:
    """One wrong version of one function."""

    name: str
    """What is wrong, as a clause: ``a second ack wins too``."""
    module: str
    """The module of the function: one of the rules, or a model's where it stands for a handler."""
    function: str
    """Its name, or ``Class.method``."""
    make: Callable[[Function], Function]
    """Takes the right function, returns the wrong one."""


_registry: dict[str, Fault] = {}


def fault(name: str, module: str, function: str) -> Callable[[Function], Function]:
    """Register the decorated function, which takes what the right one takes after the right one itself."""

    def register(wrong: Function) -> Function:
        if name in _registry:
            raise ValueError(f"two faults {name!r}")

        def make(right: Function) -> Function:
            def planted(*args: Any, **kwargs: Any) -> Any:
                return wrong(right, *args, **kwargs)

            return planted

        _registry[name] = Fault(name, module, function, make)
        return wrong

    return register


def seeded() -> Mapping[str, Fault]:
    """Every seeded fault, by name."""
    for source in SOURCES:
        import_module(f"{__name__}.{source}")
    return _registry


@frozen(eq=False)
class Plot:
    """Where a fault goes: everybody who holds the right function, and what they hold in its place."""

    holders: tuple[tuple[Any, str], ...]
    right: Any
    replacement: Any

    def plant(self) -> None:
        """Have the rules run the wrong function."""
        for holder, attribute in self.holders:
            setattr(holder, attribute, self.replacement)

    def clear(self) -> None:
        """Have them run the right one."""
        for holder, attribute in self.holders:
            setattr(holder, attribute, self.right)


def plot(wrong: Fault) -> Plot:
    """Look for everybody who holds the right function now."""
    module = import_module(wrong.module)
    owner_name, _, name = wrong.function.rpartition(".")
    if owner_name:
        owner = getattr(module, owner_name)
        holders: list[tuple[Any, str]] = [(owner, name)]
        right = owner.__dict__[name]
    else:
        right = getattr(module, name)
        holders = [
            (other, attribute)
            for key, other in list(sys.modules.items())
            if key.startswith(("agentd.rules", "checker.models"))
            for attribute, value in list(vars(other).items())
            if value is right
        ]
    return Plot(tuple(holders), right, _wrapped(right, wrong.make))


@contextmanager
def planted(wrong: Fault) -> Iterator[None]:
    """Have the rules run a wrong function, everywhere, until the block ends."""
    ground = plot(wrong)
    ground.plant()
    try:
        yield
    finally:
        ground.clear()


def _wrapped(right: Any, make: Callable[[Function], Function]) -> Any:
    """The wrong version of a function, in the same kind of descriptor."""
    if isinstance(right, property):
        assert right.fget is not None
        return property(make(right.fget))
    if isinstance(right, (classmethod, staticmethod)):
        return type(right)(make(right.__func__))
    return make(right)

"""Automatic faults: what a slip of the keyboard or of the mind can make of a rule, derived from its source.

Theory of operation
-------------------
The syntax tree of a rule module is walked, and each place where one of these operators applies gives one
mutant: the function around it, compiled with that one change in the namespace of its module.

=========  ========================================================================================
negate     a condition, or a comparison for equality, identity or membership, is turned round
bound      ``<`` and ``<=``, ``>`` and ``>=`` are exchanged
connect    ``and`` becomes ``or``, and the other way round; one operand is left out
update     one keyword of a call (a field in ``evolve``, an argument) is left out
member     one member of an enumeration is taken for the next
number     an integer is one more; ``+`` becomes ``-``; ``min`` and ``max`` are exchanged
flag       ``True`` and ``False`` are exchanged
=========  ========================================================================================

A mutant's name counts the places of one operator within one function, so that it stays the same while other
functions change.
"""

import ast
import copy
import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any

from attrs import frozen

from checker.faults import Fault, Function

RULES = (
    "bootstrap",
    "execs",
    "output",
    "supervision",
    "hooks",
    "lifecycle",
    "stdin",
    "environ",
    "resolution",
    "processes",
    "jobs",
    "tunnel",
    "vm_life",
)
"""The modules of `agentd.rules` that models run."""

Replace = Callable[[ast.AST], "ast.AST | None"]

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BOUND: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


@frozen
class Change:
    """One change of one node."""

    operator: str
    node: int
    """Its place in the order of `ast.walk` over the function."""
    variant: int
    told: str
    """What it does, in terms of the source."""


def changes(function: ast.AST, module: ModuleType) -> Iterator[Change]:
    """Every change that can be made inside a function."""
    for number, node in enumerate(ast.walk(function)):
        for variant, (operator, replacement) in enumerate(_variants(node, module)):
            told = f"{_source(node)}  →  {_source(replacement)}"
            yield Change(operator, number, variant, told)


def _variants(node: ast.AST, module: ModuleType) -> Iterator[tuple[str, ast.AST]]:
    """The replacements of one node."""
    if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not isinstance(node.test, ast.Compare):
        changed = copy.deepcopy(node)
        changed.test = _negated(node.test)
        yield "negate", changed
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for operator, table in (("negate", _OPPOSITE), ("bound", _BOUND)):
            other = table.get(type(node.ops[0]))
            if other is not None:
                compare = copy.deepcopy(node)
                compare.ops = [other()]
                yield operator, compare
        if isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            yield "negate", _negated(node)
    if isinstance(node, ast.BoolOp):
        flipped = copy.deepcopy(node)
        flipped.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "connect", flipped
        for left_out in range(len(node.values)):
            rest = copy.deepcopy(node.values[:left_out] + node.values[left_out + 1 :])
            yield "connect", rest[0] if len(rest) == 1 else ast.BoolOp(copy.deepcopy(node.op), rest)
    if isinstance(node, ast.Call):
        for left_out, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                call = copy.deepcopy(node)
                del call.keywords[left_out]
                yield "update", call
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            call = copy.deepcopy(node)
            call.func = ast.Name("max" if node.func.id == "min" else "min", ast.Load())
            yield "number", call
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        following = _next_member(getattr(module, node.value.id, None), node.attr)
        if following is not None:
            attribute = copy.deepcopy(node)
            attribute.attr = following
            yield "member", attribute
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "flag", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield "number", ast.Constant(node.value + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        binary = copy.deepcopy(node)
        binary.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield "number", binary


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return copy.deepcopy(test.operand)
    return ast.UnaryOp(ast.Not(), copy.deepcopy(test))


def _next_member(owner: Any, name: str) -> str | None:
    if not (isinstance(owner, type) and issubclass(owner, Enum)) or name not in owner.__members__:
        return None
    names = list(owner.__members__)
    following = names[(names.index(name) + 1) % len(names)]
    return following if following != name else None


def _source(node: ast.AST) -> str:
    """One line of source for a node, shortened to what a table has room for."""
    if isinstance(node, (ast.If, ast.While)):
        return f"if {_source(node.test)}"
    text = " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
    return text if len(text) <= 60 else text[:57] + "..."


class _Apply(ast.NodeTransformer):
    def __init__(self, target: ast.AST, replacement: ast.AST) -> None:
        self._target = target
        self._replacement = replacement

    def visit(self, node: ast.AST) -> Any:
        if node is self._target:
            return ast.copy_location(self._replacement, node)
        return self.generic_visit(node)


def mutated(module: ModuleType, name: str, change: Change) -> Function:
    """The function `name` of a module (``Class.method`` for a method) with one change, compiled."""
    function = copy.deepcopy(dict(functions(module))[name])
    node = next(node for number, node in enumerate(ast.walk(function)) if number == change.node)
    _, replacement = list(_variants(node, module))[change.variant]
    changed = _Apply(node, replacement).visit(function)
    changed.decorator_list = []
    tree = ast.fix_missing_locations(ast.Module([changed], []))
    made: dict[str, Function] = {}
    exec(compile(tree, f"<{module.__name__}.{name} {change.operator}>", "exec"), vars(module), made)  # noqa: S102
    return made[changed.name]


def functions(module: ModuleType) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions and methods that a module defines, by name, without their docstrings."""
    tree = ast.parse(inspect.getsource(module))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, _bare(node)
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    yield f"{node.name}.{member.name}", _bare(member)


def _bare(function: ast.FunctionDef) -> ast.FunctionDef:
    """Without what does not run: the docstring, annotations, and default values, which are bound elsewhere."""
    if ast.get_docstring(function) is not None:
        function.body = function.body[1:]
    function.returns = None
    for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    return function


def mutants(rules: tuple[str, ...] = RULES) -> Iterator[Fault]:
    """Every automatic fault of some modules of the rules."""
    for rule in rules:
        module = import_module(f"agentd.rules.{rule}")
        for name, function in functions(module):
            counts: dict[str, int] = {}
            for change in changes(function, module):
                counts[change.operator] = counts.get(change.operator, 0) + 1
                label = f"{rule}.{name} {change.operator} {counts[change.operator]}: {change.told}"
                yield Fault(label, module.__name__, name, _maker(module, name, change))


def _maker(module: ModuleType, name: str, change: Change) -> Callable[[Function], Function]:
    return lambda right: mutated(module, name, change)

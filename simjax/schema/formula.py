"""Formulas that people write in a configuration, evaluated without `eval`.

The grammar is Python's for numbers, names, `+ - * / **`, unary signs, calls of the functions below and, as
the first argument of `where`, comparisons joined by `and`, `or`, `not`. Text becomes a small tree of tuples
once; a formula is hashable (by its text), so it may be a static field of a pytree.
"""

from __future__ import annotations

import ast
import difflib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NoReturn

from simjax.errors import ConfigurationError

MAXIMUM_LENGTH = 10_000
MAXIMUM_NODES = 2000
MAXIMUM_DEPTH = 100
LARGEST_WAVENUMBER = 2**20  # the most cells along an axis

COORDINATES = ("x", "y", "z", "t")
FUNCTIONS = {
    "sin": 1,
    "cos": 1,
    "tan": 1,
    "asin": 1,
    "acos": 1,
    "atan": 1,
    "atan2": 2,
    "sinh": 1,
    "cosh": 1,
    "tanh": 1,
    "exp": 1,
    "log": 1,
    "sqrt": 1,
    "abs": 1,
    "erf": 1,
    "floor": 1,
    "mod": 2,
    "minimum": 2,
    "maximum": 2,
    "step": 1,
    "where": 3,
}
RESERVED = (*COORDINATES, "pi", "noise", *FUNCTIONS)

_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_ARRAY_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}

Tree = tuple[Any, ...]


@dataclass(frozen=True, init=False)
class Formula:
    """An expression in x, y, z, t, pi, named parameters and `noise`; equal texts are equal formulas.

    Calling it with a namespace, `formula({"x": x, "t": 0.0}, module=jnp)`, gives an array of the shape that
    the names broadcast to (a Python float when nothing in it is an array). Constants stay Python numbers,
    hence weak: they take the dtype of what they meet, and strict dtype promotion accepts them.
    `noise(wavenumber, index)` calls the namespace's `noise` with both; the index is 0 when not written.
    """

    text: str
    names: frozenset[str] = field(init=False, compare=False, repr=False)
    uses_noise: bool = field(init=False, compare=False, repr=False)
    tree: Tree = field(init=False, compare=False, repr=False)

    def __init__(self, text: str | float | int):
        if isinstance(text, bool) or not isinstance(text, (str, int, float)):
            raise ConfigurationError(f"{text!r} is not a formula; write a number or a text such as 'sin(x)'.")
        object.__setattr__(self, "text", text if isinstance(text, str) else repr(text))
        parser = self.parser(self.text)
        object.__setattr__(self, "tree", parser.parse())
        object.__setattr__(self, "names", frozenset(parser.names))
        object.__setattr__(self, "uses_noise", parser.uses_noise)

    @staticmethod
    def parser(text: str) -> Parser:
        """Read a text by the grammar."""
        return Parser(text)

    @property
    def constant(self) -> float | None:
        """The value, when the formula names nothing (pi apart) and calls no noise; otherwise None."""
        return float(self.tree[1]) if self.tree[0] == "number" else None

    def write(self) -> str | float:
        """The plain YAML value: a number that is written as one, else the text."""
        constant = self.constant
        return constant if constant is not None and repr(constant) == self.text else self.text

    def check_names(self, allowed: Collection[str], *, noise: bool = False) -> None:
        """Refuse a name that is not among `allowed`, and noise where it may not be called."""
        for name in sorted(self.names - set(allowed)):  # the first is enough: one sentence a formula
            position = f"at column {_column_of(self.text, name)} of '{shorten(self.text)}'"
            raise ConfigurationError(f"{position}: unknown name '{name}'; {_suggest(name, allowed)}")
        if self.uses_noise and not noise:
            raise ConfigurationError(
                f"noise(...) in '{shorten(self.text)}' is known to initial conditions only; leave it out."
            )

    def __call__(
        self,
        namespace: Mapping[str, Any],
        module: ModuleType | None = None,
        operators: Mapping[str, Callable] | None = None,
    ) -> Any:
        """Evaluate with `module` (jax.numpy, or numpy by default), the values of `namespace` and further functions."""
        if module is None:
            import numpy

            module = numpy
        missing = self.names - set(namespace)
        if missing:
            raise ConfigurationError(
                f"the formula '{shorten(self.text)}' needs {', '.join(sorted(missing))}; "
                f"the namespace holds {', '.join(sorted(namespace))}."
            )
        functions = _array_functions(module) | dict(operators or {})
        return _evaluate(self.tree, namespace, functions, module)


@dataclass(frozen=True, init=False)
class Condition:
    """A comparison of named numbers, or several joined by `and`, `or`, `not`; equal texts are equal conditions."""

    text: str
    names: frozenset[str] = field(init=False, compare=False, repr=False)
    tree: Tree = field(init=False, compare=False, repr=False)

    def __init__(self, text: str):
        object.__setattr__(self, "text", text)
        parser = Parser(text)
        object.__setattr__(self, "tree", parser.parse(condition=True))
        if parser.uses_noise:
            raise ConfigurationError(f"noise(...) in '{shorten(text)}' is known to initial conditions only.")
        object.__setattr__(self, "names", frozenset(parser.names))

    def write(self) -> str:
        """The plain YAML value."""
        return self.text

    def __call__(self, namespace: Mapping[str, Any], module: ModuleType) -> Any:
        """Tell whether it holds, with `module` (jax.numpy or numpy) and the values of `namespace`."""
        return _evaluate(self.tree, namespace, _array_functions(module), module)


def _suggest(name: str, allowed: Collection[str]) -> str:
    close = difflib.get_close_matches(name, [*allowed, *FUNCTIONS], n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known names are {', '.join(sorted(allowed))}."


def shorten(text: str, width: int = 60) -> str:
    """The beginning of a text, to be shown in a message."""
    return text if len(text) <= width else text[: width - 3] + "..."


def _column_of(text: str, name: str) -> int:
    for node in ast.walk(ast.parse(text.strip(), mode="eval")):
        if isinstance(node, ast.Name) and node.id == name:
            return node.col_offset + 1
    return 1


class Parser:
    """One pass over Python's syntax tree that keeps what the grammar knows and folds constants."""

    def __init__(self, text: str):
        self.text = text.strip()
        self.names: set[str] = set()
        self.uses_noise = False
        self.nodes = 0

    def parse(self, *, condition: bool = False) -> Tree:
        if not self.text:
            raise ConfigurationError("the formula is empty; write a number or a text such as 'sin(x)'.")
        if len(self.text) > MAXIMUM_LENGTH:
            raise ConfigurationError(
                f"the formula has {len(self.text)} characters; at most {MAXIMUM_LENGTH} are accepted."
            )
        try:
            expression = ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            column = error.offset or 1
            raise ConfigurationError(f"at column {column} of '{shorten(self.text)}': {error.msg}.") from None
        except (RecursionError, MemoryError, ValueError):
            raise ConfigurationError(
                f"the formula '{shorten(self.text)}' cannot be parsed; at most {MAXIMUM_NODES} terms and "
                f"{MAXIMUM_DEPTH} levels of nesting are accepted."
            ) from None
        if condition and not isinstance(expression, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            self.refuse(expression, "expected a comparison such as x < 0.5")
        return self.read_condition(expression, 0) if condition else self.read(expression, 0)

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        column = getattr(node, "col_offset", 0) + 1
        raise ConfigurationError(
            f"at column {column} of '{shorten(self.text)}': {message}{'' if message.endswith('?') else '.'}"
        )

    def read(self, node: ast.expr, depth: int) -> Tree:
        self.nodes += 1
        if self.nodes > MAXIMUM_NODES:
            raise ConfigurationError(f"the formula has more than {MAXIMUM_NODES} terms; split or shorten it.")
        if depth > MAXIMUM_DEPTH:
            self.refuse(node, f"more than {MAXIMUM_DEPTH} levels of nesting")
        if isinstance(node, ast.Constant):
            return self.read_number(node)
        if isinstance(node, ast.Name):
            return self.read_name(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            operand = self.read(node.operand, depth + 1)
            return self.fold(node, ("negative", operand)) if isinstance(node.op, ast.USub) else operand
        if isinstance(node, ast.BinOp):
            return self.read_chain(node, depth)
        if isinstance(node, ast.Call):
            return self.read_call(node, depth)
        if isinstance(node, (ast.Compare, ast.BoolOp)):
            self.refuse(node, "a comparison belongs in the first argument of where(...)")
        self.refuse(node, f"'{shorten(ast.get_source_segment(self.text, node) or '')}' is not part of a formula")

    def read_chain(self, node: ast.BinOp, depth: int) -> Tree:
        """Operations from left to right: a sum or product of many terms is one level deep, however long it is."""
        operations: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp):
            if type(first.op) not in _BINARY:
                hint = "; write ** for a power" if isinstance(first.op, ast.BitXor) else ""
                self.refuse(first, f"only + - * / ** are operators{hint}")
            operations.append(first)
            first = first.left
        self.nodes += len(operations) - 1
        tree = self.read(first, depth + 1)
        for operation in reversed(operations):
            right = self.read(operation.right, depth + 1)
            tree = self.fold(operation, (_BINARY[type(operation.op)], tree, right))
        return tree

    def read_number(self, node: ast.Constant) -> Tree:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            self.refuse(node, f"{node.value!r} is not a real number")
        try:
            value = float(node.value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            self.refuse(node, "a number beyond the range of float64")
        return ("number", value)

    def read_name(self, node: ast.Name) -> Tree:
        if node.id == "pi":
            return ("number", math.pi)
        if node.id == "noise" or node.id in FUNCTIONS:
            self.refuse(node, f"'{node.id}' is a function; write its arguments, {node.id}(...)")
        self.names.add(node.id)
        return ("name", node.id)

    def read_call(self, node: ast.Call, depth: int) -> Tree:
        if not isinstance(node.func, ast.Name):
            self.refuse(node, "only the functions of the grammar can be called")
        name = node.func.id
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            self.refuse(node, f"{name} takes plain arguments only")
        if name == "noise":
            return self.read_noise(node, depth)
        if name not in FUNCTIONS:
            close = difflib.get_close_matches(name, [*FUNCTIONS, "noise"], n=1, cutoff=0.5)
            hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(FUNCTIONS)}"
            self.refuse(node, f"unknown function '{name}'; {hint}")
        if len(node.args) != FUNCTIONS[name]:
            self.refuse(node, f"{name} takes {FUNCTIONS[name]} argument(s), got {len(node.args)}")
        if name == "where":
            condition = self.read_condition(node.args[0], depth + 1)
            branches = (self.read(node.args[1], depth + 1), self.read(node.args[2], depth + 1))
            return ("call", "where", condition, *branches)
        arguments = tuple(self.read(argument, depth + 1) for argument in node.args)
        return self.fold(node, ("call", name, *arguments))

    def read_noise(self, node: ast.Call, depth: int) -> Tree:
        if not 1 <= len(node.args) <= 2:
            self.refuse(node, f"noise takes a wavenumber and optionally an index, got {len(node.args)} arguments")
        numbers = [self.read(argument, depth + 1) for argument in node.args]
        if any(number[0] != "number" for number in numbers):
            self.refuse(node, "noise takes constant numbers only, such as noise(8) or noise(8, 1)")
        wavenumber, index = numbers[0][1], numbers[1][1] if len(numbers) == 2 else 0.0
        if not 0 < wavenumber <= LARGEST_WAVENUMBER:
            self.refuse(node, f"noise takes a positive wavenumber of at most {LARGEST_WAVENUMBER}")
        if not 0 <= index < 2**31 or index != int(index):
            self.refuse(node, "noise takes a whole index >= 0 and below 2**31")
        self.uses_noise = True
        return ("noise", wavenumber, int(index))

    def read_condition(self, node: ast.expr, depth: int) -> Tree:
        self.nodes += 1
        if depth > MAXIMUM_DEPTH or self.nodes > MAXIMUM_NODES:
            self.refuse(node, f"more than {MAXIMUM_DEPTH} levels of nesting or {MAXIMUM_NODES} terms")
        if isinstance(node, ast.BoolOp):
            kind = "and" if isinstance(node.op, ast.And) else "or"
            return (kind, *(self.read_condition(value, depth + 1) for value in node.values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ("not", self.read_condition(node.operand, depth + 1))
        if not isinstance(node, ast.Compare):
            self.refuse(node, "the first argument of where must be a comparison such as x < 0.5")
        operands = [self.read(operand, depth + 1) for operand in (node.left, *node.comparators)]
        pairs = []
        for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
            if type(operator) not in _COMPARE:
                self.refuse(node, "only < <= > >= == != compare")
            pairs.append(("compare", _COMPARE[type(operator)], left, right))
        return pairs[0] if len(pairs) == 1 else ("and", *pairs)

    def fold(self, node: ast.expr, tree: Tree) -> Tree:
        """A subtree of numbers is a number: its errors surface here and have a position."""
        operands = tree[2:] if tree[0] == "call" else tree[1:]
        if any(operand[0] != "number" for operand in operands):
            return tree
        try:
            value = _evaluate(tree, {}, _FLOAT_FUNCTIONS, None)
        except (ValueError, OverflowError, ZeroDivisionError, TypeError) as error:
            self.refuse(node, f"the constant part cannot be evaluated ({error.args[-1]})")
        if isinstance(value, complex) or not math.isfinite(value):
            self.refuse(node, "the constant part is not a finite real number")
        return ("number", float(value))


def _power(base: Any, exponent: Any) -> Any:
    """A whole constant exponent stays an int: jax then multiplies, and the derivative at 0 is finite."""
    if isinstance(exponent, float) and exponent == int(exponent) and abs(exponent) <= 64:
        return base ** int(exponent)
    return base**exponent


def _evaluate(tree: Tree, namespace: Mapping[str, Any], functions: Mapping[str, Callable], module: Any) -> Any:
    if tree[0] in _OPERATIONS:  # in a loop along the left operands: a long sum must not exhaust the stack
        operations = []
        while tree[0] in _OPERATIONS:
            operations.append(tree)
            tree = tree[1]
        value = _evaluate(tree, namespace, functions, module)
        for operation in reversed(operations):
            value = _OPERATIONS[operation[0]](value, _evaluate(operation[2], namespace, functions, module))
        return value
    kind = tree[0]
    if kind == "number":
        return tree[1]
    if kind == "name":
        return namespace[tree[1]]
    if kind == "noise":
        return namespace["noise"](tree[1], tree[2])
    arguments = [_evaluate(part, namespace, functions, module) for part in tree[1:] if isinstance(part, tuple)]
    if kind == "call":
        return functions[tree[1]](*arguments)
    if kind == "negative":
        return -arguments[0]
    if kind == "compare":
        return _COMPARISONS[tree[1]](*arguments)
    if kind == "not":
        return module.logical_not(arguments[0])
    assert kind in ("and", "or")
    join = module.logical_and if kind == "and" else module.logical_or
    joined = arguments[0]
    for argument in arguments[1:]:
        joined = join(joined, argument)
    return joined


_OPERATIONS: dict[str, Callable] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": _power,
}
_COMPARISONS: dict[str, Callable] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
_FLOAT_FUNCTIONS: dict[str, Callable] = {
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh")},
    **{name: getattr(math, name) for name in ("cosh", "tanh", "exp", "log", "sqrt", "erf", "floor")},
    "abs": abs,
    "mod": lambda a, b: a % b,
    "minimum": min,
    "maximum": max,
    "step": lambda a: 0.0 if a < 0 else 1.0,
}


def _array_functions(module: ModuleType) -> dict[str, Callable]:
    functions = {name: getattr(module, _ARRAY_NAMES.get(name, name)) for name in FUNCTIONS if name not in _SPECIAL}
    functions["step"] = lambda a: module.where(a < 0, 0.0, 1.0)
    functions["erf"] = _error_function(module)
    return functions


_SPECIAL = ("erf", "step")


def _error_function(module: ModuleType) -> Callable:
    if module.__name__.startswith("jax"):
        from jax.scipy.special import erf

        return erf
    return module.vectorize(math.erf, otypes=[float])

"""Formulas of the fields of a run: the grammar of other formulas, with derivatives, vectors and means over axes.

    d(f, x), dx(f), dy(f), dz(f)    derivative of a number along an axis
    grad(f), div(v), curl(v)        gradient; divergence; curl, in a plane a number
    dot(v, w), norm(v)              product of two vectors; length of a vector
    part(v, x)                      component of a vector
    mean(f, x, ...)                 mean over axes; what departs from it is f - mean(f, x)

A name is a number or a vector, and so is what each function gives.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import NoReturn

from simjax.errors import ConfigurationError
from simjax.schema.formula import Formula, Parser, Tree, shorten

AXES = ("x", "y", "z")
NUMBER, VECTOR = "a number", "a vector"
OPERATORS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "grad": ((NUMBER,), VECTOR),
    "div": ((VECTOR,), NUMBER),
    "dot": ((VECTOR, VECTOR), NUMBER),
    "norm": ((VECTOR,), NUMBER),
}
"""Operators: what their arguments are, and what they give."""
ALONG = {"d": NUMBER, "part": VECTOR, "mean": NUMBER}
"""Operators with an axis after the first argument, and what that is; the tree has a function for each axis: `d_x`."""
SHORT = {f"d{axis}": f"d_{axis}" for axis in AXES}
NAMES = (*OPERATORS, *ALONG, *SHORT, "curl")


class _FieldParser(Parser):
    """The grammar of formulas, with the operators on fields."""

    def read_call(self, node: ast.Call, depth: int) -> Tree:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in NAMES:
            return super().read_call(node, depth)
        if not node.args or node.keywords:
            self.refuse(node, f"{name} takes plain arguments, such as {name}(f)")
        first, *axes = node.args
        tree = self.read(first, depth + 1)
        if name in SHORT or name == "curl" or name in OPERATORS:
            count = len(OPERATORS[name][0]) if name in OPERATORS else 1
            if len(node.args) != count:
                self.refuse(node, f"{name} takes {count} argument(s), got {len(node.args)}")
            return ("call", SHORT.get(name, name), tree, *(self.read(other, depth + 1) for other in axes))
        if not axes or name != "mean" and len(axes) > 1:
            self.refuse(node, f"{name} takes an axis after its first argument, such as {name}(f, x)")
        for axis in axes:
            if not isinstance(axis, ast.Name) or axis.id not in AXES:
                self.refuse(axis, f"expected an axis of {name}, one of {', '.join(AXES)}")
            tree = ("call", f"{name}_{axis.id}", tree)
        return tree


class FieldFormula(Formula):
    """A formula of fields, vectors, coordinates and named numbers; equal texts are equal formulas."""

    @staticmethod
    def parser(text: str) -> Parser:
        return _FieldParser(text)

    def check_kinds(self, vectors: Collection[str], ndim: int) -> None:
        """Refuse vectors where numbers belong, the other way round, and axes that the run does not have.

        vectors: names of vectors.
        """
        found = self._kind(self.tree, vectors, ndim)
        if found == VECTOR:
            self._refuse("the formula gives a vector; write norm(...) of it, or part(..., x)")

    def _refuse(self, message: str) -> NoReturn:
        raise ConfigurationError(f"'{shorten(self.text)}': {message}.")

    def _kind(self, tree: Tree, vectors: Collection[str], ndim: int) -> str:
        """Tell whether a part of the formula is a number or a vector."""
        if tree[0] == "name":
            return VECTOR if tree[1] in vectors else NUMBER
        kinds = [self._kind(part, vectors, ndim) for part in tree[1:] if isinstance(part, tuple)]
        name = tree[1] if tree[0] == "call" else tree[0]
        base, _, axis = name.partition("_")
        if base in ALONG and axis:
            if axis not in AXES[:ndim]:
                self._refuse(f"{base} is along {axis}, and the run has the axes {', '.join(AXES[:ndim])}")
            expected, result = (ALONG[base],), NUMBER
        elif name == "curl":
            if ndim == 1:
                self._refuse("curl needs two axes or three, and the run has one")
            expected, result = (VECTOR,), NUMBER if ndim == 2 else VECTOR
        else:
            expected, result = OPERATORS.get(name, ((NUMBER,) * len(kinds), NUMBER))
        for kind, wanted in zip(kinds, expected, strict=True):
            if kind != wanted:
                shown = base if axis else name
                hint = "; write norm(...), part(..., x) or one of its components" if kind == VECTOR else ""
                self._refuse(f"expected {wanted} in {shown}, and got {kind}{hint}")
        return result

"""Troubles that a model names: where in a state something may go wrong. Importing this does not import jax."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Trouble:
    """An indicator of each cell, the larger the worse; see `trouble`, which makes it of a function.

    find: `(model, t, state, params)` -> an array of truth values or numbers >= 0, this block's cells. about: what it
    is, the first sentence of its docstring. Others: as of `trouble`.
    """

    name: str
    find: Callable[[Any, Any, Any, Any], Any]
    about: str
    units: str
    long_name: str
    having: str
    above: float
    lowest: bool
    check: Callable[[Any], str | None]

    @property
    def counted(self) -> bool:
        """Tell whether cells are counted in which it is larger than `above`."""
        return bool(self.having)


def trouble(
    long_name: str,
    *,
    units: str = "1",
    having: str = "",
    above: float = 0.0,
    lowest: bool = False,
    check: Callable[[Any], str | None] = lambda config: None,
) -> Callable[[Callable[[Any, Any, Any, Any], Any]], Trouble]:
    """Make a `Trouble` of a function of (model, t, state, params); a model lists its own as `troubles`.

    The function is pure and returns an array of this block's cells, `model.domain.block_shape`: truth values, or
    numbers >= 0, the larger the worse. Its name is that of the trouble, and its docstring the definition.

    Args:
        long_name: what the number is, as reports say it after "largest" or "lowest".
        units: as UDUNITS writes them.
        having: what a cell has that counts, as in "3 cells with ..."; "": cells are not counted.
        above: cells count in which the number is larger.
        lowest: whether the least number is the worst, as of a pressure; then it is no field by its own.
        check: a sentence on what a configuration lacks for it, or None.

    Examples:
        >>> @sj.trouble("size of u", having="|u| beyond 2", above=2.0)
        ... def large(model, t, state, params):
        ...     "The size of u."
        ...     return jnp.abs(model.to_grid(state["u"]))
        >>> class Watched(sj.AllenCahn):
        ...     "Allen-Cahn that tells where u is large."
        ...
        ...     troubles = (large,)
        >>> large.name, large.about
        ('large', 'The size of u')
    """

    def declare(find: Callable[[Any, Any, Any, Any], Any]) -> Trouble:
        name = getattr(find, "__name__", "trouble")
        lead = " ".join((inspect.getdoc(find) or long_name).split("\n\n")[0].split())
        about = lead.partition(". ")[0].removesuffix(".")
        return Trouble(name, find, about, units, long_name, having, above, lowest, check)

    return declare

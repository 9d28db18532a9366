"""Stretchings of an axis: from the share of the cells passed to the share of the length passed, both from 0 to 1.

They take arrays of numpy or of jax, and numbers that may be traced.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.core.stretched import Places
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid, Lines
from simjax.schema.formula import Formula
from simjax.schema.stretch import Geometric, StretchConfig, Tanh

Mapped = Callable[[Places], Places]


def tanh(strength, fine: str = "both") -> Mapped:
    """Fine cells where the hyperbolic tangent is flat: x = tanh(a s) / tanh(a), mirrored where the lower end is fine.

    Vinokur (1983), J. Comput. Phys. 50, 215.
    """

    def upper(s):
        module = _module(s, strength)
        return module.tanh(strength * s) / module.tanh(strength)

    return _at_ends(upper, fine)


def geometric(ratio, cells: int, fine: str = "both") -> Mapped:
    """Widths that grow by `ratio` from cell to cell away from the fine end, where the first of `cells` lies."""
    steps = 0.5 * cells if fine == "both" else cells

    def upper(s):
        return 1 - (ratio ** (steps * (1 - s)) - 1) / (ratio**steps - 1)

    return _at_ends(upper, fine)


def formula(text: str) -> Mapped:
    """A formula of s, moved and scaled so that it runs from 0 to 1.

    Raises:
        ConfigurationError: it names something else than s, or has no end above its beginning.
    """
    parsed = Formula(text)
    parsed.check_names(("s",))
    first, last = (float(np.asarray(parsed({"s": np.asarray(end)}))) for end in (0.0, 1.0))
    if not (np.isfinite(last - first) and last > first):
        raise ConfigurationError(
            f"'{text}' is {first:g} at s=0 and {last:g} at s=1; expected a formula of s that increases."
        )
    return lambda s: (parsed({"s": s}, jnp if isinstance(s, jax.Array) else np) - first) / (last - first)


def faces_and_centers(mapped: Mapped, cells: int, lower: float, upper: float, module=np) -> tuple[Places, Places]:
    """Faces (cells + 1,) and centres (cells,) along an axis; `module` jax.numpy where gradients are to flow."""
    number = module.arange(cells + 1, dtype=float)
    shares = number / cells, (number[:-1] + 0.5) / cells
    faces, centers = (lower + (upper - lower) * mapped(s) for s in shares)
    ends = module.asarray([lower]), module.asarray([upper])
    return module.concatenate([ends[0], faces[1:-1], ends[1]]), centers


def lines(kind: str, given, cells: int, lower: float, upper: float) -> Lines:
    """The places of cells along an axis of a box, by one of the kinds of `schema.stretch`.

    Raises:
        ConfigurationError: faces out of order, cells that are too thin; `grid.Lines` says which.
    """
    if kind == "faces":
        return Lines(given)
    mapped = _mapped(kind, given, cells)
    faces, centers = map(np.asarray, faces_and_centers(mapped, cells, lower, upper))
    if not np.all(np.isfinite(faces)):
        raise ConfigurationError(f"faces at {faces[~np.isfinite(faces)][0]}; expected finite numbers.")
    if np.all(np.diff(faces) > 0):
        centers = np.clip(centers, faces[:-1], faces[1:])
    return Lines(faces, centers)


def traced_lines(stretch: StretchConfig, values: Mapping[str, Array], grid: Grid) -> list[tuple[Array, Array] | None]:
    """For `Domain.lines`: faces and centres of axes whose stretching is made of `values`, None of the others."""
    # In the precision in which places are found, whatever that of the run.
    wide = {name: jnp.asarray(value).astype(float) for name, value in values.items()}
    given = stretch.with_numbers(wide, jnp)
    found: list[tuple[Array, Array] | None] = [None] * grid.ndim
    for axis in sorted({AXES.index(path[0]) for path, _, _ in stretch.formulas()}):
        (kind, keys), n = getattr(given, AXES[axis]), grid.shape[axis]
        faces, centers = faces_and_centers(_mapped(kind, keys, n), n, grid.lower[axis], grid.upper[axis], jnp)
        found[axis] = jnp.asarray(faces), jnp.asarray(centers)
    return found


def _mapped(kind: str, given, cells: int) -> Mapped:
    if isinstance(given, Tanh):
        return tanh(given.strength, given.fine)
    if isinstance(given, Geometric):
        return geometric(given.ratio, cells, given.fine)
    assert kind == "formula"
    return formula(given)


def _at_ends(upper: Mapped, fine: str) -> Mapped:
    """A mapping that is fine at the upper end, as one that is fine at the ends asked for."""
    if fine == "upper":
        return upper
    if fine == "lower":
        return lambda s: 1 - upper(1 - s)

    def both(s):
        module = _module(s)
        lower = 0.5 - 0.5 * upper(module.maximum(1 - 2 * s, 0))
        return module.where(s < 0.5, lower, 0.5 + 0.5 * upper(module.maximum(2 * s - 1, 0)))

    return both


def _module(*values):
    return jnp if any(isinstance(value, jax.Array) for value in values) else np

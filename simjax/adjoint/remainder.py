"""Taylor remainders of a computed function, where they stand clear of its rounding."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

# Steps that only rounding answers to, and how many of them.
QUIET, SAMPLES = 2.0**-40, 8
# Halvings of the step, from the shortest. A window of steps is evaluated, the longest at most LONGEST.
SHORTEST, LONGEST, WINDOW = 36, 3, 4
# Of the noise, at the shortest step of a window: slopes are then off by less than log2(1 + 4/300) = 0.02. Clearer ones
# are longer, and lie across more of a program's kinks.
CLEAR = 300.0
# Where the function is linear but for rounding: of the remainder, relative to the derivative's terms.
LINEAR = 1e-6


@dataclass(frozen=True)
class Remainder:
    """How |L(u + h d) - L(u) - h <g, d>| falls with h.

    slope: the one of neighbouring steps that is furthest from 2; None where no remainder stands clear of rounding.
    shortest, longest: the steps h between which it was measured.
    relative: at the longest step, to h sum |g_i d_i|.
    """

    slope: float | None
    shortest: float
    longest: float
    relative: float

    @property
    def fault(self) -> float:
        """How far the slope is from 2; of a function that is linear but for rounding zero, if its derivative fits."""
        if self.slope is not None:
            return abs(self.slope - 2) if np.isfinite(self.slope) else np.inf
        return 0.0 if self.relative <= LINEAR else np.inf

    def __str__(self) -> str:
        if self.slope is None:
            return f"linear to {self.relative:.1e} at h={self.longest:.1e}"
        return f"slope {self.slope:.4f}, h={self.shortest:.1e} to {self.longest:.1e}"


def moved(start: Any, direction: Any, length: float) -> Any:
    """`start + length direction`, trees of arrays."""
    return jax.tree.map(lambda u, d: u + length * d, start, direction)


def computational_noise(loss: Callable[[Any], float], start: Any, direction: Any) -> float:
    """The rounding of `loss` near `start`: the largest second difference of values so close that no other is left.

    At least two roundings of the value. After More and Wild (2011), SIAM J. Sci. Comput. 33, 1292.
    """
    values = np.asarray([loss(moved(start, direction, k * QUIET)) for k in range(SAMPLES)])
    least = 2 * np.finfo(np.float64).eps * np.max(np.abs(values))
    return float(max(np.max(np.abs(np.diff(values, 2))), least, np.finfo(np.float64).tiny))


def taylor_remainder(
    loss: Callable[[Any], float], start: Any, direction: Any, slope: float, scale: float
) -> Remainder:  # fmt: skip
    """The remainder along `direction` of the expansion with derivative `slope`, at the shortest steps that show it.

    The window of steps begins at the shortest h = 2^-k whose remainder is `CLEAR` times the noise of `loss`, so that
    rounding hardly moves the slope, and third-order terms and kinks are as far away as can be.
    A derivative that is wrong by a part e has a remainder of first order, e h, which then begins the window: what is
    seen are errors as small as e = 1e-7 or so of it. `scale` is the sum of |g_i d_i|.
    """
    noise, value = computational_noise(loss, start, direction), loss(start)

    def remainder(k: int) -> float:
        h = 2.0**-k
        return abs(loss(moved(start, direction, h)) - value - h * slope)

    for k in range(SHORTEST, LONGEST + WINDOW - 2, -1):
        if remainder(k) >= CLEAR * noise:
            found = np.asarray([remainder(k - j) for j in range(WINDOW)])
            slopes = np.log2(found[1:] / found[:-1])
            worst = slopes[np.argmax(np.abs(slopes - 2))]
            h = 2.0 ** -(k - WINDOW + 1)
            return Remainder(float(worst), 2.0**-k, h, float(found[-1] / (h * scale or 1.0)))
    longest = 2.0**-LONGEST
    return Remainder(None, 2.0**-SHORTEST, longest, remainder(LONGEST) / (longest * scale or 1.0))

"""Taylor remainders of a computed function, where they stand clear of its rounding."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simjax.certificate.directions import Unknowns, moved

# Values a short step apart, whose differences of this order are those of rounding alone.
QUIET, SAMPLES, ORDER = 2.0**-24, 12, 6
# Halvings of the shortest and of the longest step, and how many steps slopes are measured between.
SHORTEST, LONGEST, WINDOW = 36, -40, 3
# Of the noise, at the shortest step of a window: slopes are then off by less than log2(1 + 4/300) = 0.02. Clearer ones
# are longer, and lie across more of a program's kinks.
CLEAR = 300.0
# The slope above which the share of first order is told beside it.
SHOWS_THIRD = 2.05
# Where the function is linear but for rounding: of the remainder, relative to the derivative's terms.
LINEAR = 1e-6


@dataclass(frozen=True)
class Remainder:
    """Fall of |L(u + h d) - L(u) - h <g, d>| with h.

    slope: the worst one between neighbouring steps; None where no remainder stands clear of rounding.
    first_order: the part of the remainder at the shortest step that is of first order in h, from values to both sides
    less what is of third order; zero where the derivative is right.
    shortest, longest: the steps h between which it was measured.
    relative: at the longest step where it is linear, else at the shortest, to h sum |g_i d_i|.
    """

    slope: float | None
    first_order: float
    shortest: float
    longest: float
    relative: float

    @property
    def fault(self) -> float:
        """Distance of the slope from 2; zero for a function that is linear but for rounding, if its derivative fits.

        Above 2 the curvature is too small to outweigh the third order. Then it is the distance that the part of first
        order would make beside one of second order.
        """
        if self.slope is not None:
            return _fault(self.slope, self.first_order)
        return 0.0 if self.relative <= LINEAR else np.inf

    def __str__(self) -> str:
        if self.slope is None:
            return f"linear to {self.relative:.1e} at h={self.longest:.1e}"
        part = f" with {self.first_order:.0e} of first order" if self.slope > SHOWS_THIRD else ""
        return f"slope {self.slope:.4f}{part}, h={self.shortest:.1e} to {self.longest:.1e}"


def _fault(slope: float, first_order: float) -> float:
    if not np.isfinite(slope):
        return np.inf
    if slope <= 2:
        return 2 - slope
    return min(slope - 2, -math.log2(1 - min(first_order, 1.0) / 2))


def computational_noise(loss: Callable[[Unknowns], float], start: Unknowns, direction: Unknowns) -> float:
    """The rounding of `loss` near `start`, about its standard deviation, from high differences of values close by.

    At least a rounding of the value. More and Wild (2011), SIAM J. Sci. Comput. 33, 1292, eq. 2.3.
    """
    values = np.asarray([loss(moved(start, direction, k * QUIET)) for k in range(SAMPLES)])
    differences = np.diff(values, ORDER) / math.sqrt(math.comb(2 * ORDER, ORDER))
    least = np.finfo(np.float64).eps * np.max(np.abs(values))
    return float(max(np.max(np.abs(differences)), least, np.finfo(np.float64).tiny))


def taylor_remainder(
    loss: Callable[[Unknowns], float], start: Unknowns, direction: Unknowns, slope: float, scale: float
) -> Remainder:
    """The remainder along `direction` of the expansion with derivative `slope`, at the shortest steps that show it.

    The window of steps begins at the shortest h = 2^-k whose remainder is `CLEAR` times the noise of `loss`, so that
    rounding hardly moves the slope, and third-order terms and kinks are as far away as can be. A derivative that is
    wrong by a part e has a remainder of first order, e h, which then begins the window: what is seen are errors as
    small as e = 1e-7 or so of it. A function is called linear if nothing is seen until it has changed by its own
    size or more. `scale` is the sum of |g_i d_i|.
    """
    noise, value = computational_noise(loss, start, direction), loss(start)

    @functools.cache
    def changes(k: int) -> tuple[float, float]:
        """Changes of the value by steps 2^-k to both sides."""
        up, down = (loss(moved(start, direction, h)) - value for h in (2.0**-k, -(2.0**-k)))
        return up, down

    def remainder(k: int) -> tuple[float, float]:
        """Remainder and change of the value on both sides: at a kink the returned slope may be that of either."""
        (up, down), h = changes(k), 2.0**-k
        return max(abs(up - h * slope), abs(down + h * slope)), max(abs(up), abs(down))

    longest, relative, most = 2.0**-SHORTEST, np.inf, max(abs(value), scale)
    for k in range(SHORTEST, LONGEST, -1):
        found, change = remainder(k)
        if not change <= most:  # or it is not finite
            break
        longest, relative = 2.0**-k, found / (2.0**-k * scale or 1.0)
        if found >= CLEAR * noise:
            window = np.asarray([remainder(k - j)[0] for j in range(WINDOW)])
            slopes = np.log2(window[1:] / window[:-1])
            odd, twice = (0.5 * float(np.subtract(*changes(j))) - 2.0**-j * slope for j in (k, k - 1))
            first = abs(8 * odd - twice) / 6 / found
            worst = max(slopes, key=lambda one: _fault(one, first))
            return Remainder(float(worst), first, 2.0**-k, 2.0 ** -(k - WINDOW + 1), relative)
    return Remainder(None, 0.0, 2.0**-SHORTEST, longest, relative)

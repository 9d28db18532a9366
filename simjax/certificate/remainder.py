"""Taylor remainders of a computed function, where they stand clear of its rounding."""

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
# Where the function is linear but for rounding: of the remainder, relative to the derivative's terms.
LINEAR = 1e-6


@dataclass(frozen=True)
class Remainder:
    """Fall of |L(u + h d) - L(u) - h <g, d>| with h.

    slope: the one of neighbouring steps that is furthest from 2; None where no remainder stands clear of rounding.
    shortest, longest: the steps h between which it was measured.
    relative: at the longest step where it is linear, else at the shortest, to h sum |g_i d_i|.
    """

    slope: float | None
    shortest: float
    longest: float
    relative: float

    @property
    def fault(self) -> float:
        """Distance of the slope from 2; zero for a function that is linear but for rounding, if its derivative fits."""
        if self.slope is not None:
            return abs(self.slope - 2) if np.isfinite(self.slope) else np.inf
        return 0.0 if self.relative <= LINEAR else np.inf

    def __str__(self) -> str:
        if self.slope is None:
            return f"linear to {self.relative:.1e} at h={self.longest:.1e}"
        return f"slope {self.slope:.4f}, h={self.shortest:.1e} to {self.longest:.1e}"


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
) -> Remainder:  # fmt: skip
    """The remainder along `direction` of the expansion with derivative `slope`, at the shortest steps that show it.

    The window of steps begins at the shortest h = 2^-k whose remainder is `CLEAR` times the noise of `loss`, so that
    rounding hardly moves the slope, and third-order terms and kinks are as far away as can be. A derivative that is
    wrong by a part e has a remainder of first order, e h, which then begins the window: what is seen are errors as
    small as e = 1e-7 or so of it. A function is called linear if nothing is seen until it has changed by its own
    size or more. `scale` is the sum of |g_i d_i|.
    """
    noise, value = computational_noise(loss, start, direction), loss(start)

    def remainder(k: int) -> tuple[float, float]:
        """Remainder and change of the value, to both sides: at a kink the returned slope may be that of one of them."""
        changes = [(h, loss(moved(start, direction, h)) - value) for h in (2.0**-k, -(2.0**-k))]
        return max(abs(change - h * slope) for h, change in changes), max(abs(change) for _, change in changes)

    longest, relative, most = 2.0**-SHORTEST, np.inf, max(abs(value), scale)
    for k in range(SHORTEST, LONGEST, -1):
        found, change = remainder(k)
        if not change <= most:  # or it is not finite
            break
        longest, relative = 2.0**-k, found / (2.0**-k * scale or 1.0)
        if found >= CLEAR * noise:
            window = np.asarray([remainder(k - j)[0] for j in range(WINDOW)])
            slopes = np.log2(window[1:] / window[:-1])
            worst = slopes[np.argmax(np.abs(slopes - 2))]
            return Remainder(float(worst), 2.0**-k, 2.0 ** -(k - WINDOW + 1), relative)
    return Remainder(None, 2.0**-SHORTEST, longest, relative)

"""The exact solution of the Riemann problem of a perfect gas. Toro (2009), ch. 4."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq


@dataclass(frozen=True)
class RiemannProblem:
    """Two states (density, velocity, pressure) that meet at `origin`."""

    left: tuple[float, float, float]
    right: tuple[float, float, float]
    gamma: float = 1.4
    origin: float = 0.5

    def _curve(self, p, state):
        """Change of velocity across a wave from `state` to pressure p: shock or rarefaction."""
        rho, _, pk = state
        g = self.gamma
        if p > pk:
            return (p - pk) * np.sqrt(2 / ((g + 1) * rho) / (p + (g - 1) / (g + 1) * pk))
        return 2 * np.sqrt(g * pk / rho) / (g - 1) * ((p / pk) ** ((g - 1) / (2 * g)) - 1)

    def star(self):
        """Pressure and velocity between the outer waves."""
        rise = self.right[1] - self.left[1]

        def mismatch(p):
            return self._curve(p, self.left) + self._curve(p, self.right) + rise

        top = 10 * max(self.left[2], self.right[2])
        while mismatch(top) < 0:
            top *= 10
        p = np.exp(brentq(lambda power: mismatch(np.exp(power)), -90.0, np.log(top), xtol=1e-14, rtol=1e-14))
        u = 0.5 * (self.left[1] + self.right[1] + self._curve(p, self.right) - self._curve(p, self.left))
        return p, u

    def sample(self, x, t):
        """(density, velocity, pressure) at positions x and time t > 0."""
        p, u = self.star()
        speed = (np.asarray(x) - self.origin) / t
        below = self._side(speed, self.left, p, u, 1.0)
        above = self._side(-speed, self.right, p, -u, -1.0)
        above = (above[0], -above[1], above[2])
        return tuple(np.where(speed < u, a, b) for a, b in zip(below, above, strict=True))

    def _side(self, speed, state, p, u, sign):
        """The solution left of the contact; the right side is its mirror image."""
        rho, uk, pk = state[0], sign * state[1], state[2]
        g, c = self.gamma, np.sqrt(self.gamma * state[2] / state[0])
        ratio, m = p / pk, (self.gamma - 1) / (self.gamma + 1)
        if p > pk:
            shock = uk - c * np.sqrt((g + 1) / (2 * g) * ratio + (g - 1) / (2 * g))
            inner, head, tail = rho * (ratio + m) / (m * ratio + 1), shock, shock
        else:
            inner = rho * ratio ** (1 / g)
            head, tail = uk - c, u - c * ratio ** ((g - 1) / (2 * g))
        fan = np.maximum(2 / (g + 1) + m / c * (uk - speed), 1e-12)
        flow = 2 / (g + 1) * (c + (g - 1) / 2 * uk + speed)
        inside = rho * fan ** (2 / (g - 1)), flow, pk * fan ** (2 * g / (g - 1))
        outer, beyond = (rho, uk, pk), (inner, u, p)
        return tuple(
            np.where(speed < head, a, np.where(speed > tail, b, f))
            for a, b, f in zip(outer, beyond, inside, strict=True)
        )


SOD = RiemannProblem((1.0, 0.0, 1.0), (0.125, 0.0, 0.1))
TWO_RAREFACTIONS = RiemannProblem((1.0, -2.0, 0.4), (1.0, 2.0, 0.4))
"""Problem 2 of Toro, "123": nearly a vacuum in the middle."""
BLAST = RiemannProblem((1.0, -19.59745, 1000.0), (1.0, -19.59745, 0.01), origin=0.8)
"""Problem 5 of Toro: the left half of the colliding blasts, seen by an observer to whom the contact nearly stands."""

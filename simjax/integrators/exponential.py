"""Exponential time differencing Runge-Kutta methods for a stiff diagonal linear part.

Cox and Matthews (2002), J. Comput. Phys. 176, 430: d(u)/dt = L u + N(t, u) is exact in L, whose size no longer
limits the step. Coefficients are combinations of phi_k(z), z = dt L, formed without cancellation for any real or
complex z (Kassam and Trefethen 2005, SIAM J. Sci. Comput. 26, 1214, use contour integrals to the same end).
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.model import SemilinearModel
from simjax.errors import ConfigurationError
from simjax.integrators.integrator import Integrator
from simjax.jaxpr.stages import stage
from simjax.ops.scaling import scale_by, scaled

# Below this |z| Taylor series are used, which then need `_TERMS` terms for float64; above, the closed forms lose no
# more than a digit.
_RADIUS, _TERMS = 2.0, 24


def phi_functions(z: Array) -> tuple[Array, Array, Array, Array]:
    """phi_0 = exp(z) and phi_k = (phi_{k-1} - 1/(k-1)!) / z for k = 1, 2, 3, elementwise, real or complex.

    Errors are a few roundings of phi_k(0) = 1/k!, relative ones unless z is large and imaginary, where phi_1
    has zeros.
    """
    exponential = jnp.exp(z)
    small = jnp.abs(z) < _RADIUS
    # Arguments are guarded, not results: derivatives of the branch not taken must be finite too.
    near, far = jnp.where(small, z, 0), jnp.where(small, 1, z)
    series = jnp.full_like(z, 1 / math.factorial(_TERMS + 3))
    for k in reversed(range(3, _TERMS + 3)):
        series = near * series + 1 / math.factorial(k)
    closed_1 = (jnp.where(small, 1, exponential) - 1) / far
    closed_2 = (closed_1 - 1) / far
    closed_3 = (closed_2 - 0.5) / far
    series_2 = near * series + 0.5
    phi_1 = jnp.where(small, near * series_2 + 1, closed_1)
    return exponential, phi_1, jnp.where(small, series_2, closed_2), jnp.where(small, series, closed_3)


class Coefficients(NamedTuple):
    """Trees like the state: exp(z / 2), dt phi_1(z / 2) / 2, exp(z), and those of the scheme, multiplied by dt."""

    half: object
    half_slope: object
    full: object
    slopes: tuple


class ExponentialRungeKutta(Integrator):
    """ETDRK1 to ETDRK4: Cox and Matthews (2002), eqs. 4, 22, 23-25 and 26-29."""

    order: int = eqx.field(static=True)
    courant_limit: float = eqx.field(static=True)

    @property
    def stages(self) -> int:
        return self.order

    def kept_stages(self, model):
        return self.stages

    def prepare(self, model, params, dt):
        self._check(model)
        return None if dt is None else self._coefficients(model, params, dt)

    def stable_dt(self, model, state, params):
        self._check(model)
        return model.explicit_stable_dt(state, params)

    def step(self, model, t, dt, state, params, prepared=None):
        c = self._coefficients(model, params, dt) if prepared is None else prepared
        stages = (self._first, self._second, self._third, self._fourth)[self.order - 1]
        return model.constrain(t + dt, dt, stages(model, t, dt, state, params, c), params)

    def _check(self, model) -> None:
        if not isinstance(model, SemilinearModel):
            raise ConfigurationError(
                f"etdrk{self.order} needs a model with a diagonal linear part (a SemilinearModel); "
                f"got {type(model).__name__}; use an explicit integrator such as kutta3."
            )

    def _coefficients(self, model: SemilinearModel, params, dt) -> Coefficients:
        def of(symbol):
            e, p1, p2, p3 = phi_functions(scaled(dt, symbol))
            match self.order:
                case 1:
                    slopes = (p1,)
                case 2:
                    slopes = (p1, p2)
                case 3:
                    slopes = (p1 - 3 * p2 + 4 * p3, 4 * p2 - 8 * p3, 4 * p3 - p2, p1)
                case _:
                    slopes = (p1 - 3 * p2 + 4 * p3, 2 * p2 - 4 * p3, 4 * p3 - p2)
            slopes = tuple(scaled(dt, slope) for slope in slopes)
            if self.order < 3:
                return None, None, e, slopes
            half, half_p1, *_ = phi_functions(scaled(dt / 2, symbol))
            return half, scaled(dt / 2, half_p1), e, slopes

        symbols, tree = jax.tree.flatten(model.linear(params))
        half, half_slope, full, slopes = zip(*map(of, symbols), strict=True)

        def like(leaves):
            return tree.unflatten(leaves)

        return Coefficients(like(half), like(half_slope), like(full), tuple(map(like, zip(*slopes, strict=True))))

    def _first(self, model, t, dt, u, params, c):
        return _sum((c.full, u), (c.slopes[0], _slope(model, t, u, params)))

    def _second(self, model, t, dt, u, params, c):
        n_u = _slope(model, t, u, params)
        a = _sum((c.full, u), (c.slopes[0], n_u))
        n_a = _slope(model, t + dt, a, params)
        change = scale_by(c.slopes[1], jax.tree.map(jnp.subtract, n_a, n_u))
        return jax.tree.map(jnp.add, a, change)

    def _third(self, model, t, dt, u, params, c):
        n_u = _slope(model, t, u, params)
        n_a = _slope(model, t + dt / 2, _sum((c.half, u), (c.half_slope, n_u)), params)
        extrapolated = jax.tree.map(lambda n_a, n_u: 2 * n_a - n_u, n_a, n_u)
        n_b = _slope(model, t + dt, _sum((c.full, u), (c.slopes[3], extrapolated)), params)
        return _sum((c.full, u), *zip(c.slopes, (n_u, n_a, n_b), strict=False))

    def _fourth(self, model, t, dt, u, params, c):
        n_u = _slope(model, t, u, params)
        a = _sum((c.half, u), (c.half_slope, n_u))
        n_a = _slope(model, t + dt / 2, a, params)
        n_b = _slope(model, t + dt / 2, _sum((c.half, u), (c.half_slope, n_a)), params)
        extrapolated = jax.tree.map(lambda n_b, n_u: 2 * n_b - n_u, n_b, n_u)
        n_c = _slope(model, t + dt, _sum((c.half, a), (c.half_slope, extrapolated)), params)
        middle = jax.tree.map(jnp.add, n_a, n_b)
        return _sum((c.full, u), *zip(c.slopes, (n_u, middle, n_c), strict=True))


def _slope(model, t, state, params):
    """The explicit tendency, from which the states of stages follow by products alone."""
    return stage(model.explicit_rhs(t, state, params))


def _sum(*terms):
    """Sum over (coefficients, state) of their products, leaf by leaf; see `scale_by`."""
    products = [scale_by(coefficients, state) for coefficients, state in terms]
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *products)


# Along the imaginary axis, where advection has its eigenvalues, like the Runge-Kutta methods of the same order;
# order two leans on diffusion.
INTEGRATORS: dict[str, Integrator] = {
    "etdrk1": ExponentialRungeKutta(order=1, courant_limit=1.0),
    "etdrk2": ExponentialRungeKutta(order=2, courant_limit=1.0),
    "etdrk3": ExponentialRungeKutta(order=3, courant_limit=1.7),
    "etdrk4": ExponentialRungeKutta(order=4, courant_limit=2.7),
}
